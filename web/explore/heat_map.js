// A grid of values as a picture: darker is more, marked cells stand out; below it in words what the
// pointer is at. Readers of tables get a table beside it.

import {element} from '../modules/dom.js';

// Seen on light and on dark.
const heatColour = '#1583b5', markColour = '#e0701a';

function draw(canvas, {rows, columns, value, mark}, cell) {
  canvas.width = columns * cell.width;
  canvas.height = rows.length * cell.height;
  const context = canvas.getContext('2d');
  const gap = cell.width > 4 ? 1 : 0, rowGap = cell.height > 3 ? 1 : 0;
  for (let r = 0; r < rows.length; ++r) {
    for (let c = 0; c < columns; ++c) {
      const marked = mark?.(r, c);
      const amount = Math.min(1, value(r, c) ?? 0);
      if (!marked && !(amount > 0)) continue;
      context.globalAlpha = marked ? 1 : 0.12 + 0.88 * amount;
      context.fillStyle = marked ? markColour : heatColour;
      context.fillRect(c * cell.width, r * cell.height, cell.width - gap, cell.height - rowGap);
    }
  }
}

function labels(rows) {
  const step = rows.length > 16 ? 5 : 1;
  const column = element('div', {class: 'heat-labels', 'aria-hidden': 'true'});
  rows.forEach((row, i) => column.append(element('span', {}, i % step === 0 ? `${row}` : '')));
  return column;
}

// grid: {title, rows: labels, columns, value(r, c) 0..1, mark(r, c), describe(r, c)}
export function heatMap(grid, width = 640) {
  const cell = {
    width: Math.max(2, Math.min(22, Math.floor(width / grid.columns))),
    height: grid.rows.length > 60 ? 4 : 10
  };
  const canvas = element('canvas', {class: 'heat', role: 'img', 'aria-label': grid.title});
  draw(canvas, grid, cell);
  const readout = element('p', {class: 'readout'}, grid.hint ?? '');
  canvas.onpointermove = (event) => {
    const box = canvas.getBoundingClientRect();
    const c = Math.floor((event.clientX - box.left) / box.width * grid.columns);
    const r = Math.floor((event.clientY - box.top) / box.height * grid.rows.length);
    const inside = r >= 0 && c >= 0 && r < grid.rows.length && c < grid.columns;
    readout.textContent = (inside && grid.describe?.(r, c)) || grid.hint || '';
  };
  canvas.onpointerleave = () => {
    readout.textContent = grid.hint ?? '';
  };
  return element(
      'div', {class: 'heat-map'}, labels(grid.rows), element('div', {class: 'heat-scroll'}, canvas),
      readout);
}

// The same without labels and words, for a row of small ones.
export function smallHeat(grid, width, height) {
  const canvas = element('canvas', {class: 'small-heat', 'aria-hidden': 'true'});
  draw(canvas, grid, {
    width: Math.max(1, Math.floor(width / grid.columns)),
    height: Math.max(1, Math.floor(height / grid.rows.length))
  });
  return canvas;
}
