import { dim, h, note, put, s } from './dom.js';
import { clockText, round } from './format.js';
import { smooth } from './look.js';
import { clockTicks, extent, linear, logarithmic, nearest, widen } from './scale.js';

const colours = 8; // that style.css has
const edge = { left: 46, right: 12, top: 10, bottom: 24 };
const mostBars = 64;

/**
 * @typedef {object} Plot what a chart draws: points by step (x) and by time (at, in seconds)
 * @property {string} name
 * @property {number[]} x
 * @property {number[]} at
 * @property {number[]} y
 * @property {number} [c] the number of its colour
 * @property {number[][]} [band] the quantiles 0.1, 0.5, 0.9 and 1 at each point; y is the median
 *
 * @typedef {object} Options
 * @property {string} [unit]
 * @property {number} [low] a value of y that is shown whatever the plots are
 * @property {number} [high] the same at the other end
 * @property {boolean} [stacked] the plots are parts that add up, drawn as bars
 * @property {boolean} [large]
 * @property {boolean} [plain] smoothing and log scale do not touch it
 * @property {(step: number) => void} [pick] is called with the step that is clicked at
 * @property {() => void} [zoomed] is called when a stretch was chosen
 */

/**
 * chart draws plots as lines, bands or stacked bars. It follows the pointer and tells the values there. The element
 * has redraw.
 *
 * @param {string} title
 * @param {Plot[]} plots
 * @param {import('./look.js').Look} look
 * @param {Options} [options]
 */
export function chart(title, plots, look, options = {}) {
  const drawn = plots.filter((p) => p.x.length > 0).map((p, i) => ({ ...p, c: p.c ?? i % colours }));
  const head = h('h2', null, title, options.unit ? dim(' ' + options.unit) : null);
  const box = h('div', { class: 'panel chart' + (options.large ? ' large' : '') }, head);
  if (drawn.length === 0) {
    box.append(note('no numbers yet'));
    box.redraw = () => {};
    return box;
  }
  const svg = s('svg', { role: 'img', 'aria-label': title });
  const legend = h('div', { class: 'legend' });
  box.append(svg, legend);
  let picture = null;
  const draw = () => {
    const width = Math.floor(svg.getBoundingClientRect().width);
    const height = Math.floor(svg.getBoundingClientRect().height);
    if (width < 80 || height < 60) return;
    picture = pictureOf(drawn, look, options, width, height);
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    put(
      svg,
      axes(picture),
      picture.plots.flatMap((p, i) => drawPlot(picture, p, i)),
    );
    tellValues(legend, picture, null);
  };
  followPointer(svg, legend, () => picture, look, options);
  new ResizeObserver(draw).observe(svg);
  box.redraw = draw;
  return box;
}

// redrawAll draws the charts within an element again.
export function redrawAll(within) {
  for (const box of within.querySelectorAll('.chart')) box.redraw();
}

// pictureOf is what is drawn at a size: the plots in sight and the places of values.
function pictureOf(all, look, options, width, height) {
  const time = look.along === 'time';
  let plots = all.map((p) => inSight(time ? { ...p, px: p.at } : { ...p, px: p.x }, look.zoom));
  plots = options.stacked ? stack(plots.map((p) => thin(p, mostBars))) : plots;
  if (!options.stacked && !options.plain && look.smoothing > 0) {
    plots = plots.map((p) => (p.band ? p : { ...p, raw: p.y, y: smooth(p.y, look.smoothing) }));
  }
  const x = widen(extent(plots.flatMap((p) => p.px)), () => (time ? 1 : 0.5));
  const ys = plots.flatMap((p) => [...p.y, ...(p.raw || []), ...(p.band || []).flat(), ...(p.base || [])]);
  const log = look.log && !options.plain && !options.stacked && ys.every((v) => v > 0);
  if (!log) ys.push(...shownEnds(ys, options));
  const y = widen(extent(ys), (at) => Math.abs(at) / 2 || 0.5);
  const inner = { left: edge.left, right: width - edge.right, top: edge.top, bottom: height - edge.bottom };
  const gap = options.stacked ? (inner.right - inner.left) / Math.max(2, 2 * plots[0].px.length) : 0;
  return {
    plots,
    time,
    log,
    inner,
    stacked: !!options.stacked,
    x: linear(x, inner.left + gap, inner.right - gap),
    y: log ? logarithmic(y, inner.bottom, inner.top) : linear(y, inner.bottom, inner.top),
  };
}

