// Everything that the page shows is made here: elements, and text as text. No string is ever read as markup.

// h makes an element. Properties that begin with "on" are listeners; text among the children is text.
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

// s makes an element of a picture.
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

// say shows a line for a moment.
export function say(text) {
  const line = h('p', null, text);
  document.getElementById('said').append(line);
  setTimeout(() => line.remove(), 4000);
}

export const round = (x, digits = 3) => {
  if (typeof x !== 'number' || Number.isNaN(x)) return '–';
  if (Number.isInteger(x)) return x.toLocaleString('en');
  const size = Math.abs(x);
  return size >= 1000 ? Math.round(x).toLocaleString('en') : size < 1e-3 ? x.toExponential(1) : String(Number(x.toPrecision(digits)));
};

export const percent = (x) => (x === null || x === undefined ? '–' : (100 * x).toFixed(1) + ' %');

export function copy(text) {
  const done = () => say('copied');
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, () => say('the browser does not let the page copy: mark the line'));
  else say('the browser does not let the page copy here: mark the line');
}
