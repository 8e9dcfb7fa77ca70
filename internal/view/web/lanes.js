import * as api from './api.js';
import { button, dim, h, note, put } from './dom.js';
import { clock, duration } from './format.js';
import { drawLanes } from './lanespicture.js';
import { versionColour } from './tokencolours.js';

/** @typedef {import('../webcheck/api').Lanes} Lanes */
/** @typedef {import('../webcheck/api').LaneBar} LaneBar */

// Time by worker: each rollout a bar, its tokens in the colour of the version that sampled them, tools hatched, the
// wait before and after it thin.
export async function show({ main, run, query, signal, go, keys, every }) {
  const canvas = h('canvas', {
    id: 'lanes',
    tabindex: 0,
    'aria-label': 'rollouts by producer and time; the list of trajectories has the same as text',
  });
  const facts = h('div', null);
  const bar = h('div', { class: 'bar' });
  const tip = h('div', { class: 'tip', hidden: true });
  const scroller = h('div', { class: 'panel' }, canvas);
  const legend = h('div', { class: 'legend versions' });
  put(main, h('h1', null, 'Version lanes'), facts, bar, legend, scroller, tip);
  /** @type {Lanes | null} */
  let data = null;
  let hits = [];
  const draw = () => {
    if (data) hits = drawLanes(canvas, Math.max(320, scroller.clientWidth - 28), data);
  };
  const load = async () => {
    /** @type {Lanes} */
    const now = await api.get(run, 'lanes', { from: query.from, to: query.to }, signal);
    data = now;
    const moves = stretchMoves(now, (from, to) => location.replace(go(run, 'lanes', [], { from, to })));
    Object.assign(keys, moves.keys);
    put(bar, moves.buttons, h('a', { href: go(run, 'lanes') }, 'the newest'), dim(describeStretch(now)));
    put(facts, agePanel(now));
    put(legend, versionLegend(now));
    draw();
  };
  pointAt(
    canvas,
    tip,
    () => hits,
    (id) => {
      location.hash = go(run, 'trajectory', [id], { colour: 'version' });
    },
  );
  addEventListener('theme', draw, { signal });
  addEventListener('resize', draw, { signal });
  await load();
  if (!query.to) every(3, load);
}

// stretchMoves are the buttons and keys that choose another stretch of time.
function stretchMoves(data, choose) {
  const width = data.to - data.from;
  const move = (from, to) => choose(Math.round(from), Math.round(to));
  const pan = (k) => () => move(data.from + k * width, data.to + k * width);
  const zoom = (k) => () => {
    const centre = data.from + width / 2;
    move(Math.max(data.first, centre - (width * k) / 2), centre + (width * k) / 2);
  };
  return {
    buttons: [
      button('◀', pan(-0.5)),
      button('▶', pan(0.5)),
      button('+', zoom(0.5)),
      button('−', zoom(2)),
      button('all', () => move(data.first, data.last)),
    ],
    keys: { '+': zoom(0.5), '-': zoom(2), ArrowLeft: pan(-0.5), ArrowRight: pan(0.5) },
  };
}

/** @param {Lanes} data */
function describeStretch(data) {
  const more = data.more ? ', the newest of more' : '';
  return `${clock(data.from)} to ${clock(data.to)}, ${data.bars.length} rollouts${more}`;
}

// agePanel is where a rollout's time goes, from its ticket to the step that uses it.
/** @param {Lanes} data */
function agePanel(data) {
  const n = data.bars.length;
  if (n === 0) return note('The archive has no rollout in this stretch: trainer.archive.bytes keeps one.');
  const { queue, sampling, tools, waiting } = data.ages;
  const all = queue + sampling + tools + waiting || 1;
  const parts = [
    ['waiting for a producer', queue, 5],
    ['sampling', sampling, 0],
    ['in tools', tools, 8],
    ['waiting for a step', waiting, 1],
  ];
  const [most] = [...parts].sort((a, b) => Number(b[1]) - Number(a[1]));
  const share = (ms) => Math.round((100 * Number(ms)) / all);
  const mean = (ms) => duration(Number(ms) / n / 1000);
  const bar = parts.map(([label, ms, c]) => {
    const piece = h('i', { class: 'k' + c, title: `${label} ${share(ms)} %` });
    piece.style.flexGrow = String(Number(ms) / all);
    return piece;
  });
  const names = parts.map(([label, ms, c]) =>
    h('span', null, h('i', { class: 'k' + c }), `${label} `, h('b', null, mean(ms)), ` ${share(ms)} %`),
  );
  return h(
    'div',
    { class: 'panel ages' },
    h(
      'p',
      { class: 'lead' },
      `A rollout is used ${mean(all)} after its ticket is issued; ${share(most[1])} % of that is ${most[0]}.`,
    ),
    h('div', { class: 'stacked' }, bar),
    h('div', { class: 'legend' }, names),
  );
}

// versionLegend says what the colours of the bars are.
/** @param {Lanes} data */
function versionLegend(data) {
  const versions = new Set();
  for (const b of data.bars) {
    for (let i = 0; i + 1 < b.spans.length; i += 2) if (b.spans[i] >= 0) versions.add(b.spans[i]);
  }
  const shown = [...versions].sort((a, b) => a - b).slice(-8);
  const swatch = (text, look, colour) => {
    const box = h('i', { class: look });
    if (colour) box.style.background = colour;
    return h('span', null, box, text);
  };
  return [
    shown.map((v) => swatch('version ' + v, 'block', versionColour(v, 0.85))),
    swatch('tool', 'block tool'),
    swatch('waits', 'thin'),
    swatch('refused', 'block refused'),
    swatch('dropped', 'block dropped'),
  ];
}

// pointAt shows what is under the pointer, and opens it at a click.
function pointAt(canvas, tip, hitsNow, open) {
  const under = (e) => {
    const r = canvas.getBoundingClientRect();
    const x = e.clientX - r.left;
    const y = e.clientY - r.top;
    const found = hitsNow().filter((b) => x >= b.left - 1 && x <= b.right + 1 && y >= b.top && y <= b.bottom);
    return found.length ? found[found.length - 1].bar : null;
  };
  canvas.addEventListener('pointermove', (e) => {
    const bar = under(e);
    tip.hidden = !bar;
    canvas.style.cursor = bar ? 'pointer' : 'default';
    if (!bar) return;
    put(tip, describeBar(bar).join('\n'));
    tip.style.left = Math.min(e.clientX + 12, innerWidth - 260) + 'px';
    tip.style.top = e.clientY + 14 + 'px';
  });
  canvas.addEventListener('pointerleave', () => {
    tip.hidden = true;
  });
  canvas.addEventListener('click', (e) => {
    const bar = under(e);
    if (bar) open(bar.id);
  });
}

/** @param {LaneBar} b */
function describeBar(b) {
  const took = (from, to) => duration((to - from) / 1000);
  const lines = [`${b.id}: ${b.fate}`];
  if (b.issued) lines.push(`waited ${took(b.issued, b.started)} for a producer`);
  lines.push(`ran ${took(b.started, b.finished)}`);
  if (b.ended) lines.push(`waited ${took(b.finished, b.ended)} for a step`);
  return lines;
}
