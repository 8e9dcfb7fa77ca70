import * as api from './api.js';
import { h, put, round, copy } from './dom.js';

const modes = ['plain', 'advantage', 'ratio', 'log-probability', 'version'];
const place = 'weir-colour';

// A trajectory: who says what, each token's numbers, its group beside it.
export async function show({ main, run, rest, signal, go, keys, query }) {
  const id = rest[0];
  const d = await api.get(run, 'trajectories/' + encodeURIComponent(id), null, signal);
  const t = d.trajectory;
  let mode = modes.includes(query.colour) ? query.colour : sessionStorage.getItem(place) || 'plain';
  const talk = h('div', { class: 'panel', id: 'talk' });
  const bar = h('div', { class: 'bar' });
  const group = h('div', null);
  const draw = () => {
    put(bar, h('span', { class: 'dim' }, 'colour tokens by'), modes.map((m) => h('button', { type: 'button', 'aria-pressed': String(m === mode), disabled: !has(t, m), title: has(t, m) ? null : 'not recorded for this trajectory',
      onclick: () => { mode = m; sessionStorage.setItem(place, m); draw(); } }, m)), scale(mode));
    put(talk, t ? parts(t).map((p) => part(t, p, mode)) : h('p', { class: 'dim' }, d.missing));
  };
  put(main,
    h('h1', null, h('span', { class: 'mono' }, d.id), ' ', h('span', { class: 'dim' }, d.words)),
    t ? h('div', { class: 'panel facts' }, fact('prompt', `${t.prompt_id || 'none'}${t.source ? ', source ' + t.source : ''}${t.task ? ', task ' + t.task : ''}`), fact('answer', t.answer || '–'),
      fact('reward', round(t.reward) + Object.entries(t.rewards).sort().map(([k, v]) => `, ${k} ${round(v)}`).join('')), fact('stopped by', t.stop + (t.error ? ': ' + t.error : '')),
      fact('lineage', `ticket ${d.id}, attempt ${t.attempt}, sample ${t.sample} of ${t.group_size}, producer ${t.producer}`), fact('time', span(t)),
      fact('versions', versions(t)), fact('tokens', `${t.segments.reduce((n, s) => n + s.ids.length, 0)}, of which ${t.segments.reduce((n, s) => n + s.mask.reduce((a, b) => a + b, 0), 0)} sampled`)) : null,
    h('div', { class: 'panel' }, h('h2', null, 'Record'), d.entries.length ? h('dl', null, d.entries.map((e) => [h('dt', null, `step ${e.step}`), h('dd', null, h('span', { class: 'badge ' + e.fate }, e.fate.replace('_', ' ')), ` ${e.reason || ''} message ${e.sequence}`)])) : h('p', { class: 'dim' }, 'The record of steps has nothing of it yet.')),
    bar, talk, group,
    h('div', { class: 'panel' }, h('h2', null, 'On a command line'), d.commands.map((c) => h('div', { class: 'command' }, h('span', { class: 'dim' }, c.what), h('code', null, c.line), h('button', { type: 'button', onclick: () => copy(c.line) }, 'copy')))));
  draw();
  keys.c = () => { do mode = modes[(modes.indexOf(mode) + 1) % modes.length]; while (!has(t, mode)); sessionStorage.setItem(place, mode); draw(); };
  if (d.group) await siblings({ box: group, run, group: d.group, id: d.id, signal, go, keys });
}

const fact = (name, value) => h('dl', null, h('dt', null, name), h('dd', null, value));
const span = (t) => {
  const from = new Date(t.started_at), to = new Date(t.finished_at), tools = t.turns.flatMap((u) => u.calls).reduce((n, c) => n + c.seconds, 0);
  return `${from.toISOString().slice(0, 19).replace('T', ' ')} UTC, ${round((to - from) / 1000)} s, of which ${round(tools)} s in tools`;
};
const versions = (t) => {
  const counts = new Map();
  for (const s of t.segments) s.versions.forEach((v, i) => { if (s.mask[i]) counts.set(v, (counts.get(v) || 0) + 1); });
  return [...counts].sort((a, b) => a[0] - b[0]).map(([v, n]) => `version ${v}: ${n} tokens`).join(', ') || 'none';
};

// parts cuts a trajectory where the speaker or the turn changes.
export function parts(t) {
  const out = [];
  t.segments.forEach((s, segment) => {
    const turns = t.turns.map((u, i) => ({ ...u, i })).filter((u) => u.segment === segment);
    const turnAt = (k) => turns.find((u) => k >= u.start && k < u.end);
    for (let start = 0; start < s.ids.length;) {
      const acts = s.mask[start], turn = turnAt(start);
      let end = start + 1;
      while (end < s.ids.length && s.mask[end] === acts && (!acts || turnAt(end) === turn)) end++;
      const who = acts ? 'policy' : start === 0 ? (segment === 0 ? 'prompt' : 'context') : 'observation';
      out.push({ who, segment, start, end, turn });
      if (acts && turn && end >= turn.end) for (const call of turn.calls) out.push({ who: 'call', call });
      start = end;
    }
  });
  return out;
}

