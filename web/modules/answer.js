// What the chunks of a streamed answer do to its node.

// `now` is in milliseconds, on one clock for all calls.
export class Answer {
  #started;
  #reasoningStarted = null;
  #firstToken = null;
  #last = null;
  #tokens = 0;
  #counted = false;  // the server told the number of tokens
  #before;

  constructor(node, now) {
    this.node = node;
    node.reasoning ??= '';
    node.toolCalls ??= [];
    node.stats ??= {};
    node.finish = '';
    delete node.error;
    this.#started = now;
    // An answer that is continued keeps what it had.
    this.#before = {seconds: node.stats.seconds ?? 0,
                    completionTokens: node.stats.completionTokens ?? 0,
                    reasoningSeconds: node.stats.reasoningSeconds ?? 0};
    this.progress = null;  // {done, total, cached} while the prompt is read
  }

  get waiting() { return this.#firstToken === null; }
  get reasoning() { return this.#reasoningStarted !== null; }
  elapsed(now) { return (now - this.#started) / 1000; }
  reasoningSeconds(now) {
    const open = this.reasoning ? (now - this.#reasoningStarted) / 1000 : 0;
    return (this.node.stats.reasoningSeconds ?? 0) + open;
  }

  apply(chunk, now) {
    this.#applyProgress(chunk.prompt_progress);
    if (chunk.model) this.node.model = chunk.model;
    for (const choice of chunk.choices ?? []) {
      if (choice.delta) this.#applyDelta(choice.delta, now);
      if (choice.finish_reason) this.node.finish = choice.finish_reason;
    }
    if (chunk.usage) this.#applyUsage(chunk.usage);
    if (chunk.timings) this.#applyTimings(chunk.timings);
  }

  #applyProgress(progress) {
    if (!progress || !(progress.total > 0)) return;
    const cached = progress.cache ?? 0;
    this.progress = {done: Math.min(progress.processed ?? 0, progress.total),
                     total: progress.total, cached};
  }

  #applyDelta(delta, now) {
    const reasoning = delta.reasoning_content ?? '';
    const content = delta.content ?? '';
    const calls = delta.tool_calls ?? [];
    if (!reasoning && !content && !calls.length) return;
    this.#firstToken ??= now;
    this.#last = now;
    if (!this.#counted) ++this.#tokens;
    if (reasoning) {
      this.#reasoningStarted ??= now;
      this.node.reasoning += reasoning;
    }
    if (content || calls.length) this.#endReasoning(now);
    this.node.content += content;
    for (const call of calls) this.#applyCall(call);
    this.#measure();
  }

  #applyCall({index = 0, id, function: called = {}}) {
    const call = this.node.toolCalls[index] ??= {id: `call_${index}`, name: '', arguments: ''};
    if (id) call.id = id;
    if (called.name) call.name = called.name;
    if (called.arguments) call.arguments += called.arguments;
  }

  // Until the server says better: a chunk is a token.
  #measure() {
    const {stats} = this.node;
    const seconds = (this.#last - this.#firstToken) / 1000;
    if (seconds > 0.3) stats.tokensPerSecond = (this.#tokens - 1) / seconds;
    if (this.#counted) return;
    stats.completionTokens = this.#before.completionTokens + this.#tokens;
    stats.estimated = 1;
  }

  #applyUsage(usage) {
    const stats = this.node.stats;
    if (usage.prompt_tokens > 0) stats.promptTokens = usage.prompt_tokens;
    const cached = usage.prompt_cache_hit_tokens ?? usage.prompt_tokens_details?.cached_tokens;
    if (cached >= 0) stats.cachedTokens = cached;
    if (!(usage.completion_tokens > 0)) return;
    this.#counted = true;
    this.#tokens = usage.completion_tokens;
    delete stats.estimated;
    stats.completionTokens = this.#before.completionTokens + usage.completion_tokens;
    const reasoned = usage.completion_tokens_details?.reasoning_tokens;
    if (reasoned > 0) stats.reasoningTokens = reasoned;
  }

  #applyTimings(timings) {
    const stats = this.node.stats;
    if (timings.predicted_per_second > 0) stats.tokensPerSecond = timings.predicted_per_second;
    if (timings.prompt_ms >= 0) stats.promptSeconds = timings.prompt_ms / 1000;
    if (timings.cache_n >= 0) stats.cachedTokens ??= timings.cache_n;
  }

  #endReasoning(now) {
    if (!this.reasoning) return;
    this.node.stats.reasoningSeconds = this.reasoningSeconds(now);
    this.#reasoningStarted = null;
  }

  // `finish`: how it ended, if the server did not say.
  end(now, finish) {
    this.#endReasoning(now);
    this.node.stats.seconds = this.#before.seconds + this.elapsed(now);
    this.node.toolCalls = this.node.toolCalls.filter((call) => call?.name);
    if (!this.node.finish) this.node.finish = finish;
    // A call that was cut short cannot be answered.
    if (finish === 'stopped' || finish === 'failed') {
      this.node.toolCalls = this.node.toolCalls.filter((call) => isJson(call.arguments));
    }
  }
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
