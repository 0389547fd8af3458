// Conversations as a file, out and in.

import {newId, readConversation} from './conversation.js';

const format = 'cachalot-conversations';

export function exportText(conversations) {
  return JSON.stringify({format, version: 1, conversations}, null, 1);
}

// {conversations, refused}: those that are whole, and how many were not. Throws Error with words
// for the user. An id of `known` is not taken over: an import never replaces a conversation.
export function importText(text, known) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error('The file is not JSON.');
  }
  if (file?.format !== format || !Array.isArray(file.conversations)) {
    throw new Error('The file does not hold conversations exported from this page.');
  }
  const conversations = [];
  for (const raw of file.conversations) {
    const conversation = readConversation(raw);
    if (!conversation) continue;
    if (known.has(conversation.id)) conversation.id = newId();
    known.add(conversation.id);
    conversations.push(conversation);
  }
  return {conversations, refused: file.conversations.length - conversations.length};
}

export function download(name, text) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], {type: 'application/json'}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
