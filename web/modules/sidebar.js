// The list of conversations: groups by age, a filter, renaming and deleting in place.
//
// Keys in the list: up, down, Home, End move; Enter opens; F2 renames; Delete deletes.

import {element, iconButton} from './dom.js';
import {age} from './words.js';

export class Sidebar {
  #focused = null;  // id of the entry that Tab reaches

  // `actions`: open(id), rename(id, title), remove(id)
  constructor(actions) {
    this.actions = actions;
    this.list = document.getElementById('conversation-list');
    this.filter = document.getElementById('conversation-filter');
    this.filter.oninput = () => this.show(this.conversations, this.current, this.running);
    this.list.addEventListener('keydown', (event) => this.#onKey(event));
    this.conversations = [];
  }

  show(conversations, current, running) {
    Object.assign(this, {conversations, current, running});
    // A rebuild must not take the field away that the user types in, nor the focus.
    if (this.list.querySelector('.rename')) return;
    const focused = this.list.contains(document.activeElement)
      ? document.activeElement.closest('[data-id]')?.dataset.id : null;
    const wanted = this.filter.value.trim().toLowerCase();
    const matches = conversations
        .filter((one) => !wanted || this.#mentions(one, wanted))
        .sort((a, b) => b.updated - a.updated);
    this.#focused = matches.find((one) => one.id === (focused ?? current))?.id ?? matches[0]?.id;
    const groups = [];
    for (const one of matches) {
      const title = age(one.updated);
      if (groups.at(-1)?.title !== title) groups.push({title, entries: []});
      groups.at(-1).entries.push(this.#entry(one));
    }
    this.list.replaceChildren(...groups.map(({title, entries}) => element('section', {},
      element('h3', {}, title), element('ul', {role: 'list'}, ...entries))));
    if (!matches.length) {
      this.list.append(element('p', {class: 'list-empty'},
                               wanted ? 'No conversation mentions this.' : 'No conversations yet.'));
    }
    if (focused) this.#entryOf(this.#focused)?.querySelector('.open').focus();
  }

  #mentions(conversation, wanted) {
    return conversation.title.toLowerCase().includes(wanted) ||
        Object.values(conversation.nodes).some((node) => node.content.toLowerCase().includes(wanted));
  }

  #entry(conversation) {
    const {id} = conversation;
    const title = conversation.title || 'New conversation';
    const isCurrent = id === this.current;
    const tab = id === this.#focused ? '0' : '-1';
    const open = element('button', {type: 'button', class: 'open', tabindex: tab, title,
      'aria-current': isCurrent ? 'true' : null, 'aria-keyshortcuts': 'F2 Delete',
      onclick: () => this.actions.open(id)}, element('span', {class: 'entry-title'}, title));
    if (this.running.has(id)) {
      open.append(element('span', {class: 'spinner', role: 'img', 'aria-label': 'writing'}));
    }
    const tools = {tabindex: isCurrent ? '0' : '-1'};
    return element('li', {'data-id': id, class: isCurrent ? 'current' : null}, open,
      element('span', {class: 'entry-tools'},
        iconButton('edit', `Rename ${title}`, () => this.rename(id), tools),
        iconButton('trash', `Delete ${title}`, () => this.actions.remove(id), tools)));
  }

  #entryOf(id) {
    return [...this.list.querySelectorAll('[data-id]')].find((entry) => entry.dataset.id === id);
  }

  rename(id) {
    const entry = this.#entryOf(id);
    const conversation = this.conversations.find((one) => one.id === id);
    if (!entry || !conversation) return;
    const field = element('input', {class: 'rename', 'aria-label': 'Title', maxlength: '200'});
    field.value = conversation.title;
    let closed = false;
    const close = (keep) => {
      if (closed) return;
      closed = true;
      const title = field.value.trim();
      field.remove();
      if (keep && title && title !== conversation.title) this.actions.rename(id, title);
      else this.show(this.conversations, this.current, this.running);
      this.#entryOf(id)?.querySelector('.open').focus();
    };
    field.onblur = () => close(true);
    field.onkeydown = (event) => {
      event.stopPropagation();
      if (event.key === 'Enter') close(true);
      if (event.key === 'Escape') close(false);
    };
    entry.prepend(field);
    field.focus();
    field.select();
  }

  #onKey(event) {
    const entry = event.target.closest('[data-id]');
    if (!entry || event.ctrlKey || event.metaKey || event.altKey) return;
    const entries = [...this.list.querySelectorAll('[data-id]')];
    const at = entries.indexOf(entry);
    const target = {ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: entries.length - 1}[event.key];
    if (target !== undefined) {
      event.preventDefault();
      const next = entries[Math.min(Math.max(target, 0), entries.length - 1)];
      this.#focused = next.dataset.id;
      for (const one of entries) one.querySelector('.open').tabIndex = one === next ? 0 : -1;
      next.querySelector('.open').focus();
    } else if (event.key === 'F2') {
      event.preventDefault();
      this.rename(entry.dataset.id);
    } else if (event.key === 'Delete') {
      event.preventDefault();
      const next = entries[at + 1] ?? entries[at - 1];
      this.actions.remove(entry.dataset.id);
      const id = next?.dataset.id;
      (id && this.#entryOf(id) ? this.#entryOf(id).querySelector('.open') : this.filter).focus();
    }
  }
}
