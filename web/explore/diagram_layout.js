// Where everything of the diagram stands: the stack from top to bottom, hand-offs as arcs beside
// it. Derived from the tree and the lists of layers and hand-offs; no structure is known here.

import {linksOf} from './diagram_flow.js';

export const kinds = {
  compressed_kv: {title: 'Compressed KV', side: 'left', shift: -3},
  index_keys: {title: 'Index keys', side: 'left', shift: 3},
  picks: {title: 'Picks', side: 'right', shift: -3},
  candidates: {title: 'Candidates', side: 'right', shift: 3},
  ngrams: {title: 'N-grams', side: 'right', shift: 0},
  taps: {title: 'Taps', side: 'right', shift: 0},
};

export const rowWidth = 236;
const rowX = 122;
const width = rowX * 2 + rowWidth;
const rowHeight = 15, boxHeight = 23, pitch = 17, runGap = 5, boxGap = 14;
// What stands side by side at the top, and the gap in which its outputs come together.
const topEdge = 6, topWidth = 148, topGap = 30, inputHeight = 26, branchGap = 34;

// What stands in the diagram: {inputs, stack, branch}, the stack and the branch lists of {box:
// node} or {layers: [entries of model.layers]}. Inputs stand side by side.
function spine(model) {
  const structures = new Map();
  for (const layer of model.layers) {
    const node = model.nodes.get(layer.node);
    if (node) structures.set(node, [...(structures.get(node) ?? []), layer]);
  }
  const outer = new Set([...structures.keys()].flatMap((node) => model.path(node)));
  const partsOf = (root) => {
    const parts = [];
    const walk = (node) => {
      const layers = structures.get(node);
      if (layers) {
        if (!parts.at(-1)?.layers) parts.push({layers: []});
        parts.at(-1).layers.push(...layers);
      } else if (outer.has(node)) {
        node.children.forEach(walk);
      } else {
        parts.push({box: node});
      }
    };
    walk(root);
    for (const part of parts) part.layers?.sort((a, b) => a.layer - b.layer);
    return parts;
  };
  // A part of the model without weights is another way to run the rest (the prefill shortcut), and
  // one without layers makes rows that stand where tokens are embedded (pictures).
  const drafts = model.draftHead();
  const whole = model.root.children.filter((node) => node.parameters.total > 0);
  const main = whole.filter((node) => outer.has(node) && node !== drafts).flatMap(partsOf);
  const first = main.findIndex((part) => part.layers);
  return {
    pictures: whole.filter((node) => !outer.has(node)),
    inputs: main.slice(0, first).map((part) => part.box),
    stack: main.slice(first),
    branch: drafts ? partsOf(drafts) : []
  };
}

// A run of layers begins: its structure belongs elsewhere, or its first structure comes round
// again.
function beginsRun(model, layers, i) {
  if (i === 0) return false;
  const [before, now] = [layers[i - 1], layers[i]].map((one) => model.nodes.get(one.node));
  if (before === now) return false;
  const [a, b] = [model.parent(before), model.parent(now)];
  if (a !== b) return true;
  return a.children.indexOf(now) < a.children.indexOf(before);
}

// Side by side at the top: pictures, what takes token ids first (its output is the stream), and
// what else takes them.
function placeInputs({pictures, inputs}) {
  const row = [pictures[0], ...inputs].filter(Boolean);
  const blocks = row.map((node) => {
    const column = node === pictures[0] ? 0 : 1 + inputs.indexOf(node);
    const x = topEdge + column * (width - topWidth - 2 * topEdge) / 2;
    return {
      node,
      input: true,
      small: true,
      takes: column === 0 ? 'a picture' : 'token ids',
      x,
      y: inputHeight,
      width: topWidth,
      height: boxHeight
    };
  });
  return {blocks, height: inputHeight + boxHeight + topGap};
}

function placeStack(model, parts, top) {
  const blocks = [];
  let y = top;
  for (const [at, part] of parts.entries()) {
    if (part.box) {
      // Steps inside a part of a part are as low as layers.
      const small = (one) => one?.box && model.path(one.box).length > 3;
      const height = small(part) ? rowHeight : boxHeight;
      blocks.push({node: part.box, small: small(part), x: rowX, y, width: rowWidth, height});
      y += height + (small(part) && small(parts[at + 1]) ? pitch - rowHeight + 3 : boxGap);
      continue;
    }
    part.layers.forEach((layer, i) => {
      if (beginsRun(model, part.layers, i)) y += runGap;
      blocks.push({
        node: model.nodes.get(layer.node),
        layer,
        x: rowX,
        y,
        width: rowWidth,
        height: rowHeight
      });
      y += pitch;
    });
    y += boxGap - (pitch - rowHeight);
  }
  return {blocks, height: y};
}

export const middle = (block) => block.y + block.height / 2;

// From edge to edge, the wider the farther.
function arcPath(from, to, side, shift, longest) {
  const x = side === 'left' ? rowX : rowX + rowWidth;
  const reach = 14 + (rowX - 26) * 1.3 * Math.sqrt(Math.abs(to - from) / longest);
  const out = side === 'left' ? x - reach : x + reach;
  return `M${x} ${from + shift}C${out} ${from + shift} ${out} ${to + shift} ${x} ${to + shift}`;
}

// From below a block of the top to the edge of a row.
function downPath(block, row) {
  const x = block.x + block.width * 0.72, y = block.y + block.height, end = rowX + rowWidth;
  return `M${x} ${y}C${x} ${middle(row)} ${x} ${middle(row)} ${end} ${middle(row)}`;
}

// Arcs between layers, and those of `links` that leave their column.
function arcsOf(model, blocks, links) {
  const rows = new Map();
  for (const block of blocks)
    if (block.layer) rows.set(block.layer.layer, block);
  const spans = [
    ...model.handoffs.filter((one) => kinds[one.kind])
        .flatMap(
            (one) => one.consumers.map(
                (to) => ({kind: one.kind, from: rows.get(one.source), to: rows.get(to)}))),
    ...links.filter((link) => kinds[link.kind])
  ].filter(({from, to}) => from && to && from !== to);
  const longest = Math.max(1, ...spans.map(({from, to}) => Math.abs(middle(to) - middle(from))));
  return spans.map(({kind, from, to}) => {
    const {side, shift} = kinds[kind];
    const path =
        from.input ? downPath(from, to) : arcPath(middle(from), middle(to), side, shift, longest);
    return {kind, from, to, path};
  });
}

export function layout(model) {
  const plan = spine(model);
  const top = placeInputs(plan);
  const stack = placeStack(model, plan.stack, top.height);
  const branch = placeStack(model, plan.branch, stack.height + branchGap);
  const lists = {inputs: top.blocks, stack: stack.blocks, branch: branch.blocks};
  const blocks = Object.values(lists).flat();
  const links = linksOf(model, lists);
  const height = plan.branch.length ? branch.height + 14 : stack.height + 14;
  return {blocks, links, arcs: arcsOf(model, blocks, links), lists, width, height};
}

// A hand-off's part in a layer: 'source', 'consumer' or null.
export function roleOf(model, kind, layer) {
  const all = model.handoffs.filter((one) => one.kind === kind);
  if (all.some((one) => one.source === layer)) return 'source';
  return all.some((one) => one.consumers.includes(layer)) ? 'consumer' : null;
}
