import { h, put } from './dom.js';
import { duration, round } from './format.js';
import { tokenColour } from './tokencolours.js';

// cutIntoParts cuts a trajectory where the speaker or the turn changes. A part has {who, segment, start, end, turn}; a
// tool call has {who: 'call', call}.
export function cutIntoParts(trajectory) {
  return trajectory.segments.flatMap((s, segment) => {
    const turns = trajectory.turns.filter((u) => u.segment === segment);
    return cutSegment(s, segment, turns);
  });
}

function cutSegment(s, segment, turns) {
  const turnAt = (k) => turns.find((u) => k >= u.start && k < u.end);
  const out = [];
  for (let start = 0; start < s.ids.length;) {
    const sampled = s.mask[start];
    const turn = turnAt(start);
    let end = start + 1;
    while (end < s.ids.length && s.mask[end] === sampled && (!sampled || turnAt(end) === turn)) end++;
    out.push({ who: speaker(sampled, segment, start), segment, start, end, turn });
    if (sampled && turn && end >= turn.end) out.push(...turn.calls.map((call) => ({ who: 'call', call })));
    start = end;
  }
  return out;
}

function speaker(sampled, segment, start) {
  if (sampled) return 'policy';
  if (start > 0) return 'observation';
  return segment === 0 ? 'prompt' : 'context';
}

// drawPart draws a part of a trajectory, its tokens coloured by a mode.
export function drawPart(trajectory, part, mode) {
  if (part.who === 'call') return drawCall(part.call);
  const s = trajectory.segments[part.segment];
  const text = h('pre', { class: 'talk' });
  for (let i = part.start; i < part.end; i++) text.append(drawToken(s, i, mode, i === part.start));
  text.addEventListener('pointermove', (e) => tellToken(e, text, s, part.start));
  text.addEventListener('pointerleave', hideTip);
  const agent = s.agent && part.who === 'policy' ? ' ' + s.agent : '';
  const reward = part.turn && part.turn.reward ? ` reward ${round(part.turn.reward)}` : '';
  const who = h('div', { class: 'who' }, part.who + agent, h('div', { class: 'dim' }, reward));
  return h('div', { class: 'part ' + part.who }, who, text);
}

// partText is what a part says, as text.
export function partText(trajectory, part) {
  if (part.who === 'call') return `${part.call.tool}(${part.call.arguments})`;
  return trajectory.segments[part.segment].text.slice(part.start, part.end).join('');
}

function drawCall(call) {
  const error = call.error ? h('span', { class: 'bad' }, ' ' + call.error) : null;
  const text = `${call.tool}(${call.arguments}) ${duration(call.seconds)}`;
  return h('div', { class: 'part call' }, h('div', { class: 'who' }, 'call'), h('pre', { class: 'talk' }, text, error));
}

// drawToken draws a token; the first of a part without the blank before it.
function drawToken(s, i, mode, first) {
  const text = first ? s.text[i].trimStart() || s.text[i] : s.text[i];
  const token = h('span', { class: 'tok' + (s.mask[i] ? '' : ' masked') }, text);
  const colour = s.mask[i] ? tokenColour(s, i, mode) : null;
  if (colour) token.style.backgroundColor = colour;
  return token;
}

/** @type {HTMLElement | null} */
let tip = null;

function hideTip() {
  if (tip) tip.remove();
  tip = null;
}

addEventListener('hashchange', hideTip);

// tellToken shows the numbers of the token under the pointer.
function tellToken(e, text, s, start) {
  if (!e.target.classList.contains('tok')) {
    hideTip();
    return;
  }
  if (!tip) {
    tip = h('div', { class: 'tip' });
    document.body.append(/** @type {Node} */ (tip));
  }
  const box = /** @type {HTMLElement} */ (tip);
  put(box, describeToken(s, start + [...text.children].indexOf(e.target)).join('\n'));
  box.style.left = Math.min(e.clientX + 12, innerWidth - 240) + 'px';
  box.style.top = Math.min(e.clientY + 14, innerHeight - 140) + 'px';
}

// describeToken is a token's numbers, a line each.
function describeToken(s, i) {
  const lines = [`token ${s.ids[i]} at ${i}`];
  if (!s.mask[i]) return [...lines, 'not sampled by the policy: no loss'];
  lines.push(`version ${s.versions[i]}`, `log-probability ${round(s.logprobs[i])}`);
  if (s.start) lines.push(`at the step's start ${round(s.start[i])}, ratio ${ratio(s.start[i], s.logprobs[i])}`);
  if (s.last) lines.push(`when last trained on ${round(s.last[i])}, ratio ${ratio(s.last[i], s.start[i])}`);
  if (s.advantages) lines.push(`advantage ${round(s.advantages[i])}`);
  return lines;
}

const ratio = (now, before) => round(Math.exp(now - before));
