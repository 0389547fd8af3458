// What flows between the diagram's blocks, found by the names of what parts take and make.

const activations = (list) =>
    list.filter((one) => (one.kind ?? 'activation') === 'activation').map((one) => one.name);

// Links {from, to, name} inside one list of blocks, in order: an input comes from the last block
// before it that makes something of this name. Blocks of one structure share their node.
function linksInside(blocks) {
  const links = [], makers = new Map(), unread = new Map();
  for (const to of blocks) {
    for (const name of activations(to.node.inputs)) {
      const from = makers.get(name);
      if (from) links.push({from, to, name});
      unread.delete(from);
    }
    for (const name of activations(to.node.outputs)) {
      makers.set(name, to);
      unread.set(to, [...(unread.get(to) ?? []), name]);
    }
  }
  // Nothing is made in vain: what nobody read goes to the last part that takes such a thing.
  for (const [from, names] of unread) {
    const after = blocks.slice(blocks.indexOf(from) + 1);
    for (const name of names) {
      const to = after.findLast((one) => activations(one.node.inputs).includes(name));
      const taken = links.find((link) => link.to === to && link.name === name);
      if (to && taken) taken.from = from;
    }
  }
  return links;
}

// The draft head: layers are tapped into its first part; a part without outputs keeps what it makes
// in the rings that the stages read.
function draftLinks(model, stack, branch) {
  const {taps, stages} = {taps: branch[0], stages: branch.filter((block) => block.layer)};
  if (!taps) return [];
  const sources = new Set(model.taps);
  const links = stack.filter((block) => sources.has(block.layer?.layer))
                    .map((from) => ({from, to: taps, kind: 'taps'}));
  const keeper =
      branch.slice(1).find((block) => !activations(block.node.outputs).length && !block.layer);
  if (!keeper) return links;
  links.push({from: taps, to: keeper, name: activations(taps.node.outputs)[0]});
  return [...links, ...stages.map((to) => ({from: keeper, to, kind: 'taps'}))];
}

// All links; those with a `kind` are drawn as arcs, the others as lines.
export function linksOf(model, {inputs, stack, branch}) {
  const inMain = linksInside([...inputs.filter((block) => block.takes === 'token ids'), ...stack]);
  // The stream is what goes down the middle; what else comes from the top goes aside.
  const main = inMain.map(
      (link) =>
          link.from.input && link.from !== inMain[0]?.from ? {...link, kind: 'ngrams'} : link);
  const pictures = inputs.find((block) => block.takes !== 'token ids');
  const stream = main[0];
  return [
    ...main, ...(pictures && stream ? [{from: pictures, to: stream.to, joins: true}] : []),
    ...draftLinks(model, stack, branch),
    ...linksInside(branch.filter((block) => activations(block.node.outputs).length).slice(1))
  ];
}
