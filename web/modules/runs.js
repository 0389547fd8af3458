// Answers being written, at most one per conversation.

import {Answer} from './answer.js';
import {pathOf, requestMessages} from './conversation.js';
import {requestBody} from './settings.js';
import {RequestError, streamChat} from './server.js';

const saveEvery = 2000;  // milliseconds: what a closed tab may lose

export class Runs {
  #runs = new Map();  // by conversation's id

  // `listener`: onChunk(conversation, run), onEnd(conversation, run), save(conversation)
  constructor(listener) {
    this.listener = listener;
  }

  of(conversation) {
    return this.#runs.get(conversation.id) ?? null;
  }

  get current() {
    return [...this.#runs.values()];
  }

  stop(conversation) {
    this.of(conversation)?.controller.abort();
  }

  // Writes the answer into `node`, the leaf. `continued`: what the node holds is the beginning.
  async start(conversation, node, {model, key, continued = false}) {
    const path = pathOf(conversation, continued ? node.id : node.parent);
    const body = requestBody(conversation.settings, model,
                             requestMessages(path, conversation.settings.system, continued));
    const controller = new AbortController();
    const run = {node, controller, answer: new Answer(node, performance.now())};
    this.#runs.set(conversation.id, run);
    let finish = 'stop';
    try {
      let saved = performance.now();
      for await (const chunk of streamChat(body, key, controller.signal)) {
        const now = performance.now();
        run.answer.apply(chunk, now);
        this.listener.onChunk(conversation, run);
        if (now - saved > saveEvery) {
          saved = now;
          this.listener.save(conversation);
        }
      }
    } catch (error) {
      finish = controller.signal.aborted ? 'stopped' : 'failed';
      if (finish === 'failed') node.error = describe(error);
    }
    run.answer.end(performance.now(), finish);
    this.#runs.delete(conversation.id);
    conversation.updated = Date.now();
    this.listener.save(conversation);
    this.listener.onEnd(conversation, run);
  }
}

function describe(error) {
  if (error instanceof RequestError) {
    const {status, title, message, advice, code, retryAfter} = error;
    return {status, title, message, advice, code, retryAfter};
  }
  console.error(error);
  return {status: 0, title: 'The page did not understand the answer', message: String(error.message),
          advice: 'Try again. Are the page and the server of the same version?'};
}
