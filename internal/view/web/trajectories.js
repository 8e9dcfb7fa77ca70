import * as api from './api.js';
import { button, dim, fateBadge, h, put } from './dom.js';
import { none, round } from './format.js';

/** @typedef {import('../webcheck/api').Listed} Listed */

const rowHeight = 28;
const pageRows = 200;
// Browsers do not scroll further than some ten million pixels: beyond that a pixel stands for more than one.
const mostPixels = 8e6;

const fates = ['trained', 'baseline', 'passed_over', 'dropped', 'refused', 'lost', 'closed', 'underway'];
const orders = [
  ['', 'newest first'],
  ['oldest', 'oldest first'],
  ['-reward', 'highest reward'],
  ['reward', 'lowest reward'],
  ['staleness', 'stalest first'],
];

// The list of all trajectories: only the rows in sight are there, and their pages are asked for as they come into
// sight.
export async function show({ main, run, query, signal, go, keys, every }) {
  const wanted = {};
  for (const name of ['fate', 'reason', 'step', 'prefix', 'sort']) wanted[name] = query[name] || '';
  const change = (more) => {
    location.replace(go(run, 'trajectories', [], { ...wanted, ...more }));
  };
  const count = dim();
  const find = searchField(wanted, change);
  const list = new List({
    read: (offset) => api.get(run, 'trajectories', { ...wanted, offset, limit: pageRows }, signal),
    link: (id) => go(run, 'trajectory', [id]),
    counted: (total) => put(count, `${total.toLocaleString('en')} of them`),
    at: Number(query.at || 0),
  });
  put(
    main,
    h('h1', null, 'Trajectories'),
    h('div', { class: 'bar' }, find, choices(wanted, change), count),
    h('div', { class: 'list' }, head(), list.body),
  );
  Object.assign(keys, list.keys(), { '/': () => find.focus() });
  await list.begin();
  every(5, () => list.refresh());
}

function searchField(wanted, change) {
  return h('input', {
    type: 'search',
    placeholder: 'id, such as g000012',
    'aria-label': 'the beginning of an id',
    value: wanted.prefix,
    onchange: (e) => change({ prefix: e.target.value.trim() }),
  });
}

// choices are the fields that narrow the list and order it.
function choices(wanted, change) {
  const select = (name, label, options) =>
    h(
      'select',
      { 'aria-label': label, onchange: (e) => change({ [name]: e.target.value }), value: wanted[name] },
      options.map(([value, text]) => h('option', { value, selected: value === wanted[name] }, text)),
    );
  const step = h('input', {
    type: 'number',
    min: 0,
    placeholder: 'step',
    'aria-label': 'step',
    value: wanted.step,
    onchange: (e) => change({ step: e.target.value }),
  });
  const anyReason = () => change({ reason: '' });
  const named = fates.map((f) => [f, f.replace('_', ' ')]);
  return [
    step,
    select('fate', 'what became of it', [['', 'whatever became of it'], ...named]),
    wanted.reason ? button(wanted.reason + ' ✕', anyReason, { title: 'any reason' }) : null,
    select('sort', 'order', orders),
  ];
}

function head() {
  const heads = ['id', 'what became of it', 'step', 'reward', 'versions', 'tokens', 'source'];
  return h(
    'div',
    { class: 'head' },
    heads.map((t, i) => h('span', { class: i > 1 && i < 6 ? 'num' : null }, t)),
  );
}

// List is a long list of which only the rows in sight are drawn.
class List {
  /**
   * @param {object} options
   * @param {(offset: number) => Promise<any>} options.read asks for a page
   * @param {(id: string) => string} options.link the address of a trajectory
   * @param {(total: number) => void} options.counted is called with the number of rows
   * @param {number} options.at the row that the keys are at
   */
  constructor({ read, link, counted, at }) {
    this.read = read;
    this.link = link;
    this.counted = counted;
    this.at = at; // the row that the keys are at
    this.total = 0;
    this.generation = -1; // of the record that the pages are of
    /** @type {Map<number, Listed[]>} */
    this.pages = new Map();
    this.asked = new Set();
    this.spacer = h('div', { class: 'spacer' });
    this.body = h('div', { class: 'body', tabindex: 0, role: 'listbox', 'aria-label': 'trajectories' }, this.spacer);
  }

