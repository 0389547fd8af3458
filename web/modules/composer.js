// The box at the bottom where the user writes.

import {element, icon} from './dom.js';
import {PictureInput} from './picture_input.js';

export class Composer {
  #busy = false;
  #blocked = false;

  // `actions`: send(text, pictures) -> whether it was taken, stop(), sentPictures()
  constructor(actions) {
    this.actions = actions;
    this.form = document.getElementById('composer');
    this.area = document.getElementById('composer-text');
    this.button = document.getElementById('send');
    this.input = new PictureInput({area: this.area, sent: actions.sentPictures,
                                   onChange: () => this.#update()});
    this.area.oninput = () => this.#update();
    this.area.onkeydown = (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this.#busy) this.submit();
    };
    this.form.onsubmit = (event) => {
      event.preventDefault();
      if (this.#busy) this.actions.stop();
      else this.submit();
    };
    this.#update();
  }

  submit() {
    const text = this.area.value.trim();
    const {pictures} = this.input;
    if (this.#empty() || this.#blocked || !this.actions.send(text, pictures)) return;
    this.area.value = '';
    this.input.clear();
    this.#update();
  }

  #empty() {
    return this.area.value.trim() === '' && this.input.pictures.length === 0;
  }

  // `busy`: an answer is being written; `blocked`: the server cannot answer now; `seeing`: the model
  // takes pictures.
  setState({busy, blocked, seeing}) {
    this.#busy = busy;
    this.#blocked = blocked;
    this.input.setSeeing(seeing);
    this.#update();
  }

  #update() {
    // Where style sheets cannot size a field by its content, a script does.
    if (!CSS.supports('field-sizing', 'content')) {
      this.area.rows = Math.min(12, Math.max(1, this.area.value.split('\n').length));
    }
    const label = this.#busy ? 'Stop (Esc)' : 'Send';
    this.button.disabled = !this.#busy && (this.#blocked || this.#empty());
    this.button.classList.toggle('stop', this.#busy);
    if (this.button.getAttribute('aria-label') === label) return;
    this.button.setAttribute('aria-label', label);
    this.button.title = label;
    this.button.replaceChildren(icon(this.#busy ? 'stop' : 'send'));
  }

  focus() {
    this.area.focus();
  }
}

// What the page knows of its server: a dot and the model's name above, a bar while it loads.
export class ServerStatus {
  // `onLocked`: the user wants to enter the key.
  constructor(onLocked) {
    this.unlock = element('button', {type: 'button', class: 'plain', onclick: onLocked}, 'Enter the key');
    this.chip = document.getElementById('server');
    this.name = document.getElementById('server-name');
    this.banner = document.getElementById('banner');
  }

  show({state, progress}, model) {
    this.chip.dataset.state = state;
    const words = {ready: model?.id ?? 'ready', loading: 'loading', unreachable: 'not reachable',
                   locked: 'locked', unknown: 'connecting'};
    this.name.textContent = words[state];
    const context = model?.context ? `, context ${model.context} tokens` : '';
    this.chip.title = state === 'ready' ? `Model ${model?.id ?? ''}${context}` : '';
    if (state === 'ready' || state === 'unknown') {
      this.banner.hidden = true;
      this.banner.replaceChildren();
      return;
    }
    const text = {
      loading: progress === null ? 'The model is loading.' :
        `The model is loading: ${Math.round(progress * 100)} %`,
      unreachable: 'The server cannot be reached. The page looks for it every few seconds.',
      locked: 'The server asks for an API key.',
    }[state];
    if (!this.banner.firstChild) this.banner.append(element('span', {}));
    if (this.banner.firstChild.textContent !== text) this.banner.firstChild.textContent = text;
    let bar = this.banner.querySelector('progress');
    if (state === 'loading' && !bar) {
      bar = element('progress', {max: '1', 'aria-label': 'Loading'});
      this.banner.append(bar);
    } else if (state !== 'loading') {
      bar?.remove();
    }
    if (state === 'locked') this.banner.append(this.unlock);
    else this.unlock.remove();
    if (state === 'loading' && progress !== null) bar.value = progress;
    this.banner.hidden = false;
  }
}
