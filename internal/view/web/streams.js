import * as api from './api.js';
import { drawActs } from './acts.js';
import { alarm, card, cell, h, note, panel, put, row, table } from './dom.js';
import { ago, bytes, clock, none, round, secondsBetween } from './format.js';

/** @typedef {import('../webcheck/api').Streams} Streams */

// What the broker has: streams, tickets, workers, events; and what an operator can change.
export async function show({ main, run, signal, every }) {
  /** @type {Streams | null} */
  let before = null;
  let asked = 0;
  const body = h('div', null);
  const acts = h('div', { class: 'panel', id: 'acts' });
  put(main, h('h1', null, 'Streams and workers'), acts, body);
  const draw = async () => {
    const mine = ++asked;
    /** @type {Streams} */
    const now = await api.get(run, 'streams', null, signal);
    if (mine < asked) return; // a newer look is under way
    acts.hidden = !!now.down;
    drawActs(acts, run, now, draw);
    if (now.down) {
      const rest = note('What the folder holds is on the other pages.');
      put(body, panel('The run is not up', h('p', null, now.down), rest));
      return;
    }
    put(
      body,
      hintsOf(now).map((t) => alarm('warn', t)),
      counts(now),
      streamsTable(now, before),
    );
    body.append(workersTable(now), ...refusedTable(now), ...actsTable(now), eventsTable(now));
    before = now;
  };
  await draw();
  every(5, draw);
}

// hintsOf are sentences about what holds the run up.
function hintsOf(s) {
  const hints = floodsOf(s);
  const t = s.tickets;
  if (t.waiting > 0 && t.takers === 0 && t.leased === 0) {
    hints.push('tickets wait and no producer asks for one: start producers');
  }
  if (t.redelivered > 0) {
    hints.push(
      `${t.redelivered} leased tickets were leased before and came back: ` +
        'a producer that had them was stopped, lost its lease, or failed',
    );
  }
  const old = s.workers.filter((w) => samplesOldVersion(w, s.newest_version));
  if (old.length) hints.push(`${old.map((w) => w.name).join(', ')} samples from an old version`);
  return hints;
}

// A producer floods a run when so many of its messages were refused within a minute.
const floodMessages = 128;

function floodsOf(s) {
  const floods = s.refused.filter((p) => p.messages >= floodMessages && secondsBetween(p.first, p.last) < 60);
  return floods
    .filter((p) => secondsBetween(p.last, s.at) < 60)
    .map(
      (p) =>
        `${p.messages} messages under the name of producer ${p.producer || '(none)'} were refused within a minute: ` +
        'weir inspect rejected says why, and docs/operate.md how to bar whoever has a key',
    );
}

function samplesOldVersion(worker, newest) {
  if (newest === undefined || worker.version === undefined) return false;
  return worker.role === 'inference' && worker.state === 'here' && worker.version < newest - 1;
}

function counts(s) {
  const all = [
    ['tickets at no producer', s.tickets.waiting],
    ['tickets leased', s.tickets.leased],
    ['of them redelivered', s.tickets.redelivered],
    ['open requests for a ticket', s.tickets.takers],
    ['newest published version', s.newest_version],
    ['oldest usable version', s.control && s.control.min_version],
  ];
  return h(
    'div',
    { class: 'cards' },
    all.map(([label, n]) => card(label, round(n))),
  );
}

const widePart = (title, heads, rows) => panel(title, h('div', { class: 'wide' }, table(heads, rows)));

function streamsTable(now, before) {
  const rows = now.streams.map((s) =>
    row([
      cell(s.name, 'mono'),
      round(s.messages),
      cell(s.max_messages ? round(s.max_messages) : none, 'dim'),
      bytes(s.bytes),
      cell(s.max_bytes ? bytes(s.max_bytes) : none, s.max_bytes && s.bytes > 0.9 * s.max_bytes ? 'bad' : 'dim'),
      s.age ? `${round(s.age)} s` : none,
      storedRate(s, now, before),
    ]),
  );
  return widePart('Streams', ['stream', 'messages', 'of at most', 'bytes', 'of at most', 'oldest', 'new'], rows);
}

// storedRate is how many messages a second came since the look before.
function storedRate(stream, now, before) {
  const was = before && before.streams.find((b) => b.name === stream.name);
  const seconds = before ? secondsBetween(before.at, now.at) : 0;
  return was && seconds > 0.5 ? `${round(Math.max(0, stream.last - was.last) / seconds)} a second` : none;
}

function workersTable(s) {
  const rows = s.workers.map((w) =>
    row(
      [
        w.role,
        cell(w.name, 'mono'),
        cell(w.state, w.state === 'silent' ? 'bad' : null),
        ago(w.since),
        ago(w.heard),
        w.version ?? none,
        w.lag === undefined ? none : `${round(1000 * w.lag)} ms`,
      ],
      w.state === 'left' ? 'dim' : null,
    ),
  );
  return widePart('Workers', ['role', 'name', 'state', 'since', 'last event', 'version', 'applied after'], rows);
}

// refusedTable names who sent what was refused, the most first.
function refusedTable(s) {
  if (!s.refused.length) return [];
  const reasons = (p) => Object.entries(p.reasons).sort();
  const rows = s.refused.map((p) =>
    row([
      cell(p.producer || 'no producer', 'mono'),
      round(p.messages),
      reasons(p)
        .map(([reason, n]) => `${reason} ${n}`)
        .join(', '),
      ago(p.first),
      ago(p.last),
    ]),
  );
  return [widePart('The newest refused messages', ['under the name of', 'messages', 'as', 'from', 'to'], rows)];
}

// whoOf is a worker's name, with its role where the name does not begin with the role.
const whoOf = (e) => ((e.worker || '').startsWith(e.role) ? e.worker : `${e.role} ${e.worker}`);

function actsTable(s) {
  if (!s.acts.length) return [];
  const rows = s.acts.map((e) => row([cell(clock(e.at), 'nowrap'), whoOf(e), e.message]));
  return [widePart('What operators changed, the newest first', ['at', 'who', ''], rows)];
}

function eventsTable(s) {
  const rows = s.events.map((e) =>
    row([cell(clock(e.at), 'nowrap'), cell(e.type, 'mono'), whoOf(e), e.step || none, e.policy_version, e.message]),
  );
  return widePart('Events, the newest first', ['at', 'what', 'who', 'step', 'version', ''], rows);
}
