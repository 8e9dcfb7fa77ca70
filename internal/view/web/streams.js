import * as api from './api.js';
import { h, put, round, say } from './dom.js';

const bytes = (n) => (n >= 1 << 30 ? (n / (1 << 30)).toFixed(1) + ' GiB' : n >= 1 << 20 ? (n / (1 << 20)).toFixed(1) + ' MiB' : n >= 1024 ? (n / 1024).toFixed(1) + ' KiB' : n + ' B');
const ago = (at) => { const s = Math.max(0, (Date.now() - new Date(at)) / 1000); return s < 90 ? `${Math.round(s)} s ago` : s < 5400 ? `${Math.round(s / 60)} min ago` : `${Math.round(s / 3600)} h ago`; };
const table = (heads, rows) => h('div', { class: 'wide' }, h('table', null, h('tr', null, heads.map((t) => h('th', null, t))), rows));

// What the broker tells: streams, tickets, workers, events; and what an operator can change.
export async function show({ main, run, signal, every }) {
  let before = null, asked = 0;
  const body = h('div', null), acts = h('div', { class: 'panel', id: 'acts' });
  put(main, h('h1', null, 'Streams and workers'), acts, body);
  const draw = async () => {
    const mine = ++asked;
    const s = await api.get(run, 'streams', null, signal);
    if (mine < asked) return; // a newer look is under way
    const seconds = before ? (new Date(s.at) - new Date(before.at)) / 1000 : 0;
    const rate = (x) => { const was = before && before.streams.find((b) => b.name === x.name); return was && seconds > 0.5 ? `${round(Math.max(0, x.last - was.last) / seconds)} a second` : '–'; };
    actions(acts, run, s, draw);
    if (s.down) {
      put(body, h('div', { class: 'panel' }, h('h2', null, 'The run is not up'), h('p', null, s.down), h('p', { class: 'dim' }, 'What the folder holds is on the other pages.')));
      return;
    }
    const hints = [];
    if (s.tickets.waiting > 0 && s.tickets.takers === 0 && s.tickets.leased === 0) hints.push('tickets wait and no producer asks for one: start producers');
    if (s.tickets.redelivered > 0) hints.push(`${s.tickets.redelivered} leased tickets were leased before and came back: a producer that had them was stopped, lost its lease, or failed`);
    const old = s.newest_version !== undefined ? s.workers.filter((w) => w.role === 'inference' && w.state === 'here' && w.version !== undefined && w.version < s.newest_version - 1) : [];
    if (old.length) hints.push(`${old.map((w) => w.name).join(', ')} samples from an old version`);
    put(body,
      hints.map((t) => h('div', { class: 'alarm level-warn', role: 'alert' }, t)),
      h('div', { class: 'cards' }, [['tickets at no producer', s.tickets.waiting], ['tickets leased', s.tickets.leased], ['of them redelivered', s.tickets.redelivered], ['open requests for a ticket', s.tickets.takers],
        ['newest published version', s.newest_version ?? '–'], ['oldest usable version', s.control ? s.control.min_version : '–']].map(([t, n]) => h('div', { class: 'card' }, h('b', null, round(n)), h('span', null, t)))),
      h('div', { class: 'panel' }, h('h2', null, 'Streams'), table(['stream', 'messages', 'of at most', 'bytes', 'of at most', 'oldest', 'new'], s.streams.map((x) => h('tr', null,
        h('td', { class: 'mono' }, x.name), h('td', null, round(x.messages)), h('td', { class: 'dim' }, x.max_messages ? round(x.max_messages) : '–'), h('td', null, bytes(x.bytes)),
        h('td', { class: x.max_bytes && x.bytes > 0.9 * x.max_bytes ? 'bad' : 'dim' }, x.max_bytes ? bytes(x.max_bytes) : '–'), h('td', null, x.age ? `${round(x.age)} s` : '–'), h('td', null, rate(x)))))),
      h('div', { class: 'panel' }, h('h2', null, 'Workers'), table(['role', 'name', '', 'since', 'last event', 'version', 'applied after'], s.workers.map((w) => h('tr', { class: w.state === 'left' ? 'dim' : null },
        h('td', null, w.role), h('td', { class: 'mono' }, w.name), h('td', { class: w.state === 'silent' ? 'bad' : null }, w.state), h('td', null, ago(w.since)), h('td', null, ago(w.heard)), h('td', null, w.version ?? '–'),
        h('td', null, w.lag === undefined ? '–' : `${round(1000 * w.lag)} ms`))))),
      s.acts.length ? h('div', { class: 'panel' }, h('h2', null, 'What operators changed, the newest first'), table(['at', 'who', ''], s.acts.map((e) => h('tr', null,
        h('td', null, new Date(e.at).toLocaleTimeString()), h('td', null, `${e.role} ${e.worker}`), h('td', null, e.message))))) : null,
      h('div', { class: 'panel' }, h('h2', null, 'Events, the newest first'), table(['at', 'what', 'who', 'step', 'version', ''], s.events.map((e) => h('tr', null,
        h('td', null, new Date(e.at).toLocaleTimeString()), h('td', { class: 'mono' }, e.type), h('td', null, `${e.role} ${e.worker}`), h('td', null, e.step || '–'), h('td', null, e.policy_version), h('td', null, e.message))))));
    before = s;
  };
  await draw();
  every(5, draw);
}

