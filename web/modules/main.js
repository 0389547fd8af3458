// The page: holds the conversations and carries what the user does to them and to the views.

import {ChatView} from './chat_view.js';
import {Composer, ServerStatus} from './composer.js';
import {append, newConversation, pathOf, pendingCalls, picturesOf, showVersion} from './conversation.js';
import {announce, drawIcons, toast} from './dom.js';
import {connectKeys} from './keys.js';
import {Runs} from './runs.js';
import {checkHealth, describeModel} from './server.js';
import {readSettings} from './settings.js';
import {SettingsView} from './settings_view.js';
import {Sidebar} from './sidebar.js';
import {ConversationStore, recall, remember} from './storage.js';
import {connectTheme} from './theme_switch.js';
import {download, exportText, importText} from './transfer.js';
import {plural} from './words.js';

const byId = (id) => document.getElementById(id);

const userMessage = (content, pictures) =>
  pictures.length ? {role: 'user', content, pictures} : {role: 'user', content};

class Page {
  conversations = [];
  current = null;
  model = null;
  server = {state: 'unknown', progress: null};
  key = recall('key', '');
  store = new ConversationStore();
  #drawing = false;
  #pause = 0;  // milliseconds before the next drawing

  constructor() {
    this.runs = new Runs({
      onChunk: (conversation, run) => this.#draw(conversation, run),
      onEnd: (conversation, run) => this.#ended(conversation, run),
      save: (conversation) => this.#save(conversation),
    });
    this.status = new ServerStatus(() => this.settings.openAt('api-key'));
    this.chat = new ChatView({
      send: (text) => this.send(text),
      edit: (node, content, pictures) => this.edit(node, content, pictures),
      regenerate: (node) => this.regenerate(node),
      continueAnswer: (node) => this.#answer(node, true),
      showVersion: (id) => this.showVersion(id),
      sendResults: (node, results) => this.sendResults(results),
      openSettings: (id) => this.settings.openAt(id),
    });
    this.sidebar = new Sidebar({
      open: (id) => this.open(id),
      rename: (id, title) => this.rename(id, title),
      remove: (id) => this.remove(id),
    });
    this.composer = new Composer({
      send: (text, pictures) => this.send(text, pictures), stop: () => this.stop(),
      sentPictures: () => picturesOf(pathOf(this.current)),
    });
    this.settings = new SettingsView({
      onChange: (settings) => this.#changeSettings(settings),
      onKey: (key) => this.#changeKey(key),
    });
    this.store.onChange = (id) => this.#reload(id);
  }

  async start() {
    connectTheme();
    connectKeys(this);
    this.#connectButtons();
    this.settings.showKey(this.key);
    const stored = await this.store.open();
    this.conversations = await this.store.all();
    if (!stored) toast('This browser does not store conversations: they end with the page.');
    const last = this.conversations.find((one) => one.id === recall('current'));
    this.#show(last ?? this.#fresh());
    setInterval(() => this.#tick(), 200);
    document.documentElement.dataset.ready = 'true';
    // Not on a phone, where the keyboard would cover the page.
    if (matchMedia('(hover: hover)').matches) this.composer.focus();
    await this.#watchServer();
  }

  #connectButtons() {
    for (const button of document.querySelectorAll('.new-chat')) button.onclick = () => this.startNew();
    byId('menu').onclick = () => this.showSidebar(true);
    byId('sidebar-close').onclick = () => this.showSidebar(false);
    byId('shade').onclick = () => this.showSidebar(false);
    byId('export').onclick = () => this.exportAll();
    byId('import').onclick = () => byId('import-file').click();
    byId('import-file').onchange = (event) => this.importFile(event.target);
    byId('help-open').onclick = () => byId('help').showModal();
    byId('help-close').onclick = () => byId('help').close();
  }

  // Conversations

