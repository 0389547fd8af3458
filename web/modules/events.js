// Server-sent events out of a stream of text, cut anywhere.

export class EventParser {
  #pending = '';
  #data = [];
  #name = '';
  #started = false;

  // Returns the events that `text` completes: {name, data}, or {comment}.
  feed(text) {
    this.#pending += text;
    if (!this.#started && this.#pending) {
      this.#started = true;
      if (this.#pending.startsWith('\ufeff')) this.#pending = this.#pending.slice(1);
    }
    const events = [];
    let from = 0;
    for (;;) {
      const end = this.#lineEnd(from);
      if (!end) break;
      this.#line(this.#pending.slice(from, end.at), events);
      from = end.next;
    }
    this.#pending = this.#pending.slice(from);
    return events;
  }

  // A line ends with \n, \r\n or \r. A \r at the very end may be half of \r\n: wait for more.
  #lineEnd(from) {
    for (let at = from; at < this.#pending.length; ++at) {
      const character = this.#pending[at];
      if (character === '\n') return {at, next: at + 1};
      if (character !== '\r') continue;
      if (at + 1 === this.#pending.length) return null;
      return {at, next: this.#pending[at + 1] === '\n' ? at + 2 : at + 1};
    }
    return null;
  }

  #line(line, events) {
    if (line === '') {
      if (this.#data.length) events.push({name: this.#name, data: this.#data.join('\n')});
      this.#data = [];
      this.#name = '';
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) {
      events.push({comment: line.slice(1).trim()});
      return;
    }
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') this.#data.push(value);
    if (field === 'event') this.#name = value;
  }
}

// The events of a response's body. Ends with the body; an abort of the request throws.
export async function* readEvents(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const parser = new EventParser();
  try {
    for (;;) {
      const {value, done} = await reader.read();
      if (done) break;
      yield* parser.feed(decoder.decode(value, {stream: true}));
    }
  } finally {
    reader.releaseLock();
  }
}
