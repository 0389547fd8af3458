// Elements, icons and words for screen readers.

// element('button', {class: 'quiet', onclick: f, 'aria-label': 'x', disabled: true}, children...)
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') made[name] = value;
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Strokes on a grid of 24.
const drawings = {
  alert: 'M12 3.5 21.5 20h-19zM12 10v4.5M12 17.2v.3',
  check: 'M4.5 12.5l5 5 10-11',
  chevronDown: 'M6 9l6 6 6-6',
  chevronLeft: 'M15 6l-6 6 6 6',
  chevronRight: 'M9 6l6 6-6 6',
  close: 'M6 6l12 12M18 6L6 18',
  copy: 'M9 9h10.5v11.5H9zM15 9V3.5H4.5V15H9',
  down: 'M12 4.5v14M5.5 12.5l6.5 6.5 6.5-6.5',
  download: 'M12 4v11M7 10.5l5 5 5-5M4.5 19.5h15',
  edit: 'M4.5 19.5l1-4.5L16.5 4l3.5 3.5L9 18.5zM14 6.5l3.5 3.5',
  fit: 'M4.5 9V4.5H9M15 4.5h4.5V9M19.5 15v4.5H15M9 19.5H4.5V15',
  image: 'M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15.5 9.3v.1',
  keyboard: 'M3 6.5h18v11H3zM6.5 10h.1M10 10h.1M14 10h.1M17.5 10h.1M7.5 14h9',
  layers: 'M12 3.5l8.5 4.5-8.5 4.5L3.5 8zM3.5 12l8.5 4.5 8.5-4.5M3.5 16l8.5 4.5 8.5-4.5',
  menu: 'M4 7h16M4 12h16M4 17h16',
  minus: 'M5 12h14',
  moon: 'M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z',
  plus: 'M12 5v14M5 12h14',
  play: 'M7.5 5v14l11-7z',
  refresh: 'M19.5 12a7.5 7.5 0 1 1-2.2-5.3M19.8 3.5v4.2h-4.2',
  search: 'M10.5 4.5a6 6 0 1 0 0 12 6 6 0 1 0 0-12zM15 15l5 5',
  send: 'M12 19.5V5M5.5 11.5L12 5l6.5 6.5',
  settings: 'M4 7h9M17 7h3M15 4.8v4.4M4 17h3M11 17h9M9 14.8v4.4',
  spark: 'M12 3.5l1.9 6.6 6.6 1.9-6.6 1.9L12 20.5l-1.9-6.6L3.5 12l6.6-1.9z',
  stop: 'M7 7h10v10H7z',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 1 0 0-8zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M18.7 5.3l-1.4 1.4M6.7 17.3l-1.4 1.4',
  system: 'M3.5 5h17v11.5h-17zM9 20h6M12 16.5V20',
  tool: 'M14.2 6.2a4.3 4.3 0 0 1 5.6-1.9l-2.7 2.7.4 2.4 2.4.4 2.7-2.7a4.3 4.3 0 0 1-6 5.3L8.5 20.5a2.1 2.1 0 0 1-3-3l8.1-8.1a4.3 4.3 0 0 1 .6-3.2z',
  trash: 'M4.5 7h15M9.5 7V4.5h5V7M6.5 7l1 13h9l1-13M10 11v5.5M14 11v5.5',
  upload: 'M12 16V5M7 9.5L12 4.5l5 5M4.5 19.5h15',
};

const whaleBody = 'M2 16C2 10.5 6 7 11.5 7h4c4.5 0 7 2.3 9 5 1.5 2 2.7 2.4 3.7 1.3C28.8 10.5 28 8.3 26 6.7c2.6-.3 4.3.6 5.2 2.6 1-1.8 2.3-2.5 4.3-2.3-.3 3.6-1.4 6.2-3.6 8.1C29 18.6 24.5 21.5 18 21.5H8C4 21.5 2 19.5 2 16z';
const whaleSpout = 'M7 4.6C7 3.2 5.9 2.2 4.5 2.2M7 4.6C7 3.2 8.1 2.2 9.5 2.2';

function drawing(viewBox, className, paths) {
  const space = 'http://www.w3.org/2000/svg';
  const made = document.createElementNS(space, 'svg');
  made.setAttribute('viewBox', viewBox);
  made.setAttribute('class', className);
  made.setAttribute('aria-hidden', 'true');
  for (const [name, d] of paths) {
    const path = document.createElementNS(space, 'path');
    if (name) path.setAttribute('class', name);
    path.setAttribute('d', d);
    made.append(path);
  }
  return made;
}

export function icon(name) {
  return drawing('0 0 24 24', 'icon', [['', drawings[name]]]);
}

export function whale(className = '') {
  return drawing('0 0 36 24', `whale ${className}`, [
    ['whale-body', whaleBody], ['whale-spout', whaleSpout], ['whale-eye', 'M12 15.5v.01']]);
}

// The document names its icons; their lines are here.
export function drawIcons() {
  for (const place of document.querySelectorAll('[data-icon]')) {
    place.replaceWith(icon(place.dataset.icon));
  }
  for (const place of document.querySelectorAll('[data-whale]')) place.replaceWith(whale());
}

// A button that shows an icon; its name is for screen readers and the tooltip.
export function iconButton(name, label, onclick, properties = {}) {
  return element('button', {type: 'button', class: 'icon-button', 'aria-label': label,
                            title: label, onclick, ...properties}, icon(name));
}

export function announce(text) {
  const place = document.getElementById('announcer');
  place.textContent = '';
  // A change in a later task is noticed even if the text is the same.
  setTimeout(() => { place.textContent = text; }, 50);
}

// A message at the bottom that goes by itself, with one thing to do.
export function toast(text, action = null) {
  const bar = element('div', {class: 'toast'}, element('span', {}, text));
  const close = () => bar.remove();
  if (action) {
    bar.append(element('button', {type: 'button', class: 'toast-action',
                                  onclick: () => { close(); action.run(); }}, action.label));
  }
  bar.append(iconButton('close', 'Dismiss', close));
  document.getElementById('toasts').replaceChildren(bar);
  setTimeout(close, 10000);
}

export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without https the clipboard is closed, but an old way in is open.
    const area = element('textarea', {class: 'visually-hidden'});
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
    button.focus();
  }
  const before = [...button.childNodes];
  button.replaceChildren(button.classList.contains('icon-button') ? icon('check') : 'Copied');
  announce('Copied');
  setTimeout(() => button.replaceChildren(...before), 1500);
}
