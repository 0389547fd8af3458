// Pictures as elements: shown, and with a button each to take them away again.

import {announce, element, iconButton} from './dom.js';

export function pictureElement({url, name}) {
  return element('img', {src: url, alt: name, title: name});
}

// Pictures that may be taken away again, each with its button.
export class PictureStrip {
  #pictures = [];

  // `onChange`: the pictures are others now; `returnFocus`: the last one is gone.
  constructor({label, onChange, returnFocus}) {
    this.onChange = onChange;
    this.returnFocus = returnFocus;
    this.element = element('ul', {class: 'picture-strip', 'aria-label': label, hidden: true});
  }

  get pictures() { return this.#pictures; }

  set pictures(pictures) {
    this.#pictures = pictures;
    this.element.hidden = pictures.length === 0;
    this.element.replaceChildren(...pictures.map((picture) => element('li', {},
      pictureElement(picture),
      iconButton('close', `Remove ${picture.name}`, () => this.#remove(picture)))));
    this.onChange?.();
  }

  #remove(picture) {
    const index = this.#pictures.indexOf(picture);
    this.pictures = this.#pictures.filter((other) => other !== picture);
    announce(`Removed ${picture.name}`);
    const buttons = this.element.querySelectorAll('button');
    if (buttons.length) buttons[Math.min(index, buttons.length - 1)].focus();
    else this.returnFocus();
  }
}
