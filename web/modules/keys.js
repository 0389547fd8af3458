// Keys that work everywhere on the page; the help dialog lists them.

export function connectKeys(page) {
  document.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.isComposing || document.querySelector('dialog[open]')) return;
    if (event.key === 'Escape') {
      onEscape(page);
      return;
    }
    if ((event.ctrlKey || event.metaKey) && event.shiftKey && event.key.toLowerCase() === 'o') {
      event.preventDefault();
      page.startNew();
      return;
    }
    const typing = event.target.closest('input, textarea, select, [contenteditable]');
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const action = {
      '/': () => page.composer.focus(),
      '?': () => document.getElementById('help').showModal(),
      'n': () => page.startNew(),
      'l': () => focusList(page),
      's': () => page.settings.toggle(document.getElementById('settings').hidden),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function onEscape(page) {
  if (page.settings.closeOne()) return;
  if (document.body.classList.contains('sidebar-shown')) {
    page.showSidebar(false);
    document.getElementById('menu').focus();
    return;
  }
  if (page.runs.of(page.current)) page.stop();
  else document.activeElement?.blur();
}

function focusList(page) {
  page.showSidebar(true);
  (document.querySelector('#conversation-list .open[tabindex="0"]') ??
   document.getElementById('conversation-filter')).focus();
}
