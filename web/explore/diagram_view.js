// The diagram on the page: moves and zooms, shows what the pointer or the keyboard is at.

import {element, iconButton} from '../modules/dom.js';

import {describe, drawArc, drawBlock, drawFlow} from './diagram_draw.js';
import {kinds, layout} from './diagram_layout.js';
import {svg} from './parts.js';

const nearZoom = 1.9;

export class DiagramView {
  #model;
  #view = {x: 0, y: 0, zoom: 1};
  #pointers = new Map();
  #moved = false;
  #chosen = null;  // the node of the page
  #untouched = true;

  constructor(place, model, open) {
    this.#model = model;
    this.open = open;
    this.place = place;
    this.plan = layout(model);
    this.#draw();
    this.#legend();
    this.#connect();
    new ResizeObserver(() => this.#untouched && this.fit()).observe(place);
  }

  #draw() {
    const {blocks, arcs} = this.plan;
    this.arcs = arcs.map((arc) => ({...arc, drawn: drawArc(arc)}));
    this.blocks = blocks.map((block) => ({...block, drawn: drawBlock(this.#model, block)}));
    this.stage =
        svg('g', {}, drawFlow(this.#model, this.plan),
            svg('g', {class: 'arcs'}, ...this.arcs.map((arc) => arc.drawn)),
            ...this.blocks.map((block) => block.drawn));
    this.picture = svg(
        'svg',
        {class: 'stack', role: 'group', 'aria-label': 'The stack of layers, and what they hand on'},
        this.stage);
    const buttons = element(
        'div', {class: 'zoom'}, iconButton('plus', 'Zoom in', () => this.#zoomBy(1.4)),
        iconButton('minus', 'Zoom out', () => this.#zoomBy(1 / 1.4)),
        iconButton('fit', 'Show all', () => this.fit()));
    this.said = element('p', {class: 'diagram-said', 'aria-hidden': 'true'});
    this.place.replaceChildren(this.picture, buttons, this.said);
    this.blocks[0].drawn.setAttribute('tabindex', '0');
    this.say(null);
  }

  #legend() {
    const present = Object.keys(kinds).filter((kind) => this.arcs.some((arc) => arc.kind === kind));
    const buttons = present.map((kind) => {
      const button = element(
          'button', {type: 'button', class: `legend-entry kind-${kind}`, 'aria-pressed': 'true'},
          element('span', {class: 'legend-line', 'aria-hidden': 'true'}), kinds[kind].title);
      button.onclick = () => {
        const on = button.getAttribute('aria-pressed') !== 'true';
        button.setAttribute('aria-pressed', `${on}`);
        this.picture.classList.toggle(`without-${kind}`, !on);
      };
      return button;
    });
    document.getElementById('legend').replaceChildren(...buttons);
  }

  #connect() {
    for (const block of this.blocks) {
      block.drawn.onpointerenter = () => this.say(block);
      block.drawn.onpointerleave = () => this.say(null);
      block.drawn.onfocus = () => this.say(block);
      block.drawn.onblur = () => this.say(null);
      block.drawn.onclick = (event) => {
        const inner = event.target.closest('[data-node]');
        if (!this.#moved)
          this.open(
              inner ? this.#model.nodes.get(inner.dataset.node) : block.node, block.layer?.layer);
      };
    }
    this.picture.onkeydown = (event) => this.#onKey(event);
    this.picture.addEventListener('wheel', (event) => this.#onWheel(event), {passive: false});
    this.picture.onpointerdown = (event) => this.#onDown(event);
    this.picture.onpointermove = (event) => this.#onMove(event);
    this.picture.onpointerup = this.picture.onpointercancel = (event) =>
        this.#pointers.delete(event.pointerId);
  }

  // What the pointer is at, in words and by its arcs; null: what the page shows.
  say(block) {
    const at = block && this.plan.blocks[this.blocks.indexOf(block)];
    const mine = (arc) => arc.from === at || arc.to === at;
    this.picture.classList.toggle('pointing', this.arcs.some(mine));
    for (const arc of this.arcs) arc.drawn.classList.toggle('lit', mine(arc));
    this.said.textContent = block ? describe(this.#model, block) : '';
  }

  // How the time of a watched step was spread: a bar behind each block's name, as long as its
  // share.
  showTimes(trace, step) {
    const seconds = this.blocks.map(
        (block) => block.layer ? trace.secondsOf(step, block.layer.layer) :
                                 trace.costOf(step, block.node.id)?.seconds ?? 0);
    const most = Math.max(...seconds);
    this.blocks.forEach(({drawn, x, y, width, height}, i) => {
      drawn.querySelector('.block-time')?.remove();
      const length = (width - 6) * seconds[i] / most;
      if (!(length > 0)) return;
      drawn.querySelector('.block-back')
          .after(
              svg('rect',
                  {class: 'block-time', x: x + 3, y: y + 1.5, height: height - 3, width: length}));
    });
  }

  show(node) {
    this.#chosen = node;
    const layers = new Set(node === this.#model.root ? [] : node.layers ?? []);
    let first = null;
    for (const block of this.blocks) {
      const on =
          block.layer ? layers.has(block.layer.layer) : this.#model.contains(block.node, node);
      block.drawn.classList.toggle('chosen', on);
      if (on) first ??= block;
    }
    if (!first) return;
    this.#tabTo(first);
    this.#reveal(first);
  }

  #tabTo(block) {
    for (const one of this.blocks) one.drawn.setAttribute('tabindex', one === block ? '0' : '-1');
  }

  focus() {
    this.blocks.find((block) => block.drawn.getAttribute('tabindex') === '0')?.drawn.focus({
      preventScroll: true
    });
  }

  #size() {
    return [this.place.clientWidth, this.place.clientHeight];
  }

  fit() {
    const [wide, high] = this.#size();
    if (!wide || !high) return;
    const {width, height} = this.plan;
    // Small letters nobody can read are worse than a part that has to be moved to.
    const zoom = Math.min(wide / width, Math.max(high / height, Math.min(0.72, wide / width)), 1.6);
    this.#move({zoom, x: (wide - width * zoom) / 2, y: Math.max(0, (high - height * zoom) / 2)});
    this.#untouched = true;
    if (this.#chosen) {
      const block = this.blocks.find((one) => one.drawn.classList.contains('chosen'));
      if (block) this.#reveal(block);
    }
  }

  #move(view) {
    this.#view = {...this.#view, ...view};
    const {x, y, zoom} = this.#view;
    this.stage.setAttribute('transform', `translate(${x} ${y}) scale(${zoom})`);
    this.picture.classList.toggle('near', zoom >= nearZoom);
  }

  #zoomBy(factor, at = null) {
    const [wide, high] = this.#size();
    const {x, y, zoom} = this.#view;
    const focused = this.blocks.find((block) => block.drawn === document.activeElement);
    const [px, py] =
        at ?? [wide / 2, focused ? y + (focused.y + focused.height / 2) * zoom : high / 2];
    const next = Math.min(8, Math.max(0.3, zoom * factor));
    this.#untouched = false;
    this.#move({zoom: next, x: px - (px - x) * next / zoom, y: py - (py - y) * next / zoom});
  }

  // Moves by no more than needed until the block is inside.
  #reveal(block) {
    const high = this.#size()[1];
    if (!high) return;
    const {y, zoom} = this.#view;
    const top = y + block.y * zoom, bottom = top + block.height * zoom, margin = 24;
    if (top < margin)
      this.#move({y: y + margin - top});
    else if (bottom > high - margin)
      this.#move({y: y - (bottom - high + margin)});
  }

  #at(event) {
    const box = this.place.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #onWheel(event) {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) {
      this.#zoomBy(Math.exp(-event.deltaY * (event.deltaMode ? 0.1 : 0.005)), this.#at(event));
      return;
    }
    const step = event.deltaMode ? 20 : 1;
    this.#shift(-event.deltaX * step, -event.deltaY * step);
  }

  // The stack never leaves the pane altogether.
  #shift(dx, dy) {
    const [wide, high] = this.#size();
    const {x, y, zoom} = this.#view;
    const within = (value, size, room) => Math.min(room - 80, Math.max(80 - size, value));
    this.#untouched = false;
    this.#move({
      x: within(x + dx, this.plan.width * zoom, wide),
      y: within(y + dy, this.plan.height * zoom, high)
    });
  }

