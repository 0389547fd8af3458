// Draws the diagram's blocks and arcs.

import {kinds, middle, roleOf} from './diagram_layout.js';
import {svg} from './parts.js';

const clipped = (text, most) => text.length > most ? `${text.slice(0, most - 1).trimEnd()}…` : text;

function dots(model, block) {
  return Object.entries(kinds).map(([kind, {side, shift}]) => {
    const role = roleOf(model, kind, block.layer.layer);
    return role && svg('circle', {
             class: `dot-${role} kind-${kind}`,
             r: role === 'source' ? 3 : 1.7,
             cx: side === 'left' ? block.x : block.x + block.width,
             cy: middle(block) + shift
           });
  });
}

// What is inside a layer, seen from near.
function inside(block) {
  const parts = block.node.children;
  const left = block.x + 28, wide = (block.width - 34) / Math.max(1, parts.length);
  return svg(
      'g', {class: 'row-inside'},
      ...parts.map(
          (part, i) =>
              svg('g', {class: 'inner', 'data-node': part.id}, svg('rect', {
                    x: left + i * wide + 1,
                    y: block.y + 2.5,
                    width: wide - 2,
                    height: block.height - 5,
                    rx: 2
                  }),
                  svg('text', {x: left + (i + 0.5) * wide, y: middle(block) + 1.4},
                      clipped(part.title, Math.floor(wide / 2.1))))));
}

function tagsOf(model, layer) {
  return [layer.engram ? 'n-grams' : '', model.taps.includes(layer.layer) ? 'tap' : '']
      .filter(Boolean)
      .join(', ');
}

// One of "5 reusing layers" is a reusing layer; its number stands before it.
function rowTitle(title) {
  const one = title.replace(/^\d+ /, '').replace(/ \d+$/, '').replace(/(layer|stage)s$/, '$1');
  return one[0].toUpperCase() + one.slice(1);
}

export function describe(model, block) {
  if (!block.layer) return block.node.title;
  const {layer} = block.layer;
  const words = [`Layer ${layer}: ${rowTitle(block.node.title)}`];
  for (const [kind, {title}] of Object.entries(kinds)) {
    const made = model.handoffs.filter((one) => one.kind === kind && one.source === layer)
                     .flatMap((one) => one.consumers)
                     .filter((one) => one !== layer);
    const used = model.handoffs.filter(
        (one) => one.kind === kind && one.source !== layer && one.consumers.includes(layer));
    if (made.length) words.push(`${title} for ${made.length} layer${made.length === 1 ? '' : 's'}`);
    if (used.length) words.push(`${title} of layer ${used[0].source}`);
  }
  if (block.layer.engram) words.push('n-gram memory');
  if (model.taps.includes(layer)) words.push('seen by the draft head');
  return words.join(' · ');
}

export function drawBlock(model, block) {
  const {node, x, y, width, height} = block;
  const group =
      svg('g', {
        class: block.layer ? 'block row' :
            block.small    ? 'block box small' :
                             'block box',
        role: 'button',
        tabindex: '-1',
        'aria-label': describe(model, block)
      },
          svg('rect',
              {class: 'block-back', x, y, width, height, rx: block.layer || block.small ? 4 : 7}));
  if (!block.layer) {
    group.append(
        svg('text',
            {class: 'box-title', x: x + width / 2, y: middle(block) + (block.small ? 3.9 : 4.5)},
            clipped(node.title.replace(/: .*/, ''), 32)));
    return group;
  }
  const tags = tagsOf(model, block.layer);
  group.append(
      svg('text', {class: 'row-number', x: x + 22, y: middle(block) + 3.8}, `${block.layer.layer}`),
      svg('text', {class: 'row-title', x: x + 31, y: middle(block) + 3.9},
          clipped(rowTitle(node.title), tags ? 24 : 33)),
      tags ? svg('text', {class: 'row-tag', x: x + width - 9, y: middle(block) + 3.6}, tags) : null,
      inside(block), ...dots(model, block));
  return group;
}

