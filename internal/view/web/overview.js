import * as api from './api.js';
import { chart, redrawAll } from './chart.js';
import { drawConfiguration, knowsCommit } from './configuration.js';
import { alarm, dim, h, put } from './dom.js';
import { ago, duration, none, percent, round } from './format.js';
import { lookBar, readLook } from './look.js';
import { pairTitle, panelKeys, panelsOf, scorePlots } from './panels.js';
import { drawRollouts } from './rollouts.js';

/** @typedef {import('../webcheck/api').Overview} Overview */
/** @typedef {import('../webcheck/api').Configuration} Configuration */

// How the run goes: the verdict, the curve, three rollouts, then everything else in small pictures.
export async function show({ main, run, signal, go, every }) {
  const verdict = h('div', null);
  const alarms = h('div', null);
  const curve = h('div', null);
  const numbers = h('div', { class: 'panel numbers' });
  const rollouts = h('div', { class: 'trio' });
  const panels = h('div', null);
  const look = readLook();
  const redraw = () => {
    controls.mark();
    redrawAll(main);
  };
  const controls = lookBar(look, redraw, 'drag over a chart to zoom, click for the step');
  const configuration = h('div', null);
  put(
    main,
    verdict,
    alarms,
    h('div', { class: 'first' }, curve, numbers),
    rollouts,
    controls.bar,
    panels,
    configuration,
  );
  const options = {
    zoomed: redraw,
    pick: (step) => {
      location.hash = go(run, 'trajectories', [], { step });
    },
  };
  /** @type {Configuration} */
  const settings = await api.get(run, 'settings', null, signal);
  put(configuration, drawConfiguration(settings));
  let drawn = '';
  const draw = async () => {
    /** @type {Overview} */
    const o = await api.get(run, 'overview', null, signal);
    put(verdict, drawVerdict(o, settings));
    const alarmsNow = o.alarms.map((a) => drawAlarm(run, a));
    if (JSON.stringify(o.alarms) !== alarms.dataset.shown) put(alarms, alarmsNow);
    alarms.dataset.shown = JSON.stringify(o.alarms);
    put(numbers, drawNumbers(o));
    const now = [o.summary.step, o.summary.scored, o.summary.score].join();
    if (now === drawn) return; // nothing is new: what a reader points at stays
    drawn = now;
    const [series, spread, picked] = await Promise.all([
      api.get(run, 'series', { keys: panelKeys.join(',') }, signal),
      api.get(run, 'distributions', null, signal),
      api.get(run, 'picked', null, signal),
    ]);
    put(curve, chart(pairTitle, scorePlots(series), look, { ...options, large: true, low: 0, high: 1 }));
    put(
      rollouts,
      drawRollouts(picked, (id) => go(run, 'trajectory', [id])),
    );
    put(panels, panelsOf(series, spread, look, options));
    put(configuration, drawConfiguration(settings, o.changed));
  };
  await draw();
  every(5, draw);
}

/**
 * @param {Overview} o
 * @param {Configuration} settings
 */
function drawVerdict(o, settings) {
  const { verdict, step, steps } = o.summary;
  const done = h('i', { class: 'done' });
  done.style.width = steps ? `${(100 * step) / steps}%` : '0';
  return h(
    'section',
    { class: 'verdict ' + verdict.kind },
    h('h1', null, verdict.text.replaceAll('->', '→')),
    h('p', { class: 'dim' }, factsOf(o, settings).join(' · ')),
    h('div', { class: 'progress', title: steps ? `step ${step} of ${steps}` : '' }, done),
  );
}

const layersOf = (layers, width) => `${layers} ${layers === '1' ? 'layer' : 'layers'} of ${width}`;

// factsOf are a run's in a line: where it stands, its model and its algorithm.
function factsOf(o, { build, settings }) {
  const value = (key) => (settings.find((s) => s.key === key) || { value: '' }).value;
  const { step, steps, state, at } = o.summary;
  const facts = [steps ? `step ${step} / ${steps}` : `step ${step}`, at ? `${state}, ${ago(at)}` : state];
  const model =
    value('model.folder') ||
    [value('model.engine'), value('model.hidden') && layersOf(value('model.layers'), value('model.hidden'))]
      .filter(Boolean)
      .join(', ');
  if (model) facts.push(model);
  const algorithm = [value('trainer.advantage.name'), value('trainer.loss.name')].filter(Boolean).join(' + ');
  if (algorithm) facts.push(algorithm);
  if (value('trainer.eta')) facts.push(`eta ${value('trainer.eta')}`);
  if (value('run.seed')) facts.push(`seed ${value('run.seed')}`);
  if (knowsCommit(build)) facts.push(`weir ${build.version} ${build.commit.slice(0, 9)}`);
  return facts;
}

/** @param {import('../webcheck/api').Alarm} a */
function drawAlarm(run, a) {
  const link = a.link ? h('a', { href: `#/${encodeURIComponent(run)}/${a.link}` }, 'look') : null;
  return alarm(a.level, h('b', null, a.title), a.what, h('div', null, dim('Do: '), a.do, ' ', link));
}

/** @param {Overview} o */
function drawNumbers(o) {
  const { summary: r, last } = o;
  const score = r.score === null ? none : percent(r.score);
  const refused = Object.entries(last).filter(([k]) => k.startsWith('rejected/'));
  const lost = refused.reduce((n, [, v]) => n + v, 0);
  const made = last['time/step'] ? ((last['batch/trajectories'] || 0) + lost) / last['time/step'] : undefined;
  return [
    number(
      'held-out score',
      score,
      r.score === null ? null : `version ${r.scored}, ${round(o.score['eval/questions'])} questions`,
    ),
    number(
      'reward of the batch',
      round(r.reward),
      last['reward/std'] === undefined ? null : `± ${round(last['reward/std'])} between rollouts`,
    ),
    number('rollouts a second', round(made), `${round(last['rate/trajectories'])} trained on`),
    number('tokens a second', round(last['rate/tokens']), 'trained on, waiting included'),
    number('a step', duration(last['time/step']), `${percent(last['time/idle_ratio'])} of it waiting for a batch`),
    number(
      'staleness',
      round(last['staleness/mean']),
      `at most ${round(last['staleness/max'])} of ${round(last['admission/eta'])} versions`,
    ),
    o.limits ? h('p', { class: 'limits' }, h('b', null, 'Who waits for whom '), dim(o.limits, '.')) : null,
  ];
}

const number = (label, value, about) =>
  h(
    'div',
    { class: 'number' },
    h('span', null, label),
    h('b', null, value),
    about && value !== none ? dim(about) : null,
  );