  #onDown(event) {
    if (event.button !== 0) return;
    if (!this.#pointers.size) this.#moved = false;
    this.#pointers.set(event.pointerId, this.#at(event));
  }

  #onMove(event) {
    const before = this.#pointers.get(event.pointerId);
    if (!before) return;
    const now = this.#at(event);
    const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
    if (!this.#moved && Math.hypot(dx, dy) < 4) return;
    if (!this.#moved) this.picture.setPointerCapture(event.pointerId);
    this.#moved = true;
    if (this.#pointers.size === 2) {
      const [other] =
          [...this.#pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const apart = (at) => Math.max(10, Math.hypot(at[0] - other[0], at[1] - other[1]));
      this.#zoomBy(apart(now) / apart(before), [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2]);
    } else {
      this.#shift(dx, dy);
    }
    this.#pointers.set(event.pointerId, now);
  }

  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.blocks.findIndex((block) => block.drawn === document.activeElement);
    const go = (i) => {
      const block = this.blocks[Math.min(this.blocks.length - 1, Math.max(0, i))];
      this.#tabTo(block);
      this.#reveal(block);
      block.drawn.focus({preventScroll: true});
    };
    const action = {
      ArrowDown: () => go(at + 1),
      ArrowUp: () => go(at - 1),
      Home: () => go(0),
      End: () => go(this.blocks.length - 1),
      Enter: () => this.open(this.blocks[at].node, this.blocks[at].layer?.layer),
      '+': () => this.#zoomBy(1.4),
      '=': () => this.#zoomBy(1.4),
      '-': () => this.#zoomBy(1 / 1.4),
      '0': () => this.fit(),
      ' ': () => this.open(this.blocks[at].node),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }
}
