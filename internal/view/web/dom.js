// Everything that the page shows is made here: elements, and text as text. No string is ever read as markup.

/**
 * h makes an element. Properties that begin with "on" are listeners; text among the children is text.
 *
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...any} children
 * @returns {any}
 */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/**
 * s makes an element of a picture.
 *
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...any} children
 * @returns {any}
 */
export function s(tag, props, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);
}

function fill(el, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
    else if (name === 'href' || name === 'xlink:href') el.setAttribute('href', link(value));
    else if (name === 'value') el.value = value;
    else el.setAttribute(name, value === true ? '' : String(value));
  }
  add(el, children);
  return el;
}

// link lets through addresses of this page alone.
function link(value) {
  return String(value).startsWith('#') ? value : '#/';
}

function add(el, children) {
  for (const c of children) {
    if (c === null || c === undefined || c === false) continue;
    if (Array.isArray(c)) add(el, c);
    else el.append(c instanceof Node ? c : document.createTextNode(String(c)));
  }
}

// put replaces what an element holds.
export function put(el, ...children) {
  el.replaceChildren();
  add(el, children);
  return el;
}

// byId finds an element of index.html.
export function byId(id) {
  const el = document.getElementById(id);
  if (!el) throw new Error(`index.html has no element ${id}`);
  return el;
}

// say shows a line for a moment.
export function say(text) {
  const line = h('p', null, text);
  byId('said').append(line);
  setTimeout(() => line.remove(), 4000);
}

export const dim = (...text) => h('span', { class: 'dim' }, text);
export const note = (...text) => h('p', { class: 'dim' }, text);
export const button = (text, onclick, props = {}) => h('button', { type: 'button', onclick, ...props }, text);
export const panel = (title, ...children) => h('div', { class: 'panel' }, h('h2', null, title), children);
export const widePanel = (title, ...children) => h('div', { class: 'panel wide' }, h('h2', null, title), children);
export const fateBadge = (fate) => h('span', { class: 'badge ' + fate }, fate.replace('_', ' '));
export const stateBadge = (state, title = null) => h('span', { class: 'badge ' + state, title }, state);

// cell is a cell of a table with a look, which is a class of style.css.
export const cell = (content, look) => h('td', { class: look }, content);

// labelled is a cell that names its column where the table has no head, as on a telephone.
export const labelled = (label, content, /** @type {string | null} */ look = null) =>
  h('td', { class: look, 'data-label': label }, content);

// row is a line of a table. What is no cell becomes one.
export const row = (cells, /** @type {string | null} */ look = null) =>
  h(
    'tr',
    { class: look },
    cells.map((c) => (c instanceof HTMLTableCellElement ? c : h('td', null, c))),
  );

// table has a head and rows.
export const table = (heads, rows) =>
  h(
    'table',
    null,
    h(
      'tr',
      null,
      heads.map((t) => h('th', null, t)),
    ),
    rows,
  );

// terms is a list of names, each with its value.
export const terms = (pairs) =>
  h(
    'dl',
    null,
    pairs.map(([name, value]) => [h('dt', null, name), h('dd', null, value)]),
  );

// card is a number with what it counts.
export const card = (label, value) => h('div', { class: 'card' }, h('b', null, value), h('span', null, label));

// alarm is a box that a reader's attention is drawn to.
export const alarm = (level, ...content) => h('div', { class: 'alarm level-' + level, role: 'alert' }, content);

// command is a command line that can be copied.
export const command = (what, line) =>
  h(
    'div',
    { class: 'command' },
    dim(what),
    h('code', null, line),
    button('copy', () => copy(line)),
  );

export function copy(text) {
  const refused = () => say('the browser does not let the page copy here: mark the line');
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => say('copied'), refused);
  else refused();
}
