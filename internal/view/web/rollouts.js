import { dim, fateBadge, h, note } from './dom.js';
import { duration, round, secondsBetween } from './format.js';
import { lastPart, questionOf } from './rows.js';
import { cutIntoParts, partText } from './turns.js';

/** @typedef {import('../webcheck/api').Picked} Picked */
/** @typedef {import('../webcheck/api').Detail} Detail */

/**
 * drawRollouts shows three rollouts as text.
 *
 * @param {Picked} picked
 * @param {(id: string) => string} link
 */
export function drawRollouts(picked, link) {
  const step = picked.step < 0 ? '' : ` of step ${picked.step}`;
  /** @type {[string, Detail | null][]} */
  const all = [
    ['Best' + step, picked.best],
    ['Worst' + step, picked.worst],
    ['Newest', picked.newest],
  ];
  return all.map(([title, detail]) => rolloutCard(title, detail, link));
}

/** @param {Detail | null} detail */
function rolloutCard(title, detail, link) {
  if (!detail || !detail.trajectory) {
    return h('div', { class: 'panel rollout' }, h('h2', null, title), note('No rollout is kept yet.'));
  }
  const t = detail.trajectory;
  const last = detail.entries[detail.entries.length - 1];
  const took = duration(secondsBetween(t.started_at, t.finished_at));
  return h(
    'div',
    { class: 'panel rollout' },
    h('h2', null, title, ' ', dim(`reward ${round(t.reward)}`), ' ', last ? fateBadge(last.fate) : null),
    questionLine(detail),
    h('div', { class: 'said' }, saidIn(t)),
    answerOf(detail),
    h(
      'p',
      { class: 'foot' },
      h('a', { class: 'mono', href: link(detail.id) }, detail.id),
      dim(` ${took}, stopped by ${t.stop}`),
    ),
  );
}

/** @param {Detail} detail */
const questionLine = ({ facts, trajectory }) =>
  h('p', { class: 'question' }, questionOf(facts) || lastPart(trajectory ? trajectory.prompt_id : ''));

/** @param {import('../webcheck/api').Rollout} t */
function saidIn(t) {
  return cutIntoParts(t)
    .filter((p) => p.who !== 'prompt')
    .map((p) => h('pre', { class: 'talk ' + p.who }, partText(t, p).trim()));
}

// answerOf is what was answered beside what is accepted.
/** @param {Detail} detail */
export function answerOf({ facts, trajectory }) {
  const given = trajectory ? trajectory.answer : '';
  const accepted = facts ? facts.accepted : '';
  const right = given !== '' && (accepted || '').split(' | ').includes(given);
  return h(
    'p',
    { class: 'answer' },
    dim('answered '),
    given ? h('b', { class: accepted ? (right ? 'good' : 'bad') : null }, given) : h('b', { class: 'bad' }, 'nothing'),
    accepted && !right ? [dim(' accepted '), h('b', null, accepted)] : null,
  );
}
