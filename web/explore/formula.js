// Formulas, drawn by KaTeX.

import {element} from '../modules/dom.js';

export function formula(tex) {
  const box = element('div', {class: 'formula', tabindex: '0', role: 'img', 'aria-label': tex});
  try {
    window.katex.render(tex, box, {
      displayMode: true,
      throwOnError: true,
      output: 'html',
      trust: false,
      strict: 'ignore',
      maxSize: 20,
      maxExpand: 500
    });
  } catch {
    box.replaceChildren(element('code', {}, tex));
  }
  return box;
}
