import * as api from './api.js';
import { cell, dim, h, labelled, put, row, stateBadge, table } from './dom.js';
import { none, percent, round } from './format.js';

// All runs in a table.
export async function show({ main, signal, go, every }) {
  const draw = async () => {
    const { runs } = await api.runs(signal);
    const heads = ['run', 'verdict', 'state', 'step', 'reward', 'held-out score', 'alarms', 'folder'];
    const rows = runs.map((r) => runRow(r, go(r.name, 'overview')));
    put(main, h('h1', null, 'Runs'), h('div', { class: 'panel wide runs' }, table(heads, rows)));
  };
  await draw();
  every(5, draw);
}

/** @param {import('../webcheck/api').Summary} r */
function runRow(r, href) {
  return row([
    h('a', { href }, r.name),
    cell(r.verdict.text.replaceAll('->', '→'), 'sentence'),
    [stateBadge(r.state), ' ', dim(r.detail)],
    labelled('step', r.steps ? `${r.step} of ${r.steps}` : r.step),
    labelled('reward', round(r.reward)),
    labelled('held-out', r.score === null ? none : percent(r.score)),
    labelled('alarms', r.alarms, r.alarms ? 'bad' : 'dim'),
    cell(r.folder, 'dim mono folder'),
  ]);
}
