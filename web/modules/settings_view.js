// The panel of settings and the little panel of thinking in the composer.

import {effortName, namedEfforts, numbers, readNumber, readTools} from './settings.js';
import {plural} from './words.js';

const byId = (id) => document.getElementById(id);

const exampleTools = JSON.stringify([{
  type: 'function',
  function: {
    name: 'get_weather', description: 'Get the current weather of a city',
    parameters: {type: 'object', properties: {city: {type: 'string'}}, required: ['city']},
  },
}], null, 2);

export class SettingsView {
  #settings = null;

  // `onChange(settings)` after each change that is valid; `onKey(key)` for the API key.
  constructor({onChange, onKey}) {
    this.onChange = onChange;
    this.panel = byId('settings');
    byId('settings-open').onclick = () => this.toggle(this.panel.hidden);
    byId('settings-close').onclick = () => this.toggle(false);
    byId('system').oninput = (event) => this.#set('system', event.target.value);
    byId('tools').oninput = (event) => this.#setTools(event.target.value);
    byId('tools-example').onclick = () => {
      byId('tools').value = exampleTools;
      this.#setTools(exampleTools);
    };
    for (const name of Object.keys(numbers)) {
      byId(name).oninput = (event) => this.#setNumber(name, event.target.value);
    }
    byId('settings-reset').onclick = () => this.#reset();
    const key = byId('api-key');
    key.onchange = () => onKey(key.value.trim());
    byId('key-form').onsubmit = (event) => {
      event.preventDefault();
      onKey(key.value.trim());
    };
    this.#wireThinking();
  }

  #wireThinking() {
    const chip = byId('thinking-chip');
    chip.onclick = () => this.toggleThinking(byId('thinking-panel').hidden);
    byId('tools-chip').onclick = () => {
      this.toggle(true);
      byId('tools').focus();
    };
    byId('thinking-on').onchange = (event) => this.#set('thinking', event.target.checked);
    byId('effort').oninput = (event) => this.#set('effort', Number(event.target.value));
    for (const button of byId('effort-names').querySelectorAll('button')) {
      button.onclick = () => this.#set('effort', namedEfforts[button.dataset.effort]);
    }
    document.addEventListener('click', (event) => {
      if (!event.target.closest('#thinking-panel, #thinking-chip')) this.toggleThinking(false);
    });
  }

  toggle(open) {
    this.panel.hidden = !open;
    byId('settings-open').setAttribute('aria-expanded', String(open));
    document.body.classList.toggle('settings-shown', open);
    if (open) byId('settings-title').focus();
    else byId('settings-open').focus();
  }

  toggleThinking(open) {
    const panel = byId('thinking-panel');
    if (panel.hidden === !open) return;
    panel.hidden = !open;
    byId('thinking-chip').setAttribute('aria-expanded', String(open));
    if (open) byId('thinking-on').focus();
    else if (panel.contains(document.activeElement)) byId('thinking-chip').focus();
  }

  // Opens the panel at a field.
  openAt(id) {
    this.toggle(true);
    if (id) byId(id).focus();
  }

  // Closes what is open; false if nothing was.
  closeOne() {
    if (!byId('thinking-panel').hidden) {
      this.toggleThinking(false);
      byId('thinking-chip').focus();
      return true;
    }
    if (this.panel.hidden) return false;
    this.toggle(false);
    return true;
  }

  show(settings) {
    this.#settings = {...settings};
    byId('system').value = settings.system;
    byId('tools').value = settings.tools;
    for (const name of Object.keys(numbers)) {
      byId(name).value = settings[name] ?? '';
      this.#complain(name, '');
    }
    this.#complain('tools', readTools(settings.tools).error ?? '');
    this.#showThinking();
  }

  #showThinking() {
    const {thinking, effort, tools} = this.#settings;
    byId('thinking-on').checked = thinking;
    byId('effort').value = effort;
    byId('effort').disabled = !thinking;
    byId('effort').setAttribute('aria-valuetext', effortName(effort) ?? String(effort));
    byId('effort-value').textContent = effort;
    for (const button of byId('effort-names').querySelectorAll('button')) {
      button.disabled = !thinking;
      button.setAttribute('aria-pressed', String(namedEfforts[button.dataset.effort] === effort));
    }
    const name = effortName(effort);
    const shown = name ? name[0].toUpperCase() + name.slice(1) : String(effort);
    byId('thinking-label').textContent = thinking ? `Thinking: ${shown}` : 'Thinking: off';
    byId('thinking-chip').classList.toggle('on', thinking);
    const known = readTools(tools).tools?.length ?? 0;
    byId('tools-chip').hidden = known === 0;
    byId('tools-label').textContent = plural(known, 'tool');
  }

  #set(name, value) {
    this.#settings[name] = value;
    this.#showThinking();
    this.onChange({...this.#settings});
  }

  #setNumber(name, text) {
    const {value, error} = readNumber(name, text);
    this.#complain(name, error ?? '');
    if (!error) this.#set(name, value);
  }

  #setTools(text) {
    this.#complain('tools', readTools(text).error ?? '');
    this.#set('tools', text);
  }

  #complain(name, error) {
    const place = byId(`${name}-error`);
    place.textContent = error;
    byId(name).setAttribute('aria-invalid', String(error !== ''));
  }

  #reset() {
    for (const name of Object.keys(numbers)) {
      byId(name).value = '';
      this.#setNumber(name, '');
    }
  }

  showKey(key) {
    byId('api-key').value = key;
  }
}
