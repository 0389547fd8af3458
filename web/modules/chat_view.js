// The messages of a conversation, kept in step with its path.

import {pathOf} from './conversation.js';
import {copyText, element, whale} from './dom.js';
import {AssistantView, UserView} from './message_view.js';

const suggestions = [
  'What is the capital of France?',
  'What is 23 * 4?',
  'Tell me a story about Tom the fox, a key and the forest.',
];

export class ChatView {
  #views = new Map();
  #conversation = null;
  #follow = true;

  constructor(actions) {
    this.actions = actions;
    this.scroller = document.getElementById('messages');
    this.list = document.getElementById('message-list');
    this.jump = document.getElementById('jump');
    this.jump.onclick = () => this.scrollToEnd(true);
    this.scroller.addEventListener('scroll', () => this.#noticeScroll(), {passive: true});
    new ResizeObserver(() => { if (this.#follow) this.scrollToEnd(); }).observe(this.list);
    this.list.addEventListener('click', (event) => this.#copyCode(event));
  }

  #noticeScroll() {
    const {scrollTop, scrollHeight, clientHeight} = this.scroller;
    this.#follow = scrollHeight - scrollTop - clientHeight < 60;
    this.jump.hidden = this.#follow;
  }

  #copyCode(event) {
    const button = event.target.closest('.copy-code');
    if (!button) return;
    copyText(button.closest('.code-frame').querySelector('pre').textContent, button);
  }

  scrollToEnd(follow = this.#follow) {
    this.#follow = follow;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.jump.hidden = true;
  }

  // `run`: {node, answer} of the answer being written, or null.
  show(conversation, run) {
    if (conversation !== this.#conversation) {
      this.#conversation = conversation;
      this.#views.clear();
      this.list.replaceChildren();
      this.#follow = true;
    }
    const path = pathOf(conversation);
    const shown = path.filter((node) => node.role !== 'tool');
    this.list.classList.toggle('empty', shown.length === 0);
    if (!shown.length) {
      this.#views.clear();
      this.list.replaceChildren(this.#welcome());
      return;
    }
    const views = shown.map((node) => this.#viewOf(node));
    const wanted = views.map((view) => view.element);
    for (const child of [...this.list.children]) {
      if (!wanted.includes(child)) child.remove();
    }
    for (const [index, child] of wanted.entries()) {
      if (this.list.children[index] !== child) this.list.insertBefore(child, this.list.children[index] ?? null);
    }
    for (const [index, view] of views.entries()) {
      view.update(conversation, {
        answer: run?.node === view.node ? run.answer : null, busy: Boolean(run),
        results: resultsOf(path, view.node), last: index === views.length - 1,
      });
    }
  }

  // While an answer is written, only its own view changes.
  update(conversation, run) {
    if (conversation !== this.#conversation) return;
    this.#views.get(run.node.id)?.update(
        conversation, {answer: run.answer, busy: true, results: [], last: true});
  }

  tick(run) {
    this.#views.get(run.node.id)?.tick(run.answer);
  }

  #viewOf(node) {
    let view = this.#views.get(node.id);
    if (view?.node !== node) {
      view = node.role === 'user' ? new UserView(node, this.actions)
                                  : new AssistantView(node, this.actions);
      this.#views.set(node.id, view);
    }
    return view;
  }

  #welcome() {
    return element('div', {class: 'welcome'}, whale('large'), element('h2', {}, 'What would you like to know?'),
      element('div', {class: 'suggestions'}, ...suggestions.map((text) =>
        element('button', {type: 'button', class: 'suggestion',
                           onclick: () => this.actions.send(text)}, text))));
  }
}

function resultsOf(path, node) {
  const results = [];
  for (let at = path.indexOf(node) + 1; path[at]?.role === 'tool'; ++at) results.push(path[at]);
  return results;
}
