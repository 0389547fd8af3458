// Ways for pictures into the message box: a button, pasting, dropping.

import {announce, toast} from './dom.js';
import {PictureStrip} from './picture_strip.js';
import {acceptedTypes, bytesOf, limits, readPictures} from './pictures.js';
import {plural} from './words.js';

const blind = 'This model cannot see pictures';

export class PictureInput {
  #seeing = true;
  #pasted = 0;

  // `sent()`: the pictures that go along with the next message, because earlier ones hold them.
  constructor({area, sent, onChange}) {
    this.area = area;
    this.sent = sent;
    this.button = document.getElementById('add-picture');
    this.file = document.getElementById('picture-file');
    this.drop = document.getElementById('drop-hint');
    this.strip = new PictureStrip({label: 'Pictures to send', onChange,
                                   returnFocus: () => area.focus()});
    area.before(this.strip.element);
    this.file.accept = acceptedTypes;
    this.button.onclick = () => this.#seeing ? this.file.click() : toast(`${blind}.`);
    this.file.onchange = () => {
      const files = [...this.file.files];
      this.file.value = '';
      this.add(files);
    };
    area.addEventListener('paste', (event) => this.#paste(event));
    this.#connectDrop();
    this.setSeeing(true);
  }

  get pictures() { return this.strip.pictures; }
  clear() { this.strip.pictures = []; }

  // Whether the model takes pictures.
  setSeeing(seeing) {
    this.#seeing = seeing;
    const label = seeing ? 'Add pictures' : blind;
    // Not `disabled`: who tabs here is told why.
    this.button.setAttribute('aria-disabled', String(!seeing));
    this.button.setAttribute('aria-label', seeing ? label : `Add pictures. ${blind}`);
    this.button.title = label;
  }

  async add(files) {
    if (!files.length) return;
    if (!this.#seeing) {
      toast(`${blind}.`);
      return;
    }
    const room = {count: limits.message - this.pictures.length,
                  bytes: limits.conversation - bytesOf(this.pictures) - bytesOf(this.sent())};
    const {pictures, problems} = await readPictures(files, room);
    if (pictures.length) {
      this.strip.pictures = [...this.pictures, ...pictures];
      announce(`Added ${plural(pictures.length, 'picture')}: ${pictures.map(({name}) => name).join(', ')}`);
      this.area.focus();
    }
    if (problems.length) toast(problems.join(' '));
  }

  // Text wins: what is copied from a document often has a picture of itself beside it.
  #paste(event) {
    const {files, types} = event.clipboardData;
    if (!files.length || types.includes('text/plain')) return;
    event.preventDefault();
    this.add([...files].map((file) => file.name && file.name !== 'image.png' ? file :
      new File([file], `Pasted picture ${++this.#pasted}`, {type: file.type})));
  }

  #connectDrop() {
    const holdsFiles = (event) => event.dataTransfer?.types.includes('Files');
    const show = (shown) => { this.drop.hidden = !shown; };
    document.addEventListener('dragover', (event) => {
      if (!holdsFiles(event)) return;
      event.preventDefault();  // or the browser would open the file
      event.dataTransfer.dropEffect = this.#seeing ? 'copy' : 'none';
      show(this.#seeing && !document.querySelector('dialog[open]'));
    });
    document.addEventListener('dragleave', (event) => {
      if (!event.relatedTarget) show(false);
    });
    document.addEventListener('drop', (event) => {
      if (!holdsFiles(event)) return;
      event.preventDefault();
      show(false);
      this.add([...event.dataTransfer.files]);
    });
  }
}
