// One message on the page. `actions` are the caller's: edit, regenerate, showVersion, continueAnswer,
// sendResults, openSettings.

import {versionsOf} from './conversation.js';
import {copyText, element, icon, iconButton} from './dom.js';
import {MarkdownView} from './markdown.js';
import {pictureElement, PictureStrip} from './picture_strip.js';
import {ToolCallsView} from './tool_calls_view.js';
import {count, plural, rate, seconds} from './words.js';

export class UserView {
  constructor(node, actions) {
    this.node = node;
    this.actions = actions;
    this.pictures = node.pictures?.length ?
      element('div', {class: 'user-pictures'}, ...node.pictures.map(pictureElement)) : null;
    this.text = element('div', {class: 'user-text', hidden: !node.content}, node.content);
    this.tools = element('div', {class: 'message-tools'});
    this.element = element('article', {class: 'message user', 'aria-label': 'You', 'data-node': node.id},
                           this.pictures, this.text, this.tools);
  }

  update(conversation, {busy}) {
    const copy = iconButton('copy', 'Copy your message', () => copyText(this.node.content, copy));
    const edit = iconButton('edit', 'Edit your message', () => this.#edit(), {disabled: busy});
    this.tools.replaceChildren(...versionButtons(conversation, this.node, this.actions, busy),
                               ...(this.node.content ? [copy] : []), edit);
  }

  #edit() {
    const area = element('textarea', {class: 'edit-text', 'aria-label': 'Your message', rows: '3'});
    area.value = this.node.content;
    const strip = new PictureStrip({label: 'Pictures of your message',
                                    returnFocus: () => area.focus()});
    strip.pictures = this.node.pictures ?? [];
    const close = () => {
      form.replaceWith(this.text);
      if (this.pictures) this.pictures.hidden = false;
      this.tools.hidden = false;
      this.tools.querySelector('[aria-label="Edit your message"]')?.focus();
    };
    const form = element('form', {class: 'edit-form'}, strip.element, area,
      element('div', {class: 'button-row'},
        element('button', {type: 'button', class: 'plain', onclick: close}, 'Cancel'),
        element('button', {type: 'submit', class: 'primary'}, 'Send')));
    form.onsubmit = (event) => {
      event.preventDefault();
      const content = area.value.trim();
      if (content || strip.pictures.length) this.actions.edit(this.node, content, strip.pictures);
    };
    area.onkeydown = (event) => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      } else if (event.key === 'Escape') {
        event.stopPropagation();
        close();
      }
    };
    this.text.replaceWith(form);
    if (this.pictures) this.pictures.hidden = true;
    this.tools.hidden = true;
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}

export class AssistantView {
  #shownReasoning = null;
  #shownContent = null;

  constructor(node, actions) {
    this.node = node;
    this.actions = actions;
    this.waiting = element('div', {class: 'waiting'});
    this.summary = element('span', {});
    this.reasoning = element('div', {class: 'reasoning-text'});
    this.thinking = element('details', {class: 'thinking', hidden: true},
      element('summary', {}, icon('spark'), this.summary, icon('chevronRight')), this.reasoning);
    this.content = element('div', {class: 'markdown'});
    this.markdown = new MarkdownView(this.content);
    this.calls = new ToolCallsView(actions);
    this.problem = element('div', {class: 'problem-place'});
    this.tools = element('div', {class: 'message-tools'});
    this.element = element('article',
      {class: 'message assistant', 'aria-label': 'Answer', 'data-node': node.id},
      this.thinking, this.content, this.calls.element, this.waiting, this.problem, this.tools);
  }

  // `answer`: the run that writes this node (answer.js), or null. `results`: the tool nodes below.
  update(conversation, {answer, results, last, busy}) {
    const node = this.node;
    this.element.setAttribute('aria-busy', String(Boolean(answer)));
    this.element.classList.toggle('streaming', Boolean(answer));
    this.#updateReasoning(answer);
    if (node.content !== this.#shownContent) {
      this.#shownContent = node.content;
      this.markdown.show(node.content);
    }
    this.calls.update(node, {results, open: last && !busy, streaming: Boolean(answer)});
    this.#updateWaiting(answer);
    this.problem.replaceChildren(...this.#problems(last && !busy));
    this.tools.hidden = Boolean(answer);
    if (!answer) this.#updateTools(conversation, {last, busy});
  }

  // Several times a second while it is written: what time alone changes.
  tick(answer) {
    this.#updateSummary(answer);
    this.#updateWaiting(answer);
  }

  #updateReasoning(answer) {
    const text = this.node.reasoning ?? '';
    this.thinking.hidden = text === '';
    if (text !== this.#shownReasoning) {
      this.#shownReasoning = text;
      // Appending keeps what the reader has selected.
      const shown = this.reasoning.textContent;
      if (shown && text.startsWith(shown)) this.reasoning.append(text.slice(shown.length));
      else this.reasoning.textContent = text;
    }
    this.thinking.classList.toggle('active', Boolean(answer?.reasoning));
    this.#updateSummary(answer);
  }

