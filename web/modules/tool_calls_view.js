// The tool calls of an answer: what the model asks for, and the place where the user types what the
// tool says.

import {copyText, element, icon, iconButton} from './dom.js';

// JSON with line breaks; as it stands if it is none (yet).
export function prettyArguments(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export class ToolCallsView {
  #shown = '';

  constructor(actions) {
    this.actions = actions;
    this.element = element('div', {class: 'calls'});
  }

  // `open`: the calls may be answered now.
  update(node, {results, open, streaming}) {
    const calls = (node.toolCalls ?? []).filter(Boolean);
    const said = new Map(results.map((result) => [result.toolCallId, result.content]));
    // Rebuilt only when something changes: the user may be typing in it.
    const key = JSON.stringify([calls, [...said], open, streaming]);
    if (key === this.#shown) return;
    this.#shown = key;
    this.element.replaceChildren(...calls.map((call) => this.#call(call, said, open)));
    const waiting = calls.filter((call) => !said.has(call.id));
    if (open && waiting.length) this.#addForm(node, waiting);
  }

  #call(call, said, open) {
    const text = prettyArguments(call.arguments);
    const copy = iconButton('copy', 'Copy the arguments', () => copyText(text, copy));
    const box = element('section', {class: 'call', 'aria-label': `Tool call ${call.name}`},
      element('div', {class: 'call-head'}, icon('tool'), element('span', {class: 'call-kind'}, 'Tool call'),
              element('code', {}, call.name), copy),
      element('pre', {tabindex: '0', 'aria-label': 'Arguments'}, element('code', {}, text)));
    if (said.has(call.id)) {
      box.append(element('details', {class: 'call-result'}, element('summary', {}, 'Result'),
                         element('pre', {tabindex: '0'}, said.get(call.id))));
    } else if (open) {
      const field = `result-${call.id}`;
      box.append(element('div', {class: 'call-answer'},
        element('label', {for: field}, 'Result of the tool'),
        element('textarea', {id: field, rows: '2', 'data-call': call.id, spellcheck: 'false',
                             placeholder: 'What the tool says: JSON or text'})));
    }
    return box;
  }

  #addForm(node, waiting) {
    const fields = [...this.element.querySelectorAll('textarea')];
    const send = () => this.actions.sendResults(
        node, fields.map((field) => ({toolCallId: field.dataset.call, content: field.value})));
    for (const field of fields) {
      field.onkeydown = (event) => {
        if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        const next = fields[fields.indexOf(field) + 1];
        if (next) next.focus();
        else send();
      };
    }
    const label = waiting.length > 1 ? 'Send results' : 'Send result';
    this.element.append(element('div', {class: 'button-row'},
      element('button', {type: 'button', class: 'primary', onclick: send}, label)));
  }
}
