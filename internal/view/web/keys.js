import { h } from './dom.js';
import { flipTheme } from './theme.js';

// leadLasts is how long after g a letter names a page, in milliseconds.
const leadLasts = 1500;

/**
 * @typedef {object} Actions
 * @property {Record<string, any>} pages
 * @property {(key: string) => any} own what the shown page does at a key
 * @property {(word: string) => boolean} open opens a page by its word, and reports whether there is a run to open it of
 * @property {() => void} back leaves what was opened from a list
 */

/**
 * listenToKeys does what keys stand for.
 *
 * @param {Actions} actions
 */
export function listenToKeys({ pages, own, open, back }) {
  let lead = 0; // when g was pressed
  const common = {
    '?': () => showHelp(pages),
    t: flipTheme,
    h: () => {
      location.hash = '#/';
    },
    Escape: back,
  };
  addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return;
    if (isTyping(e)) return;
    if (lead > Date.now() - leadLasts) {
      lead = 0;
      const found = Object.entries(pages).find(([, p]) => p.key === e.key);
      if (found && open(found[0])) e.preventDefault();
    } else if (e.key === 'g') {
      lead = Date.now();
    } else if (own(e.key)) {
      e.preventDefault();
      own(e.key)(e);
    } else if (Object.hasOwn(common, e.key)) {
      common[e.key]();
    }
  });
}

// isTyping reports whether a key is for a field, which Escape leaves.
function isTyping(e) {
  const target = /** @type {HTMLElement} */ (e.target);
  if (!/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return false;
  if (e.key === 'Escape') target.blur();
  return true;
}

// showHelp lists the keys.
export function showHelp(pages) {
  const named = Object.values(pages).filter((p) => p.key);
  const rows = [
    ['g then a letter', 'a page: ' + named.map((p) => `${p.key} ${p.name}`).join(', ')],
    ['j k', 'the next and the previous line of a list, or sample of a group'],
    ['Enter', 'open it'],
    ['/', 'look for an id'],
    ['c', 'another colouring of tokens'],
    ['h', 'all runs'],
    ['t', 'dark or light'],
    ['Escape', 'back'],
  ];
  const list = rows.map(([key, what]) => [h('dt', null, h('kbd', null, key)), h('dd', null, what)]);
  const close = h('form', { method: 'dialog' }, h('button', { class: 'main' }, 'close'));
  const box = h('dialog', { onclose: () => box.remove() }, h('h1', null, 'Keys'), h('dl', null, list), close);
  document.body.append(box);
  box.showModal();
}
