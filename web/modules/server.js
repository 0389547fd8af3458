// Talks to the server that the page came from, and puts its errors into words.

import {readEvents} from './events.js';

export class RequestError extends Error {
  // title: what went wrong; message: what the server said; advice: what to do.
  constructor({status = 0, title, message = '', advice = '', code = '', retryAfter = 0}) {
    super(message);
    Object.assign(this, {status, title, advice, code, retryAfter});
  }
}

const explanations = {
  400: ['The server does not accept the request', 'Check the settings and the tools.'],
  401: ['The server asks for an API key', 'Enter the key in the settings, then try again.'],
  403: ['The server refuses the API key', 'Enter another key in the settings, then try again.'],
  404: ['The server does not know this address', 'Is this page from the same version?'],
  413: ['The conversation is too large for one request',
        'Start a new conversation, or edit an earlier message.'],
  422: ['The server does not accept the request', 'Check the settings and the tools.'],
  429: ['The server is busy', 'Its queue is full. Try again in a moment.'],
  503: ['The server is not ready', 'It is loading the model or shutting down. Try again soon.'],
};

export function explain(status, body, retryAfter = 0) {
  const reported = body?.error ?? {};
  const message = typeof reported === 'string' ? reported : String(reported.message ?? '');
  const code = String(reported.code ?? reported.type ?? '');
  let [title, advice] = explanations[status] ??
      ['The server failed', 'Try again. If it happens again, the server’s log says more.'];
  if (code === 'context_length_exceeded') {
    title = 'The conversation is longer than the model’s context';
    advice = 'Start a new conversation, or edit an earlier message and go on from there.';
  }
  if (status === 429 && retryAfter > 0) advice = `Try again in ${Math.ceil(retryAfter)} s.`;
  return new RequestError({status, title, message, advice, code, retryAfter});
}

export function unreachable() {
  return new RequestError({
    title: 'The server cannot be reached',
    advice: 'Is it running? Nothing is lost: try again when it is back.',
  });
}

const headersWith = (key) => key ? {Authorization: `Bearer ${key}`} : {};

async function failureOf(response) {
  const body = await response.json().catch(() => null);
  return explain(response.status, body, Number(response.headers.get('Retry-After')) || 0);
}

// {state: 'ready' | 'loading' | 'unreachable', progress: 0..1 or null}
export async function checkHealth() {
  try {
    const response = await fetch('/health', {cache: 'no-store'});
    if (response.ok) return {state: 'ready', progress: null};
    const body = await response.json().catch(() => ({}));
    const progress = body.progress ?? body.error?.progress;
    if (response.status !== 503) return {state: 'unreachable', progress: null};
    return {state: 'loading', progress: progress >= 0 && progress <= 1 ? progress : null};
  } catch {
    return {state: 'unreachable', progress: null};
  }
}

// Whether the model takes pictures; null where the server does not tell.
async function readVision(key) {
  const response = await fetch('/props', {headers: headersWith(key), cache: 'no-store'})
      .catch(() => null);
  const props = response?.ok ? await response.json().catch(() => ({})) : {};
  return typeof props.modalities?.vision === 'boolean' ? props.modalities.vision : null;
}

// {id, context, vision}; null where the server does not tell. Throws RequestError.
export async function describeModel(key) {
  let response;
  try {
    response = await fetch('/v1/models', {headers: headersWith(key), cache: 'no-store'});
  } catch {
    throw unreachable();
  }
  if (!response.ok) throw await failureOf(response);
  const model = (await response.json().catch(() => ({}))).data?.[0] ?? {};
  const context = model.max_model_len ?? model.meta?.n_ctx ?? model.context_length ?? null;
  return {id: String(model.id ?? 'default'), context, vision: await readVision(key)};
}

// The chunks of an answer. Throws RequestError, or AbortError when `signal` fires.
export async function* streamChat(body, key, signal) {
  let response;
  try {
    response = await fetch('/v1/chat/completions', {
      method: 'POST', signal, body: JSON.stringify(body),
      headers: {'Content-Type': 'application/json', ...headersWith(key)},
    });
  } catch (error) {
    throw signal.aborted ? error : unreachable();
  }
  if (!response.ok) throw await failureOf(response);
  let complete = false;
  try {
    for await (const event of readEvents(response.body)) {
      if (event.data === undefined) continue;
      if (event.data === '[DONE]') {
        complete = true;
        break;
      }
      const chunk = JSON.parse(event.data);
      if (chunk.error) throw explain(chunk.error.status ?? 500, chunk);
      yield chunk;
    }
  } catch (error) {
    if (signal.aborted || error instanceof RequestError) throw error;
    throw unreachable();
  }
  if (!complete) {
    throw new RequestError({
      title: 'The connection ended before the answer did',
      advice: 'What came is kept. Continue, or ask again.',
    });
  }
}
