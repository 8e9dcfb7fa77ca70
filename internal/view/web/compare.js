import * as api from './api.js';
import { chart } from './chart.js';
import { button, dim, h, note, put, row, table } from './dom.js';
import { none, percent, round } from './format.js';

// names are the charts' titles by the key of what they show.
const names = {
  'reward/mean': 'Reward',
  'eval/exact_match': 'Held-out exact match',
  'staleness/mean': 'Staleness',
  'policy/entropy': 'Entropy',
  'rate/trajectories': 'Trajectories a second',
  'batch/length': 'Length',
  'time/step': 'Seconds a step',
  'policy/mismatch_kl': 'KL, sampler to trainer',
};
const keys = Object.keys(names);
const most = 4;

// Two to four runs in the same charts.
export async function show({ main, run, query, signal, go }) {
  const { runs } = await api.runs(signal);
  const chosen = chosenRuns(run, query.with, runs);
  const along = query.along === 'time' ? 'time' : 'step';
  const change = (more) => {
    location.replace(go(run, 'compare', [], { with: chosen.slice(1).join(','), along, ...more }));
  };
  const all = await Promise.all(chosen.map((n) => api.get(n, 'series', { keys: keys.join(',') }, signal)));
  put(
    main,
    h('h1', null, 'Compare'),
    h('div', { class: 'bar' }, runButtons(run, runs, chosen, change), alongButtons(along, change)),
    runs.length < 2 ? note('Only one run is shown here: weir view RUN RUN shows several.') : null,
    h('div', { class: 'panel wide' }, summaries(runs, chosen)),
    h(
      'div',
      { class: 'grid' },
      keys.map((key) => compareChart(key, chosen, all, along)),
    ),
  );
}

// chosenRuns are the names of the page's run and of those of the query that there are.
function chosenRuns(run, others, runs) {
  const wanted = new Set([run, ...(others || '').split(',')]);
  return [...wanted].filter((n) => runs.some((r) => r.name === n)).slice(0, most);
}

function runButtons(run, runs, chosen, change) {
  const toggle = (name) => {
    const now = chosen.includes(name) ? chosen.filter((c) => c !== name) : [...chosen, name].slice(0, most);
    change({ with: now.filter((c) => c !== run).join(',') });
  };
  return runs.map((r) => {
    const at = chosen.indexOf(r.name);
    const dot = at >= 0 ? h('i', { class: 'dot k' + at }) : null;
    return button([dot, r.name], () => toggle(r.name), {
      'aria-pressed': String(at >= 0),
      disabled: r.name === run || (at < 0 && chosen.length >= most),
    });
  });
}

function alongButtons(along, change) {
  const choose = (value, text) =>
    button(text, () => change({ along: value }), { 'aria-pressed': String(along === value) });
  return [dim('along '), choose('step', 'steps'), choose('time', 'seconds')];
}

function summaries(runs, chosen) {
  const rows = chosen.map((name) => {
    const r = runs.find((x) => x.name === name);
    return row([r.name, r.state, r.step, round(r.reward), r.score === null ? none : percent(r.score)]);
  });
  return table(['run', 'state', 'step', 'reward', 'held-out score'], rows);
}

function compareChart(key, chosen, all, along) {
  const lines = chosen.flatMap((name, i) => {
    const series = all[i][key];
    return series ? [{ name, c: i, x: along === 'time' ? series.at : series.x, y: series.y }] : [];
  });
  return chart(names[key], lines, { along: along === 'time' ? 'second' : 'step' });
}