  #updateSummary(answer) {
    const spent = answer ? answer.reasoningSeconds(performance.now())
                         : this.node.stats?.reasoningSeconds;
    const text = answer?.reasoning ? `Thinking… ${seconds(spent)}`
      : spent >= 0 ? `Thought for ${seconds(spent)}` : 'Thoughts';
    if (this.summary.textContent !== text) this.summary.textContent = text;
  }

  #updateWaiting(answer) {
    this.waiting.hidden = !answer;
    if (!answer) return;
    const elapsed = seconds(answer.elapsed(performance.now()));
    const {progress} = answer;
    if (!answer.waiting) {
      this.waiting.replaceChildren(statsLine(this.node.stats, elapsed));
      return;
    }
    const reading = progress && progress.done < progress.total;
    const text = reading
      ? `Reading the prompt: ${count(progress.done)} of ${count(progress.total)} tokens · ${elapsed}`
      : `Waiting for the first word · ${elapsed}`;
    if (!this.waiting.querySelector('.spinner')) {
      this.waiting.replaceChildren(element('span', {class: 'spinner', 'aria-hidden': 'true'}),
                                   element('span', {class: 'waiting-text'}));
    }
    this.waiting.querySelector('.waiting-text').textContent = text;
    let bar = this.waiting.querySelector('progress');
    if (reading && !bar) {
      bar = element('progress', {'aria-label': 'Prompt read'});
      this.waiting.append(bar);
    }
    if (bar) {
      bar.max = progress.total;
      bar.value = progress.done;
    }
  }

  #problems(canAct) {
    const {node} = this;
    const {error} = node;
    const button = (label, onclick, kind = 'plain') =>
        element('button', {type: 'button', class: kind, onclick, disabled: !canAct}, label);
    const resumable = canAct && node.content && !node.toolCalls?.length;
    const resume = resumable ? button('Continue', () => this.actions.continueAnswer(node)) : null;
    if (error) {
      const settings = error.status === 401 || error.status === 403
        ? button('Enter the API key', () => this.actions.openSettings('api-key'), 'primary')
        : error.status === 400 || error.status === 422
          ? button('Open settings', () => this.actions.openSettings()) : null;
      return [element('div', {class: 'problem'}, icon('alert'),
        element('div', {class: 'problem-text'}, element('strong', {}, error.title),
          error.message ? element('p', {class: 'problem-said'}, error.message) : null,
          element('p', {}, error.advice),
          element('div', {class: 'button-row'}, settings,
            button('Try again', () => this.actions.regenerate(node)), resume)))];
    }
    const notes = {
      length: 'The answer reached its longest length.',
      stopped: 'You stopped this answer.',
      cancelled: 'This answer was stopped.',
      deadline: 'The time for this answer was up.',
      content_filter: 'The answer was cut off.',
      '': 'The page was closed while this answer was written.',
    };
    const streaming = this.element.classList.contains('streaming');
    const note = streaming ? null : notes[node.finish];
    if (note) return [element('div', {class: 'note'}, element('span', {}, note), resume)];
    const empty = !streaming && !node.content && !node.toolCalls?.length;
    return empty ? [element('div', {class: 'note'}, 'The answer is empty.')] : [];
  }

  #updateTools(conversation, {last, busy}) {
    const copy = iconButton('copy', 'Copy the answer', () => copyText(this.node.content, copy),
                            {hidden: !this.node.content});
    const again = iconButton('refresh', 'Ask again', () => this.actions.regenerate(this.node),
                             {disabled: busy});
    this.tools.replaceChildren(
      ...versionButtons(conversation, this.node, this.actions, busy), copy, again,
      statsLine(this.node.stats, null));
    this.tools.classList.toggle('always', last);
  }
}

function versionButtons(conversation, node, actions, busy) {
  const versions = versionsOf(conversation, node);
  if (versions.length < 2) return [];
  const at = versions.indexOf(node);
  const go = (index) => actions.showVersion(versions[index].id);
  return [
    iconButton('chevronLeft', 'Earlier version', () => go(at - 1), {disabled: busy || at === 0}),
    element('span', {class: 'version', 'aria-label': `Version ${at + 1} of ${versions.length}`},
            `${at + 1}/${versions.length}`),
    iconButton('chevronRight', 'Later version', () => go(at + 1),
               {disabled: busy || at === versions.length - 1}),
  ];
}

// Speed and tokens; `elapsed`: the time so far, in words.
function statsLine(stats = {}, elapsed) {
  const parts = [];
  const about = stats.estimated ? '≈ ' : '';
  if (stats.tokensPerSecond > 0) parts.push(about + rate(stats.tokensPerSecond));
  if (stats.completionTokens > 0) parts.push(`${about}${plural(stats.completionTokens, 'token')}`);
  if (stats.promptTokens > 0) {
    const cached = stats.cachedTokens > 0 ? ` (${count(stats.cachedTokens)} cached)` : '';
    parts.push(`prompt ${count(stats.promptTokens)}${cached}`);
  }
  if (elapsed) parts.push(elapsed);
  else if (stats.seconds > 0 && stats.completionTokens > 0) parts.push(seconds(stats.seconds));
  const details = [];
  if (stats.reasoningTokens > 0) details.push(`${count(stats.reasoningTokens)} tokens of thinking`);
  if (stats.promptSeconds > 0) details.push(`prompt read in ${seconds(stats.promptSeconds)}`);
  return element('span', {class: 'stats', title: details.join(', ') || null}, parts.join(' · '));
}
