import * as api from './api.js';
import { button, command, dim, fateBadge, h, note, panel, put, terms } from './dom.js';
import { duration, round, secondsBetween } from './format.js';
import { answerOf } from './rollouts.js';
import { lastPart } from './rows.js';
import { drawSiblings } from './siblings.js';
import { explainMode, isRecorded, modes } from './tokencolours.js';
import { cutIntoParts, drawPart } from './turns.js';

/** @typedef {import('../webcheck/api').Detail} Detail */
/** @typedef {import('../webcheck/api').Rollout} Rollout */

const place = 'weir-colour';

// A trajectory: who says what, each token's numbers, its group beside it.
export async function show({ main, run, rest, signal, go, keys, query }) {
  const id = rest[0];
  /** @type {Detail} */
  const detail = await api.get(run, 'trajectories/' + encodeURIComponent(id), null, signal);
  const talk = talkOf(detail, query.colour, keys);
  const group = h('div', null);
  put(
    main,
    h('h1', null, h('span', { class: 'mono' }, detail.id), ' ', dim(detail.words)),
    questionPanel(detail),
    detail.trajectory ? facts(detail.id, detail.trajectory) : null,
    panel('Record', recordOf(detail)),
    talk,
    group,
    panel(
      'On a command line',
      detail.commands.map((c) => command(c.what, c.line)),
    ),
  );
  if (detail.group) await drawSiblings({ box: group, run, group: detail.group, id: detail.id, signal, go, keys });
}

/** @param {Detail} detail */
function questionPanel(detail) {
  const question = detail.facts && detail.facts.question;
  if (!question && !detail.trajectory) return null;
  return h(
    'div',
    { class: 'panel asked' },
    h('p', { class: 'question' }, question || lastPart(detail.trajectory?.prompt_id || '')),
    detail.trajectory ? answerOf(detail) : null,
  );
}

// talkOf is what was said, with the colours to choose from. The key c takes the next.
function talkOf(detail, wanted, keys) {
  const t = detail.trajectory;
  const bar = h('div', { class: 'bar' });
  const talk = h('div', { class: 'panel', id: 'talk' });
  let mode = modes.includes(wanted) ? wanted : sessionStorage.getItem(place) || 'plain';
  const choose = (m) => {
    mode = m;
    sessionStorage.setItem(place, m);
    draw();
  };
  const draw = () => {
    const scale = h('span', { class: 'scale' }, explainMode(mode));
    put(
      bar,
      dim('colour tokens by'),
      modes.map((m) => modeButton(t, m, m === mode, choose)),
      scale,
    );
    put(talk, t ? cutIntoParts(t).map((p) => drawPart(t, p, mode)) : note(detail.missing));
  };
  keys.c = () => {
    let at = modes.indexOf(mode);
    do at = (at + 1) % modes.length;
    while (!isRecorded(t, modes[at]));
    choose(modes[at]);
  };
  draw();
  return [bar, talk];
}

function modeButton(trajectory, mode, pressed, choose) {
  const recorded = isRecorded(trajectory, mode);
  return button(mode, () => choose(mode), {
    'aria-pressed': String(pressed),
    disabled: !recorded,
    title: recorded ? null : 'not recorded for this trajectory',
  });
}

// facts are what is known of a trajectory as a whole.
function facts(id, t) {
  const all = [
    ['prompt', t.prompt_id || 'none'],
    ['task', t.task + (t.source ? `, source ${t.source}` : '')],
    ['reward', rewardsOf(t)],
    ['stopped by', t.stop + (t.error ? ': ' + t.error : '')],
    ['lineage', `ticket ${id}, attempt ${t.attempt}, sample ${t.sample} of ${t.group_size}, producer ${t.producer}`],
    ['time', timeOf(t)],
    ['versions', versionsOf(t)],
    ['tokens', tokensOf(t)],
  ];
  return h(
    'div',
    { class: 'panel facts' },
    all.map((fact) => terms([fact])),
  );
}

function rewardsOf(t) {
  const parts = Object.entries(t.rewards).sort();
  return round(t.reward) + parts.map(([name, value]) => `, ${name} ${round(value)}`).join('');
}

function timeOf(t) {
  const began = new Date(t.started_at).toISOString().slice(0, 19).replace('T', ' ');
  const tools = t.turns.flatMap((u) => u.calls).reduce((n, c) => n + c.seconds, 0);
  return `${began} UTC, ${duration(secondsBetween(t.started_at, t.finished_at))}, of which ${duration(tools)} in tools`;
}

/** @param {Rollout} t */
function versionsOf(t) {
  const counts = new Map();
  for (const s of t.segments) {
    s.versions.forEach((v, i) => {
      if (s.mask[i]) counts.set(v, (counts.get(v) || 0) + 1);
    });
  }
  const all = [...counts].sort((a, b) => a[0] - b[0]);
  return all.map(([version, n]) => `version ${version}: ${n} tokens`).join(', ') || 'none';
}

/** @param {Rollout} t */
function tokensOf(t) {
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
  return `${sum(t.segments.map((s) => s.ids.length))}, of which ${sum(t.segments.map((s) => sum(s.mask)))} sampled`;
}

/** @param {Detail} detail */
function recordOf(detail) {
  if (!detail.entries.length) return note('The record of steps has nothing of it yet.');
  return terms(
    detail.entries.map((e) => [`step ${e.step}`, [fateBadge(e.fate), ` ${e.reason || ''} message ${e.sequence}`]]),
  );
}
