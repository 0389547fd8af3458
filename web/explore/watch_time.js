// Time and traffic of a watched step, part by part, against what the machine allows.

import {element} from '../modules/dom.js';
import {plural} from '../modules/words.js';

import {bytes, flops, layersNamed, share, time} from './figures.js';
import {bar, linkTo, table} from './parts.js';

const shown = 12;

function row(model, cost, total) {
  const node = model.nodes.get(cost.id);
  const path = node ?
      [model.parent(node)?.title, node.layers ? layersNamed(node.layers) : ''].filter(Boolean).join(
          ', ') :
      '';
  return [
    element(
        'span', {class: 'time-part'}, node ? linkTo(node) : cost.id,
        element('span', {class: 'soft'}, path)),
    time(cost.seconds),
    element(
        'span', {class: 'share-cell'}, bar(cost.seconds / total),
        element('span', {}, share(cost.seconds, total))),
    bytes(cost.bytes), cost.floor ? share(cost.floor, cost.seconds) : '–'
  ];
}

export function timesOf(view) {
  const costs = view.trace.costs(view.step);
  if (!costs.length) return null;
  const total = view.step.seconds || costs.reduce((sum, cost) => sum + cost.seconds, 0);
  const heads = ['part', 'time', 'of the step', 'memory', 'floor / time'];
  const rows = costs.map((cost) => row(view.model, cost, total));
  const rest = rows.slice(shown);
  return element(
      'div', {}, table('Time of the slowest parts', heads, rows.slice(0, shown), [1, 3, 4]),
      rest.length ? element(
                        'details', {class: 'places'},
                        element('summary', {}, plural(rest.length, 'more part')),
                        table('Time of the other parts', heads, rest, [1, 3, 4])) :
                    null,
      element(
          'p', {class: 'note-line'},
          'Floor: the time that the machine’s memory and arithmetic need at least; 100 % would be ' +
              'perfect. Bars in the diagram’s blocks are their times.'));
}

// One part's own line, on its page.
export function timeOf(view, node, layers) {
  const cost = view.trace.costOf(view.step, node.id, layers);
  if (!cost) return null;
  const figures = [
    [time(cost.seconds), `${share(cost.seconds, view.step.seconds)} of the step`],
    [bytes(cost.bytes), 'of memory'], [flops(cost.flops), 'of arithmetic'],
    [cost.floor ? share(cost.floor, cost.seconds) : '–', 'of the time is the floor']
  ];
  return element(
      'dl', {class: 'key-figures'},
      ...figures.map(
          ([value, words]) =>
              element('div', {}, element('dd', {}, value), element('dt', {}, words))));
}
