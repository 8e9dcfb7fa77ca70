import * as api from './api.js';
import { h, put, round } from './dom.js';
import { versionColour } from './trajectory.js';

const lane = 12, gap = 2, head = 20, left = 150;

// Time by worker: each rollout a bar, its tokens in the colour of the version that sampled them, tools hatched, the wait before and
// after it thin.
export async function show({ main, run, query, signal, go, keys, every }) {
  const canvas = h('canvas', { id: 'lanes', tabindex: 0, 'aria-label': 'rollouts by producer and time; the list of trajectories has the same as text' });
  const facts = h('div', null), bar = h('div', { class: 'bar' }), tip = h('div', { class: 'tip', hidden: true }), scroller = h('div', { class: 'panel' }, canvas);
  put(main, h('h1', null, 'Version lanes'), bar, facts, scroller, tip);
  let data = null, hits = [];
  const to = (from, till) => { location.replace(go(run, 'lanes', [], { from: Math.round(from), to: Math.round(till) })); };
  const zoom = (k, at = 0.5) => { const w = data.to - data.from, c = data.from + w * at; to(Math.max(data.first, c - w * k * at), c + w * k * (1 - at)); };
  const pan = (k) => { const w = data.to - data.from; to(data.from + k * w, data.to + k * w); };

  async function load() {
    data = await api.get(run, 'lanes', { from: query.from, to: query.to }, signal);
    const a = data.ages, all = a.queue + a.sampling + a.tools + a.waiting || 1, n = data.bars.length || 1;
    put(bar, h('button', { type: 'button', onclick: () => pan(-0.5) }, '◀'), h('button', { type: 'button', onclick: () => pan(0.5) }, '▶'), h('button', { type: 'button', onclick: () => zoom(0.5) }, '+'),
      h('button', { type: 'button', onclick: () => zoom(2) }, '−'), h('button', { type: 'button', onclick: () => to(data.first, data.last) }, 'all'), h('a', { href: go(run, 'lanes') }, 'the newest'),
      h('span', { class: 'dim' }, `${new Date(data.from).toLocaleTimeString()} to ${new Date(data.to).toLocaleTimeString()}, ${data.bars.length} rollouts${data.more ? ', the newest of more' : ''}`));
    put(facts, data.bars.length === 0 ? h('p', { class: 'dim' }, 'The archive has no rollout in this stretch: trainer.archive.bytes keeps one.') : h('div', { class: 'cards' },
      [['waiting for a producer', a.queue], ['sampling', a.sampling], ['in tools', a.tools], ['waiting for a step', a.waiting]].map(([t, ms]) =>
        h('div', { class: 'card' }, h('b', null, `${round(ms / n / 1000)} s`), h('span', null, `${t}, ${Math.round(100 * ms / all)} % of its age`)))));
    draw();
  }

  function draw() {
    const lanes = data.producers.reduce((n, p) => n + p.lanes, 0), ratio = devicePixelRatio || 1;
    const width = Math.max(320, scroller.clientWidth - 28), height = Math.min(12000, head + lanes * (lane + gap) + 8);
    canvas.width = width * ratio; canvas.height = height * ratio;
    canvas.style.width = width + 'px'; canvas.style.height = height + 'px';
    const g = canvas.getContext('2d'), style = getComputedStyle(document.documentElement), color = (name) => style.getPropertyValue(name).trim();
    const name = width < 600 ? 60 : left, x = (t) => name + (t - data.from) / (data.to - data.from || 1) * (width - name - 4);
    g.scale(ratio, ratio);
    g.font = '11px system-ui, sans-serif';
    g.fillStyle = color('--dim');
    let y = head;
    for (const p of data.producers) {
      g.fillStyle = color('--dim');
      g.fillText(`${p.name} ${Math.round(100 * p.busy)} %`, 0, y + lane - 2, name - 6);
      g.fillStyle = color('--line');
      g.fillRect(name, y - 1, width - name, 1);
      y += p.lanes * (lane + gap);
    }
    hits = [];
    for (const b of data.bars) {
      const top = head + b.lane * (lane + gap), from = x(b.started), till = Math.max(from + 1, x(b.finished));
      g.fillStyle = color('--line');
      if (b.issued) g.fillRect(Math.max(name, x(b.issued)), top + lane / 2 - 1, Math.max(0, from - Math.max(name, x(b.issued))), 1);
      pieces(b, (a, z, version) => {
        const p = Math.max(name, from + a * (till - from)), q = Math.max(p + 0.5, from + z * (till - from));
        g.fillStyle = version < 0 ? color('--masked') : versionColour(version, 0.85);
        if (version < 0) g.fillRect(p, top + lane / 2 - 2, q - p, 4); else g.fillRect(p, top, q - p, lane);
      });
      if (b.fate !== 'trained' && till - from > 5) { g.fillStyle = color(b.fate === 'refused' ? '--bad' : '--warn'); g.fillRect(Math.max(name, till - 2), top, 2, lane); }
      if (b.ended) { g.fillStyle = color('--line'); g.fillRect(till, top + lane / 2 - 1, Math.max(0, Math.min(width, x(b.ended)) - till), 1); }
      hits.push([from, till, top, b]);
    }
    g.strokeStyle = color('--dim');
    g.fillStyle = color('--dim');
    let free = name;
    for (const s of data.swaps) {
      const at = x(s.at);
      g.globalAlpha = 0.5;
      g.fillRect(at, head - 6, 1, height);
      g.globalAlpha = 1;
      if (at > free) { g.fillText('v' + s.version, at + 2, 11); free = at + 34; }
    }
  }

  const under = (e) => {
    const r = canvas.getBoundingClientRect(), px = e.clientX - r.left, py = e.clientY - r.top;
    return hits.findLast(([a, z, top]) => px >= a - 1 && px <= z + 1 && py >= top && py <= top + lane);
  };
  canvas.addEventListener('pointermove', (e) => {
    const hit = under(e);
    tip.hidden = !hit;
    canvas.style.cursor = hit ? 'pointer' : 'default';
    if (!hit) return;
    const b = hit[3];
    put(tip, [`${b.id}: ${b.fate}`, b.issued ? `waited ${round((b.started - b.issued) / 1000)} s for a producer` : null, `ran ${round((b.finished - b.started) / 1000)} s`, b.ended ? `waited ${round((b.ended - b.finished) / 1000)} s for a step` : null].filter(Boolean).join('\n'));
    tip.style.left = Math.min(e.clientX + 12, innerWidth - 260) + 'px';
    tip.style.top = e.clientY + 14 + 'px';
  });
  canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
  canvas.addEventListener('click', (e) => { const hit = under(e); if (hit) location.hash = go(run, 'trajectory', [hit[3].id], { colour: 'version' }); });
  Object.assign(keys, { '+': () => zoom(0.5), '-': () => zoom(2), ArrowLeft: () => pan(-0.5), ArrowRight: () => pan(0.5) });
  addEventListener('theme', () => data && draw(), { signal });
  addEventListener('resize', () => data && draw(), { signal });
  await load();
  if (!query.to) every(3, load);
}

// pieces shares a rollout's time out: tools have their own times, what is left goes to the sampled tokens in equal parts.
function pieces(b, each) {
  const total = Math.max(1, b.finished - b.started), s = b.spans || [];
  let tools = 0, tokens = 0;
  for (let i = 0; i + 1 < s.length; i += 2) if (s[i] < 0) tools += s[i + 1]; else tokens += s[i + 1];
  const perToken = Math.max(0, total - tools) / (tokens || 1), scale = total / Math.max(total, tools + perToken * tokens);
  let at = 0;
  for (let i = 0; i + 1 < s.length; i += 2) {
    const took = (s[i] < 0 ? s[i + 1] : s[i + 1] * perToken) * scale;
    each(at / total, (at + took) / total, s[i]);
    at += took;
  }
  if (s.length === 0) each(0, 1, -1);
}
