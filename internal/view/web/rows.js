import { dim, fateBadge, h } from './dom.js';
import { none, round } from './format.js';

/** @typedef {import('../webcheck/api').Listed} Listed */
/** @typedef {import('../webcheck/api').GroupRow} GroupRow */
/** @typedef {import('../webcheck/api').GroupMember} GroupMember */

const number = (x) => h('span', { class: 'num' }, x);
const text = (look, content) => h('span', { class: look, title: content }, content);

const headOf = (look, heads) =>
  h(
    'div',
    { class: 'head ' + look },
    heads.map(([name, right]) => h('span', { class: right ? 'num' : null }, name)),
  );

const lineOf = (look, href, selected, cells) =>
  h('a', { class: `row ${look}` + (selected ? ' at' : ''), role: 'option', 'aria-selected': selected, href }, cells);

export const sampleHead = () =>
  headOf('sample', [
    ['question'],
    ['answer'],
    ['accepted'],
    ['reward', true],
    ['fate'],
    ['step', true],
    ['versions', true],
    ['tokens', true],
    ['id'],
  ]);

/** @param {Listed} r */
export function drawSample(r, href, selected) {
  const f = r.facts;
  return lineOf('sample', href, selected, [
    text('question', questionOf(f) || r.id),
    answerCell(f),
    text('accepted dim', (f && f.accepted) || none),
    number(rewardOf(r)),
    h('span', { class: 'fate' }, fateBadge(r.fate), ' ', dim((r.reason || '').replaceAll('_', ' '))),
    number(r.step < 0 ? none : r.step),
    number(versionsOf(r)),
    number(f ? f.tokens : none),
    text('mono dim', r.id),
  ]);
}

export const groupHead = () =>
  headOf('group', [
    ['question'],
    ['accepted'],
    ['rewards of the samples'],
    ['mean', true],
    ['group'],
    ['step', true],
    ['source'],
    ['id'],
  ]);

const kinds = { mixed: 'rewards differ', solved: 'all solved', unsolved: 'all failed', open: 'open' };

/**
 * @param {GroupRow} g
 * @param {number} top the highest reward of the run
 */
export function drawGroup(g, top, href, selected) {
  const f = g.facts;
  return lineOf('group', href, selected, [
    text('question', questionOf(f) || g.id),
    text('accepted dim', (f && f.accepted) || none),
    h(
      'span',
      { class: 'strip' },
      g.members.map((m) => rewardBox(m, top)),
    ),
    number(g.kind === 'open' ? none : round(g.mean)),
    h('span', { class: 'fate' }, h('span', { class: 'badge ' + g.kind }, kinds[g.kind]), ' ', dim(fateOf(g))),
    number(g.step),
    text('dim', (f && f.source) || ''),
    text('mono dim', g.id),
  ]);
}

/** @param {GroupRow} g */
const fateOf = (g) =>
  g.fate === 'trained' || g.reason === 'zero_variance' ? '' : `${g.fate} ${g.reason || ''}`.trim().replaceAll('_', ' ');

// rewardBox is a sample of a group: the higher its reward, the fuller.
/** @param {GroupMember} m */
function rewardBox(m, top) {
  const reward = m.reward === null ? m.fate : 'reward ' + round(m.reward);
  const title = `${m.id}: ${reward}${m.answer ? ', answered ' + m.answer : ''}`;
  const box = h('i', { class: m.reward === null ? 'unknown' : 'known', title });
  if (m.reward !== null) {
    const share = top > 0 ? Math.max(0, Math.min(1, m.reward / top)) : 0;
    box.style.setProperty('--share', `${Math.round(100 * share)}%`);
  }
  return box;
}

// questionOf is the question by the archive's facts; "" where there are none.
export const questionOf = (f) => (f ? f.question || lastPart(f.prompt || '') : '');

// lastPart is a prompt's id without its task and source.
export const lastPart = (id) => id.slice(id.lastIndexOf('/') + 1);

/** @param {Listed['facts']} f */
function answerCell(f) {
  if (!f) return h('span', { class: 'answer dim' }, none);
  if (!f.answer) return h('span', { class: 'answer dim' }, f.stop === 'answer' ? none : `no answer: ${f.stop}`);
  const right = (f.accepted || '').split(' | ').includes(f.answer);
  return text('answer' + (f.accepted ? (right ? ' good' : ' bad') : ''), f.answer);
}

/** @param {Listed} r */
function rewardOf(r) {
  if (r.rewarded) return round(r.reward);
  return r.facts ? round(r.facts.reward) : none;
}

/** @param {Listed} r */
function versionsOf(r) {
  if (r.oldest < 0) return none;
  return r.oldest === r.newest ? r.oldest : `${r.oldest}–${r.newest}`;
}
