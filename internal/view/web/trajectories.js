import * as api from './api.js';
import { h, put, round } from './dom.js';

const height = 28, page = 200;

// The list of all trajectories: only the rows in sight are there, and their pages are asked for as they come into sight.
export async function show({ main, run, query, signal, go, keys, every }) {
  const q = { fate: query.fate || '', reason: query.reason || '', step: query.step || '', prefix: query.prefix || '', sort: query.sort || '' };
  let total = 0, generation = -1, at = Number(query.at || 0);
  const pages = new Map();
  const change = (more) => { location.replace(go(run, 'trajectories', [], { ...q, ...more })); };
  const select = (name, label, options) => h('select', { 'aria-label': label, onchange: (e) => change({ [name]: e.target.value }), value: q[name] },
    options.map(([v, t]) => h('option', { value: v, selected: v === q[name] }, t)));
  const find = h('input', { type: 'search', placeholder: 'id, such as g000012', 'aria-label': 'the beginning of an id', value: q.prefix, onchange: (e) => change({ prefix: e.target.value.trim() }) });
  const step = h('input', { type: 'number', min: 0, placeholder: 'step', 'aria-label': 'step', value: q.step, onchange: (e) => change({ step: e.target.value }) });
  const count = h('span', { class: 'dim' });
  const spacer = h('div', { class: 'spacer' });
  const body = h('div', { class: 'body', tabindex: 0, role: 'listbox', 'aria-label': 'trajectories' }, spacer);
  put(main, h('h1', null, 'Trajectories'),
    h('div', { class: 'bar' }, find, step,
      select('fate', 'what became of it', [['', 'whatever became of it'], ...['trained', 'baseline', 'passed_over', 'dropped', 'refused', 'lost', 'closed', 'underway'].map((f) => [f, f.replace('_', ' ')])]),
      q.reason ? h('button', { type: 'button', onclick: () => change({ reason: '' }), title: 'any reason' }, q.reason + ' ✕') : null,
      select('sort', 'order', [['', 'newest first'], ['oldest', 'oldest first'], ['-reward', 'highest reward'], ['reward', 'lowest reward'], ['staleness', 'stalest first']]), count),
    h('div', { class: 'list' }, h('div', { class: 'head' }, ['id', 'what became of it', 'step', 'reward', 'versions', 'tokens', 'source'].map((t, i) => h('span', { class: i > 1 && i < 6 ? 'num' : null }, t))), body));

  async function load(n) {
    const got = await api.get(run, 'trajectories', { ...q, offset: n * page, limit: page }, signal);
    if (got.generation !== generation && generation >= 0 && n > 0) pages.clear();
    generation = got.generation;
    pages.set(n, got.rows);
    total = got.total;
    spacer.style.height = Math.min(total * height, 8e6) + 'px';
    put(count, `${total.toLocaleString('en')} of them`);
  }
  const rowOf = (i) => (pages.get(Math.floor(i / page)) || [])[i % page];
  // Browsers do not scroll further than some ten million pixels: beyond that a pixel stands for more than one.
  const scale = () => Math.max(1, total * height / 8e6);
  const asked = new Set();
  function draw() {
    const top = body.scrollTop * scale(), first = Math.max(0, Math.floor(top / height) - 4), last = Math.min(total, first + Math.ceil(body.clientHeight / height) + 8);
    const rows = [];
    for (let i = first; i < last; i++) {
      const r = rowOf(i), n = Math.floor(i / page);
      if (!r && !asked.has(n)) { asked.add(n); load(n).then(() => { asked.delete(n); draw(); }, () => asked.delete(n)); }
      const line = r ? h('a', { class: 'row' + (i === at ? ' at' : ''), role: 'option', 'aria-selected': i === at, href: go(run, 'trajectory', [r.id]) },
        h('span', { class: 'mono' }, r.id), h('span', null, h('span', { class: 'badge ' + r.fate }, r.fate.replace('_', ' ')), ' ', h('span', { class: 'dim' }, r.reason || '')),
        h('span', { class: 'num' }, r.step < 0 ? '–' : r.step), h('span', { class: 'num' }, r.rewarded ? round(r.reward) : r.facts ? round(r.facts.reward) : '–'),
        h('span', { class: 'num' }, r.oldest < 0 ? '–' : r.oldest === r.newest ? r.oldest : `${r.oldest}–${r.newest}`),
        h('span', { class: 'num' }, r.facts ? r.facts.tokens : '–'), h('span', { class: 'dim' }, r.facts ? r.facts.source : ''))
        : h('div', { class: 'row dim' }, h('span', null, '…'));
      line.style.top = (i * height - top + body.scrollTop) + 'px';
      rows.push(line);
    }
    put(spacer, rows);
  }
  const move = (by) => {
    at = Math.max(0, Math.min(total - 1, at + by));
    const want = at * height / scale();
    if (want < body.scrollTop) body.scrollTop = want;
    else if (want + height > body.scrollTop + body.clientHeight) body.scrollTop = want + height - body.clientHeight;
    draw();
  };
  Object.assign(keys, {
    j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1), PageDown: () => move(20), PageUp: () => move(-20), End: () => move(total), Home: () => move(-total),
    Enter: () => { const r = rowOf(at); if (r) location.hash = go(run, 'trajectory', [r.id]); }, '/': () => find.focus(),
  });
  body.addEventListener('scroll', () => requestAnimationFrame(draw));
  new ResizeObserver(draw).observe(body);
  await load(0);
  draw();
  every(5, async () => { const was = generation; await load(0); if (generation !== was) { const first = pages.get(0); pages.clear(); pages.set(0, first); draw(); } });
}
