// The explorer: holds the model, follows the address, connects map, page and search.

import {announce, drawIcons, element} from '../modules/dom.js';
import {recall, remember} from '../modules/storage.js';
import {connectTheme} from '../modules/theme_switch.js';

import {DiagramView} from './diagram_view.js';
import {connectKeys} from './keys.js';
import {loadModel} from './model.js';
import {breadcrumb, nodeView} from './node_view.js';
import {Search} from './search.js';
import {totalsView} from './totals_view.js';
import {TreeView} from './tree_view.js';
import {Watch} from './watch.js';

const byId = (id) => document.getElementById(id);

// An address that is no encoded text names nothing, but can be shown.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

class Explorer {
  current = null;  // the node of the page
  view = 'parts';
  layer = null;  // the one the reader chose in the diagram

  async start() {
    drawIcons();
    connectTheme();
    this.#connectButtons();
    this.model = await this.#load();
    if (!this.model) {
      document.documentElement.dataset.ready = 'failed';
      return;
    }
    this.current = this.model.root;
    const open = (node, layer) => this.open(node, layer);
    this.diagram = new DiagramView(byId('diagram'), this.model, open);
    this.tree = new TreeView(byId('tree-pane'), this.model, open);
    this.search = new Search(this.model, open);
    this.watch = new Watch(this.model, (view) => this.diagram.showTimes(view.trace, view.step));
    connectKeys(this);
    this.#frame();
    addEventListener('hashchange', () => this.#follow(true));
    this.#follow(false);
    document.documentElement.dataset.ready = 'true';
    byId('view-watch').hidden = !await this.watch.ask();
    if (this.view === 'watch') this.#show();
  }

  // Waits for a server that is still loading; null, with the reason on the page, if nothing comes.
  async #load() {
    for (;;) {
      try {
        return await loadModel(recall('key', ''));
      } catch (error) {
        byId('page').replaceChildren(element(
            'p', {class: 'waiting', role: error.again ? 'status' : 'alert'}, error.message));
        if (!error.again) return null;
        await new Promise((done) => setTimeout(done, 1000));
      }
    }
  }

  #connectButtons() {
    byId('skip').onclick = (event) => {
      event.preventDefault();
      byId('main').focus();
    };
    byId('help-open').onclick = () => byId('help').showModal();
    byId('help-close').onclick = () => byId('help').close();
    const panes = [...document.querySelectorAll('.panes button')];
    for (const button of panes) button.onclick = () => this.showPane(button.dataset.pane);
    const narrow = matchMedia('(max-width: 860px)');
    narrow.onchange = () =>
        this.showPane(narrow.matches ? 'page' : recall('explorer.map', 'diagram'));
    this.showPane(narrow.matches ? 'page' : recall('explorer.map', 'diagram'));
  }

  // diagram or tree; page: on a narrow screen, where one has to hide the others.
  showPane(pane, focus = false) {
    document.body.dataset.pane = pane;
    if (pane !== 'page') remember('explorer.map', pane);
    for (const button of document.querySelectorAll('.panes button')) {
      button.setAttribute('aria-pressed', `${button.dataset.pane === pane}`);
    }
    if (!this.model) return;
    if (pane === 'tree') this.tree.show(this.current);
    if (focus) this[pane].focus();
  }

  #frame() {
    const {name, commit, build, source} = this.model.data;
    byId('model-name').textContent = name;
    byId('foot').append(
        element('span', {}, `${name} from ${source}. Cachalot ${build}, commit ${commit}. `),
        'Formulas by KaTeX.');
    if (document.getElementById('model-data')) byId('view-chat').remove();
  }

  // Moving about

  open(node, layer = null) {
    this.layer = layer;
    const narrow = matchMedia('(max-width: 860px)').matches;
    if (narrow) this.showPane('page');
    const hash = `#${node.id}`;
    if (location.hash === hash)
      this.#follow(true);
    else
      location.hash = hash;
  }

  up() {
    const outer = this.view === 'parts' ? this.model.parent(this.current) : this.current;
    if (outer) this.open(outer);
  }

  into() {
    const inner = this.current.children[0];
    if (inner && this.view === 'parts') this.open(inner);
  }

  beside(step) {
    const other = this.model.sibling(this.current, step);
    if (other && this.view === 'parts') this.open(other);
  }

  // Shows what the address names. `moved`: the reader came here from another part.
  #follow(moved) {
    const name = decoded(location.hash.slice(1));
    this.view = name === '/totals' ? 'totals' : name === '/watch' ? 'watch' : 'parts';
    const node = this.model.nodes.get(name);
    if (this.view === 'parts') this.current = node ?? this.model.root;
    this.#show();
    if (this.view === 'parts' && name && !node) this.#unknown(name);
    if (!moved) return;
    byId('main').scrollTop = 0;
    const title = byId('page').querySelector('h1');
    const inMap = document.activeElement?.closest('.map');
    if (inMap)
      announce(title.textContent);
    else
      title.focus({preventScroll: true});
  }

  #show() {
    for (const view of ['parts', 'totals', 'watch']) {
      if (view === this.view)
        byId(`view-${view}`).setAttribute('aria-current', 'page');
      else
        byId(`view-${view}`).removeAttribute('aria-current');
    }
    byId('view-parts').href = `#${this.current.id}`;
    byId('breadcrumb').hidden = this.view !== 'parts';
    if (this.view === 'parts') {
      byId('breadcrumb').dataset.part = this.current.id;
      byId('breadcrumb').replaceChildren(breadcrumb(this.model, this.current));
      byId('page').replaceChildren(
          nodeView(this.model, this.current, this.watch.about(this.current)));
      this.tree.show(this.current);
      this.diagram.show(this.current);
    } else {
      byId('page').replaceChildren(
          this.view === 'totals' ? totalsView(this.model) : this.watch.page());
    }
    document.title = `${byId('page').querySelector('h1').textContent} – Cachalot explorer`;
  }

  #unknown(name) {
    const found = this.model.search(name.split('/').at(-1).replaceAll('-', ' '), 3);
    const links = found.flatMap(({node}) => [' ', element('a', {href: `#${node.id}`}, node.title)]);
    byId('page').prepend(element(
        'p', {class: 'notice', role: 'status'}, `There is no part called “${name}” here.`,
        ...(links.length ? [' Perhaps:', ...links] : [])));
  }
}

const explorer = new Explorer();
explorer.start();
