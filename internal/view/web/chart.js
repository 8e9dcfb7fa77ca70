import { h, s, put, round } from './dom.js';

const W = 420, H = 150, L = 40, B = 16, T = 6;

// chart draws lines: [{name, x, y, c}] with a number of its colour each. It follows the pointer and tells the values there.
export function chart(title, lines, o = {}) {
  const drawn = lines.filter((l) => l.x.length > 0).map((l, i) => ({ ...l, c: l.c ?? i % 8 }));
  const legend = h('div', { class: 'legend' });
  const svg = s('svg', { viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': title });
  const box = h('div', { class: 'panel chart' }, h('h2', null, title, o.unit ? h('span', { class: 'dim' }, ' ' + o.unit) : null), svg, legend);
  if (drawn.length === 0) {
    put(box, h('h2', null, title), h('p', { class: 'dim' }, o.empty || 'no numbers yet'));
    return box;
  }
  let x0 = Infinity, x1 = -Infinity, y0 = o.low ?? Infinity, y1 = o.high ?? -Infinity;
  for (const l of drawn) for (let i = 0; i < l.x.length; i++) {
    x0 = Math.min(x0, l.x[i]); x1 = Math.max(x1, l.x[i]); y0 = Math.min(y0, l.y[i]); y1 = Math.max(y1, l.y[i]);
  }
  if (x0 === x1) { x0 -= 1; x1 += 1; }
  if (y1 - y0 <= 1e-9 * Math.max(Math.abs(y0), Math.abs(y1))) { y0 -= Math.abs(y0) / 2 || 0.5; y1 += Math.abs(y1) / 2 || 0.5; }
  const px = (x) => L + (x - x0) / (x1 - x0) * (W - L - 6);
  const py = (y) => H - B - (y - y0) / (y1 - y0) * (H - B - T);
  for (const t of ticks(y0, y1, 4)) {
    svg.append(s('line', { class: 'axis', x1: L, x2: W - 6, y1: py(t), y2: py(t) }), s('text', { x: L - 5, y: py(t) + 3, 'text-anchor': 'end' }, round(t)));
  }
  for (const t of ticks(x0, x1, 5)) if (Number.isInteger(t)) svg.append(s('text', { x: px(t), y: H - 3, 'text-anchor': 'middle' }, round(t)));
  for (const l of drawn) {
    let d = '';
    for (let i = 0; i < l.x.length; i++) d += (i ? 'L' : 'M') + px(l.x[i]).toFixed(1) + ' ' + py(l.y[i]).toFixed(1);
    svg.append(s('path', { class: 'line l' + l.c, d }));
    if (l.x.length === 1) svg.append(s('circle', { class: 'dot l' + l.c, cx: px(l.x[0]), cy: py(l.y[0]), r: 2.5 }));
  }
  const hair = s('line', { class: 'hair', y1: T, y2: H - B, visibility: 'hidden' });
  svg.append(hair);
  const tell = (at) => put(legend, drawn.map((l) => {
    const i = at === null ? l.x.length - 1 : nearest(l.x, at);
    return h('span', null, h('i', { class: 'k' + l.c }), `${l.name} ${round(l.y[i])}`);
  }), at === null ? null : h('span', null, `${o.along || 'step'} ${round(at)}`));
  tell(null);
  svg.addEventListener('pointermove', (e) => {
    const r = svg.getBoundingClientRect();
    const x = x0 + ((e.clientX - r.left) / r.width * W - L) / (W - L - 6) * (x1 - x0);
    const at = drawn[0].x[nearest(drawn[0].x, x)];
    hair.setAttribute('x1', px(at)); hair.setAttribute('x2', px(at)); hair.setAttribute('visibility', 'visible');
    tell(at);
  });
  svg.addEventListener('pointerleave', () => { hair.setAttribute('visibility', 'hidden'); tell(null); });
  if (o.pick) svg.addEventListener('click', (e) => {
    const r = svg.getBoundingClientRect();
    o.pick(drawn[0].x[nearest(drawn[0].x, x0 + ((e.clientX - r.left) / r.width * W - L) / (W - L - 6) * (x1 - x0))]);
  });
  return box;
}

function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const mid = (low + high) >> 1;
    if (xs[mid] < x) low = mid; else high = mid;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}

function ticks(low, high, n) {
  const raw = (high - low) / n, size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * size).find((k) => k >= raw) || raw;
  const out = [];
  const first = Math.ceil(low / step);
  for (let i = 0; i <= 2 * n && (first + i) * step <= high + step * 1e-9; i++) out.push(Number(((first + i) * step).toPrecision(12)));
  return out;
}
