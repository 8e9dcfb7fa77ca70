import * as api from './api.js';
import { h, put, round, percent } from './dom.js';

// What came against what was trained on.
export async function show({ main, run, signal, go, every }) {
  const draw = async () => {
    const b = await api.get(run, 'bias', null, signal);
    const row = (name, values, top) => {
      const bar = h('span', { class: 'piece ' + (name === 'came' ? '' : 'sum') }), mid = h('span', { class: 'piece refused' });
      const at = (v) => (top ? 100 * v / top : 0);
      bar.style.left = at(values[1]) + '%'; bar.style.width = Math.max(0.5, at(values[3]) - at(values[1])) + '%';
      mid.style.left = at(values[2]) + '%'; mid.style.width = '2px';
      return [h('span', { class: 'name' }, name), h('span', { class: 'track', title: values.map((v) => round(v)).join(', ') }, bar, mid), h('span', { class: 'count' }, values.map((v) => round(v)).join(' · '))];
    };
    put(main, h('h1', null, 'Bias'),
      h('p', { class: 'dim' }, `Of the archive: ${round(b.came)} trajectories that came, ${round(b.trained)} of them trained on. A run that refuses what is late trains less on what is slow.`),
      b.alarm ? h('div', { class: 'alarm level-warn', role: 'alert' }, h('b', null, 'biased'), b.alarm + '.', h('div', null, h('span', { class: 'dim' }, 'Do: '), 'raise trainer.eta or lower trainer.depth so that less is refused as stale.')) : null,
      b.starved.map((text) => h('div', { class: 'alarm level-warn', role: 'alert' }, h('b', null, 'a source starves'), text + '.')),
      b.issued.length ? h('div', { class: 'panel wide', id: 'issued' }, h('h2', null, 'Issued against trained, by source ', h('span', { class: 'dim' }, 'every ticket of the record; shares are of the tickets that ended')), h('table', null,
        h('tr', null, ['source', 'issued', 'underway', 'lost or closed', 'too late', 'refused otherwise', 'equal rewards', 'dropped otherwise', 'baseline, passed over', 'trained', 'share issued', 'share trained', 'ratio'].map((t) => h('th', null, t))),
        b.issued.map((s) => h('tr', null, h('td', null, s.name || 'not noted'), [s.issued, s.underway, s.lost, s.late, s.refused - s.late, s.flat, s.dropped - s.flat, s.others, s.trained].map((n) => h('td', null, round(n))),
          h('td', { class: 'dim' }, percent(s.share)), h('td', { class: 'dim' }, percent(s.trained_share)), h('td', { class: s.starves ? 'bad' : null }, s.issued === s.underway ? '–' : round(s.ratio)))))) : null,
      b.came === 0 ? h('p', null, 'The archive has nothing: trainer.archive.bytes keeps one.') : null,
      b.of.map((m) => h('div', { class: 'panel' }, h('h2', null, m.name, ' ', h('span', { class: 'dim' }, m.unit, ` distance (KS) ${round(m.ks)}, by chance up to ${round(m.bound)}`, m.ks > Math.max(m.bound, 0.1) ? ': differs' : ': no difference')),
        h('div', { class: 'fall' }, row('came', m.came, Math.max(...m.came, ...m.trained)), row('trained', m.trained, Math.max(...m.came, ...m.trained))),
        h('p', { class: 'dim' }, 'the bar holds the middle half, the line is the median; numbers at ' + m.quantiles.map((q) => percent(q)).join(', ') + '; groups with equal rewards left out of both'))),
      b.sources.length ? h('div', { class: 'panel wide' }, h('h2', null, 'By source, of the archive'), h('table', null, h('tr', null, ['source', 'came', 'trained on', '', 'equal rewards', 'too late', 'otherwise not', 'mean reward'].map((t) => h('th', null, t))),
        b.sources.map((s) => h('tr', null, h('td', null, s.name || 'none'), h('td', null, round(s.came)), h('td', null, round(s.trained)), h('td', { class: 'dim' }, percent(s.trained / s.came)), h('td', null, round(s.flat)), h('td', null, round(s.late)),
          h('td', null, round(s.else)), h('td', null, round(s.reward)))))) : null);
  };
  await draw();
  every(5, draw);
}
