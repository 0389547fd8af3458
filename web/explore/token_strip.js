// The tokens of a watched text, as a line of text that can be pointed at.

import {element} from '../modules/dom.js';

// What a token looks like: spaces at its ends count, line breaks are drawn, and the letters of
// control tokens are such as every font has.
export const visible = (text) => text.replace(/\n/g, '⏎')
                                     .replace(/｜/g, '|')
                                     .replace(/▁/g, '_')
                                     .replace(/^ | $/g, '\u00a0') ||
    '\u00a0';

// tokens: [{text}]; style(position) -> {classes: [...], heat: 0..1, label}; choose(position) or
// null.
export function tokenStrip(
    tokens, {style = () => ({}), choose = null, current = -1, label = 'Tokens'}) {
  const strip = element('div', {class: 'tokens', role: 'group', 'aria-label': label});
  tokens.forEach((token, position) => {
    const {classes = [], heat = null, label: words = ''} = style(position);
    const title = `${position}: ${token.text.trim() || 'space'}${words ? `, ${words}` : ''}`;
    const made = element(
        choose ? 'button' : 'span', {
          class: ['token', ...classes].join(' '),
          title,
          type: choose ? 'button' : null,
          'aria-pressed': choose ? `${position === current}` : null,
          'aria-label': choose ? title : null
        },
        visible(token.text));
    if (heat !== null)
      made.style.setProperty('--heat', `${Math.round(100 * Math.max(0, Math.min(1, heat)))}%`);
    if (choose) made.onclick = () => choose(position);
    strip.append(made);
  });
  return strip;
}
