import * as api from './api.js';
import { chart } from './chart.js';
import { h, put, round, percent } from './dom.js';

const keys = ['reward/mean', 'eval/exact_match', 'staleness/mean', 'policy/entropy', 'rate/trajectories', 'batch/length', 'time/step', 'policy/mismatch_kl'];
const names = { 'reward/mean': 'Reward', 'eval/exact_match': 'Held-out exact match', 'staleness/mean': 'Staleness', 'policy/entropy': 'Entropy', 'rate/trajectories': 'Trajectories a second', 'batch/length': 'Length', 'time/step': 'Seconds a step', 'policy/mismatch_kl': 'KL, sampler to trainer' };

// Two to four runs in the same charts.
export async function show({ main, run, query, signal, go }) {
  const { runs } = await api.runs(signal);
  const chosen = [run, ...(query.with || '').split(',')].filter((n, i, all) => n && all.indexOf(n) === i && runs.some((r) => r.name === n)).slice(0, 4);
  const along = query.along === 'time' ? 'time' : 'step';
  const change = (more) => { location.replace(go(run, 'compare', [], { with: chosen.slice(1).join(','), along, ...more })); };
  const toggle = (n) => change({ with: (chosen.includes(n) ? chosen.filter((c) => c !== n) : [...chosen, n].slice(0, 4)).filter((c) => c !== run).join(',') });
  const all = await Promise.all(chosen.map((n) => api.get(n, 'series', { keys: keys.join(',') }, signal)));
  put(main, h('h1', null, 'Compare'),
    h('div', { class: 'bar' }, runs.map((r) => h('button', { type: 'button', 'aria-pressed': String(chosen.includes(r.name)), disabled: r.name === run || (!chosen.includes(r.name) && chosen.length >= 4), onclick: () => toggle(r.name) },
      chosen.includes(r.name) ? h('i', { class: 'dot k' + chosen.indexOf(r.name) }) : null, r.name)),
    h('span', { class: 'dim' }, 'along '), h('button', { type: 'button', 'aria-pressed': String(along === 'step'), onclick: () => change({ along: 'step' }) }, 'steps'), h('button', { type: 'button', 'aria-pressed': String(along === 'time'), onclick: () => change({ along: 'time' }) }, 'seconds')),
    runs.length < 2 ? h('p', { class: 'dim' }, 'Only one run is shown here: weir view RUN RUN shows several.') : null,
    h('div', { class: 'panel wide' }, h('table', null, h('tr', null, ['run', 'state', 'step', 'reward', 'held-out score'].map((t) => h('th', null, t))),
      chosen.map((n) => runs.find((r) => r.name === n)).map((r) => h('tr', null, h('td', null, r.name), h('td', null, r.state), h('td', null, r.step), h('td', null, round(r.reward)), h('td', null, r.score === null ? '–' : percent(r.score)))))),
    h('div', { class: 'grid' }, keys.map((k) => chart(names[k], chosen.flatMap((n, i) => (all[i][k] ? [{ name: n, c: i, x: along === 'time' ? all[i][k].at : all[i][k].x, y: all[i][k].y }] : [])), { along: along === 'time' ? 'second' : 'step' }))));
}
