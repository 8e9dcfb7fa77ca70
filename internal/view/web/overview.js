import * as api from './api.js';
import { chart } from './chart.js';
import { alarm, card, cell, dim, h, put, row, stateBadge, table, widePanel } from './dom.js';
import { none, percent, round } from './format.js';

/** @typedef {import('../webcheck/api').Overview} Overview */

const keys = [
  'reward/mean',
  'eval/exact_match',
  'reward/source/',
  'staleness/mean',
  'staleness/max',
  'policy/entropy',
  'policy/mismatch_kl',
  'loss/approx_kl',
  'time/wait',
  'time/old_policy',
  'time/update',
  'time/save',
  'time/publish',
  'rate/trajectories',
  'rate/tokens',
  'batch/length',
  'batch/turns',
  'rejected/',
  'optimizer/grad_norm',
  'mismatch/mean',
];

// How the run goes: alarms first, then the numbers.
export async function show({ main, run, signal, go, every }) {
  const draw = async () => {
    /** @type {[Overview, any]} */
    const [o, series] = await Promise.all([
      api.get(run, 'overview', null, signal),
      api.get(run, 'series', { keys: keys.join(',') }, signal),
    ]);
    const pick = (step) => {
      location.hash = go(run, 'trajectories', [], { step });
    };
    put(
      main,
      h('h1', null, `${run} `, stateBadge(o.summary.state), ' ', dim(o.summary.detail)),
      o.alarms.map((a) => drawAlarm(run, a)),
      cards(o),
      o.limits ? h('p', null, h('b', null, 'Who waits for whom: '), o.limits, '.') : null,
      h('div', { class: 'grid' }, charts(series, pick)),
      changedSettings(o.changed),
    );
  };
  await draw();
  every(5, draw);
}

/** @param {import('../webcheck/api').Alarm} a */
function drawAlarm(run, a) {
  const link = a.link ? h('a', { href: `#/${encodeURIComponent(run)}/${a.link}` }, 'look') : null;
  return alarm(a.level, h('b', null, a.title), a.what, h('div', null, dim('Do: '), a.do, ' ', link));
}

/** @param {Overview} o */
function cards(o) {
  const { summary: r, last } = o;
  const of = (label, note) => (note ? `${label} · ${note}` : label);
  const staleness = `at most ${round(last['staleness/max'])} of ${round(last['admission/eta'])}`;
  return h(
    'div',
    { class: 'cards' },
    card('step', r.steps ? `${r.step} / ${r.steps}` : r.step),
    card(of('reward', 'last step'), round(r.reward)),
    card(of('held-out exact match', r.score === null ? null : `version ${r.scored}`), scoreOf(r)),
    card(of('staleness', staleness), round(last['staleness/mean'])),
    card('trajectories a second', round(last['rate/trajectories'])),
    card('tokens a second', round(last['rate/tokens'])),
    card('waiting for a batch', percent(last['time/idle_ratio'])),
    card('seconds a step', round(last['time/step'])),
  );
}

const scoreOf = (r) => (r.score === null ? none : percent(r.score));

// charts are the charts of a run. A click leads to the step.
function charts(series, pick) {
  const line = (name, label) => (series[name] ? [{ name: label, ...series[name] }] : []);
  const below = (prefix) => linesBelow(series, prefix);
  const nothing = 'everything that came was trained on';
  const times = ['wait', 'old_policy', 'update', 'save', 'publish'];
  const scores = [...line('reward/mean', 'reward'), ...line('eval/exact_match', 'held-out exact match')];
  const staleness = [...line('staleness/mean', 'mean'), ...line('staleness/max', 'max')];
  const kl = [...line('policy/mismatch_kl', 'sampler to trainer'), ...line('loss/approx_kl', 'of the step')];
  const stepTimes = times.flatMap((k) => line('time/' + k, k));
  return [
    chart('Reward and held-out score', scores, { pick }),
    chart('Reward by source', below('reward/source/'), { pick }),
    chart('Staleness', staleness, { unit: 'versions', low: 0, pick }),
    chart('Throughput', line('rate/trajectories', 'trajectories a second'), { low: 0, pick }),
    chart("Where a step's time goes", stepTimes, { unit: 'seconds', low: 0, pick }),
    chart('Not trained on, a step', below('rejected/'), { unit: 'trajectories', low: 0, pick, empty: nothing }),
    chart('Entropy', line('policy/entropy', 'entropy'), { unit: 'nats', low: 0, pick }),
    chart('KL', kl, { unit: 'nats', pick }),
    chart('Length', line('batch/length', 'tokens'), { low: 0, pick }),
    chart('Turns', line('batch/turns', 'calls'), { low: 0, pick }),
    chart('Gradient norm', line('optimizer/grad_norm', 'before clipping'), { low: 0, pick }),
  ];
}

// linesBelow are the series whose keys begin with a prefix.
function linesBelow(series, prefix) {
  const names = Object.keys(series).filter((k) => k.startsWith(prefix));
  return names.sort().map((k) => ({ name: k.slice(prefix.length), ...series[k] }));
}

/** @param {Overview['changed']} changed */
function changedSettings(changed) {
  if (!changed.length) return null;
  const rows = changed.map((c) => row([c.step, cell(c.key, 'mono'), c.before, c.after]));
  return widePanel('Settings that changed', table(['step', 'setting', 'before', 'after'], rows));
}
