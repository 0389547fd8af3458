// "Watch a step": a prompt goes to the server, and what the model did with it is drawn.

import {announce, element} from '../modules/dom.js';
import {explain, unreachable} from '../modules/server.js';
import {recall} from '../modules/storage.js';
import {count, plural} from '../modules/words.js';

import {time} from './figures.js';
import {section} from './parts.js';
import {tokenStrip} from './token_strip.js';
import {stepName, Trace} from './trace.js';
import {mixesOf} from './watch_mix.js';
import {draftsOf, engramOf, expertsOf, picksOf, sinksOf} from './watch_parts.js';
import {timeOf, timesOf} from './watch_time.js';

const example = 'What is the capital of Japan?';
const mostTokens = 64;
const mostAsked = 64;  // texts of single tokens

export class Watch {
  #trace = null;
  #step = 0;
  #row = 0;
  #indexLayer = null;
  #page = null;
  available = null;  // not known yet
  fromFile = document.getElementById('model-data') !== null;

  // `looked`: called with the view of a step when it is drawn.
  constructor(model, looked) {
    this.model = model;
    this.looked = looked;
  }

  #headers() {
    const key = recall('key', '');
    return key ? {Authorization: `Bearer ${key}`} : {};
  }

  // Whether the server lets steps be watched.
  async ask() {
    try {
      const response = this.fromFile ? null : await fetch('/props', {headers: this.#headers()});
      this.available = response?.ok === true && (await response.json()).explore === true;
    } catch {
      this.available = false;
    }
    return this.available;
  }

  async #request(prompt, tokens) {
    let response;
    try {
      response = await fetch('/v1/trace', {
        method: 'POST',
        headers: {'Content-Type': 'application/json', ...this.#headers()},
        body: JSON.stringify({prompt, max_tokens: tokens, raw: this.raw.checked})
      });
    } catch {
      throw unreachable();
    }
    const body = await response.json().catch(() => null);
    if (!response.ok || !body?.steps) {
      const error = explain(response.status, body);
      // The advice for these speaks of the chat page's settings; the server's words say more here.
      if (response.status === 400 || response.status === 422) error.advice = '';
      throw error;
    }
    const trace = new Trace(body);
    await Promise.all(trace.unknown().slice(0, mostAsked).map((id) => this.#askText(trace, id)));
    return trace;
  }

  // Best effort: a token without a text is shown by its number.
  async #askText(trace, id) {
    try {
      const response = await fetch('/detokenize', {
        method: 'POST',
        headers: {'Content-Type': 'application/json', ...this.#headers()},
        body: JSON.stringify({tokens: [id]})
      });
      const body = await response.json();
      if (response.ok) trace.texts.set(id, body.content);
    } catch {
      // Its number says enough.
    }
  }

  // The view; kept, so that going to a part and back loses nothing.
  page() {
    if (!this.available) return this.#instead();
    if (this.#page) return this.#page;
    this.result = element('div', {});
    this.prompt =
        element('textarea', {id: 'watch-prompt', rows: '3', 'aria-describedby': 'watch-help'});
    this.prompt.value = example;
    this.tokens = element(
        'input', {id: 'watch-tokens', inputmode: 'numeric', autocomplete: 'off', value: '8'});
    this.raw = element('input', {type: 'checkbox', id: 'watch-raw'});
    this.start = element('button', {type: 'submit', class: 'primary', id: 'watch-start'}, 'Watch');
    const label = (id, text) => element('label', {'for': id}, text);
    const help = 'A question is asked as in a chat, without thinking. At most 512 tokens.';
    const form = element(
        'form', {class: 'watch-form'},
        element('div', {class: 'field'}, label('watch-prompt', 'Prompt'), this.prompt),
        element(
            'div', {class: 'watch-line'}, label('watch-tokens', 'Tokens to answer'), this.tokens,
            element('label', {class: 'watch-raw'}, this.raw, 'Raw text, no chat'), this.start),
        element('p', {class: 'field-help', id: 'watch-help'}, help));
    form.onsubmit = (event) => {
      event.preventDefault();
      this.#run();
    };
    this.prompt.onkeydown = (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) this.#run();
    };
    this.#page = element(
        'article', {class: 'node watch'},
        element(
            'header', {class: 'node-head'}, element('h1', {tabindex: '-1'}, 'Watch a step'),
            element(
                'p', {class: 'sentence'},
                'Type a prompt and see what the model did with it: experts, picks, gates, drafts, time.')),
        form, this.result);
    return this.#page;
  }

  // Where nothing can be watched: why, and how it can.
  #instead() {
    const page = (...words) => element(
        'article', {class: 'node watch'},
        element(
            'header', {class: 'node-head'}, element('h1', {tabindex: '-1'}, 'Watch a step'),
            element('p', {class: 'sentence'}, ...words)));
    if (this.available === null) return page('Asking the server …');
    const start = element('code', {}, 'cachalot serve -m MODEL --explore');
    return this.fromFile ?
        page('A file holds the model’s structure only. To watch steps, start ', start, '.') :
        page('This server does not let its steps be watched. Start it with ', start, '.');
  }

  // The number of tokens to answer; null, with the reason on the page, if the form is not right.
  #checked() {
    const text = this.tokens.value.trim();
    const tokens = /^\d+$/.test(text) ? Number(text) : 0;
    const wrong = [
      [this.prompt, !this.prompt.value.trim(), 'Type a prompt first.'],
      [
        this.tokens, !(tokens >= 1 && tokens <= mostTokens),
        `Tokens to answer: expected a whole number from 1 to ${mostTokens}, found “${text}”.`
      ]
    ];
    for (const [field, bad] of wrong) field.setAttribute('aria-invalid', `${bad}`);
    const first = wrong.find(([, bad]) => bad);
    if (!first) return tokens;
    this.result.replaceChildren(element('p', {class: 'notice', role: 'alert'}, first[2]));
    first[0].focus();
    return null;
  }

  async #run() {
    const tokens = this.#checked();
    if (tokens === null || this.start.disabled) return;
    this.start.disabled = true;
    this.result.replaceChildren(
        element('p', {class: 'waiting', role: 'status'}, 'The model is at work …'));
    try {
      this.#trace = await this.#request(this.prompt.value, tokens);
      this.#chooseStep(0);
      announce(`${plural(this.#trace.steps.length, 'step')} watched`);
    } catch (error) {
      const words = [error.title, error.message, error.advice].filter(Boolean).join('. ');
      this.result.replaceChildren(element('p', {class: 'notice', role: 'alert'}, words));
    } finally {
      this.start.disabled = false;
    }
  }

  // What is looked at

  #chooseStep(number) {
    this.#step = number;
    this.#row = Math.max(0, this.#trace.steps[number].positions.length - 1);
    this.#draw();
  }

  #choosePosition(at) {
    const number = this.#trace.stepsAt(at).at(-1);
    if (number === undefined) return;
    this.#step = number;
    this.#row = this.#trace.steps[number].positions.indexOf(at);
    this.#draw();
  }

  #view() {
    const step = this.#trace.steps[this.#step];
    const seen = this.#trace.seen(step);
    return {trace: this.#trace, model: this.model, step, row: this.#row, seen};
  }

  #draw() {
    const focused = document.activeElement?.dataset?.keep;
    const view = this.#view();
    this.looked(view);
    const parts =
        [
          ['Drafts', draftsOf(view)],
          ['Experts', expertsOf(view, null)],
          [
            'Picks', picksOf(view, null, this.#indexLayer, (layer) => this.#chooseIndexLayer(layer))
          ],
          ['N-gram memory', engramOf(view, null)],
          ['Attention sinks', sinksOf(view, null)],
          ['Mixing of the copies', mixesOf(view, null)],
          ['Time and memory', timesOf(view)],
        ].filter(([, content]) => content)
            .map(([title, content]) => section(title, content));
    this.result.replaceChildren(element('div', {class: 'watched'}, this.#head(view), ...parts));
    if (focused)
      this.result.querySelector(`[data-keep="${focused}"]`)?.focus({preventScroll: true});
  }

  #chooseIndexLayer(layer) {
    this.#indexLayer = layer;
    this.#draw();
    this.result.querySelector('.small-maps [aria-pressed="true"]')?.focus({preventScroll: true});
  }

  #head(view) {
    const steps = element(
        'div', {class: 'steps', role: 'group', 'aria-label': 'Steps'},
        ...view.trace.steps.map((step, i) => {
          const button = element(
              'button', {
                type: 'button',
                'aria-pressed': `${i === this.#step}`,
                'data-keep': `step-${i}`,
                onclick: () => this.#chooseStep(i)
              },
              element('b', {}, stepName(step)),
              element(
                  'span', {}, `${plural(view.trace.rowsOf(i), 'token')}, ${time(step.seconds)}`));
          return button;
        }));
    const inStep = new Set(view.step.positions);
    const tokens = tokenStrip(view.trace.tokens, {
      label: 'Tokens: choose one',
      current: view.step.positions[view.row],
      choose: (at) => this.#choosePosition(at),
      style: (at) => ({
        classes: [
          at >= view.trace.prompt ? 'generated' : '', inStep.has(at) ? '' : 'outside'
        ].filter(Boolean),
        label: at >= view.trace.prompt ? 'generated' : ''
      })
    });
    const cut = [view.trace.data.truncated, view.step.truncated].filter(Boolean).join('; ');
    const rows = view.trace.rowsOf(this.#step), drawn = view.step.positions.length;
    const shown =
        rows > drawn ? `Of the ${count(rows)} tokens ${count(drawn)} are shown` : 'Shortened';
    return section(
        'Steps and tokens', steps, tokens,
        cut ? element('p', {class: 'note-line'}, `${shown}: ${cut}.`) : null,
        element(
            'p', {class: 'note-line'},
            'Choose a step, or a token to see what happened at it. Generated tokens are underlined.'));
  }

  // What the watched step says about a part, for the part's page.
  about(node) {
    if (!this.#trace || node === this.model.root) return null;
    const view = this.#view();
    const layers = node.layers ?? null;
    const inside = (names) => names.some((name) => (node.operation ?? '').startsWith(name));
    const pictures = [
      timeOf(view, node, layers),
      inside(['route', 'moe']) && layers ? expertsOf(view, layers) : null,
      inside(['index_select']) && layers ?
          picksOf(
              view, layers, this.#indexLayer,
              (layer) => {
                this.#chooseIndexLayer(layer);
                document.getElementById('in-the-step')?.replaceWith(this.about(node));
              }) :
          null,
      inside(['engram']) && layers ? engramOf(view, layers) : null,
      inside(['sparse_attention']) && layers ? sinksOf(view, layers) : null,
      inside(['hyper']) && layers ? mixesOf(view, layers) : null,
    ].filter(Boolean);
    if (!pictures.length) return null;
    const part = section(
        `In the watched step: ${stepName(view.step).toLowerCase()}`, ...pictures,
        element('p', {class: 'note-line'}, element('a', {href: '#/watch'}, 'All of the step')));
    part.id = 'in-the-step';
    return part;
  }
}
