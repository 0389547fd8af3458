// The search field: a combobox over titles, tensors, configuration keys and operations.

import {announce, element} from '../modules/dom.js';
import {plural} from '../modules/words.js';

import {layersNamed} from './figures.js';

export class Search {
  #chosen = -1;
  #found = [];

  constructor(model, open) {
    this.model = model;
    this.open = open;
    this.field = document.getElementById('search');
    this.list = document.getElementById('search-results');
    this.field.oninput = () => this.#update();
    this.field.onfocus = () => this.#update();
    this.field.onkeydown = (event) => this.#onKey(event);
    document.addEventListener('pointerdown', (event) => {
      if (!event.target.closest('.search')) this.#show(false);
    });
    this.field.onblur = () => this.#show(false);
  }

  focus() {
    this.field.focus();
    this.field.select();
  }

  #update() {
    this.#found = this.model.search(this.field.value);
    this.#chosen = this.#found.length ? 0 : -1;
    const items = this.#found.map((hit, i) => this.#item(hit, i));
    const wanted = this.field.value.trim();
    this.list.replaceChildren(...items);
    if (wanted && !items.length) {
      this.list.append(element(
          'li', {class: 'none', role: 'option', 'aria-disabled': 'true', 'aria-selected': 'false'},
          'Nothing is called that.'));
    }
    this.#show(wanted !== '');
    this.#mark();
    if (wanted) announce(plural(items.length, 'part'));
  }

  #item(hit, i) {
    const path = this.model.path(hit.node).slice(1, -1).map((one) => one.title).join(' › ');
    const layers = hit.node.layers?.length ? layersNamed(hit.node.layers) : '';
    const item = element(
        'li', {role: 'option', id: `found-${i}`},
        element(
            'span', {class: 'found-title'}, hit.node.title,
            element('span', {class: 'soft'}, layers)),
        element('span', {class: 'found-why'}, hit.why || path));
    // Before the field loses the focus.
    item.onpointerdown = (event) => {
      event.preventDefault();
      this.#take(i);
    };
    return item;
  }

  #show(on) {
    this.list.hidden = !on;
    this.field.setAttribute('aria-expanded', `${on}`);
    if (!on) this.field.removeAttribute('aria-activedescendant');
  }

  #mark() {
    [...this.list.children].forEach(
        (item, i) => item.setAttribute('aria-selected', `${i === this.#chosen}`));
    const item = this.list.children[this.#chosen];
    if (this.#chosen < 0 || !item) return;
    this.field.setAttribute('aria-activedescendant', item.id);
    item.scrollIntoView({block: 'nearest'});
  }

  #take(i) {
    const hit = this.#found[i];
    if (!hit) return;
    this.#show(false);
    this.field.value = '';
    this.open(hit.node, {focus: true});
  }

  #onKey(event) {
    const count = this.#found.length;
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      if (count)
        this.#chosen = (this.#chosen + (event.key === 'ArrowDown' ? 1 : count - 1)) % count;
      this.#mark();
    } else if (event.key === 'Enter') {
      this.#take(this.#chosen);
    } else if (event.key === 'Escape') {
      this.field.value = '';
      this.#update();
      this.field.blur();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
