// C++ with a little colour: comments, strings, numbers, keywords, types. No parser: it has to read
// an excerpt that begins anywhere.

import {element} from '../modules/dom.js';

const keywords = new Set(
    ('alignas auto bool break case char class co_return const constexpr continue default delete do ' +
     'double else enum explicit false final float for friend if inline int int32_t int64_t mutable namespace ' +
     'new noexcept nullptr operator override private protected public return size_t sizeof static struct ' +
     'switch template this true typename uint8_t using virtual void while')
        .split(' '));

const tokens =
    /(\/\/.*|\/\*.*?\*\/)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(\b\d[\w.']*)|([A-Za-z_]\w*)/g;

function kindOf(match) {
  if (match[1]) return 'comment';
  if (match[2]) return 'string';
  if (match[3]) return 'number';
  if (keywords.has(match[4])) return 'keyword';
  return /^k?[A-Z]\w*[a-z]/.test(match[4]) ? 'type' : '';
}

function colouredLine(text) {
  const line = document.createDocumentFragment();
  let from = 0;
  for (const match of text.matchAll(tokens)) {
    const kind = kindOf(match);
    if (!kind) continue;
    line.append(text.slice(from, match.index), element('span', {class: `c-${kind}`}, match[0]));
    from = match.index + match[0].length;
  }
  line.append(text.slice(from));
  return line;
}

// `begin`: the number of the first line.
export function codeText(text, begin) {
  const box = element('pre', {class: 'source', tabindex: '0'});
  for (const [i, line] of text.replace(/\n$/, '').split('\n').entries()) {
    box.append(
        element('span', {class: 'line-number', 'aria-hidden': 'true'}, `${begin + i}`),
        element('code', {class: 'line'}, colouredLine(line), '\n'));
  }
  return box;
}
