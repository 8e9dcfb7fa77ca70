import { dim, h, note, panel, put, s } from './dom.js';
import { round } from './format.js';

const width = 420;
const height = 150;
const edge = { left: 40, right: 6, top: 6, bottom: 16 };
const colours = 8; // that style.css has

/**
 * @typedef {{name: string, x: number[], y: number[], c?: number}} Line a line, and the number of its colour
 *
 * @typedef {object} Options
 * @property {string} [unit]
 * @property {string} [along] what x is: step unless it is named
 * @property {string} [empty] what is said where there is no point
 * @property {number} [low] a value of y that is shown whatever the lines are
 * @property {number} [high] the same at the other end
 * @property {(x: number) => void} [pick] is called with the x that is clicked at
 */

/**
 * chart draws lines. It follows the pointer and tells the values there.
 *
 * @param {string} title
 * @param {Line[]} lines
 * @param {Options} [options]
 */
export function chart(title, lines, options = {}) {
  const drawn = lines.filter((l) => l.x.length > 0).map((l, i) => ({ ...l, c: l.c ?? i % colours }));
  if (drawn.length === 0) {
    return h('div', { class: 'panel chart' }, h('h2', null, title), note(options.empty || 'no numbers yet'));
  }
  const scale = scaleOf(drawn, options);
  const svg = s('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title });
  svg.append(...axes(scale), ...drawn.flatMap((l) => drawLine(l, scale)));
  const legend = h('div', { class: 'legend' });
  followPointer(svg, legend, drawn, scale, options);
  const unit = options.unit ? dim(' ' + options.unit) : null;
  const box = panel([title, unit], svg, legend);
  box.classList.add('chart');
  return box;
}

/**
 * scaleOf is what the axes reach over, with the places of values in the picture.
 *
 * @param {Line[]} lines
 * @param {Options} options
 */
function scaleOf(lines, { low, high }) {
  const xs = lines.flatMap((l) => l.x);
  const ys = lines.flatMap((l) => l.y);
  if (low !== undefined) ys.push(low);
  if (high !== undefined) ys.push(high);
  const x = widen(extent(xs), () => 1);
  const y = widen(extent(ys), (at) => Math.abs(at) / 2 || 0.5);
  const inner = { width: width - edge.left - edge.right, height: height - edge.top - edge.bottom };
  return {
    x,
    y,
    px: (v) => edge.left + ((v - x.low) / (x.high - x.low)) * inner.width,
    py: (v) => height - edge.bottom - ((v - y.low) / (y.high - y.low)) * inner.height,
    // valueAt is the x at a share of the picture's width.
    valueAt: (share) => x.low + ((share * width - edge.left) / inner.width) * (x.high - x.low),
  };
}

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const v of values) {
    low = Math.min(low, v);
    high = Math.max(high, v);
  }
  return { low, high };
}

// widen makes room where all values are one.
function widen({ low, high }, by) {
  if (high - low > 1e-9 * Math.max(Math.abs(low), Math.abs(high))) return { low, high };
  return { low: low - by(low), high: high + by(high) };
}

function axes({ x, y, px, py }) {
  const across = ticks(y.low, y.high, 4).flatMap((t) => [
    s('line', { class: 'axis', x1: edge.left, x2: width - edge.right, y1: py(t), y2: py(t) }),
    s('text', { x: edge.left - 5, y: py(t) + 3, 'text-anchor': 'end' }, round(t)),
  ]);
  const below = ticks(x.low, x.high, 5).filter(Number.isInteger);
  return [...across, ...below.map((t) => s('text', { x: px(t), y: height - 3, 'text-anchor': 'middle' }, round(t)))];
}

// ticks are about n round numbers between two values.
function ticks(low, high, n) {
  const raw = (high - low) / n;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * size).find((k) => k >= raw) || raw;
  const first = Math.ceil(low / step);
  const out = [];
  for (let i = 0; i <= 2 * n && (first + i) * step <= high + step * 1e-9; i++) {
    out.push(Number(((first + i) * step).toPrecision(12)));
  }
  return out;
}

function drawLine(l, { px, py }) {
  const points = l.x.map((x, i) => px(x).toFixed(1) + ' ' + py(l.y[i]).toFixed(1));
  const path = s('path', { class: 'line l' + l.c, d: 'M' + points.join('L') });
  if (l.x.length > 1) return [path];
  return [path, s('circle', { class: 'dot l' + l.c, cx: px(l.x[0]), cy: py(l.y[0]), r: 2.5 })];
}

/**
 * followPointer tells in the legend the values under the pointer, or the last values.
 *
 * @param {any} svg
 * @param {any} legend
 * @param {Line[]} lines
 * @param {ReturnType<typeof scaleOf>} scale
 * @param {Options} options
 */
function followPointer(svg, legend, lines, scale, { along = 'step', pick }) {
  const hair = s('line', { class: 'hair', y1: edge.top, y2: height - edge.bottom, visibility: 'hidden' });
  svg.append(hair);
  const under = (e) => {
    const r = svg.getBoundingClientRect();
    const xs = lines[0].x;
    return xs[nearest(xs, scale.valueAt((e.clientX - r.left) / r.width))];
  };
  const tell = (at) => {
    const values = lines.map((l) => {
      const i = at === null ? l.x.length - 1 : nearest(l.x, at);
      return h('span', null, h('i', { class: 'k' + l.c }), `${l.name} ${round(l.y[i])}`);
    });
    put(legend, values, at === null ? null : h('span', null, `${along} ${round(at)}`));
  };
  tell(null);
  svg.addEventListener('pointermove', (e) => {
    const at = under(e);
    const x = scale.px(at);
    for (const [name, value] of [
      ['x1', x],
      ['x2', x],
      ['visibility', 'visible'],
    ])
      hair.setAttribute(name, value);
    tell(at);
  });
  svg.addEventListener('pointerleave', () => {
    hair.setAttribute('visibility', 'hidden');
    tell(null);
  });
  if (pick) svg.addEventListener('click', (e) => pick(under(e)));
}

// nearest is the place of the value that is nearest to x, of values that rise.
function nearest(xs, x) {
  let low = 0;
  let high = xs.length - 1;
  while (high - low > 1) {
    const mid = (low + high) >> 1;
    if (xs[mid] < x) low = mid;
    else high = mid;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}
