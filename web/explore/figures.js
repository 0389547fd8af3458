// Numbers as the explorer writes them: exact where they are compared, short where they are read.

import {count} from '../modules/words.js';

const steps = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];

// Three or four digits that matter.
function digits(value) {
  if (value >= 1000) return count(Math.round(value));
  if (value >= 100) return value.toFixed(1).replace(/\.0$/, '');
  return value.toFixed(value >= 10 ? 1 : 2).replace(/\.?0+$/, '');
}

function scaled(value, unit) {
  for (const [size, letter] of steps) {
    if (value >= size) return `${digits(value / size)} ${letter}${unit}`;
  }
  return `${digits(value)} ${unit}`.trim();
}

export const bytes = (value) => value < 1000 ? `${digits(value)} B` : scaled(value, 'B');
export const flops = (value) => value < 1000 ? `${digits(value)} FLOP` : scaled(value, 'FLOP');

// 763205315794 -> "763.2 B", as model sizes are spoken of.
export function parameters(value) {
  for (const [size, letter] of [[1e12, 'T'], [1e9, 'B'], [1e6, 'M']]) {
    if (value >= size) return `${digits(value / size)} ${letter}`;
  }
  return count(value);
}

export function time(value) {
  if (value >= 1) return `${digits(value)} s`;
  if (value >= 1e-3) return `${digits(value * 1e3)} ms`;
  return `${digits(value * 1e6)} µs`;
}

export function share(part, whole) {
  if (!(whole > 0)) return '';
  const percent = 100 * part / whole;
  if (percent > 0 && percent < 0.1) return '< 0.1 %';
  return `${percent >= 10 ? Math.round(percent) : percent.toFixed(1)} %`;
}

// [2, 8, 9, 10] -> "2, 8–10"
export function ranges(numbers) {
  const runs = [];
  for (const number of numbers) {
    const last = runs.at(-1);
    if (last && number === last[1] + 1)
      last[1] = number;
    else
      runs.push([number, number]);
  }
  return runs
      .map(([from, to]) => {
        if (from === to) return `${from}`;
        return to === from + 1 ? `${from}, ${to}` : `${from}–${to}`;
      })
      .join(', ');
}

export const layersNamed = (numbers) =>
    `layer${numbers.length === 1 ? '' : 's'} ${ranges(numbers)}`;

// ["B", "T", 8192] -> "[B, T, 8192]"
export const shape = (dimensions) => `[${dimensions.join(', ')}]`;
