import * as api from './api.js';
import { chart } from './chart.js';
import { h, put, round, percent } from './dom.js';

const keys = ['reward/mean', 'eval/exact_match', 'reward/source/', 'staleness/mean', 'staleness/max', 'policy/entropy', 'policy/mismatch_kl', 'loss/approx_kl',
  'time/wait', 'time/old_policy', 'time/update', 'time/save', 'time/publish', 'rate/trajectories', 'rate/tokens', 'batch/length', 'batch/turns', 'rejected/', 'optimizer/grad_norm', 'mismatch/mean'];

// How the run goes: alarms first, then the numbers.
export async function show({ main, run, signal, go, every }) {
  const draw = async () => {
    const [o, all] = await Promise.all([api.get(run, 'overview', null, signal), api.get(run, 'series', { keys: keys.join(',') }, signal)]);
    const r = o.summary;
    const line = (name, label) => (all[name] ? [{ name: label || name, ...all[name] }] : []);
    const below = (prefix) => Object.keys(all).filter((k) => k.startsWith(prefix)).sort().map((k) => ({ name: k.slice(prefix.length), ...all[k] }));
    const pick = (step) => { location.hash = go(run, 'trajectories', [], { step }); };
    const card = (label, value, note) => h('div', { class: 'card' }, h('b', null, value), h('span', null, label, note ? ` · ${note}` : ''));
    put(main,
      h('h1', null, `${run} `, h('span', { class: 'badge ' + r.state }, r.state), ' ', h('span', { class: 'dim' }, r.detail)),
      o.alarms.map((a) => h('div', { class: 'alarm level-' + a.level, role: 'alert' }, h('b', null, a.title), a.what, h('div', null, h('span', { class: 'dim' }, 'Do: '), a.do, ' ',
        a.link ? h('a', { href: `#/${encodeURIComponent(run)}/${a.link}` }, 'look') : null))),
      h('div', { class: 'cards' }, card('step', r.steps ? `${r.step} / ${r.steps}` : r.step), card('reward', round(r.reward), 'last step'),
        card('held-out exact match', r.score === null ? '–' : percent(r.score), r.score === null ? null : `version ${r.scored}`),
        card('staleness', `${round(o.last['staleness/mean'])}`, `at most ${round(o.last['staleness/max'])} of ${round(o.last['admission/eta'])}`),
        card('trajectories a second', round(o.last['rate/trajectories'])), card('tokens a second', round(o.last['rate/tokens'])),
        card('waiting for a batch', percent(o.last['time/idle_ratio'])), card('seconds a step', round(o.last['time/step']))),
      o.limits ? h('p', null, h('b', null, 'Who waits for whom: '), o.limits, '.') : null,
      h('div', { class: 'grid' },
        chart('Reward and held-out score', [...line('reward/mean', 'reward'), ...line('eval/exact_match', 'held-out exact match')], { pick }),
        chart('Reward by source', below('reward/source/'), { pick }),
        chart('Staleness', [...line('staleness/mean', 'mean'), ...line('staleness/max', 'max')], { unit: 'versions', low: 0, pick }),
        chart('Throughput', line('rate/trajectories', 'trajectories a second'), { low: 0, pick }),
        chart('Where a step\'s time goes', ['wait', 'old_policy', 'update', 'save', 'publish'].flatMap((k) => line('time/' + k, k)), { unit: 'seconds', low: 0, pick }),
        chart('Not trained on, a step', below('rejected/'), { unit: 'trajectories', low: 0, pick, empty: 'everything that came was trained on' }),
        chart('Entropy', line('policy/entropy', 'entropy'), { unit: 'nats', low: 0, pick }),
        chart('KL', [...line('policy/mismatch_kl', 'sampler to trainer'), ...line('loss/approx_kl', 'of the step')], { unit: 'nats', pick }),
        chart('Length', line('batch/length', 'tokens'), { low: 0, pick }),
        chart('Turns', line('batch/turns', 'calls'), { low: 0, pick }),
        chart('Gradient norm', line('optimizer/grad_norm', 'before clipping'), { low: 0, pick })),
      h('p', { class: 'dim' }, 'A click into a chart lists the trajectories of that step.'),
      o.changed.length ? h('div', { class: 'panel wide' }, h('h2', null, 'Settings that changed'), h('table', null, h('tr', null, ['step', 'setting', 'before', 'after'].map((t) => h('th', null, t))),
        o.changed.map((c) => h('tr', null, h('td', null, c.step), h('td', { class: 'mono' }, c.key), h('td', null, c.before), h('td', null, c.after))))) : null);
  };
  await draw();
  every(5, draw);
}
