// Keys that work everywhere on the page; the help dialog lists them.

export function connectKeys(page) {
  document.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.isComposing || document.querySelector('dialog[open]'))
      return;
    const typing = event.target.closest('input, textarea, select');
    if (event.key === 'Escape' && typing) {
      typing.blur();
      return;
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    // What scrolls sideways keeps its arrows.
    const scrolls = event.key.startsWith('Arrow') &&
        event.target.closest('.table-frame, .source, .formula, .tokens');
    if (scrolls) return;
    const action = {
      '/': () => page.search.focus(),
      '?': () => document.getElementById('help').showModal(),
      'd': () => page.showPane('diagram', true),
      't': () => page.showPane('tree', true),
      'Home': () => page.open(page.model.root),
      'Escape': () => page.up(),
      'ArrowLeft': () => page.up(),
      'ArrowRight': () => page.into(),
      'ArrowUp': () => page.beside(-1),
      'ArrowDown': () => page.beside(1),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
