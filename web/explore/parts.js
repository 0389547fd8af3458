// Pieces that every page of the explorer is made of.

import {element} from '../modules/dom.js';

export const section = (title, ...content) =>
    element('section', {class: 'part'}, element('h2', {}, title), ...content);

// Rows of cells; a cell is text or an element. `numbers`: which columns are figures.
export function table(caption, heads, rows, numbers = [], foot = null) {
  const cell = (tag, content, i, more = {}) =>
      element(tag, {class: numbers.includes(i) ? 'figure' : null, ...more}, content ?? '');
  const body = element(
      'tbody', {},
      ...rows.map(
          (row) => element(
              'tr', {},
              ...row.map(
                  (content, i) =>
                      i === 0 ? cell('th', content, i, {scope: 'row'}) : cell('td', content, i)))));
  const made = element(
      'table', {}, element('caption', {class: 'visually-hidden'}, caption),
      element(
          'thead', {},
          element('tr', {}, ...heads.map((head, i) => cell('th', head, i, {scope: 'col'})))),
      body);
  if (foot) {
    made.append(element(
        'tfoot', {},
        element(
            'tr', {},
            ...foot.map(
                (content, i) =>
                    cell(i === 0 ? 'th' : 'td', content, i, i === 0 ? {scope: 'row'} : {})))));
  }
  return element(
      'div', {class: 'table-frame', tabindex: '0', role: 'group', 'aria-label': caption}, made);
}

export const code = (text) => element('code', {}, text);

// How much of a whole, as a bar; the number stands beside it for those who do not see it.
export function bar(share) {
  const space = 'http://www.w3.org/2000/svg';
  const picture = document.createElementNS(space, 'svg');
  picture.setAttribute('class', 'bar-picture');
  picture.setAttribute('viewBox', '0 0 100 6');
  picture.setAttribute('preserveAspectRatio', 'none');
  picture.setAttribute('aria-hidden', 'true');
  for (const [kind, width] of [['bar-whole', 100], ['bar-share', 100 * Math.min(1, share || 0)]]) {
    const rectangle = document.createElementNS(space, 'rect');
    rectangle.setAttribute('class', kind);
    rectangle.setAttribute('width', Math.max(width, share > 0 ? 0.6 : 0));
    rectangle.setAttribute('height', 6);
    picture.append(rectangle);
  }
  return picture;
}

export const linkTo = (node, ...content) =>
    element('a', {href: `#${node.id}`}, ...(content.length ? content : [node.title]));

export function svg(tag, properties = {}, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
