import * as api from './api.js';
import { chart, redrawAll } from './chart.js';
import { differingSettings } from './configuration.js';
import { button, cell, h, labelled, note, put, row, stateBadge, table } from './dom.js';
import { none, percent, round } from './format.js';
import { lookBar, readLook } from './look.js';

// names are the charts' titles by the key of what they show.
const names = {
  'reward/mean': 'Reward',
  'eval/exact_match': 'Held-out score',
  'loss/policy': 'Policy loss',
  'policy/entropy': 'Entropy',
  'loss/approx_kl': 'KL of the step',
  'policy/mismatch_kl': 'KL, sampler to trainer',
  'loss/clip_fraction': 'Clip share',
  'optimizer/grad_norm': 'Gradient norm',
  'staleness/mean': 'Staleness',
  'batch/length': 'Tokens a rollout',
  'rate/tokens': 'Tokens a second',
  'time/step': 'Seconds a step',
};
const units = {
  'policy/entropy': 'nats',
  'loss/approx_kl': 'nats',
  'policy/mismatch_kl': 'nats',
  'staleness/mean': 'versions',
};
const keys = Object.keys(names);
const most = 8; // style.css has so many colours

// All runs, or some, in the same charts: the settings that differ first.
export async function show({ main, run, query, signal, go }) {
  const { runs } = await api.runs(signal);
  const chosen = chosenRuns(run, query.with, runs);
  const change = (wanted) => {
    location.replace(go(run, 'compare', [], { with: wanted.filter((c) => c !== run).join(',') || run }));
  };
  const about = (path, q) => Promise.all(chosen.map((n) => api.get(n, path, q, signal)));
  const [all, settings] = await Promise.all([about('series', { keys: keys.join(',') }), about('settings', null)]);
  const look = readLook();
  const redraw = () => {
    controls.mark();
    redrawAll(main);
  };
  const controls = lookBar(look, redraw);
  const charts = keys.flatMap((key) => compareChart(key, chosen, all, look, redraw));
  put(
    main,
    h('h1', null, 'Compare'),
    h('div', { class: 'bar' }, runButtons(run, runs, chosen, change)),
    runs.length < 2 ? note('Only one run is shown here: weir view RUN RUN shows several.') : null,
    h('div', { class: 'panel wide runs' }, summaries(runs, chosen)),
    settingsPanel(chosen, differingSettings(settings)),
    controls.bar,
    h('div', { class: 'multiples' }, charts),
  );
}

// chosenRuns are the names of the page's run and of those of the query, or of all that there are.
function chosenRuns(run, others, runs) {
  const wanted = new Set([run, ...(others ? others.split(',') : runs.map((r) => r.name))]);
  return [...wanted].filter((n) => runs.some((r) => r.name === n)).slice(0, most);
}

function runButtons(run, runs, chosen, change) {
  const toggle = (name) => {
    if (name === run) return; // the page is about it
    const now = chosen.includes(name) ? chosen.filter((c) => c !== name) : [...chosen, name].slice(0, most);
    change(now);
  };
  return runs.map((r) => {
    const at = chosen.indexOf(r.name);
    const dot = at >= 0 ? dotOf(at) : null;
    return button([dot, r.name], () => toggle(r.name), {
      'aria-pressed': String(at >= 0),
      disabled: at < 0 && chosen.length >= most,
    });
  });
}

const dotOf = (at) => h('i', { class: 'dot k' + at });

function summaries(runs, chosen) {
  const rows = chosen.map((name, at) => {
    const r = runs.find((x) => x.name === name);
    const steps = r.steps ? `${r.step} of ${r.steps}` : r.step;
    const verdict = cell(r.verdict.text.replaceAll('->', '→'), 'sentence');
    return row([
      [dotOf(at), r.name],
      stateBadge(r.state),
      labelled('step', steps),
      labelled('reward', round(r.reward)),
      labelled('held-out', r.score === null ? none : percent(r.score)),
      verdict,
    ]);
  });
  return table(['run', 'state', 'step', 'reward', 'held-out score', 'verdict'], rows);
}

// settingsPanel are the settings that differ, a column for each run: those that all runs have, and below them the
// others.
function settingsPanel(chosen, differing) {
  if (chosen.length < 2) return null;
  const rows = differing.filter((d) => d.key !== 'run.name');
  const everywhere = rows.filter((d) => d.values.every((v) => v !== undefined));
  const elsewhere = rows.filter((d) => !everywhere.includes(d));
  const heads = ['setting', ...chosen.map((name, at) => [dotOf(at), name])];
  const tableOf = (all) => table(heads, all.map(settingRow));
  return h(
    'div',
    { class: 'panel wide', id: 'differing' },
    h('h2', null, 'Settings that differ'),
    everywhere.length ? tableOf(everywhere) : note('What all runs have is the same in all.'),
    elsewhere.length
      ? h(
          'details',
          null,
          h('summary', null, `${elsewhere.length} settings that not every run has`),
          tableOf(elsewhere),
        )
      : null,
  );
}

const settingRow = (d) => row([cell(d.key, 'mono'), ...d.values.map((v) => cell(v || none, 'mono'))]);

function compareChart(key, chosen, all, look, redraw) {
  const plots = chosen.flatMap((name, i) => (all[i][key] ? [{ name, c: i, ...all[i][key] }] : []));
  return plots.length ? [chart(names[key], plots, look, { zoomed: redraw, unit: units[key] })] : [];
}
