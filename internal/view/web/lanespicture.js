import { versionColour } from './tokencolours.js';

/** @typedef {import('../webcheck/api').Lanes} Lanes */
/** @typedef {import('../webcheck/api').LaneBar} LaneBar */

const headHeight = 20;
const nameHeight = 18; // of a producer's name above its lanes
const mostHeight = 12000;

// lanesOf is where lanes lie: many of them are thin.
function lanesOf(producers) {
  const count = producers.reduce((n, p) => n + p.lanes, 0);
  const [laneHeight, gap] = count > 40 ? [6, 1] : [12, 2];
  const names = [];
  const tops = [];
  let y = headHeight;
  for (const p of producers) {
    names.push(y);
    y += nameHeight;
    for (let i = 0; i < p.lanes; i++, y += laneHeight + gap) tops.push(y);
    y += 6;
  }
  return { laneHeight, names, tops, bottom: y };
}

/**
 * drawLanes draws a stretch of time and returns where each bar is: {left, right, top, bottom, bar}.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {Lanes} data
 */
export function drawLanes(canvas, width, data) {
  const lanes = lanesOf(data.producers);
  const height = Math.min(mostHeight, lanes.bottom);
  const left = 2;
  const span = data.to - data.from || 1;
  const p = {
    g: sizedContext(canvas, width, height),
    width,
    height,
    left,
    lanes,
    x: (t) => left + ((t - data.from) / span) * (width - left - 4),
    colour: themeColours(),
  };
  const hits = data.bars.map((bar) => drawBar(p, bar));
  drawSwaps(p, data.swaps);
  drawProducers(p, data.producers);
  return hits;
}

function sizedContext(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = width + 'px';
  canvas.style.height = height + 'px';
  const g = canvas.getContext('2d');
  g.scale(ratio, ratio);
  g.font = '11px system-ui, sans-serif';
  return g;
}

// themeColours reads the variables of style.css.
function themeColours() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(name).trim();
}

function drawProducers({ g, lanes, width, colour }, producers) {
  producers.forEach((p, i) => {
    const y = lanes.names[i];
    g.fillStyle = colour('--line');
    g.fillRect(0, y, width, 1);
    const name = `${p.name}: ${p.lanes} at once, ${Math.round(100 * p.busy)} % busy`;
    g.fillStyle = colour('--panel'); // a line of a version does not go through the name
    g.fillRect(0, y + 1, g.measureText(name).width + 8, nameHeight - 2);
    g.fillStyle = colour('--text');
    g.fillText(name, 2, y + 13);
  });
}

function drawBar(p, bar) {
  const { g, x, colour, left, width } = p;
  const { laneHeight, tops } = p.lanes;
  const top = tops[bar.lane];
  const from = x(bar.started);
  const till = Math.max(from + 1, x(bar.finished));
  drawWait(p, bar.issued ? Math.max(left, x(bar.issued)) : from, from, top);
  for (const piece of piecesOf(bar)) drawPiece(p, piece, from, till, top);
  if (bar.fate !== 'trained' && till - from > 5) {
    g.fillStyle = colour(bar.fate === 'refused' ? '--bad' : '--warn');
    g.fillRect(Math.max(left, till - 2), top, 2, laneHeight);
  }
  drawWait(p, till, bar.ended ? Math.min(width, x(bar.ended)) : till, top);
  return { left: from, right: till, top, bottom: top + laneHeight, bar };
}

// drawWait draws a thin line: a rollout that waits.
function drawWait({ g, colour, lanes: { laneHeight } }, from, till, top) {
  if (till <= from) return;
  g.fillStyle = colour('--line');
  g.fillRect(from, top + laneHeight / 2 - 1, till - from, 1);
}

function drawPiece({ g, colour, left, lanes: { laneHeight } }, piece, from, till, top) {
  const start = Math.max(left, from + piece.from * (till - from));
  const end = Math.max(start + 0.5, from + piece.to * (till - from));
  if (piece.version < 0) {
    g.fillStyle = colour('--masked');
    g.fillRect(start, top + laneHeight / 3, end - start, laneHeight / 3);
  } else {
    g.fillStyle = versionColour(piece.version, 0.85);
    g.fillRect(start, top, end - start, laneHeight);
  }
}

function drawSwaps({ g, x, height, left, colour }, swaps) {
  g.fillStyle = colour('--dim');
  let free = left;
  for (const s of swaps) {
    const at = x(s.at);
    g.globalAlpha = 0.5;
    g.fillRect(at, headHeight - 6, 1, height);
    g.globalAlpha = 1;
    if (at <= free) continue;
    g.fillText('v' + s.version, at + 2, 11);
    free = at + 34;
  }
}

/**
 * piecesOf shares a rollout's time out: tools have their own times, and the rest goes to the sampled tokens in equal
 * parts. A piece has its shares of the time, from and to, and the version that sampled it, negative where a tool ran.
 *
 * @param {LaneBar} bar
 */
function piecesOf(bar) {
  const spans = [];
  const flat = bar.spans || [];
  for (let i = 0; i + 1 < flat.length; i += 2) spans.push({ version: flat[i], amount: flat[i + 1] });
  if (spans.length === 0) return [{ from: 0, to: 1, version: -1 }];
  const sum = (all) => all.reduce((n, s) => n + s.amount, 0);
  const total = Math.max(1, bar.finished - bar.started);
  const tools = sum(spans.filter((s) => s.version < 0));
  const tokens = sum(spans.filter((s) => s.version >= 0));
  const perToken = Math.max(0, total - tools) / (tokens || 1);
  const scale = total / Math.max(total, tools + perToken * tokens);
  let at = 0;
  return spans.map((s) => {
    const took = (s.version < 0 ? s.amount : s.amount * perToken) * scale;
    const piece = { from: at / total, to: (at + took) / total, version: s.version };
    at += took;
    return piece;
  });
}
