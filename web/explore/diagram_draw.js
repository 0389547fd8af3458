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
  return [
    layer.engram ? 'n-grams' : '', roleOf(model, 'taps', layer.layer) === 'source' ? 'tap' : ''
  ].filter(Boolean)
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

const mainShape = (node) =>
    node.outputs.find((one) => (one.kind ?? 'activation') === 'activation')?.shape;

export function drawFlow(blocks, width) {
  const lines = svg('g', {class: 'flow'});
  for (let i = 1; i < blocks.length; ++i) {
    const from = blocks[i - 1].y + blocks[i - 1].height, to = blocks[i].y;
    lines.append(svg('path', {d: `M${width / 2} ${from}V${to}`}));
    if (to - from > 8)
      lines.append(
          svg('path', {class: 'flow-head', d: `M${width / 2 - 3} ${to - 4.5}l3 4.5l3 -4.5z`}));
    const shape = blocks[i - 1].layer ? null : mainShape(blocks[i - 1].node);
    if (shape && to - from > 8) {
      lines.append(
          svg('text', {class: 'flow-shape', x: width / 2 + 7, y: (from + to) / 2 + 3.2},
              `[${shape.join(', ')}]`));
    }
  }
  return lines;
}

export const drawArc = (arc) => svg('path', {class: `arc kind-${arc.kind}`, d: arc.path});
