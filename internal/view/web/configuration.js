import { cell, dim, h, put, row, table } from './dom.js';

/** @typedef {import('../webcheck/api').Configuration} Configuration */
/** @typedef {import('../webcheck/api').Change} Change */

/**
 * drawConfiguration is a run's configuration, which opens by a click, and above it the settings that changed between
 * steps.
 *
 * @param {Configuration} configuration
 * @param {Change[]} [changed]
 */
export function drawConfiguration({ build, settings }, changed = []) {
  const list = h('div', { class: 'wide' });
  const draw = (part) =>
    put(list, settingsTable(settings.filter((s) => s.key.includes(part) || s.value.includes(part))));
  const find = h('input', {
    type: 'search',
    placeholder: 'a part of a key',
    'aria-label': 'a part of a key',
    oninput: (e) => draw(e.target.value),
  });
  draw('');
  const source = knowsCommit(build) ? `, weir ${build.version}, commit ${build.commit}` : '';
  const about = ` ${settings.length} settings${source}`;
  const all = h(
    'details',
    { class: 'panel' },
    h('summary', null, h('b', null, 'Configuration'), dim(about)),
    h('div', { class: 'bar' }, find),
    list,
  );
  return [changesTable(changed), settings.length ? all : null];
}

// knowsCommit reports whether a build names its source.
export const knowsCommit = (build) => build.commit !== '' && build.commit !== 'unknown';

const settingsTable = (settings) =>
  table(
    ['setting', 'value'],
    settings.map((s) => row([cell(s.key, 'mono'), cell(s.value, 'mono')])),
  );

/** @param {Change[]} changed */
function changesTable(changed) {
  if (!changed.length) return null;
  const rows = changed.map((c) => row([c.step, cell(c.key, 'mono'), c.before, c.after]));
  const heads = ['step', 'setting', 'before', 'after'];
  return h('div', { class: 'panel wide' }, h('h2', null, 'Settings that changed'), table(heads, rows));
}

/**
 * differingSettings are the settings that are not the same in all configurations: a key with a value for each.
 *
 * @param {Configuration[]} all
 * @returns {{key: string, values: (string | undefined)[]}[]}
 */
export function differingSettings(all) {
  const maps = all.map((c) => new Map(c.settings.map((s) => [s.key, s.value])));
  const keys = [...new Set(maps.flatMap((m) => [...m.keys()]))].sort();
  const rows = keys.map((key) => ({ key, values: maps.map((m) => m.get(key)) }));
  const commits = { key: 'commit of weir', values: all.map((c) => c.build.commit) };
  return [...rows, commits].filter((r) => new Set(r.values).size > 1);
}
