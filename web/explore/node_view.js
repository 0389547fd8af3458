// The page of one part: what it is, what goes in and out, what it holds and costs, and the proof.

import {element, icon} from '../modules/dom.js';
import {count, plural} from '../modules/words.js';

import {codeText} from './code_text.js';
import {costsOf} from './cost.js';
import {bytes, flops, layersNamed, parameters, shape, share} from './figures.js';
import {formula} from './formula.js';
import {handOffs} from './handoff_view.js';
import {bar, code, linkTo, section, table} from './parts.js';
import {reconciliation} from './totals_view.js';
import {whereItSits} from './where.js';

const mostNames = 12;  // of tensors that have no file

const timesWords = (terms) => terms.map((term) => `${count(term.n)} ${term.what}`).join(' × ');

function keyFigure(value, words, exact = '') {
  return element('div', {title: exact || null}, element('dd', {}, value), element('dt', {}, words));
}

function head(model, node) {
  const chips = element(
      'p', {class: 'chips'},
      element(
          'span', {class: `tag ${node.learned ? 'learned' : ''}`},
          node.learned ? 'learned' : 'nothing learned'),
      node.operation ? element('span', {class: 'tag'}, code(node.operation)) : null,
      node.dtype ? element('span', {class: 'tag plain-tag'}, node.dtype) : null);
  const figures = element('dl', {class: 'key-figures'});
  if (node.parameters.total > 0) {
    figures.append(
        keyFigure(parameters(node.parameters.total), 'parameters', count(node.parameters.total)),
        keyFigure(bytes(node.bytes.total), 'of weights', `${count(node.bytes.total)} bytes`));
    const whole = model.root.parameters.total;
    if (node !== model.root) {
      figures.append(keyFigure(share(node.parameters.total, whole), 'of the model’s parameters'));
    }
  }
  if (node.count > 1)
    figures.append(keyFigure(`× ${count(node.count)}`, timesWords(node.count_terms)));
  return element(
      'header', {class: 'node-head'}, element('h1', {tabindex: '-1'}, node.title), chips,
      element('p', {class: 'sentence'}, node.sentence), node.formula ? formula(node.formula) : null,
      node === model.root ? reconciliation(model.data) : null,
      figures.children.length ? figures : null);
}

function dimension(symbol, name, number) {
  const same = String(symbol) === String(name);
  return element(
      'span', {class: 'dimension'}, element('span', {class: 'symbol'}, String(symbol)),
      element('span', {class: 'meaning'}, same ? '' : String(name)),
      element('span', {class: 'number'}, String(symbol) === String(number) ? '' : `${number}`));
}

const operandKinds = {
  cache: 'cache',
  constant: 'constant',
  step: 'of the step'
};

function tensorLine(direction, tensor) {
  const dimensions = element('span', {class: 'dimensions'});
  tensor.shape.forEach(
      (symbol, i) => dimensions.append(
          dimension(symbol, tensor.names?.[i] ?? symbol, tensor.numbers?.[i] ?? symbol)));
  return element(
      'li', {}, element('span', {class: 'direction'}, direction),
      element(
          'span', {class: 'tensor-name'}, code(tensor.name),
          element(
              'span', {class: 'soft'},
              [operandKinds[tensor.kind], tensor.dtype].filter(Boolean).join(', '))),
      dimensions);
}

function shapes(node) {
  if (!node.inputs.length && !node.outputs.length) return null;
  const lines = element('ul', {class: 'shapes'});
  // What all parts take, positions and tables of the step, comes last.
  const kinds = ['activation', 'cache', 'constant', 'step'];
  const place = (one) => kinds.indexOf(one.kind ?? 'activation');
  const inputs = [...node.inputs].sort((a, b) => place(a) - place(b));
  for (const one of inputs) lines.append(tensorLine('in', one));
  for (const one of node.outputs) lines.append(tensorLine('out', one));
  return section('Shapes', lines);
}

// Without files there is nothing to say of a tensor but its name.
function namesOf(weight, all) {
  if (all === 1) return element('p', {class: 'place-name'}, code(weight.places[0].tensor));
  const names = weight.places.slice(0, mostNames).map((place) => place.tensor);
  const rest = all - names.length;
  return element(
      'details', {class: 'places'},
      element(
          'summary', {}, code(weight.tensor),
          element('span', {class: 'soft'}, plural(all, 'tensor'))),
      element(
          'p', {class: 'note-line'}, code(names.join(', ')),
          rest > 0 ? ` and ${count(rest)} more` : ''));
}

