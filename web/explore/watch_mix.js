// The hyper-connections of a step at one token: how each sublayer's input is collapsed from the
// stream's copies, what its output adds to each copy, and what the copies keep of one another.

import {element} from '../modules/dom.js';
import {plural} from '../modules/words.js';

import {smallHeat} from './heat_map.js';
import {table} from './parts.js';
import {visible} from './token_strip.js';

const places = ['attention', 'experts'];
const cell = 11, gap = 1;  // a gap is a column without values

// One sublayer's numbers at the token: {pre, post, comb}; the latter two where the server tells
// them. comb is [copies][copies], from the copy, to the copy.
function mixAt(mix, place, row) {
  const pre = mix[place]?.[row];
  if (!pre) return null;
  const comb = mix[`${place}_comb`]?.[row];
  return {
    pre,
    post: mix[`${place}_post`]?.[row] ?? null,
    comb: comb ? pre.map((_, from) => comb.slice(from * pre.length, (from + 1) * pre.length)) : null
  };
}

// The columns of a picture, left to right: what goes in, what is kept, what is added.
function columnsOf({pre, post, comb}) {
  const copies = pre.map((_, i) => i);
  const columns = [copies.map((c) => ({value: pre[c], words: `in: copy ${c}`}))];
  if (comb) {
    columns.push(
        null,
        ...copies.map(
            (to) => copies.map(
                (from) =>
                    ({value: comb[from][to], words: `kept: of copy ${from}, in copy ${to}`}))));
  }
  if (post) columns.push(null, copies.map((c) => ({value: post[c], words: `added to copy ${c}`})));
  return columns;
}

function picture(name, mix, most, say) {
  const columns = columnsOf(mix);
  const canvas = smallHeat(
      {
        rows: mix.pre,
        columns: columns.length,
        value: (r, c) => Math.abs(columns[c]?.[r].value ?? 0) / most
      },
      columns.length * cell, mix.pre.length * cell);
  canvas.classList.add('mix');
  canvas.onpointermove = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = (offset, size, of) => Math.min(of - 1, Math.floor(Math.max(0, offset) / size * of));
    const one = columns[at(event.clientX - box.left, box.width, columns.length)];
    const found = one?.[at(event.clientY - box.top, box.height, mix.pre.length)];
    say(found ? `${name}, ${found.words}: ${found.value.toFixed(3)}` : '');
  };
  canvas.onpointerleave = () => say('');
  return canvas;
}

const numbers = (values) => values ? values.map((value) => value.toFixed(2)).join(' ') : '–';

export function mixesOf(view, layers) {
  const found =
      view.step.layers.filter((one) => one.mix && (!layers || layers.includes(one.layer)))
          .flatMap(
              (one) => places.map(
                  (place) => ({layer: one.layer, place, mix: mixAt(one.mix, place, view.row)})))
          .filter(({mix}) => mix);
  if (!found.length) return null;
  const all = found.flatMap(({mix}) => [...mix.pre, ...mix.post ?? [], ...mix.comb?.flat() ?? []]);
  const most = Math.max(...all.map(Math.abs));
  const whole = found.some(({mix}) => mix.comb);
  const token = visible(view.seen[view.step.positions[view.row]]?.text.trim() || ' ');
  const hint = `For “${token}”, one line per copy. ` +
      (whole ? 'Left: how much of it goes in; middle: what it keeps, to the copies from left to ' +
               'right; right: what is added to it.' :
               'How much of it goes in.');
  const readout = element('p', {class: 'readout'}, hint);
  const say = (words) => {
    readout.textContent = words || hint;
  };
  const numbered = [...new Set(found.map(({layer}) => layer))];
  const tiles = numbered.map((layer) => {
    const mine = found.filter((one) => one.layer === layer);
    return element(
        'li', {},
        ...mine.map(({place, mix}) => picture(`Layer ${layer}, ${place}`, mix, most, say)),
        element('span', {}, `${layer}`));
  });
  const rows = found.map(
      ({layer, place, mix}) =>
          [`${layer}, ${place}`, numbers(mix.pre),
           ...(whole ? [(mix.comb ?? []).map(numbers).join(' | '), numbers(mix.post)] : [])]);
  const heads = ['layer', 'in', ...(whole ? ['kept (from copy | from copy …)', 'added'] : [])];
  return element(
      'div', {}, element('p', {class: 'note-line'}, 'Above: around attention; below: the experts.'),
      element(
          'ol', {class: 'mixes', 'aria-label': `Mixing in ${plural(numbered.length, 'layer')}`},
          ...tiles),
      readout,
      element(
          'details', {class: 'places'}, element('summary', {}, 'The numbers'),
          table('Mixing of the copies', heads, rows)));
}