// shownEnds are values of y that are shown besides: what the chart asks for, and 0 where it is not far.
function shownEnds(ys, { low, high }) {
  const { low: least, high: greatest } = extent(ys);
  const near = least > 0 && least < 0.4 * greatest ? 0 : undefined;
  return [low, high, near].filter((v) => v !== undefined);
}

// inSight cuts a plot to the stretch that is shown, unless nothing were left of it.
function inSight(p, zoom) {
  if (!zoom) return p;
  const keep = p.px.map((x, i) => (x >= zoom.low && x <= zoom.high ? i : -1)).filter((i) => i >= 0);
  if (keep.length === 0) return p;
  const cut = (values) => values && keep.map((i) => values[i]);
  return { ...p, px: cut(p.px), x: cut(p.x), y: cut(p.y), band: cut(p.band) };
}

// thin takes the means of neighbours until there are few enough points.
function thin(p, most) {
  const every = Math.ceil(p.px.length / most);
  if (every <= 1) return p;
  const starts = p.px.map((_, i) => i).filter((i) => i % every === 0);
  const mean = (values) => starts.map((i) => average(values.slice(i, i + every)));
  const last = (values) => starts.map((i) => values[Math.min(i + every, values.length) - 1]);
  return { ...p, px: mean(p.px), x: last(p.x), y: mean(p.y) };
}

const average = (values) => values.reduce((a, b) => a + b, 0) / values.length;

// stack puts each plot on those before it: base is where it begins, y where it ends, own its own value.
function stack(plots) {
  let base = plots[0].y.map(() => 0);
  return plots.map((p) => {
    const from = base;
    base = p.y.map((v, i) => from[i] + v);
    return { ...p, own: p.y, base: from, y: base };
  });
}

function axes({ x, y, inner, time, log }) {
  const across = y
    .ticks(4)
    .flatMap((t) => [
      s('line', { class: 'axis', x1: inner.left, x2: inner.right, y1: y.place(t), y2: y.place(t) }),
      s('text', { x: inner.left - 7, y: y.place(t) + 4, 'text-anchor': 'end' }, round(t)),
    ]);
  const wide = inner.right - inner.left;
  const many = Math.max(2, Math.floor(wide / 70));
  const values = time ? clockTicks(x.low, x.high, many) : x.ticks(many).filter(Number.isInteger);
  const below = values
    .filter((t) => x.place(t) < inner.right - 26)
    .map((t) =>
      s('text', { x: x.place(t), y: inner.bottom + 16, 'text-anchor': 'middle' }, time ? clockText(t) : round(t)),
    );
  const title = s('text', { x: inner.right, y: inner.bottom + 16, 'text-anchor': 'end' }, time ? 'time' : 'step');
  return [...across, ...below, title, log || y.low > 0 ? cutMark(inner) : null];
}

// cutMark says that y does not begin at 0.
function cutMark({ left, bottom }) {
  const d = `M${left - 5} ${bottom + 4}l5 -4l-5 -4l5 -4l-5 -4`;
  return s('path', { class: 'cut', d }, s('title', null, 'this axis does not begin at 0'));
}

function drawPlot(picture, p, i) {
  if (picture.stacked) return drawBars(picture, p);
  if (p.band) return drawBand(picture, p);
  const raw = p.raw ? [drawPath(picture, p, p.raw, 'line raw l' + p.c)] : [];
  if (p.px.length > 1) return [...raw, drawPath(picture, p, p.y, 'line l' + p.c)];
  const at = { cx: picture.x.place(p.px[0]), cy: picture.y.place(p.y[0]) };
  return [s('circle', { class: 'dot l' + p.c, ...at, r: 3 + (i ? 0 : 0.5) })];
}

const pointsOf = ({ x, y }, xs, ys) => xs.map((v, i) => `${x.place(v).toFixed(1)} ${y.place(ys[i]).toFixed(1)}`);

const drawPath = (picture, p, ys, look) => s('path', { class: look, d: 'M' + pointsOf(picture, p.px, ys).join('L') });

