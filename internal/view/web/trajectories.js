import * as api from './api.js';
import { button, dim, h, put } from './dom.js';
import { List, pageRows } from './list.js';
import { drawGroup, drawSample, groupHead, sampleHead } from './rows.js';

const fates = ['trained', 'baseline', 'passed_over', 'dropped', 'refused', 'lost', 'closed', 'underway'];
const orders = [
  ['', 'newest first'],
  ['oldest', 'oldest first'],
  ['-reward', 'highest reward'],
  ['reward', 'lowest reward'],
];
const stalest = ['staleness', 'stalest first'];

// The list of all trajectories, a group or a sample in a row: only the rows in sight are there, and their pages are
// asked for as they come into sight.
export async function show({ main, run, query, signal, go, keys, every }) {
  /** @type {Record<string, string>} */
  const wanted = {};
  for (const name of ['fate', 'reason', 'step', 'prefix', 'sort', 'rows']) wanted[name] = query[name] || '';
  const change = (more) => {
    location.replace(go(run, 'trajectories', [], { ...wanted, ...more }));
  };
  const samples = showsSamples(wanted);
  const count = dim();
  const find = searchField(wanted, change);
  const link = (id) => go(run, 'trajectory', [id]);
  const ask = { ...wanted, rows: '' };
  const read = (path) => (offset) => api.get(run, path, { ...ask, offset, limit: pageRows }, signal);
  const counted = (total) => put(count, `${total.toLocaleString('en')} ${samples ? 'rollouts' : 'groups'}`);
  const list = samples
    ? sampleList(read('trajectories'), link, counted, query)
    : groupList(read('groups'), link, counted, query);
  put(
    main,
    h('h1', null, 'Trajectories'),
    h('div', { class: 'bar' }, rowsButtons(samples, change), find, choices(wanted, samples, change), count),
    h('div', { class: 'list' }, samples ? sampleHead() : groupHead(), list.body),
  );
  Object.assign(keys, list.keys(), { '/': () => find.focus() });
  await list.begin();
  every(5, () => list.refresh());
}

// showsSamples reports whether a row is a sample: groups have neither tickets underway nor an order by staleness.
/** @param {Record<string, string>} wanted */
function showsSamples({ rows, fate, sort }) {
  return rows === 'samples' || fate === 'underway' || fate === 'closed' || sort === 'staleness';
}

function sampleList(read, link, counted, query) {
  return new List({
    read,
    link: (r) => link(r.id),
    drawRow: (r, selected) => drawSample(r, link(r.id), selected),
    counted,
    at: Number(query.at || 0),
  });
}

// groupList leads from a group to its first sample, beside which the page shows the others.
function groupList(read, link, counted, query) {
  let top = 0;
  const first = (g) => link(g.members[0].id);
  const readGroups = async (offset) => {
    const page = await read(offset);
    top = page.top;
    return page;
  };
  return new List({
    read: readGroups,
    link: first,
    drawRow: (g, selected) => drawGroup(g, top, first(g), selected),
    counted,
    at: Number(query.at || 0),
  });
}

function rowsButtons(samples, change) {
  const pressed = (on) => ({ 'aria-pressed': String(on) });
  return [
    button('groups', () => change({ rows: '', sort: '' }), pressed(!samples)),
    button('samples', () => change({ rows: 'samples' }), pressed(samples)),
  ];
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
function choices(wanted, samples, change) {
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
    select('fate', 'fate', [['', 'any fate'], ...named]),
    wanted.reason ? button(wanted.reason.replaceAll('_', ' ') + ' ✕', anyReason, { title: 'any reason' }) : null,
    select('sort', 'order', samples ? [...orders, stalest] : orders),
  ];
}
