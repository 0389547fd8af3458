// What a conversation asks of the model, and how a request says it. Numbers that are null are left
// to the server.

export const namedEfforts = {low: 50, high: 75, max: 100};

export const numbers = {
  temperature: {label: 'Temperature', least: 0, most: 2, step: 0.05},
  top_p: {label: 'Top p', least: 0, most: 1, step: 0.01},
  max_tokens: {label: 'Longest answer (tokens)', least: 1, most: 393216, step: 1, whole: true},
  seed: {label: 'Seed', least: 0, most: Number.MAX_SAFE_INTEGER, step: 1, whole: true},
};

export function defaultSettings() {
  return {system: '', tools: '', thinking: true, effort: namedEfforts.high,
          temperature: null, top_p: null, max_tokens: null, seed: null};
}

// The number that a text field holds: {value} (null: empty) or {error}.
export function readNumber(name, text) {
  const rule = numbers[name];
  if (text.trim() === '') return {value: null};
  const value = Number(text);
  if (!Number.isFinite(value) || value < rule.least || value > rule.most) {
    return {error: `A number from ${rule.least} to ${rule.most}`};
  }
  if (rule.whole && !Number.isInteger(value)) return {error: 'A whole number'};
  return {value};
}

// Settings from storage or an imported file: what does not fit is the default.
export function readSettings(raw) {
  const settings = defaultSettings();
  if (!raw || typeof raw !== 'object') return settings;
  for (const name of ['system', 'tools']) {
    if (typeof raw[name] === 'string') settings[name] = raw[name];
  }
  if (typeof raw.thinking === 'boolean') settings.thinking = raw.thinking;
  if (Number.isInteger(raw.effort) && raw.effort >= 1 && raw.effort <= 100) {
    settings.effort = raw.effort;
  }
  for (const name of Object.keys(numbers)) {
    if (typeof raw[name] !== 'number') continue;
    settings[name] = readNumber(name, String(raw[name])).value ?? null;
  }
  return settings;
}

export function effortName(effort) {
  return Object.keys(namedEfforts).find((name) => namedEfforts[name] === effort) ?? null;
}

// The tools of the text field as the request wants them: {tools} or {error}. A bare function
// ({name, description, parameters}) is understood, too.
export function readTools(text) {
  if (text.trim() === '') return {tools: []};
  let list;
  try {
    list = JSON.parse(text);
  } catch (error) {
    return {error: `Not JSON: ${error.message}`};
  }
  if (!Array.isArray(list)) list = [list];
  const tools = [];
  const names = new Set();
  for (const [index, entry] of list.entries()) {
    const tool = entry?.function ? entry : {type: 'function', function: entry};
    const name = tool.function?.name;
    if (typeof name !== 'string' || name === '') {
      return {error: `Tool ${index + 1} has no function name`};
    }
    if (names.has(name)) return {error: `Two tools are called ${name}`};
    names.add(name);
    tools.push(tool);
  }
  return {tools};
}

export function requestBody(settings, model, messages) {
  const body = {
    model, messages, stream: true,
    stream_options: {include_usage: true, continuous_usage_stats: true},
    return_progress: true,
    thinking: {type: settings.thinking ? 'enabled' : 'disabled'},
  };
  if (settings.thinking) {
    body.reasoning_effort = effortName(settings.effort) ?? settings.effort;
  }
  const {tools} = readTools(settings.tools);
  if (tools?.length) body.tools = tools;
  for (const name of Object.keys(numbers)) {
    if (settings[name] !== null) body[name] = settings[name];
  }
  return body;
}
