// The tree of parts: one tab stop, arrows inside, as trees are expected to work.

import {element} from '../modules/dom.js';
import {count} from '../modules/words.js';

import {parameters} from './figures.js';

export class TreeView {
  #model;
  #items = new Map();  // node -> its li
  #current = null;

  constructor(place, model, open) {
    this.#model = model;
    this.open = open;
    this.list = element('ul', {class: 'tree', role: 'tree', 'aria-label': 'Parts of the model'});
    this.list.append(this.#item(model.root, 1));
    this.list.onkeydown = (event) => this.#onKey(event);
    place.replaceChildren(this.list);
  }

  #item(node, level) {
    const terms = this.#model.untoldTerms(node);
    const row = element(
        'span', {class: 'tree-row'}, element('span', {class: 'twist', 'aria-hidden': 'true'}),
        element('span', {class: 'tree-title'}, node.title),
        terms.length ?
            element('span', {class: 'times'}, `×${terms.map((term) => count(term.n)).join('×')}`) :
            null,
        element(
            'span', {class: 'tree-size'},
            node.parameters.total ? parameters(node.parameters.total) : ''));
    const item = element(
        'li',
        {role: 'treeitem', tabindex: '-1', 'aria-level': `${level}`, 'aria-selected': 'false'},
        row);
    item.node = node;
    row.onclick = (event) => {
      if (event.target.classList.contains('twist') && node.children.length)
        this.#expand(item, !this.#expanded(item));
      else
        this.open(node);
    };
    if (node.children.length) {
      item.setAttribute('aria-expanded', 'false');
      row.classList.add('inner');
    }
    this.#items.set(node, item);
    return item;
  }

  #expanded(item) { return item.getAttribute('aria-expanded') === 'true'; }

  #expand(item, on) {
    if (!item.hasAttribute('aria-expanded')) return;
    item.setAttribute('aria-expanded', `${on}`);
    if (!on || item.querySelector('ul')) return;
    const level = Number(item.getAttribute('aria-level')) + 1;
    item.append(element(
        'ul', {role: 'group'}, ...item.node.children.map((child) => this.#item(child, level))));
  }

  // Marks the node and opens the way to it.
  show(node) {
    for (const outer of this.#model.path(node)) this.#expand(this.#items.get(outer), true);
    const item = this.#items.get(node);
    for (const old of this.list.querySelectorAll('[tabindex="0"]')) {
      old.tabIndex = -1;
      old.setAttribute('aria-selected', 'false');
    }
    item.tabIndex = 0;
    item.setAttribute('aria-selected', 'true');
    this.#current = item;
    if (this.list.contains(document.activeElement)) item.focus({preventScroll: true});
    if (item.checkVisibility()) item.firstChild.scrollIntoView({block: 'nearest'});
  }

  focus() { this.#current?.focus(); }

  #visible() {
    return [...this.list.querySelectorAll('[role="treeitem"]')].filter(
        (item) => !item.parentElement.closest('[aria-expanded="false"]'));
  }

  #onKey(event) {
    const item = event.target.closest('[role="treeitem"]');
    if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = this.#visible();
    const at = all.indexOf(item);
    const to =
        {ArrowDown: all[at + 1], ArrowUp: all[at - 1], Home: all[0], End: all.at(-1)}[event.key];
    if (event.key === 'ArrowRight' && !this.#expanded(item) && item.node.children.length) {
      this.#expand(item, true);
    } else if (event.key === 'ArrowRight' && item.node.children.length) {
      this.open(item.node.children[0]);
    } else if (event.key === 'ArrowLeft' && this.#expanded(item)) {
      this.#expand(item, false);
    } else if (event.key === 'ArrowLeft') {
      const parent = this.#model.parent(item.node);
      if (parent) this.open(parent);
    } else if (to) {
      this.open(to.node);
    } else if (event.key !== 'Enter' && event.key !== ' ') {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
