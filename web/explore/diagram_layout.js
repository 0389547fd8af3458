// Where everything of the diagram stands: the stack from top to bottom, hand-offs as arcs beside
// it. Derived from the tree and the lists of layers and hand-offs; no structure is known here.

export const kinds = {
  compressed_kv: {title: 'Compressed KV', side: 'left', shift: -3},
  index_keys: {title: 'Index keys', side: 'left', shift: 3},
  picks: {title: 'Picks', side: 'right', shift: -3},
  candidates: {title: 'Candidates', side: 'right', shift: 3},
  taps: {title: 'Taps', side: 'right', shift: 0},
};

export const rowWidth = 236;
const rowX = 122;
const width = rowX * 2 + rowWidth;
const rowHeight = 15, boxHeight = 23, pitch = 17, runGap = 5, boxGap = 14;

// What stands in the stack, in order: {box: node}, or {layers: [entries of model.layers]}.
function spine(model) {
  const structures = new Map();
  for (const layer of model.layers) {
    const node = model.nodes.get(layer.node);
    if (node) structures.set(node, [...(structures.get(node) ?? []), layer]);
  }
  const outer = new Set([...structures.keys()].flatMap((node) => model.path(node)));
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
  // The code reads pictures when they come; their rows stand where tokens are embedded. A part of
  // the model without weights is another way to run the rest (the prefill shortcut).
  const enters = (node) => node.id === 'vision' ? 0 : 1;
  [...model.root.children]
      .filter((node) => node.parameters.total > 0)
      .sort((a, b) => enters(a) - enters(b))
      .forEach(walk);
  for (const part of parts) part.layers?.sort((a, b) => a.layer - b.layer);
  return parts;
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

function place(model) {
  const blocks = [];
  let y = 10;
  const parts = spine(model);
  for (const [at, part] of parts.entries()) {
    if (part.box) {
      // Steps inside a part of a part are as low as layers.
      const small = (one) => one?.box && model.path(one.box).length > 3;
      const height = small(part) ? rowHeight : boxHeight;
      blocks.push({node: part.box, small: small(part), x: rowX, y, width: rowWidth, height});
      y += height + (small(part) && small(parts[at + 1]) ? pitch - rowHeight : boxGap);
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

export function layout(model) {
  const {blocks, height} = place(model);
  const rows =
      new Map(blocks.filter((block) => block.layer).map((block) => [block.layer.layer, block]));
  const spans = model.handoffs
                    .flatMap((one) => one.consumers.map((to) => {
                      const [a, b] = [rows.get(one.source), rows.get(to)];
                      return a && b && a !== b ?
                          {one, from: one.source, to, a: middle(a), b: middle(b)} :
                          null;
                    }))
                    .filter(Boolean);
  const longest = Math.max(1, ...spans.map((span) => Math.abs(span.b - span.a)));
  const arcs = spans.filter((span) => kinds[span.one.kind]).map(({one, from, to, a, b}) => {
    const {side, shift} = kinds[one.kind];
    return {kind: one.kind, from, to, path: arcPath(a, b, side, shift, longest)};
  });
  return {blocks, rows, arcs, width, height};
}

// A hand-off's part in a layer: 'source', 'consumer' or null.
export function roleOf(model, kind, layer) {
  const all = model.handoffs.filter((one) => one.kind === kind);
  if (all.some((one) => one.source === layer)) return 'source';
  return all.some((one) => one.consumers.includes(layer)) ? 'consumer' : null;
}
