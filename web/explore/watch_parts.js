// What one step of a trace shows, one picture per idea. Each takes the view {trace, model, step,
// row} and the layers wanted (null: all), and returns elements or null.

import {element} from '../modules/dom.js';
import {plural} from '../modules/words.js';

import {layersNamed, share} from './figures.js';
import {heatMap, smallHeat} from './heat_map.js';
import {code, table} from './parts.js';
import {tokenStrip, visible} from './token_strip.js';

const note = (...words) => element('p', {class: 'note-line'}, ...words);
const percent = (value) => `${Math.round(100 * value)} %`;
const position = (view) => view.step.positions[view.row];
const quoted = (view) => `“${visible(view.seen[position(view)]?.text.trim() || ' ')}”`;
const rowOf = (values, row) => Array.isArray(values?.[0]) ? values[row] : values;

export function expertsOf(view, layers) {
  const found = view.trace.layersWith(view.step, 'experts', layers);
  if (!found.length) return null;
  const {config} = view.model.data;
  const draft = view.step.kind === 'draft';
  const columns = (draft ? config.dspark_n_routed_experts : config.n_routed_experts) ??
      1 + Math.max(...found.flatMap((one) => one.experts.flat()));
  const loads = found.map((one) => {
    const load = new Float64Array(columns);
    one.experts.forEach((row, i) => row.forEach((expert, j) => {
      load[expert] += one.shares?.[i]?.[j] ?? 1;
    }));
    return load;
  });
  const most = Math.max(...loads.map((load) => Math.max(...load)));
  const mine = found.map((one) => new Set(one.experts[view.row]));
  const map = heatMap({
    title: `Experts used in ${plural(found.length, 'layer')}`,
    rows: found.map((one) => one.layer),
    columns,
    value: (r, c) => Math.sqrt(loads[r][c] / most),
    mark: (r, c) => mine[r].has(c),
    hint: `One line per layer, one column per expert. Orange: the experts of ${quoted(view)}.`,
    describe: (r, c) => `Layer ${found[r].layer}, expert ${c}: ` +
        plural(found[r].experts.filter((row) => row.includes(c)).length, 'token') +
        (mine[r].has(c) ? `, ${quoted(view)} among them` : ''),
  });
  const rows = found.map(
      (one) =>
          [`${one.layer}`,
           (one.experts[view.row] ?? [])
               .map(
                   (expert, j) =>
                       `${expert}${one.shares ? ` (${percent(one.shares[view.row][j])})` : ''}`)
               .join(', ')]);
  return element(
      'div', {}, map,
      element(
          'details', {class: 'places'},
          element('summary', {}, `The experts of ${quoted(view)} as a table`),
          table('Experts of the token', ['layer', 'experts and shares'], rows)));
}

// Positions that entry `entry` of a compressed cache stands for.
const covered = (entry, ratio) => Array.from({length: ratio}, (_, i) => entry * ratio + i);

function pickMap(one) {
  const columns = 1 + Math.max(0, ...one.picks.flat());
  const sets = one.picks.map((row) => new Set(row));
  return smallHeat({rows: one.picks, columns, value: (r, c) => sets[r].has(c) ? 0.85 : 0}, 120, 60);
}

// Where the candidate blocks that a layer picks among stand: its own, or its source's.
function candidatesFor(view, one) {
  const source =
      view.model.data.handoffs
          .find((handoff) => handoff.kind === 'candidates' && handoff.consumers.includes(one.layer))
          ?.source;
  const from = one.candidates ? one : view.step.layers.find((other) => other.layer === source);
  return from?.candidates ? from : null;
}

function pickedTokens(view, one) {
  const {ratio} = one;
  const at = position(view);
  const window = view.model.data.config.window_size ?? 0;
  const picked = new Set((one.picks[view.row] ?? []).flatMap((entry) => covered(entry, ratio)));
  const from = candidatesFor(view, one);
  const size = from?.candidate_block ?? view.model.data.config.candidate_block_size ?? 1;
  const blocks = from?.candidates[view.row];
  const candidates = blocks &&
      new Set(blocks.flatMap((block) => Array.from({length: size}, (_, i) => block * size + i))
                  .flatMap((entry) => covered(entry, ratio)));
  return tokenStrip(view.seen, {
    label: `What layer ${one.layer} picked for ${quoted(view)}`,
    style: (i) => {
      const classes = [];
      if (i > at) classes.push('after');
      if (i === at) classes.push('asking');
      if (picked.has(i)) classes.push('picked');
      if (candidates?.has(i)) classes.push('candidate');
      const words = [
        picked.has(i) ? 'picked' : '', candidates?.has(i) ? 'candidate' : '',
        i > at - window && i <= at ? 'in the window' : ''
      ];
      return {classes, label: words.filter(Boolean).join(', ')};
    }
  });
}

