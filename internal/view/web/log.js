import * as api from './api.js';
import { button, cell, dim, h, note, put, row, table } from './dom.js';
import { clock, day } from './format.js';

/** @typedef {import('../webcheck/api').Log} Log */
/** @typedef {import('../webcheck/api').LogLine} LogLine */

// The end of the run's log, and the rollouts that failed by cause.
export async function show({ main, run, query, signal, go, every }) {
  const severe = query.severe === '1';
  const choose = (text, value) =>
    button(text, () => location.replace(go(run, 'log', [], { severe: value })), {
      'aria-pressed': String(severe === (value === '1')),
    });
  const failures = h('div', null);
  const lines = h('div', { class: 'panel wide log' });
  put(
    main,
    h('h1', null, 'Log'),
    failures,
    h('div', { class: 'bar' }, choose('all', ''), choose('warnings and errors', '1')),
    lines,
  );
  const draw = async () => {
    /** @type {[import('../webcheck/api').Overview, Log]} */
    const [o, log] = await Promise.all([
      api.get(run, 'overview', null, signal),
      api.get(run, 'log', { severe: severe ? '1' : '' }, signal),
    ]);
    put(failures, failuresTable(o.failures));
    put(lines, log.lines.length ? linesTable(log.lines) : note(emptyText(severe)));
  };
  await draw();
  every(5, draw);
}

const emptyText = (severe) =>
  severe
    ? 'No warning and no error.'
    : "The run's folder has no weir.log: weir up writes one; separate roles log to their own terminals.";

// linesTable has a line for each day before the lines of the day.
/** @param {LogLine[]} lines */
function linesTable(lines) {
  let before = '';
  const rows = lines.flatMap((l) => {
    const on = day(l.at);
    const head = on === before ? [] : [h('tr', { class: 'day' }, h('td', { colspan: 4, class: 'dim' }, on))];
    before = on;
    return [...head, logRow(l)];
  });
  return table(['time', 'level', 'what', 'details'], rows);
}

const looks = { WARN: 'warn', ERROR: 'bad' };

/** @param {LogLine} l */
function logRow(l) {
  const times = l.count > 1 ? dim(` × ${l.count}`) : null;
  return row([
    cell(clock(l.at), 'dim nowrap'),
    cell(l.level.toLowerCase(), `nowrap ${looks[l.level] || 'dim'}`),
    h('td', null, l.text, times),
    cell(l.rest, 'mono dim'),
  ]);
}

function failuresTable(failures) {
  if (!failures.length) return null;
  const rows = failures.map(failureRow);
  return h(
    'div',
    { class: 'panel wide' },
    h('h2', null, 'Rollouts that fail, or do not end'),
    table(['task', 'failed', 'by', 'the last'], rows),
  );
}

/** @param {import('../webcheck/api').Failure} f */
function failureRow(f) {
  if (f.late) return row([f.task, `${f.late} requests`, 'asking after the episode ended', cell(f.last, 'mono')]);
  if (f.overdue) return row([f.task, `${f.overdue} running`, 'do not end', cell(f.last, 'mono')]);
  if (f.limited) return row([f.task, `${f.limited} of ${f.ended}`, 'ended by a limit', cell(f.last, 'mono')]);
  const causes = Object.entries(f.by_cause).sort((a, b) => b[1] - a[1]);
  const by = causes.map(([cause, n]) => `${cause.replaceAll('_', ' ')} ${n}`).join(', ');
  return row([f.task, `${f.failed} of ${f.failed + f.succeeded}`, by, cell(f.last, 'mono')]);
}
