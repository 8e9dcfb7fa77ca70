import * as api from './api.js';
import { button, card, dim, h, note, put } from './dom.js';
import { clock, round } from './format.js';
import { drawLanes } from './lanespicture.js';

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
  put(main, h('h1', null, 'Version lanes'), bar, facts, scroller, tip);
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
    put(facts, ageCards(now));
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

/** @param {Lanes} data */
function ageCards(data) {
  const n = data.bars.length;
  if (n === 0) return note('The archive has no rollout in this stretch: trainer.archive.bytes keeps one.');
  const { queue, sampling, tools, waiting } = data.ages;
  const all = queue + sampling + tools + waiting || 1;
  const parts = [
    ['waiting for a producer', queue],
    ['sampling', sampling],
    ['in tools', tools],
    ['waiting for a step', waiting],
  ];
  const cards = parts.map(([label, ms]) =>
    card(`${label}, ${Math.round((100 * Number(ms)) / all)} % of its age`, `${round(Number(ms) / n / 1000)} s`),
  );
  return h('div', { class: 'cards' }, cards);
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
  const seconds = (from, to) => round((to - from) / 1000);
  const lines = [`${b.id}: ${b.fate}`];
  if (b.issued) lines.push(`waited ${seconds(b.issued, b.started)} s for a producer`);
  lines.push(`ran ${seconds(b.started, b.finished)} s`);
  if (b.ended) lines.push(`waited ${seconds(b.finished, b.ended)} s for a step`);
  return lines;
}
