import { chart } from './chart.js';
import { h } from './dom.js';

/** @typedef {import('../webcheck/api').Distributions} Distributions */
/** @typedef {import('./chart.js').Plot} Plot */

export const pairTitle = 'Reward and held-out score';

const parts = ['wait', 'old_policy', 'update', 'save', 'publish'];

// panelKeys are the numbers that the panels draw.
export const panelKeys = [
  'reward/mean',
  'reward/std',
  'reward/source/',
  'reward/component/',
  'eval/exact_match',
  'loss/policy',
  'loss/clip_fraction',
  'loss/approx_kl',
  'policy/entropy',
  'policy/mismatch_kl',
  'optimizer/grad_norm',
  'optimizer/learning_rate',
  'off_policy/chi2_token',
  'off_policy/chi2_seq',
  'staleness/max',
  'batch/turns',
  'rejected/',
  'rate/',
  'queue/groups_',
  'time/step',
  ...parts.map((p) => 'time/' + p),
];

// scorePlots are those of the large chart.
export function scorePlots(series) {
  return [...line(series, 'reward/mean', 'reward'), ...line(series, 'eval/exact_match', 'held-out score')];
}

/** @returns {Plot[]} */
function line(series, key, name) {
  return series[key] ? [{ name, ...series[key] }] : [];
}

// linesBelow are the series whose keys begin with a prefix.
function linesBelow(series, prefix) {
  const names = Object.keys(series).filter((k) => k.startsWith(prefix));
  return names.sort().map((k) => ({ name: k.slice(prefix.length).replaceAll('_', ' '), ...series[k] }));
}

/**
 * panelsOf are the small charts, in sections. A chart without numbers is left out.
 *
 * @param {Record<string, any>} series
 * @param {Distributions} spread
 * @param {import('./look.js').Look} look
 * @param {import('./chart.js').Options} options
 */
export function panelsOf(series, spread, look, options) {
  const small = ([title, plots, more = {}]) =>
    plots.length ? [chart(title, plots, look, { ...options, ...more })] : [];
  const section = (name, all) => {
    const charts = all.flatMap(small);
    return charts.length ? [h('h2', { class: 'section' }, name), h('div', { class: 'multiples' }, charts)] : null;
  };
  return [
    section('Learning', learningPanels(series)),
    section('Data', dataPanels(series, spread)),
    section('Speed', speedPanels(series, spread)),
  ];
}

function learningPanels(series) {
  const kl = [
    ...line(series, 'loss/approx_kl', 'of the step'),
    ...line(series, 'policy/mismatch_kl', 'sampler to trainer'),
  ];
  return [
    ['Policy loss', line(series, 'loss/policy', 'loss')],
    ['Entropy', line(series, 'policy/entropy', 'entropy'), { unit: 'nats', low: 0 }],
    ['KL', kl, { unit: 'nats' }],
    ['Clip share', line(series, 'loss/clip_fraction', 'clipped tokens'), { low: 0 }],
    ['Gradient norm', line(series, 'optimizer/grad_norm', 'before clipping'), { low: 0 }],
    ['Learning rate', line(series, 'optimizer/learning_rate', 'rate'), { low: 0, plain: true }],
    ['Effective sample size', sampleSizes(series), { unit: 'share', low: 0, high: 1 }],
    ['Reward spread', line(series, 'reward/std', 'standard deviation'), { low: 0 }],
  ];
}

// sampleSizes are the shares of tokens and of trajectories that the importance weights leave: 1 / (1 + chi²).
function sampleSizes(series) {
  const share = (p) => ({ ...p, y: p.y.map((chi2) => 1 / (1 + Math.max(0, chi2))) });
  return [
    ...line(series, 'off_policy/chi2_token', 'of tokens'),
    ...line(series, 'off_policy/chi2_seq', 'of rollouts'),
  ].map(share);
}

/** @param {Distributions} d */
function dataPanels(series, d) {
  const sources = linesBelow(series, 'reward/source/');
  const components = linesBelow(series, 'reward/component/');
  return [
    ['Reward by source', sources.length > 1 ? sources : [], { low: 0 }],
    ['Reward by component', components, { low: 0 }],
    ['Groups', groupParts(d), { unit: 'a step', stacked: true, low: 0 }],
    ['Sampled tokens', band(d, d.sampled, 'a rollout'), { low: 0 }],
    ['Turns', line(series, 'batch/turns', 'calls a rollout'), { low: 0 }],
    ['Staleness', band(d, d.staleness, 'versions'), { low: 0, plain: true }],
    ['Not trained on', linesBelow(series, 'rejected/'), { unit: 'rollouts a step', low: 0 }],
  ];
}

// groupParts are the groups of a step by their rewards.
/** @param {Distributions} d */
function groupParts(d) {
  if (d.step.length === 0) return [];
  const part = (name, y, c) => ({ name, x: d.step, at: d.at, y, c });
  return [part('rewards differ', d.mixed, 0), part('all solved', d.solved, 3), part('all failed', d.unsolved, 1)];
}

// band is a distribution: the points of steps that have one.
/**
 * @param {Distributions} d
 * @returns {Plot[]}
 */
function band(d, quantiles, name) {
  const has = d.step.map((_, i) => i).filter((i) => quantiles[i].length);
  if (has.length === 0) return [];
  const of = (values) => has.map((i) => values[i]);
  const bands = of(quantiles);
  return [{ name, x: of(d.step), at: of(d.at), y: bands.map((b) => b[1]), band: bands }];
}

/** @param {Distributions} d */
function speedPanels(series, d) {
  const tokens = [
    ...line(series, 'rate/tokens', 'waiting included'),
    ...line(series, 'rate/train_tokens', 'while computing'),
  ];
  const queues = [...line(series, 'queue/groups_waiting', 'underway'), ...line(series, 'queue/groups_ready', 'ready')];
  return [
    ["Where a step's time goes", timeParts(series), { unit: 'seconds', stacked: true, low: 0 }],
    ['Tokens a second', tokens, { low: 0 }],
    ['Rollouts trained on a second', line(series, 'rate/trajectories', 'rollouts'), { low: 0 }],
    ['Time of a rollout', band(d, d.seconds, 'seconds'), { low: 0 }],
    ['Groups in the queue', queues, { low: 0 }],
  ];
}

// timeParts are the parts of a step's time; other is what none of them has.
function timeParts(series) {
  const whole = series['time/step'];
  if (!whole) return [];
  const named = parts.filter((p) => series['time/' + p]);
  const at = named.map((p) => new Map(series['time/' + p].x.map((x, i) => [x, series['time/' + p].y[i]])));
  const part = (name, y, c) => ({ name, x: whole.x, at: whole.at, y, c });
  const known = named.map((p, i) =>
    part(
      p.replace('_', ' '),
      whole.x.map((x) => at[i].get(x) || 0),
      i,
    ),
  );
  const rest = whole.y.map((y, i) => Math.max(0, y - known.reduce((n, k) => n + k.y[i], 0)));
  return [...known, part('other', rest, 8)];
}