// drawBand draws from the tenth to the ninetieth of a hundred as an area, the median as a line, the greatest thin.
function drawBand(picture, p) {
  const at = (q) => p.band.map((b) => b[q]);
  const top = pointsOf(picture, p.px, at(2));
  const bottom = pointsOf(picture, p.px, at(0)).reverse();
  return [
    s('path', { class: 'area a' + p.c, d: 'M' + [...top, ...bottom].join('L') + 'Z' }),
    drawPath(picture, p, at(3), 'line thin l' + p.c),
    drawPath(picture, p, at(1), 'line l' + p.c),
  ];
}

function drawBars({ x, y, inner }, p) {
  const width = Math.max(1, (0.86 * (inner.right - inner.left)) / Math.max(1, p.px.length));
  return p.px.map((v, i) => {
    const top = y.place(p.y[i]);
    const height = Math.max(0, y.place(p.base[i]) - top);
    return s('rect', { class: 'a' + p.c + ' solid', x: x.place(v) - width / 2, y: top, width, height });
  });
}

// tellValues tells in the legend the values at a place, or the last values.
function tellValues(legend, { plots, time }, at) {
  const values = plots.map((p) => {
    const i = at === null ? p.px.length - 1 : nearest(p.px, at);
    return h('span', null, h('i', { class: 'k' + p.c }), `${p.name} `, h('b', null, valueOf(p, i)));
  });
  put(legend, values, at === null ? null : h('span', null, time ? clockText(at) : 'step ' + round(at)));
}

function valueOf(p, i) {
  if (p.band)
    return `${round(p.band[i][1])} (${round(p.band[i][0])} to ${round(p.band[i][2])}, most ${round(p.band[i][3])})`;
  return round((p.own || p.y)[i]);
}

/**
 * followPointer shows the values under the pointer, chooses a stretch by dragging, and a step by a click.
 *
 * @param {any} svg
 * @param {any} legend
 * @param {() => any} pictureNow
 * @param {import('./look.js').Look} look
 * @param {Options} options
 */
function followPointer(svg, legend, pictureNow, look, { pick, zoomed }) {
  const hair = s('line', { class: 'hair' });
  const choice = s('rect', { class: 'choice' });
  let from = null; // where a drag began
  const placeOf = (e) => e.clientX - svg.getBoundingClientRect().left;
  const leave = () => {
    hair.remove();
    choice.remove();
    from = null;
    const picture = pictureNow();
    if (picture) tellValues(legend, picture, null);
  };
  svg.addEventListener('pointermove', (e) => {
    const picture = pictureNow();
    if (!picture) return;
    const xs = picture.plots[0].px;
    const at = xs[nearest(xs, picture.x.value(placeOf(e)))];
    drawHair(hair, picture, at);
    svg.append(hair);
    if (from !== null) {
      drawChoice(choice, picture, from, placeOf(e));
      svg.append(choice);
    }
    tellValues(legend, picture, at);
  });
  svg.addEventListener('pointerdown', (e) => {
    if (e.pointerType === 'mouse' && e.button === 0) from = placeOf(e);
  });
  svg.addEventListener('pointerup', (e) => {
    const picture = pictureNow();
    const to = placeOf(e);
    const began = from;
    from = null;
    choice.remove();
    if (!picture) return;
    if (began !== null && Math.abs(to - began) > 6 && zoomed) {
      const ends = [picture.x.value(began), picture.x.value(to)].sort((a, b) => a - b);
      look.zoom = { low: ends[0], high: ends[1] };
      zoomed();
    } else if (pick && e.pointerType === 'mouse') {
      const p = picture.plots[0];
      pick(Math.round(p.x[nearest(p.px, picture.x.value(to))]));
    }
  });
  svg.addEventListener('pointerleave', leave);
}

function drawHair(hair, { x, inner }, at) {
  for (const name of ['x1', 'x2']) hair.setAttribute(name, x.place(at));
  hair.setAttribute('y1', inner.top);
  hair.setAttribute('y2', inner.bottom);
}

function drawChoice(choice, { inner }, from, to) {
  const values = { x: Math.min(from, to), y: inner.top, width: Math.abs(to - from), height: inner.bottom - inner.top };
  for (const [name, value] of Object.entries(values)) choice.setAttribute(name, value);
}
