import * as api from './api.js';
import { alarm, cell, dim, h, note, panel, put, row, table, widePanel } from './dom.js';
import { none, percent, round } from './format.js';

/** @typedef {import('../webcheck/api').Bias} Bias */
/** @typedef {import('../webcheck/api').BiasMetric} BiasMetric */
/** @typedef {import('../webcheck/api').BiasSource} BiasSource */

// What came against what was trained on.
export async function show({ main, run, signal, every }) {
  const draw = async () => {
    /** @type {Bias} */
    const b = await api.get(run, 'bias', null, signal);
    const about =
      `Of the archive: ${round(b.came)} trajectories that came, ${round(b.trained)} of them trained on. ` +
      'A run that refuses what is late trains less on what is slow.';
    put(
      main,
      h('h1', null, 'Bias'),
      note(about),
      biasAlarms(b),
      issuedTable(b),
      b.came === 0 ? h('p', null, 'The archive has nothing: trainer.archive.bytes keeps one.') : null,
      b.of.map(distribution),
      sourcesTable('By source, of the archive', b.sources),
      sourcesTable('By task, of the archive', b.tasks),
      causesTable(b),
    );
  };
  await draw();
  every(5, draw);
}

/** @param {Bias} b */
function biasAlarms(b) {
  const cure = 'raise trainer.eta or lower trainer.depth so that less is refused as stale.';
  const biased = h('b', null, 'biased');
  return [
    b.alarm ? alarm('warn', biased, b.alarm + '.', h('div', null, dim('Do: '), cure)) : null,
    b.starved.map((text) => alarm('warn', h('b', null, 'a source starves'), text + '.')),
  ];
}

const issuedHeads = [
  'source',
  'issued',
  'underway',
  'lost or closed',
  'too late',
  'refused otherwise',
  'equal rewards',
  'dropped otherwise',
  'baseline, passed over',
  'trained',
  'share issued',
  'share trained',
  'ratio',
];

/** @param {Bias} b */
function issuedTable(b) {
  if (!b.issued.length) return null;
  const rows = b.issued.map((s) => {
    const refused = s.refused - s.late;
    const dropped = s.dropped - s.flat;
    const counts = [s.issued, s.underway, s.lost, s.late, refused, s.flat, dropped, s.others, s.trained];
    return row([
      s.name || 'not noted',
      ...counts.map((n) => round(n)),
      cell(percent(s.share), 'dim'),
      cell(percent(s.trained_share), 'dim'),
      cell(s.issued === s.underway ? none : round(s.ratio), s.starves ? 'bad' : null),
    ]);
  });
  const about = 'every ticket of the record; shares are of the tickets that ended';
  const title = h('h2', null, 'Issued against trained, by source ', dim(about));
  return h('div', { class: 'panel wide', id: 'issued' }, title, table(issuedHeads, rows));
}

// distribution shows one distribution twice, of what came and of what was trained on.
/** @param {BiasMetric} m */
function distribution(m) {
  const top = Math.max(...m.came, ...m.trained);
  const differs = m.differs ? ': differs' : ': no difference that matters';
  const distance = `distance (KS) ${round(m.ks)}, p ${round(m.p)}`;
  const points = m.quantiles.map((q) => `${Math.round(100 * q)} %`).join(', ');
  return panel(
    [m.name, ' ', dim(m.unit, ' ', distance, differs)],
    h('div', { class: 'fall' }, quantileBar('came', m.came, top), quantileBar('trained', m.trained, top)),
    note(
      'the bar holds the middle half, the line is the median; numbers at ' +
        `${points}; groups with equal rewards left out of both; p counts prompts, not their rollouts`,
    ),
  );
}

function quantileBar(name, values, top) {
  const at = (v) => (top ? (100 * v) / top : 0);
  const bar = h('span', { class: 'piece ' + (name === 'came' ? '' : 'sum') });
  const median = h('span', { class: 'piece refused' });
  bar.style.left = at(values[1]) + '%';
  bar.style.width = Math.max(0.5, at(values[3]) - at(values[1])) + '%';
  median.style.left = at(values[2]) + '%';
  median.style.width = '2px';
  const numbers = values.map((v) => round(v));
  return [
    h('span', { class: 'name' }, name),
    h('span', { class: 'track', title: numbers.join(', ') }, bar, median),
    h('span', { class: 'count' }, numbers.join(' · ')),
  ];
}

/**
 * @param {string} title
 * @param {BiasSource[]} sources
 */
function sourcesTable(title, sources) {
  if (!sources.length) return null;
  const heads = [
    'name',
    'came',
    'trained on',
    'share',
    'equal rewards',
    'too late',
    'otherwise not',
    'mean reward',
    'differs in',
  ];
  const rows = sources.map((s) =>
    row([
      s.name || 'none',
      round(s.came),
      round(s.trained),
      cell(percent(s.trained / s.came), 'dim nowrap'),
      round(s.flat),
      round(s.late),
      round(s.else),
      round(s.reward),
      s.differs ? cell(`${s.differs}, ${round(s.ks)}, p ${round(s.p)}`, 'bad') : none,
    ]),
  );
  return widePanel(title, table(heads, rows));
}

// causesTable has what came and was not trained on. Of a lost sample nothing came.
/** @param {Bias} b */
function causesTable(b) {
  if (!b.causes.length) return null;
  const heads = ['reason', 'came', 'length, median', 'seconds, median', 'turns, median', 'mean reward'];
  const rows = b.causes.map((c) =>
    row([c.reason, ...[c.came, c.length, c.duration, c.turns, c.reward].map((n) => round(n))]),
  );
  return widePanel('Came and not trained on, by reason', table(heads, rows));
}
