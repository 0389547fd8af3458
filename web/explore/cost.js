// What a part costs, and of what that is the cost: of a token, a picture, a proposal of drafts.

const same = (a, b) => a.flops === b.flops && a.bytes === b.bytes;

// A step that drafts works on one block, however many tokens the step before it had.
function unitOf(model, node) {
  if (node.cost.per) return node.cost.per;
  const {decode, prefill} = node.cost;
  const drafts = model.draftHead();
  return drafts && model.contains(drafts, node) && same(decode, prefill) ? 'proposal' : 'token';
}

function add(sum, cost, times) {
  sum.flops += cost.flops * times;
  sum.bytes += cost.bytes * times;
}

// [{per, decode: {flops, bytes}, prefill}] of one instance. What costs per token and what costs per
// picture have no sum, so parts that hold both tell them apart.
export function costsOf(model, node) {
  const units = new Map();
  const visit = (part, times) => {
    const below = new Set(part.children.flatMap((child) => [...unitsIn(model, child)]));
    if (below.size > 1) {
      for (const child of part.children) visit(child, times * child.count / part.count);
      return;
    }
    const {decode, prefill} = part.cost;
    if (!decode.flops && !decode.bytes && !prefill.flops && !prefill.bytes) return;
    const per = [...unitsIn(model, part)][0];
    const none = () => ({flops: 0, bytes: 0});
    if (!units.has(per)) units.set(per, {per, decode: none(), prefill: none()});
    add(units.get(per).decode, decode, times);
    add(units.get(per).prefill, prefill, times);
  };
  visit(node, 1);
  return [...units.values()];
}

function unitsIn(model, node) {
  if (!node.children.length) return new Set([unitOf(model, node)]);
  return new Set(node.children.flatMap((child) => [...unitsIn(model, child)]));
}
