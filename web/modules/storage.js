// Conversations in the browser (IndexedDB), and a few small things beside them (localStorage).
// Where the browser refuses to store, all lives until the page is closed.

const databaseName = 'cachalot';
const storeName = 'conversations';

function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function openDatabase() {
  const request = indexedDB.open(databaseName, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(storeName, {keyPath: 'id'});
  return settled(request);
}

export class ConversationStore {
  #database = null;
  #channel = null;
  onChange = () => {};  // (id): another tab saved or deleted it

  async open() {
    try {
      this.#database = await openDatabase();
    } catch {
      return false;
    }
    if ('BroadcastChannel' in window) {
      this.#channel = new BroadcastChannel(databaseName);
      this.#channel.onmessage = ({data}) => this.onChange(data);
    }
    return true;
  }

  #store(mode) {
    return this.#database.transaction(storeName, mode).objectStore(storeName);
  }

  async all() {
    return this.#database ? settled(this.#store('readonly').getAll()) : [];
  }

  async get(id) {
    return this.#database ? settled(this.#store('readonly').get(id)) : undefined;
  }

  async save(conversation) {
    if (!this.#database) return;
    await settled(this.#store('readwrite').put(conversation));
    this.#channel?.postMessage(conversation.id);
  }

  async remove(id) {
    if (!this.#database) return;
    await settled(this.#store('readwrite').delete(id));
    this.#channel?.postMessage(id);
  }
}

export function remember(name, value) {
  try {
    if (value === null) localStorage.removeItem(`cachalot.${name}`);
    else localStorage.setItem(`cachalot.${name}`, JSON.stringify(value));
  } catch {
    // Private windows may refuse; the value then lasts as long as the page.
  }
}

export function recall(name, otherwise = null) {
  try {
    return JSON.parse(localStorage.getItem(`cachalot.${name}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}