function part(t, p, mode) {
  if (p.who === 'call') return h('div', { class: 'part call' }, h('div', { class: 'who' }, 'call'), h('pre', { class: 'talk' }, `${p.call.tool}(${p.call.arguments}) ${round(p.call.seconds)} s`, p.call.error ? h('span', { class: 'bad' }, ' ' + p.call.error) : null));
  const s = t.segments[p.segment], pre = h('pre', { class: 'talk' });
  const mean = p.turn && p.turn.reward ? ` reward ${round(p.turn.reward)}` : '';
  for (let i = p.start; i < p.end; i++) {
    const tok = h('span', { class: 'tok' + (s.mask[i] ? '' : ' masked') }, s.text[i]);
    const c = s.mask[i] ? colour(s, i, mode) : null;
    if (c) tok.style.backgroundColor = c;
    pre.append(tok);
  }
  pre.addEventListener('pointermove', (e) => tip(e, pre, s, p.start));
  pre.addEventListener('pointerleave', hide);
  return h('div', { class: 'part ' + p.who }, h('div', { class: 'who' }, p.who + (s.agent && p.who === 'policy' ? ' ' + s.agent : ''), h('div', { class: 'dim' }, mean)), pre);
}

let box = null;
function hide() { if (box) { box.remove(); box = null; } }
function tip(e, pre, s, start) {
  if (!e.target.classList.contains('tok')) return hide();
  const i = start + [...pre.children].indexOf(e.target);
  const lines = [`token ${s.ids[i]} at ${i}`];
  if (s.mask[i]) {
    lines.push(`version ${s.versions[i]}`, `log-probability ${round(s.logprobs[i])}`);
    if (s.start) lines.push(`at the step's start ${round(s.start[i])}, ratio ${round(Math.exp(s.start[i] - s.logprobs[i]))}`);
    if (s.last) lines.push(`when last trained on ${round(s.last[i])}, ratio ${round(Math.exp(s.last[i] - s.start[i]))}`);
    if (s.advantages) lines.push(`advantage ${round(s.advantages[i])}`);
  } else lines.push('not sampled by the policy: no loss');
  if (!box) { box = h('div', { class: 'tip' }); document.body.append(box); }
  put(box, lines.join('\n'));
  box.style.left = Math.min(e.clientX + 12, innerWidth - 240) + 'px';
  box.style.top = Math.min(e.clientY + 14, innerHeight - 140) + 'px';
}
addEventListener('hashchange', hide);

const has = (t, mode) => mode === 'plain' || (t && t.segments.some((s) => (mode === 'advantage' ? s.advantages : mode === 'ratio' ? s.start : s.logprobs)));
const two = (x) => (x === 0 ? null : x > 0 ? `rgba(40,160,90,${Math.min(0.75, 0.12 + 0.5 * Math.abs(x))})` : `rgba(215,60,50,${Math.min(0.75, 0.12 + 0.5 * Math.abs(x))})`);
const hues = [195, 25, 255, 140, 330, 55, 230, 100];
export const versionColour = (v, alpha = 0.35) => `hsla(${hues[v % hues.length]},65%,50%,${alpha})`;
function colour(s, i, mode) {
  switch (mode) {
    case 'advantage': return s.advantages ? two(s.advantages[i]) : null;
    case 'ratio': return s.start ? two(Math.max(-2, Math.min(2, 4 * (s.start[i] - s.logprobs[i])))) : null;
    case 'log-probability': return `rgba(215,120,20,${Math.min(0.8, -s.logprobs[i] / 4)})`;
    case 'version': return versionColour(s.versions[i]);
    default: return null;
  }
}
function scale(mode) {
  const text = {
    advantage: 'green: pushed up, red: pushed down', ratio: 'green: likelier under the policy at the step\'s start than when it was sampled, red: less likely',
    'log-probability': 'darker: less likely when it was sampled', version: 'a colour for each policy version',
  }[mode];
  return h('span', { class: 'scale' }, text || '', ' grey: not sampled, no loss');
}

// siblings shows the group side by side.
async function siblings({ box, run, group, id, signal, go, keys }) {
  const { members } = await api.get(run, 'groups/' + encodeURIComponent(group), null, signal).catch((err) => { if (err.status === 404) return { members: [] }; throw err; });
  const seen = new Map(members.map((m) => [m.id, m]));
  const list = [...seen.values()].sort((a, b) => a.id.localeCompare(b.id, 'en', { numeric: true }));
  if (list.length < 2) return;
  const here = list.findIndex((m) => m.id === id);
  const turn = (by) => { const m = list[here + by]; if (m) location.replace(go(run, 'trajectory', [m.id])); };
  Object.assign(keys, { j: () => turn(1), k: () => turn(-1) });
  const side = h('div', { class: 'side' });
  put(box, h('div', { class: 'panel' }, h('h2', null, `Its group, ${group}: ${list.length} samples of one prompt `, h('span', { class: 'dim' }, 'j, k: the next, the last')), side));
  const cards = list.map((m) => h('div', { class: 'panel' + (m.id === id ? ' at' : '') }, h('h2', null, h('a', { class: 'mono', href: go(run, 'trajectory', [m.id]) }, m.id), ' ', h('span', { class: 'badge ' + m.fate }, m.fate.replace('_', ' '))),
    h('p', null, m.rewarded ? 'reward ' + round(m.reward) : m.reason), h('div', null)));
  put(side, cards);
  for (let i = 0; i < list.length; i++) {
    const d = await api.get(run, 'trajectories/' + encodeURIComponent(list[i].id), null, signal);
    const t = d.trajectory;
    put(cards[i].lastChild, t ? parts(t).filter((p) => p.who !== 'prompt').map((p) => (p.who === 'call'
      ? h('pre', { class: 'talk dim' }, `${p.call.tool}(${p.call.arguments})`) : h('pre', { class: 'talk' + (p.who === 'policy' ? '' : ' dim') }, t.segments[p.segment].text.slice(p.start, p.end).join('')))) : h('p', { class: 'dim' }, d.missing));
  }
}
