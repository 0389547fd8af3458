// A conversation is a tree: editing a message or asking again adds a sibling and loses nothing.
// What is shown and sent is the path from a root to the leaf.
//
// conversation: {id, title, renamed, created, updated, settings, nodes: {id: node}, leaf}
// node: {id, parent, time, role: 'user' | 'assistant' | 'tool', content,
//        user: pictures: [{url, name}] (pictures.js), absent without any
//        assistant: reasoning, toolCalls: [{id, name, arguments}], finish, error, stats, model
//        tool: toolCallId}

import {isPicture} from './pictures.js';
import {defaultSettings, readSettings} from './settings.js';

export const longestTitle = 60;

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function newConversation(settings = defaultSettings()) {
  const now = Date.now();
  return {id: newId(), title: '', renamed: false, created: now, updated: now,
          settings: {...settings}, nodes: {}, leaf: null};
}

// Adds a node below `parent` (null: a new root) and makes it the leaf.
export function append(conversation, parent, fields) {
  const node = {id: newId(), parent, time: Date.now(), content: '', ...fields};
  conversation.nodes[node.id] = node;
  conversation.leaf = node.id;
  conversation.updated = node.time;
  if (!conversation.renamed && !conversation.title && node.role === 'user') {
    conversation.title = titleOf(node.content || node.pictures?.[0]?.name || '');
  }
  return node;
}

export function titleOf(text) {
  const line = text.trim().split('\n', 1)[0].replace(/\s+/g, ' ');
  const characters = Array.from(line);
  if (characters.length <= longestTitle) return line;
  return characters.slice(0, longestTitle - 1).join('').trimEnd() + '…';
}

// From a root to `leaf`.
export function pathOf(conversation, leaf = conversation.leaf) {
  const path = [];
  for (let id = leaf; id !== null; id = conversation.nodes[id].parent) {
    path.push(conversation.nodes[id]);
  }
  return path.reverse();
}

function childrenOf(conversation, parent) {
  return Object.values(conversation.nodes)
      .filter((node) => node.parent === parent)
      .sort((a, b) => a.time - b.time);
}

// The versions of a node, oldest first, itself among them.
export function versionsOf(conversation, node) {
  return childrenOf(conversation, node.parent).filter((other) => other.role === node.role);
}

// Shows the newest path through a node.
export function showVersion(conversation, id) {
  let leaf = id;
  for (;;) {
    const children = childrenOf(conversation, leaf);
    if (!children.length) break;
    leaf = children.at(-1).id;
  }
  conversation.leaf = leaf;
}

// The calls of the last assistant node that wait for a result.
export function pendingCalls(path) {
  const last = path.findLastIndex((node) => node.role === 'assistant');
  if (last < 0) return [];
  const answered = new Set(path.slice(last + 1).map((node) => node.toolCallId));
  return (path[last].toolCalls ?? []).filter((call) => !answered.has(call.id));
}

// The pictures along a path.
export function picturesOf(path) {
  return path.flatMap((node) => node.pictures ?? []);
}

// What the user said, with the pictures before the text.
function userContent(node) {
  if (!node.pictures?.length) return node.content;
  const parts = node.pictures.map(({url}) => ({type: 'image_url', image_url: {url}}));
  if (node.content) parts.push({type: 'text', text: node.content});
  return parts;
}

// The path as /v1/chat/completions takes it. An answer that failed or is empty is left out; with
// `continued`, the last answer is the beginning of the one asked for.
export function requestMessages(path, system = '', continued = false) {
  const messages = system.trim() ? [{role: 'system', content: system}] : [];
  for (const node of path) {
    if (node.role === 'user') {
      messages.push({role: 'user', content: userContent(node)});
    } else if (node.role === 'tool') {
      messages.push({role: 'tool', tool_call_id: node.toolCallId, content: node.content});
    } else if (node.content || node.toolCalls?.length) {
      const message = {role: 'assistant', content: node.content};
      if (node.reasoning) message.reasoning_content = node.reasoning;
      if (node.toolCalls?.length) {
        message.tool_calls = node.toolCalls.map((call) => (
            {id: call.id, type: 'function',
             function: {name: call.name, arguments: call.arguments}}));
      }
      messages.push(message);
    }
  }
  if (continued && messages.at(-1)?.role === 'assistant') messages.at(-1).prefix = true;
  return messages;
}

const isText = (value) => typeof value === 'string';
const isTime = (value) => Number.isFinite(value) && value >= 0;
const textOr = (value, otherwise) => isText(value) ? value : otherwise;

function readNode(raw) {
  if (!raw || !isText(raw.id) || !['user', 'assistant', 'tool'].includes(raw.role) ||
      !isText(raw.content) || !(raw.parent === null || isText(raw.parent))) {
    return null;
  }
  const node = {id: raw.id, parent: raw.parent, role: raw.role, content: raw.content,
                time: isTime(raw.time) ? raw.time : 0};
  if (raw.role === 'tool') node.toolCallId = textOr(raw.toolCallId, '');
  if (raw.role === 'user' && Array.isArray(raw.pictures) && raw.pictures.length) {
    if (!raw.pictures.every(isPicture)) return null;
    node.pictures = raw.pictures.map(({url, name}) => ({url, name: name.slice(0, 200)}));
  }
  if (raw.role !== 'assistant') return node;
  node.reasoning = textOr(raw.reasoning, '');
  node.finish = textOr(raw.finish, '');
  node.model = textOr(raw.model, '');
  node.toolCalls = (Array.isArray(raw.toolCalls) ? raw.toolCalls : [])
      .filter((call) => call && isText(call.id) && isText(call.name) && isText(call.arguments))
      .map(({id, name, arguments: text}) => ({id, name, arguments: text}));
  node.stats = {};
  for (const [name, value] of Object.entries(raw.stats ?? {})) {
    if (isTime(value)) node.stats[name] = value;
  }
  return node;
}

// A conversation from outside (an imported file): null unless it is whole.
export function readConversation(raw) {
  if (!raw || typeof raw !== 'object' || !isText(raw.title) || !raw.nodes ||
      typeof raw.nodes !== 'object') {
    return null;
  }
  // No prototype: an id such as "constructor" must not be found in it.
  const nodes = Object.create(null);
  for (const value of Object.values(raw.nodes)) {
    const node = readNode(value);
    if (!node) return null;
    nodes[node.id] = node;
  }
  for (const node of Object.values(nodes)) {
    const seen = new Set();
    for (let at = node; at.parent !== null; at = nodes[at.parent]) {
      if (seen.has(at.id) || !nodes[at.parent]) return null;
      seen.add(at.id);
    }
  }
  const conversation = {
    ...newConversation(readSettings(raw.settings)), title: raw.title.slice(0, 200),
    renamed: raw.renamed === true, nodes: {...nodes}, leaf: null,
  };
  if (isText(raw.id) && /^[0-9a-f]{24}$/.test(raw.id)) conversation.id = raw.id;
  if (isTime(raw.created)) conversation.created = raw.created;
  if (isTime(raw.updated)) conversation.updated = raw.updated;
  if (nodes[raw.leaf]) {
    conversation.leaf = raw.leaf;
  } else {
    const roots = childrenOf(conversation, null);
    if (roots.length) showVersion(conversation, roots.at(-1).id);
  }
  return conversation;
}