// `chosen`: the index layer shown; choose(layer) shows another.
export function picksOf(view, layers, chosen, choose) {
  const found = view.trace.layersWith(view.step, 'picks', layers);
  if (!found.length) return null;
  const one = found.find((entry) => entry.layer === chosen) ?? found[0];
  const choice = element(
      'div', {class: 'small-maps', role: 'group', 'aria-label': 'Index layer'},
      ...found.map(
          (entry) => element(
              'button', {
                type: 'button',
                'aria-pressed': `${entry === one}`,
                onclick: () => choose(entry.layer)
              },
              pickMap(entry), element('span', {}, `layer ${entry.layer}`))));
  const count = one.picks[view.row]?.length ?? 0;
  const from = candidatesFor(view, one);
  const blocks = from?.candidates[view.row]?.length;
  const served = view.model.data.handoffs.find((h) => h.kind === 'picks' && h.source === one.layer)
                     ?.consumers.filter((c) => c !== one.layer) ??
      [];
  const attend = served.length === 1 ? 'attends' : 'attend';
  return element(
      'div', {}, choice, pickedTokens(view, one),
      note(
          `For ${quoted(view)}, layer ${one.layer} picked ${plural(count, 'entry', 'entries')}`,
          one.ratio > 1 ? ` of ${one.ratio} tokens each` : '',
          blocks === undefined ? '' :
              from === one     ? ` and ${plural(blocks, 'candidate block')}` :
                                 ` among the ${plural(blocks, 'block')} of layer ${from.layer}`,
          served.length ? `; ${layersNamed(served)} ${attend} to the same.` : '.',
          blocks === undefined ? ' Orange: picked.' : ' Orange: picked; underlined: candidates.',
          ' Lines of the small maps are tokens, columns entries.'));
}

function grams(view, at) {
  const most = view.model.data.config.engram_max_ngram_size ?? 4;
  return Array.from({length: most - 1}, (_, i) => i + 2)
      .map((n) => ({
             n,
             text: at - n + 1 < 0 ?
                 null :
                 view.seen.slice(at - n + 1, at + 1).map((token) => token.text).join('')
           }));
}

export function engramOf(view, layers) {
  const found =
      view.step.layers.filter((one) => one.engram && (!layers || layers.includes(one.layer)));
  if (!found.length) return null;
  const mean = (values) =>
      values?.length ? values.reduce((sum, value) => sum + value, 0) / values.length : 0;
  const at = position(view);
  const content = found.flatMap((one) => {
    const gates = rowOf(one.engram.gate, view.row) ?? [];
    const heads = Math.round((one.engram.rows?.[view.row]?.length ?? 0) / grams(view, at).length);
    const rows = grams(view, at).map(
        ({n, text}, i) =>
            [`${n} tokens`, text === null ? '–' : code(visible(text)),
             (one.engram.rows?.[view.row] ?? []).slice(i * heads, (i + 1) * heads).join(', ')]);
    return [
      element('h3', {}, `Layer ${one.layer}`),
      tokenStrip(view.step.positions.map((p) => view.seen[p] ?? {text: '?'}), {
        label: `Gates of layer ${one.layer}`,
        style: (i) => {
          const gate = mean(rowOf(one.engram.gate, i));
          return {
            classes: ['heated', ...(i === view.row ? ['asking'] : [])],
            heat: gate,
            label: `gate ${percent(gate)}`
          };
        }
      }),
      note(`How far the gate opened, token by token. For ${quoted(view)}, by copy: ${
          gates.map(percent).join(', ')}.`),
      table(
          `N-grams looked up in layer ${one.layer}`, ['n-gram', 'text', 'rows of the table'], rows)
    ];
  });
  return element('div', {}, ...content);
}

export function sinksOf(view, layers) {
  const found = view.trace.layersWith(view.step, 'sinks', layers);
  if (!found.length) return null;
  const values = found.map((one) => rowOf(one.sinks, view.row));
  return heatMap(
      {
        title: `Share of the attention that the sinks took, ${plural(found.length, 'layer')}`,
        rows: found.map((one) => one.layer),
        columns: values[0].length,
        value: (r, c) => values[r][c],
        hint:
            'For the last token of the step: one line per layer, one column per head: the darker, the more of the attention went to nothing.',
        describe: (r, c) =>
            `Layer ${found[r].layer}, head ${c}: ${share(values[r][c], 1)} to the sink`,
      },
      480);
}

// Drafting proposes; the step that checks says how many were accepted.
export function draftsOf(view) {
  const {drafts} = view.step;
  if (!drafts?.proposed?.length) return null;
  const checked = drafts.accepted !== undefined;
  const state = (i) => !checked ? 'proposed' : i < drafts.accepted ? 'accepted' : 'rejected';
  const chips = drafts.proposed.map(
      (id, i) => element(
          'li', {class: state(i)}, code(visible(view.trace.textOf(id))),
          element('span', {}, state(i))));
  const number = plural(drafts.proposed.length, 'draft');
  return element(
      'div', {}, element('ol', {class: 'drafts'}, ...chips),
      note(checked ? `${drafts.accepted} of ${number} accepted.` : `${number} proposed.`));
}