let shown = '';
function actions(box, run, s, draw) {
  const c = s.control, now = JSON.stringify([run, !!s.down, c && [c.paused, c.draining, c.eta, c.depth, c.limits], s.tasks]);
  if (now === shown && box.firstChild) return;
  shown = now;
  if (s.down || !c) {
    put(box, h('h2', null, 'Acts'), h('p', { class: 'dim' }, s.down ? 'A run that is not up cannot be changed.' : 'No trainer has begun the run yet.'));
    return;
  }
  const act = async (what, body) => {
    if (body.draining && !confirm(`Drain run ${run}? Every role finishes its work and stops; the same command goes on with it later.`)) return;
    try {
      const done = await api.post(run, 'control', body);
      say(done.changes.length ? done.changes.join('; ') : 'that is so already');
      shown = '';
      await draw();
    } catch (err) { say(`${what}: ${err.message}`); }
  };
  const number = (name, value) => h('input', { type: 'number', min: 0, max: 1000, value, 'aria-label': name, id: 'act-' + name });
  const eta = number('eta', c.eta), depth = number('depth', c.depth);
  put(box, h('h2', null, 'Acts ', h('span', { class: 'dim' }, 'each is an event, and what the trainer adopts stands in its record; weir control does the same')),
    h('div', { class: 'bar' }, h('button', { type: 'button', id: 'act-pause', onclick: () => act('pause', { paused: !c.paused }) }, c.paused ? 'resume' : 'pause'),
      h('button', { type: 'button', id: 'act-drain', disabled: c.draining, onclick: () => act('drain', { draining: true }) }, c.draining ? 'draining' : 'drain'),
      h('label', null, 'eta ', eta), h('label', null, 'depth ', depth),
      h('button', { type: 'button', id: 'act-bounds', onclick: () => act('bounds', { eta: Number(eta.value), depth: Number(depth.value) }) }, 'set'),
      h('span', { class: 'dim' }, c.paused ? 'producers take no tickets; rollouts that run go on' : '')),
    limits(c, s.tasks || [], act));
}

// The limits of episodes: what is left empty stays as it is.
function limits(c, tasks, act) {
  const task = tasks.length ? h('select', { id: 'act-task', 'aria-label': 'task' }, h('option', { value: '' }, 'every task'), tasks.map((t) => h('option', { value: t }, t)))
    : h('input', { id: 'act-task', 'aria-label': 'task', placeholder: 'every task', size: 12 });
  const fields = ['max_turns', 'max_tokens', 'max_total_tokens', 'max_segments'].map((key) => [key, h('input', { type: 'number', min: key === 'max_tokens' ? 1 : 0, 'aria-label': key, id: 'act-' + key })]);
  const timeout = h('input', { id: 'act-timeout', 'aria-label': 'timeout', placeholder: '90s', size: 6 });
  const set = () => {
    const body = { task: task.value };
    for (const [key, field] of fields) if (field.value !== '') body[key] = Number(field.value);
    if (timeout.value !== '') body.timeout = timeout.value;
    return act('limits', { limits: body });
  };
  return [h('div', { class: 'bar' }, h('span', null, 'limits of episodes'), h('label', null, 'task ', task), fields.map(([key, field]) => h('label', null, key + ' ', field)), h('label', null, 'timeout ', timeout),
    h('button', { type: 'button', id: 'act-limits', onclick: set }, 'set limits'), h('button', { type: 'button', id: 'act-configured', disabled: c.limits.length === 0, onclick: () => act('limits', { limits: { task: task.value, configured: true } }) }, 'as configured')),
  h('p', { class: 'dim', id: 'limits' }, c.limits.length ? 'set: ' + c.limits.map((l) => `${l.task || 'every task'} ${l.key} ${l.value}`).join(', ') : 'The limits of episodes are those of the configuration.')];
}