function placesOf(weight) {
  if (!weight.places?.length) return null;
  const all = weight.places.length + (weight.more ?? 0);
  if (!weight.places.some((place) => place.file)) return namesOf(weight, all);
  const rows = weight.places.map(
      (place) =>
          [code(place.tensor), place.file ? code(place.file) : 'missing',
           place.file ? `${count(place.begin)} – ${count(place.end)}` : '']);
  return element(
      'details', {class: 'places'},
      element(
          'summary', {}, code(weight.tensor),
          element('span', {class: 'soft'}, plural(all, 'tensor'))),
      table(`Where ${weight.tensor} lies`, ['tensor', 'file', 'bytes from – to'], rows, [2]),
      weight.more ? element('p', {class: 'note-line'}, `… and ${count(weight.more)} more.`) : null);
}

// Weights that two parts read are counted in one of them.
function roleOf(model, weight) {
  const owner = model.nodes.get(weight.owner);
  if (!owner) return code(weight.role);
  return element(
      'span', {}, code(weight.role), element('span', {class: 'soft'}, ', counted in '),
      linkTo(owner));
}

function weights(model, node) {
  if (!node.weights.length) return null;
  const rows = node.weights.map(
      (weight) =>
          [roleOf(model, weight), shape(weight.shape), weight.orientation, code(weight.dtype),
           weight.parameters ? count(weight.parameters) : '–', count(weight.bytes)]);
  return section(
      'Weights',
      table(
          'Weights of one instance',
          ['role', 'shape', 'orientation', 'stored as', 'parameters', 'bytes'], rows, [4, 5]),
      element('p', {class: 'note-line'}, node.bias ? 'With a bias.' : 'No bias.'),
      element('div', {class: 'place-list'}, ...node.weights.map(placesOf)));
}

function parameterTable(node) {
  if (!node.parameters.total) return null;
  const times = (node.count_terms ?? [])
                    .flatMap(
                        (term) =>
                            [element('span', {class: 'operator'}, '×'),
                             element(
                                 'span', {class: 'term'}, element('b', {}, count(term.n)),
                                 element('span', {}, term.what))]);
  const sum = element(
      'p', {class: 'product'},
      element(
          'span', {class: 'term'}, element('b', {}, count(node.parameters.instance)),
          element('span', {}, node.count > 1 ? 'per instance' : 'parameters')),
      ...times,
      ...(node.count > 1 ?
              [
                element('span', {class: 'operator'}, '='),
                element(
                    'span', {class: 'term total'}, element('b', {}, count(node.parameters.total)),
                    element('span', {}, 'parameters'))
              ] :
              []));
  const rows = node.table ?? [];
  const one = ['one instance', count(node.parameters.instance)];
  const heads = ['component', 'parameters'];
  const cells = rows.map((row) => [row.component, count(row.parameters)]);
  if (rows.some((row) => row.calculation)) {
    heads.splice(1, 0, 'calculation');
    one.splice(1, 0, '');
    cells.forEach((line, i) => line.splice(1, 0, rows[i].calculation));
  }
  return section(
      'Parameters', sum,
      rows.length ? table('Parameters of one instance', heads, cells, [1, 2], one) : null);
}

function cacheLine(node) {
  const kept = [
    node.cache_bytes_per_token ? `${bytes(node.cache_bytes_per_token)} per token of context` : '',
    node.cache_bytes_fixed ? `${bytes(node.cache_bytes_fixed)} per sequence` : ''
  ].filter(Boolean);
  if (!kept.length) return null;
  return element('p', {class: 'note-line'}, `${kept.join(' and ')} are kept in caches.`);
}

const promptOnly = new Set(['step of the shortcut']);

// Instances of which a step visits a few only.
function shareLine({of, decode_visits: reply, prefill_visits: prompt}) {
  return element(
      'p', {class: 'note-line'},
      `A step visits some of the ${count(of)} only (reply: at most ${count(reply)}; prompt: at ` +
          `most ${count(prompt)}): the cost of one is its share of those visits.`);
}

