// What layers give to one another, as a table: for the whole model, or what a kind of layer gives
// and takes.

import {element} from '../modules/dom.js';

import {kinds} from './diagram_layout.js';
import {bytes, layersNamed, shape} from './figures.js';
import {code, section, table} from './parts.js';

function row(model, one) {
  const others = one.consumers.filter((layer) => layer !== one.source);
  return [
    kinds[one.kind]?.title ?? one.kind, layersNamed([one.source]),
    others.length ? layersNamed(others) : 'itself', one.shape ? code(shape(one.shape)) : '',
    one.bytes_per_token ? bytes(one.bytes_per_token) : ''
  ];
}

// null where nothing is handed on: inside layers and outside the stack.
export function handOffs(model, node) {
  const whole = node === model.root;
  if (!whole && !model.layers.some((layer) => layer.node === node.id)) return null;
  const mine = new Set(node.layers);
  const all = model.data.handoffs.filter(
      (one) => whole || mine.has(one.source) || one.consumers.some((layer) => mine.has(layer)));
  if (!all.length) return null;
  const heads = ['what', 'made in', 'used in', 'shape', 'per token'];
  return section(
      'Handed from layer to layer',
      table('Hand-offs', heads, all.map((one) => row(model, one)), [4]),
      element('p', {class: 'note-line'}, 'Per token: bytes written for each token of a sequence.'));
}
