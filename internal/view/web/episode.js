import { command, dim, h, note, put } from './dom.js';
import { duration } from './format.js';

/** @typedef {import('../webcheck/api').ChatMove} ChatMove */
/** @typedef {import('../webcheck/api').ChatEnd} ChatEnd */

// Episode shows the answer to a question as it comes.
export class Episode {
  constructor(question, version) {
    this.calls = 0;
    this.moves = h('div', null);
    this.end = h('div', { class: 'end' }, dim('it is asked'));
    const head = h('h2', null, question, ' ', dim(version));
    this.box = h('div', { class: 'panel episode', 'aria-live': 'polite' }, head, this.moves, this.end);
  }

  // take takes a line of the answer.
  take(line) {
    if (line.error) throw new Error(line.error);
    if (line.move) {
      if (line.move.kind === 'tool') this.calls++;
      this.moves.append(drawMove(line.move));
    }
    if (line.end) put(this.end, drawEnd(line.end, this.calls));
  }

  fail(why) {
    put(this.end, h('span', { class: 'bad' }, why));
  }
}

/** @param {ChatMove} m */
function drawMove(m) {
  const kind = m.kind === 'tool' ? 'call' : m.kind;
  const who = h('div', { class: 'who' }, kind + (m.agent ? ' ' + m.agent : ''));
  if (kind === 'call')
    return h('div', { class: 'part call' }, who, h('pre', { class: 'talk' }, `${m.tool}(${m.text})`));
  const own = kind === 'policy';
  const took = m.tool ? h('span', { class: m.failed ? 'bad' : 'dim' }, `  ${m.tool}, ${duration(m.seconds)}`) : null;
  const text = h('pre', { class: 'talk' + (own ? '' : ' dim') }, m.text, took);
  return h('div', { class: 'part ' + (own ? 'policy' : 'observation') }, who, text);
}

/** @param {ChatEnd} e */
function drawEnd(e, calls) {
  const one = e.oldest_version === e.newest_version;
  const versions = one ? `version ${e.newest_version}` : `versions ${e.oldest_version} to ${e.newest_version}`;
  return [
    h('p', null, drawAnswer(e)),
    note(
      `${versions}, ${e.sampled} tokens sampled, ${calls} ${calls === 1 ? 'call' : 'calls'}, ${duration(e.seconds)}`,
    ),
    e.notes.map((t) => h('p', { class: 'warn' }, t)),
    e.command ? command('the same again', e.command) : null,
  ];
}

function drawAnswer(e) {
  if (e.stop === 'answer') return [h('b', null, 'answer '), h('span', { class: 'mono answer' }, e.answer)];
  return h('b', null, `no answer: stopped by ${e.stop}${e.error ? ': ' + e.error : ''}`);
}
