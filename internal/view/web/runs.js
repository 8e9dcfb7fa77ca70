import * as api from './api.js';
import { h, put, round, percent } from './dom.js';

// All runs in a table.
export async function show({ main, signal, go, every }) {
  const draw = async () => {
    const { runs } = await api.runs(signal);
    put(main, h('h1', null, 'Runs'), h('div', { class: 'panel wide' }, h('table', null,
      h('tr', null, ['run', 'state', 'step', 'reward', 'held-out score', 'alarms', ''].map((t) => h('th', null, t))),
      runs.map((r) => h('tr', null, h('td', null, h('a', { href: go(r.name, 'overview') }, r.name)), h('td', null, h('span', { class: 'badge ' + r.state }, r.state), ' ', h('span', { class: 'dim' }, r.detail)),
        h('td', null, r.steps ? `${r.step} of ${r.steps}` : r.step), h('td', null, round(r.reward)), h('td', null, r.score === null ? '–' : percent(r.score)),
        h('td', { class: r.alarms ? 'bad' : 'dim' }, r.alarms), h('td', { class: 'dim mono' }, r.folder))))));
  };
  await draw();
  every(5, draw);
}
