// All numbers at once, and whether they agree with the checkpoint's tensors.

import {element, icon} from '../modules/dom.js';
import {count, plural} from '../modules/words.js';

import {bytes, parameters, share} from './figures.js';
import {bar, code, section, table} from './parts.js';

export function reconciliation({totals, has_files: files}) {
  const good = totals.reconciled && !totals.mismatches.length;
  const agree = files ? 'The tree and the checkpoint agree' :
                        'The tree is reconciled with the configuration’s tensors';
  const disagree = files ? 'The tree and the checkpoint disagree' :
                           'The tree and the configuration’s tensors disagree';
  const words = good ?
      `${agree}: every one of the ${count(totals.tensors)} tensors belongs to exactly one part.` :
      `${disagree} about ${plural(totals.mismatches.length, 'tensor')}.`;
  return element(
      'p', {class: `reconciled ${good ? 'good' : 'bad'}`}, icon(good ? 'check' : 'alert'), words);
}

export function totalsView(model) {
  const {totals, config, source} = model.data;
  const rows = totals.by_part.map(
      (part) =>
          [part.name, count(part.tensors), count(part.bytes), count(part.parameters),
           element(
               'span', {class: 'share-cell'}, bar(part.parameters / totals.parameters),
               element('span', {}, share(part.parameters, totals.parameters)))]);
  const figures = element(
      'dl', {class: 'key-figures'},
      ...[[parameters(totals.parameters), 'parameters'], [bytes(totals.bytes), 'of weights'],
          [count(totals.tensors), 'tensors']]
          .map(
              ([value, words]) =>
                  element('div', {}, element('dd', {}, value), element('dt', {}, words))));
  const mismatches = totals.mismatches.length ?
      section(
          'What disagrees',
          table(
              'What disagrees', ['tensor', 'expected', 'found'],
              totals.mismatches.map((one) => [code(one.tensor), one.expected, one.found]))) :
      null;
  return element(
      'article', {class: 'node'},
      element(
          'header', {class: 'node-head'}, element('h1', {tabindex: '-1'}, 'Totals'),
          element(
              'p', {class: 'sentence'},
              'Counted part by part from the model’s code, and compared with ',
              model.data.has_files ? 'the headers of the files of ' : 'the table of tensors of ',
              code(source), '.'),
          reconciliation(model.data), figures),
      mismatches,
      section(
          'By part',
          table(
              'Totals by part', ['part', 'tensors', 'bytes', 'parameters', 'share'], rows,
              [1, 2, 3],
              ['all', count(totals.tensors), count(totals.bytes), count(totals.parameters), ''])),
      section(
          'Configuration',
          table(
              'Configuration', ['key', 'value'],
              Object.entries(config).map(
                  ([key, value]) => [code(key), code(JSON.stringify(value))]))));
}