const line = (d) => svg('path', {d});
// Heads of arrows: down into a block, right into a line.
const headDown = (x, y) =>
    svg('path', {class: 'flow-head', d: `M${x - 3} ${y - 4.5}l3 4.5l3 -4.5z`});
const headRight = (x, y) =>
    svg('path', {class: 'flow-head', d: `M${x - 4.5} ${y - 3}l4.5 3l-4.5 3z`});
const words = (x, y, text, anchor = 'start') =>
    svg('text', {class: 'flow-shape', x, y, 'text-anchor': anchor}, text);
const centre = (block) => block.x + block.width / 2;
const bottom = (block) => block.y + block.height;

function shapeWords(model, link) {
  const made = link.from.node.outputs.find((one) => one.name === link.name) ??
      model.mainOutput(link.from.node);
  return made ? `${made.name} [${made.shape.join(', ')}]` : '';
}

// A line straight down, or round what stands between.
function drawLink(model, link, blocks) {
  const {from, to} = link;
  const x = centre(to), next = blocks[blocks.indexOf(from) + 1] === to || from.input;
  if (!next) {
    const edge = from.x, out = edge - 9 - 0.12 * (to.y - from.y);
    const [a, b] = [middle(from), middle(to)];
    return [line(`M${edge} ${a}C${out} ${a} ${out} ${b} ${edge} ${b}`), headRight(edge, b)];
  }
  const drawn = [line(`M${x} ${bottom(from)}V${to.y}`)];
  if (to.y - bottom(from) > 8) {
    drawn.push(headDown(x, to.y));
    const text = from.layer ? '' : shapeWords(model, link);
    const at = from.input ? to.y - 6 : (bottom(from) + to.y) / 2 + 3.2;
    if (text) drawn.push(words(x + 7, at, text));
  }
  return drawn;
}

// Rows of pictures take their places in the stream.
function drawJoin({from, to}) {
  const y = bottom(from) + (to.y - bottom(from)) * 0.42, x = centre(to);
  return [
    line(`M${centre(from)} ${bottom(from)}V${y}H${x}`), headRight(x, y),
    words(x - 8, y - 3.5, 'rows', 'end')
  ];
}

// What goes in at the top, and what comes out of the stack and of the branch.
function drawEnds(model, {inputs, stack, branch}) {
  const drawn = inputs.flatMap(
      (block) =>
          [words(centre(block), block.y - 14, block.takes, 'middle'),
           line(`M${centre(block)} ${block.y - 10}V${block.y}`), headDown(centre(block), block.y)]);
  for (const block of [stack.at(-1), branch.at(-1)].filter(Boolean)) {
    const out = model.mainOutput(block.node), x = centre(block), y = bottom(block);
    drawn.push(
        line(`M${x} ${y}V${y + 11}`), headDown(x, y + 13),
        words(
            x + 7, y + 11,
            block === stack.at(-1) && out ? `${out.name} [${out.shape.join(', ')}]` :
                                            'drafts, confidence'));
  }
  if (branch.length) {
    const y = branch[0].y - 11;
    drawn.push(svg('text', {class: 'flow-title', x: branch[0].x, y}, model.draftHead().title));
  }
  return drawn;
}

export function drawFlow(model, {links, lists, blocks}) {
  const seen = new Set();
  // Between layers goes the stream; what else they hand on is drawn as arcs.
  const apart = ({from, to}) =>
      from.layer && to.layer && blocks.indexOf(to) !== blocks.indexOf(from) + 1;
  const lines = links.filter((link) => {
    const name = `${blocks.indexOf(link.from)} ${blocks.indexOf(link.to)}`;
    if (link.kind || link.joins || apart(link) || seen.has(name)) return false;
    return seen.add(name);
  });
  return svg(
      'g', {class: 'flow'}, ...lines.flatMap((link) => drawLink(model, link, blocks)),
      ...links.filter((link) => link.joins).flatMap(drawJoin), ...drawEnds(model, lists));
}

export const drawArc = (arc) => svg('path', {class: `arc kind-${arc.kind}`, d: arc.path});