  // begin reads the first page, and draws when rows come into sight.
  async begin() {
    this.body.addEventListener('scroll', () => requestAnimationFrame(() => this.draw()));
    new ResizeObserver(() => this.draw()).observe(this.body);
    await this.load(0);
    this.draw();
  }

  // refresh reads the first page again, and forgets the others where the record has changed.
  async refresh() {
    const was = this.generation;
    await this.load(0);
    if (this.generation === was) return;
    const first = this.pages.get(0) || [];
    this.pages.clear();
    this.pages.set(0, first);
    this.draw();
  }

  async load(page) {
    const got = await this.read(page * pageRows);
    if (got.generation !== this.generation && this.generation >= 0 && page > 0) this.pages.clear();
    this.generation = got.generation;
    this.pages.set(page, got.rows);
    this.total = got.total;
    this.spacer.style.height = Math.min(this.total * rowHeight, mostPixels) + 'px';
    this.counted(this.total);
  }

  // ask loads a page that came into sight, once at a time.
  ask(page) {
    if (this.asked.has(page)) return;
    this.asked.add(page);
    this.load(page).then(
      () => {
        this.asked.delete(page);
        this.draw();
      },
      () => this.asked.delete(page),
    );
  }

  rowAt(i) {
    return (this.pages.get(Math.floor(i / pageRows)) || [])[i % pageRows];
  }

  // scale is how many pixels of the list a pixel of the scroll bar stands for.
  scale() {
    return Math.max(1, (this.total * rowHeight) / mostPixels);
  }

  draw() {
    const top = this.body.scrollTop * this.scale();
    const first = Math.max(0, Math.floor(top / rowHeight) - 4);
    const last = Math.min(this.total, first + Math.ceil(this.body.clientHeight / rowHeight) + 8);
    const rows = [];
    for (let i = first; i < last; i++) {
      const r = this.rowAt(i);
      if (!r) this.ask(Math.floor(i / pageRows));
      const line = r
        ? drawRow(r, this.link(r.id), i === this.at)
        : h('div', { class: 'row dim' }, h('span', null, '…'));
      line.style.top = i * rowHeight - top + this.body.scrollTop + 'px';
      rows.push(line);
    }
    put(this.spacer, rows);
  }

  move(by) {
    this.at = Math.max(0, Math.min(this.total - 1, this.at + by));
    const want = (this.at * rowHeight) / this.scale();
    const { scrollTop, clientHeight } = this.body;
    if (want < scrollTop) this.body.scrollTop = want;
    else if (want + rowHeight > scrollTop + clientHeight) this.body.scrollTop = want + rowHeight - clientHeight;
    this.draw();
  }

  open() {
    const r = this.rowAt(this.at);
    if (r) location.hash = this.link(r.id);
  }

  keys() {
    return {
      j: () => this.move(1),
      k: () => this.move(-1),
      ArrowDown: () => this.move(1),
      ArrowUp: () => this.move(-1),
      PageDown: () => this.move(20),
      PageUp: () => this.move(-20),
      End: () => this.move(this.total),
      Home: () => this.move(-this.total),
      Enter: () => this.open(),
    };
  }
}

/** @param {Listed} r */
function drawRow(r, href, selected) {
  const number = (x) => h('span', { class: 'num' }, x);
  return h(
    'a',
    { class: 'row' + (selected ? ' at' : ''), role: 'option', 'aria-selected': selected, href },
    h('span', { class: 'mono' }, r.id),
    h('span', null, fateBadge(r.fate), ' ', dim(r.reason || '')),
    number(r.step < 0 ? none : r.step),
    number(rewardOf(r)),
    number(versionsOf(r)),
    number(r.facts ? r.facts.tokens : none),
    dim(r.facts ? r.facts.source : ''),
  );
}

function rewardOf(r) {
  if (r.rewarded) return round(r.reward);
  return r.facts ? round(r.facts.reward) : none;
}

function versionsOf(r) {
  if (r.oldest < 0) return none;
  return r.oldest === r.newest ? r.oldest : `${r.oldest}–${r.newest}`;
}