  #fresh() {
    return newConversation(readSettings(recall('settings')));
  }

  #show(conversation) {
    this.current = conversation;
    remember('current', conversation.id);
    this.settings.show(conversation.settings);
    this.#refresh();
  }

  // Everything that depends on the current conversation.
  #refresh() {
    const run = this.runs.of(this.current);
    this.chat.show(this.current, run);
    const title = this.current.title || 'New conversation';
    byId('title').textContent = title;
    document.title = `${title} – Cachalot`;
    const running = new Set(this.conversations.filter((one) => this.runs.of(one)).map((one) => one.id));
    this.sidebar.show(this.conversations, this.current.id, running);
    this.#updateComposer();
  }

  #updateComposer() {
    this.composer.setState({busy: Boolean(this.runs.of(this.current)),
                            blocked: this.server.state !== 'ready',
                            seeing: this.model?.vision ?? true});
  }

  open(id) {
    const found = this.conversations.find((one) => one.id === id);
    if (!found) return;
    this.#show(found);
    this.showSidebar(false);
    announce(`Opened ${found.title || 'New conversation'}`);
  }

  startNew() {
    if (Object.keys(this.current.nodes).length) this.#show(this.#fresh());
    this.showSidebar(false);
    this.composer.focus();
  }

  rename(id, title) {
    const found = this.conversations.find((one) => one.id === id);
    Object.assign(found, {title, renamed: true});
    this.#save(found);
    this.#refresh();
  }

  remove(id) {
    const found = this.conversations.find((one) => one.id === id);
    if (!found) return;
    this.runs.stop(found);
    this.conversations = this.conversations.filter((one) => one !== found);
    this.store.remove(id);
    if (this.current === found) this.#show(this.#fresh());
    else this.#refresh();
    announce('Deleted');
    toast(`Deleted “${found.title || 'New conversation'}”`, {label: 'Undo', run: () => {
      this.conversations.push(found);
      this.#save(found);
      this.open(id);
    }});
  }

  #save(conversation) {
    if (!this.conversations.includes(conversation)) return;
    this.store.save(conversation).catch(() => {
      toast('The browser could not store this conversation. Export it to keep it.');
    });
  }

  // Another tab changed or deleted it.
  async #reload(id) {
    const known = this.conversations.find((one) => one.id === id);
    if (known && this.runs.of(known)) return;
    const stored = await this.store.get(id);
    this.conversations = this.conversations.filter((one) => one.id !== id);
    if (stored) this.conversations.push(stored);
    if (this.current.id === id) this.#show(stored ?? this.#fresh());
    else this.#refresh();
  }

  exportAll() {
    if (!this.conversations.length) {
      toast('There is nothing to export yet.');
      return;
    }
    const day = new Date().toISOString().slice(0, 10);
    download(`cachalot-conversations-${day}.json`, exportText(this.conversations));
  }

  async importFile(input) {
    const file = input.files[0];
    input.value = '';
    if (!file) return;
    try {
      const known = new Set(this.conversations.map((one) => one.id));
      const {conversations, refused} = importText(await file.text(), known);
      for (const one of conversations) {
        this.conversations.push(one);
        this.#save(one);
      }
      const left = refused ? `, ${plural(refused, 'one', 'ones')} damaged and left out` : '';
      toast(`Imported ${plural(conversations.length, 'conversation')}${left}.`);
      this.#refresh();
    } catch (error) {
      toast(`Not imported. ${error.message}`);
    }
  }

  // Messages

  send(text, pictures = []) {
    if (this.runs.of(this.current) || this.server.state !== 'ready') return false;
    if (pendingCalls(pathOf(this.current)).length) {
      toast('The model waits for the result of its tool call.');
      document.querySelector('.call-answer textarea')?.focus();
      return false;
    }
    append(this.current, this.current.leaf, userMessage(text, pictures));
    this.#answerNext();
    return true;
  }

  edit(node, content, pictures) {
    append(this.current, node.parent, userMessage(content, pictures));
    this.#answerNext();
    this.composer.focus();
  }

  regenerate(node) {
    const {nodes} = this.current;
    this.current.leaf = node.parent;
    // An answer that failed before its first word is not worth keeping as a version.
    if (node.error && !node.content && !node.reasoning) delete nodes[node.id];
    this.#answerNext();
  }

  sendResults(results) {
    for (const {toolCallId, content} of results) {
      append(this.current, this.current.leaf, {role: 'tool', toolCallId, content});
    }
    this.#answerNext();
    this.composer.focus();
  }

  showVersion(id) {
    showVersion(this.current, id);
    this.#save(this.current);
    this.#refresh();
    document.querySelector(`[data-node="${id}"] .message-tools button:not(:disabled)`)?.focus();
  }

  stop() {
    this.runs.stop(this.current);
  }

  #answerNext() {
    this.#answer(append(this.current, this.current.leaf, {role: 'assistant'}), false);
  }

  #answer(node, continued) {
    if (!this.conversations.includes(this.current)) this.conversations.push(this.current);
    this.#save(this.current);
    this.runs.start(this.current, node, {model: this.model?.id ?? 'default', key: this.key, continued});
    this.#refresh();
    this.chat.scrollToEnd(true);
  }

  // Chunks may come faster than the screen changes, and a long answer takes long to draw: three
  // quarters of the time stay for everything else.
  #draw(conversation, run) {
    if (conversation !== this.current || this.#drawing) return;
    this.#drawing = true;
    setTimeout(() => requestAnimationFrame(() => {
      this.#drawing = false;
      if (this.runs.of(conversation) !== run) return;
      const started = performance.now();
      this.chat.update(conversation, run);
      this.#pause = Math.min(500, 3 * (performance.now() - started));
    }), this.#pause);
  }

  #tick() {
    const run = this.runs.of(this.current);
    if (run) this.chat.tick(run);
  }

  #ended(conversation, run) {
    const {node} = run;
    this.#refresh();
    if (conversation !== this.current) {
      toast(`The answer in “${conversation.title}” is ready`,
            {label: 'Open', run: () => this.open(conversation.id)});
    }
    const calls = node.toolCalls.map((call) => call.name).join(', ');
    if (node.error) announce(`${node.error.title}. ${node.error.message} ${node.error.advice}`);
    else if (calls) announce(`The model calls ${calls} and waits for the result.`);
    else if (node.finish === 'stopped') announce('Stopped.');
    else announce(`Answer: ${this.#plainText(node)}`);
    if (node.error && [0, 401, 403, 503].includes(node.error.status)) this.#checkServer();
  }

  // What a screen reader says of an answer: the text as shown, without labels of buttons.
  #plainText(node) {
    return node.content.length > 2000 ? `${node.content.slice(0, 2000)}…` : node.content;
  }

  // Settings and server

  #changeSettings(settings) {
    this.current.settings = settings;
    remember('settings', settings);
    this.#save(this.current);
  }

  #changeKey(key) {
    this.key = key;
    this.model = null;  // asked for again, with the key
    remember('key', key || null);
    this.#checkServer();
  }

  async #watchServer() {
    for (;;) {
      await this.#checkServer();
      const wait = this.server.state === 'ready' ? 15000 : this.server.state === 'loading' ? 500 : 2000;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  async #checkServer() {
    const before = this.server.state;
    this.server = await checkHealth();
    if (this.server.state === 'ready' && (before !== 'ready' || !this.model)) {
      try {
        this.model = await describeModel(this.key);
      } catch (error) {
        this.model = null;
        const locked = error.status === 401 || error.status === 403;
        this.server = {state: locked ? 'locked' : 'unreachable', progress: null};
      }
    }
    if (before !== this.server.state && before === 'loading') announce('The model is ready.');
    this.status.show(this.server, this.model);
    this.#updateComposer();
  }

  showSidebar(open) {
    document.body.classList.toggle('sidebar-shown', open);
    byId('menu').setAttribute('aria-expanded', String(open));
    const narrow = matchMedia('(max-width: 860px)').matches;
    if (open && narrow) byId('sidebar-close').focus();
  }
}

drawIcons();
new Page().start();
