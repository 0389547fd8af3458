// The model's tree as the server or the file gives it, with the ways through it.

// A tensor's name or a pattern of names, with every number as {}: "layers.7.x" and
// "layers.{layer}.x" are the same.
const pattern = (name) => name.replace(/\{[^}]*\}/g, '{}').replace(/(^|\.)\d+(?=\.|$)/g, '$1{}');

const squeeze = (text) => text.toLowerCase().replace(/[\s_.-]+/g, ' ').trim();

export class Model {
  constructor(data) {
    this.data = data;
    this.root = data.root;
    this.nodes = new Map();
    this.parents = new Map();
    this.#enter(data.root, null);
    this.order = [...this.nodes.values()];
    this.layers = [...data.layers].sort((a, b) => a.layer - b.layer);
    this.handoffs = data.handoffs;
    // Layers whose stream the draft head sees.
    this.taps = this.draftHead() ? data.config.dspark_target_layer_ids ?? [] : [];
  }

  #enter(node, parent) {
    this.nodes.set(node.id, node);
    if (parent) this.parents.set(node, parent);
    for (const child of node.children) this.#enter(child, node);
  }

  // The part that drafts, or null.
  draftHead() {
    const first = this.layers.find((layer) => layer.draft);
    return first ? this.path(this.nodes.get(first.node))[1] : null;
  }

  // What flows on from a part: the output marked so, or the only one; null where neither is.
  mainOutput(node) {
    const made = node.outputs.filter((one) => (one.kind ?? 'activation') === 'activation');
    return made.find((one) => one.main) ?? (made.length === 1 ? made[0] : null);
  }

  parent(node) {
    return this.parents.get(node) ?? null;
  }

  // From the root to the node.
  path(node) {
    const path = [];
    for (let at = node; at; at = this.parent(at)) path.unshift(at);
    return path;
  }

  contains(outer, node) {
    return this.path(node).includes(outer);
  }

  // The neighbour `step` further among the children of the same part.
  sibling(node, step) {
    const all = this.parent(node)?.children ?? [node];
    return all[all.indexOf(node) + step] ?? null;
  }

  // What multiplies this part inside the one that contains it: [{n, what}].
  ownTerms(node) {
    const outer = this.parent(node)?.count_terms ?? [];
    const terms = node.count_terms ?? [];
    const shared = outer.every((term, i) => term.n === terms[i]?.n && term.what === terms[i]?.what);
    return shared ? terms.slice(outer.length) : terms;
  }

  // Those of them that the title does not tell already.
  untoldTerms(node) {
    const told = node.title.match(/\d+/g) ?? [];
    return this.ownTerms(node).filter((term) => !told.includes(`${term.n}`));
  }

  // {node, why} for every part that the words find, the best first.
  search(text, most = 12) {
    const wanted = squeeze(text);
    if (!wanted) return [];
    const numbers = [...text.matchAll(/layers\.(\d+)/g)].map((match) => Number(match[1]));
    const found = [];
    for (const [place, node] of this.order.entries()) {
      if (numbers.some((number) => node.layers && !node.layers.includes(number))) continue;
      const hit = this.#match(node, text.trim().toLowerCase(), wanted);
      if (hit) found.push({node, place, ...hit});
    }
    found.sort((a, b) => b.score - a.score || a.place - b.place);
    return found.slice(0, most);
  }

  #match(node, text, wanted) {
    const title = squeeze(node.title);
    if (title === wanted) return {score: 100, why: ''};
    if (title.startsWith(wanted)) return {score: 80, why: ''};
    const words = wanted.split(' ');
    if (words.every((word) => title.includes(word))) return {score: 60, why: ''};
    const key = node.evidence.config.find((one) => one.toLowerCase().includes(text));
    if (key) return {score: key.toLowerCase() === text ? 70 : 40, why: `key ${key}`};
    const tensor = node.weights.find((one) => pattern(one.tensor).includes(pattern(text)));
    if (tensor) return {score: 50, why: `tensor ${tensor.tensor}`};
    if (squeeze(node.operation ?? '').includes(wanted)) {
      return {score: 30, why: `operation ${node.operation}`};
    }
    const path = squeeze(this.path(node).map((one) => one.title).join(' '));
    if (words.length > 1 && words.every((word) => path.includes(word))) return {score: 20, why: ''};
    if (words.every((word) => squeeze(node.sentence).includes(word))) {
      return {score: 10, why: node.sentence};
    }
    return null;
  }
}

// The document's own data where it has some, the server's otherwise. Throws an error with words.
export async function loadModel(key) {
  const inside = document.getElementById('model-data');
  if (inside) return new Model(JSON.parse(inside.textContent));
  let response;
  try {
    response =
        await fetch('/explore/model.json', {headers: key ? {Authorization: `Bearer ${key}`} : {}});
  } catch {
    throw new Error('The server cannot be reached. Is it running?');
  }
  if (response.status === 401) {
    throw new Error('The server asks for an API key: enter it in the settings of the chat page.');
  }
  if (response.status === 503)
    throw Object.assign(new Error('The model is being loaded …'), {again: true});
  const body = await response.json().catch(() => null);
  if (!response.ok || !body?.root) {
    throw new Error(body?.error?.message ?? `The server answered ${response.status}.`);
  }
  return new Model(body);
}
