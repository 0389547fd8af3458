// What /v1/trace answered, and ways to ask it.

export class Trace {
  constructor(data) {
    this.data = data;
    this.tokens = [...data.tokens.slice(0, data.prompt_tokens), ...data.generated];
    this.prompt = data.prompt_tokens;
    this.texts = new Map(this.tokens.map((token) => [token.id, token.text]));
    this.steps = data.steps.map(
        (step) => ({...step, layers: [...step.layers].sort((a, b) => a.layer - b.layer)}));
  }

  textOf(id) {
    return this.texts.get(id) ?? `#${id}`;
  }

  // What stands in no token of the answer: drafts that were rejected.
  unknown() {
    const ids =
        this.steps.flatMap((step) => [...(step.tokens ?? []), ...(step.drafts?.proposed ?? [])]);
    return [...new Set(ids)].filter((id) => !this.texts.has(id));
  }

  // The text as the step had it: drafts that it checked stand in it, accepted or not. Of a block to
  // be drafted only the first token is known.
  seen(step) {
    const before = this.tokens.slice(0, step.positions[0]);
    const own = step.positions.map((position, row) => {
      const id = step.tokens?.[row];
      if (id === undefined) return this.tokens[position] ?? {text: '?'};
      return {id, text: step.kind === 'draft' && row > 0 ? '□' : this.textOf(id)};
    });
    return [...before, ...own];
  }

  // The steps of the model itself that had this position, by number.
  stepsAt(position) {
    return this.steps.flatMap(
        (step, i) => step.kind !== 'draft' && step.positions.includes(position) ? [i] : []);
  }

  // Tokens that a step worked on. Of a long prompt the answer holds the last rows only; a prompt's
  // step begins where the one before it ended.
  rowsOf(number) {
    const step = this.steps[number];
    if (step.kind !== 'prefill' || !step.truncated) return step.positions.length;
    const before = this.steps[number - 1]?.positions.at(-1) ?? -1;
    return step.positions.at(-1) - before;
  }

  // The entries of a step's layers that have something under `name`, of these layers only.
  layersWith(step, name, layers = null) {
    return step.layers.filter(
        (one) => one[name] !== undefined && one[name] !== null && one[name].length !== 0 &&
            (!layers || layers.includes(one.layer)));
  }

  // Time and traffic of a part in a step: its own record, or the sum of those inside it.
  costOf(step, id, layers = null) {
    const records = (step.nodes ?? [])
                        .filter(
                            (one) => !layers || one.layer === undefined || one.layer < 0 ||
                                layers.includes(one.layer));
    const own = records.filter((one) => one.id === id);
    const used = own.length ? own : records.filter((one) => one.id.startsWith(`${id}/`));
    if (!used.length) return null;
    const sum = (name) => used.reduce((total, one) => total + (one[name] ?? 0), 0);
    return {
      id,
      count: used.length,
      seconds: sum('seconds'),
      bytes: sum('bytes'),
      flops: sum('flops'),
      floor: sum('floor_seconds')
    };
  }

  // Seconds of a layer, all its parts together.
  secondsOf(step, layer) {
    const own = (step.nodes ?? []).filter((one) => one.layer === layer);
    return own.reduce((total, one) => total + one.seconds, 0);
  }

  // All parts with a record, the slowest first.
  costs(step) {
    const ids = [...new Set((step.nodes ?? []).map((one) => one.id))];
    return ids.map((id) => this.costOf(step, id)).sort((a, b) => b.seconds - a.seconds);
  }
}

const names = {
  prefill: 'Prompt',
  decode: 'Reply',
  verify: 'Drafts checked',
  draft: 'Drafting'
};
export const stepName = (step) => names[step.kind] ?? step.kind;
