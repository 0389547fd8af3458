// Markdown with math, as a document fragment that is safe to show.
//
// Three walls stand between a model's text and the page: raw HTML is text, not markup (the
// tokenizers below); DOMPurify lets through the tags and attributes listed here only; the page's
// policy runs no script that is not a file of the server. KaTeX and the highlighter work on text
// content, after the purifying.

import {highlight} from './highlight.js';

const {marked, DOMPurify, katex} = window;

const allowedTags = [
  'a', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hr', 'input',
  'li', 'ol', 'p', 'pre', 'span', 'strong', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul',
];
const allowedAttributes = ['align', 'checked', 'class', 'disabled', 'href', 'start', 'title', 'type'];

const escapes = {'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', '\'': '&#39;'};
const escapeText = (text) => text.replace(/[&<>"']/g, (character) => escapes[character]);

// $$...$$ and \[...\] on lines of their own.
const mathBlock = {
  name: 'mathBlock',
  level: 'block',
  start: (source) => source.match(/(?:^|\n) {0,3}(?:\$\$|\\\[)/)?.index,
  tokenizer(source) {
    const match = /^ {0,3}(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n+|$)/.exec(source);
    if (!match) return undefined;
    return {type: 'mathBlock', raw: match[0], tex: (match[1] ?? match[2]).trim()};
  },
  renderer: (token) => `<p class="math-display">${escapeText(token.tex)}</p>`,
};

// \(...\), \[...\] and $$...$$ inside a line; $...$ where both dollars hug the formula and no digit
// follows, so that "$5 and $6" stays money.
const mathSpan = {
  name: 'mathSpan',
  level: 'inline',
  start: (source) => source.match(/\$|\\[([]/)?.index,
  tokenizer(source) {
    const match = /^\\\(([\s\S]+?)\\\)|^\\\[([\s\S]+?)\\\]|^\$\$([\s\S]+?)\$\$|^\$(?![\s$])((?:\\[\s\S]|[^$\\\n])*?(?:\\[^\s]|[^\s$\\]))\$(?![\d$])/
        .exec(source);
    if (!match) return undefined;
    const tex = match[1] ?? match[2] ?? match[3] ?? match[4];
    const display = match[2] !== undefined || match[3] !== undefined;
    return {type: 'mathSpan', raw: match[0], tex: tex.trim(), display};
  },
  renderer: (token) =>
      `<span class="${token.display ? 'math-display' : 'math-inline'}">${escapeText(token.tex)}</span>`,
};

const tokenizer = {
  html() { return undefined; },  // not `false`, which would ask marked's own tokenizer
  tag(source) {
    const match = /^<br\s*\/?>/i.exec(source);
    return match ? {type: 'br', raw: match[0]} : undefined;
  },
};

const renderer = {
  // The page asks no other server for anything, so a picture is a link to it.
  image: (href, title, text) =>
      `<a href="${escapeText(href ?? '')}">${escapeText(text || 'picture')}</a>`,
  // A name such as "onload" must not become a class list of somebody's choice.
  code(text, info) {
    const language = /^[\w+#.-]{1,30}/.exec(info ?? '')?.[0] ?? '';
    return `<pre><code class="language-${escapeText(language)}">${escapeText(text)}</code></pre>`;
  },
};

marked.use({extensions: [mathBlock, mathSpan], tokenizer, renderer});
const options = {gfm: true, breaks: false, headerIds: false, mangle: false};

function purify(html) {
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS: allowedTags, ALLOWED_ATTR: allowedAttributes, ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false, ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
    // Their values are no addresses, which the expression above is for.
    ADD_URI_SAFE_ATTR: ['align', 'checked', 'disabled', 'start', 'type'],
    RETURN_DOM_FRAGMENT: true,
  });
}

function showMath(element) {
  const tex = element.textContent;
  const displayMode = element.classList.contains('math-display');
  try {
    // The limits keep a formula from growing over the page or for ever.
    katex.render(tex, element, {displayMode, throwOnError: true, trust: false, strict: 'ignore',
                                maxSize: 20, maxExpand: 500});
    if (displayMode) element.tabIndex = 0;  // it may scroll
  } catch {
    element.textContent = displayMode ? `$$${tex}$$` : `$${tex}$`;
    element.classList.add('math-failed');
  }
}

function frameCode(pre) {
  const code = pre.querySelector('code');
  if (!code) return;
  const language = /language-(\S+)/.exec(code.className)?.[1] ?? '';
  const frame = document.createElement('div');
  frame.className = 'code-frame';
  const head = document.createElement('div');
  head.className = 'code-head';
  const name = document.createElement('span');
  name.textContent = language || 'text';
  const copy = document.createElement('button');
  copy.type = 'button';
  copy.className = 'quiet copy-code';
  copy.textContent = 'Copy';
  copy.setAttribute('aria-label', `Copy the ${language ? language + ' ' : ''}code`);
  head.append(name, copy);
  pre.replaceWith(frame);
  pre.tabIndex = 0;  // it may scroll
  frame.append(head, pre);
  highlight(code, language);
}

function finish(fragment) {
  for (const element of fragment.querySelectorAll('.math-inline, .math-display')) showMath(element);
  for (const pre of fragment.querySelectorAll('pre')) frameCode(pre);
  for (const link of fragment.querySelectorAll('a')) {
    link.target = '_blank';
    link.rel = 'noopener noreferrer';
  }
  for (const box of fragment.querySelectorAll('input')) {
    box.disabled = true;
    box.setAttribute('aria-label', box.checked ? 'done' : 'not done');
    if (box.type !== 'checkbox') box.remove();
  }
  for (const table of fragment.querySelectorAll('table')) {
    const frame = document.createElement('div');
    frame.className = 'table-frame';
    frame.tabIndex = 0;
    table.replaceWith(frame);
    frame.append(table);
  }
  return fragment;
}

// The text in top-level blocks: [{raw, render()}]. Blocks whose raw text is the same look the same,
// as long as `links` (the link definitions of the whole text) are.
export function markdownBlocks(text) {
  const tokens = marked.lexer(text, {...marked.defaults, ...options});
  const links = tokens.links;
  const blocks = tokens.filter((token) => token.type !== 'space').map((token) => ({
    raw: token.raw,
    render() {
      const one = [token];
      one.links = links;
      return finish(purify(marked.parser(one, {...marked.defaults, ...options})));
    },
  }));
  return {blocks, links: JSON.stringify(links)};
}

// Shows growing text in an element and touches only what changed: a selection, an open menu or the
// scroll position of a finished block stays.
export class MarkdownView {
  #shown = [];
  #links = '';

  constructor(element) {
    this.element = element;
  }

  show(text) {
    const {blocks, links} = markdownBlocks(text);
    let same = 0;
    if (links === this.#links) {
      while (same < blocks.length && this.#shown[same] === blocks[same].raw) ++same;
    }
    while (this.element.children.length > same) this.element.lastChild.remove();
    for (const block of blocks.slice(same)) {
      const box = document.createElement('div');
      box.className = 'block';
      box.append(block.render());
      this.element.append(box);
    }
    this.#shown = blocks.map((block) => block.raw);
    this.#links = links;
  }
}
