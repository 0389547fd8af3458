// A strip of all layers, with those that hold a part filled.

import {svg} from './parts.js';

export function whereItSits(model, node) {
  const layers = model.layers;
  const wide = 100 / layers.length;
  const inside = new Set(node.layers);
  const strip = svg('svg', {
    class: 'where',
    viewBox: '0 0 100 10',
    preserveAspectRatio: 'none',
    role: 'img',
    'aria-label': `${node.layers.length} of ${layers.length} layers`
  });
  layers.forEach((layer, i) => strip.append(svg('rect', {
    x: i * wide + wide * 0.08,
    y: layer.draft ? 2 : 0,
    width: wide * 0.84,
    height: layer.draft ? 6 : 10,
    class: inside.has(layer.layer) ? 'where-in' : 'where-out'
  })));
  return strip;
}