function costTable(model, node) {
  const costs = costsOf(model, node);
  if (!costs.length) return null;
  const {batch, prefill_tokens: tokens, context} = model.data;
  const all = (figures) =>
      node.count > 1 ? [flops(figures.flops * node.count), bytes(figures.bytes * node.count)] : [];
  const row =
      (name, figures) => [name, flops(figures.flops), bytes(figures.bytes), ...all(figures)];
  const rows = costs.flatMap(({per, decode, prefill}) => {
    if (per !== 'token') {
      const same = decode.flops === prefill.flops && decode.bytes === prefill.bytes;
      if (same) return [row(per, prefill)];
      const reply = promptOnly.has(per) ? [] : [row(`${per}, ${plural(batch, 'token')}`, decode)];
      return [...reply, row(`${per}, ${count(tokens)} tokens`, prefill)];
    }
    const part = (step, by) => ({flops: step.flops / by, bytes: step.bytes / by});
    return [
      row('token of a reply', part(decode, batch)), row('token of a prompt', part(prefill, tokens))
    ];
  });
  const heads = ['of one', 'arithmetic', 'memory'];
  if (node.count > 1) heads.push(`all ${count(node.count)}: arithmetic`, 'memory');
  const title = costs.length > 1 ? 'Cost' : `Cost per ${costs[0].per}`;
  const steps = costs.some(({per}) => per === 'token') ?
      ` Reply: a step of ${plural(batch, 'token')}. Prompt: a step of ${count(tokens)} tokens.` :
      '';
  return section(
      title, table(title, heads, rows, [1, 2, 3, 4]),
      element('p', {class: 'note-line'}, `At a context of ${count(context)} tokens.${steps}`),
      node.cost.share ? shareLine(node.cost.share) : null, cacheLine(node));
}

function childList(model, node) {
  if (!node.children.length) return null;
  const most = Math.max(...node.children.map((child) => child.parameters.total));
  const lines = node.children.map((child) => {
    const terms = model.untoldTerms(child);
    const out = model.mainOutput(child);
    return element(
        'li', {},
        element(
            'a', {class: 'child', href: `#${child.id}`},
            element(
                'span', {class: 'child-title'}, child.title,
                terms.length ? element(
                                   'span', {class: 'times'},
                                   `× ${terms.map((term) => count(term.n)).join(' × ')}`) :
                               null),
            element('span', {class: 'child-sentence'}, child.sentence),
            element(
                'span', {class: 'child-figures'},
                element(
                    'span', {}, child.parameters.total ? parameters(child.parameters.total) : '–'),
                bar(most ? child.parameters.total / most : 0)),
            out ? element('span', {class: 'child-shape'}, '→ ', code(shape(out.shape))) : null,
            icon('chevronRight')));
  });
  return section('Parts, in order', element('ol', {class: 'children'}, ...lines));
}

function evidence(model, node) {
  const content = [];
  for (const place of node.evidence.code) {
    content.push(element(
        'figure', {class: 'excerpt'},
        element(
            'figcaption', {}, code(`${place.file}:${place.begin}–${place.end}`),
            element('span', {class: 'soft'}, `${place.function}, at commit ${model.data.commit}`)),
        codeText(place.excerpt, place.begin)));
  }
  const keys = node.evidence.config;
  if (keys.length) {
    content.push(table(
        'Configuration keys', ['configuration key', 'value'],
        keys.map((key) => [code(key), code(JSON.stringify(model.data.config[key]) ?? '–')])));
  }
  if (node.evidence.tensors) {
    content.push(element(
        'p', {class: 'note-line'},
        `${plural(node.evidence.tensors, 'tensor')} of the checkpoint ${
            node.evidence.tensors === 1 ? 'is' : 'are'} read here.`));
  }
  return content.length ? section('Evidence', ...content) : null;
}

// `traced`: what a watched step says about this part, an element or null.
export function nodeView(model, node, traced = null) {
  const where = node.layers?.length ?
      section(
          'Where it sits', whereItSits(model, node),
          element('p', {class: 'note-line'}, `In ${layersNamed(node.layers)}.`)) :
      null;
  return element(
      'article', {class: 'node'}, head(model, node), traced, where, childList(model, node),
      handOffs(model, node), shapes(node), weights(model, node), parameterTable(node),
      costTable(model, node), evidence(model, node));
}

export function breadcrumb(model, node) {
  const items = model.path(node).map((one) => {
    const terms = model.untoldTerms(one);
    const counts = terms.length ? element('span', {class: 'times'}, timesWords(terms)) : null;
    return element(
        'li', {}, one === node ? element('span', {'aria-current': 'page'}, one.title) : linkTo(one),
        counts);
  });
  return element('ol', {}, ...items);
}
