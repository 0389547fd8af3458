// Light, dark, or as the system has it. /theme.js applies the choice before the first paint.

import {announce, icon} from './dom.js';
import {recall, remember} from './storage.js';

const themes = ['system', 'light', 'dark'];
const icons = {system: 'system', light: 'sun', dark: 'moon'};
const words = {system: 'as the system', light: 'light', dark: 'dark'};

export function connectTheme() {
  const button = document.getElementById('theme');
  const show = (theme) => {
    if (theme === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    const label = `Colours: ${words[theme]}`;
    button.replaceChildren(icon(icons[theme]));
    button.setAttribute('aria-label', `${label}. Change`);
    button.title = label;
  };
  let theme = themes.includes(recall('theme')) ? recall('theme') : 'system';
  show(theme);
  button.onclick = () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    remember('theme', theme === 'system' ? null : theme);
    show(theme);
    announce(`Colours: ${words[theme]}`);
  };
}
