import * as api from './api.js';
import { byId, h, note, put, say, stateBadge } from './dom.js';
import { flipTheme, useTheme } from './theme.js';
import { listenToKeys, showHelp } from './keys.js';
import * as runsPage from './runs.js';
import * as overview from './overview.js';
import * as accounting from './accounting.js';
import * as trajectories from './trajectories.js';
import * as trajectory from './trajectory.js';
import * as lanes from './lanes.js';
import * as streams from './streams.js';
import * as bias from './bias.js';
import * as compare from './compare.js';
import * as chat from './chat.js';
import * as log from './log.js';

// pages by the word in the address: #/RUN/WORD/REST?QUERY. Those with a key are in the menu.
const pages = {
  overview: { name: 'Overview', key: 'o', page: overview },
  accounting: { name: 'Accounting', key: 'a', page: accounting },
  trajectories: { name: 'Trajectories', key: 'j', page: trajectories },
  trajectory: { page: trajectory, of: 'trajectories' },
  lanes: { name: 'Lanes', key: 'l', page: lanes },
  streams: { name: 'Streams', key: 's', page: streams },
  bias: { name: 'Bias', key: 'b', page: bias },
  compare: { name: 'Compare', key: 'c', page: compare },
  log: { name: 'Log', key: 'e', page: log },
  chat: { name: 'Chat', key: 't', page: chat },
};

const main = byId('main');
const runChoice = /** @type {HTMLSelectElement} */ (byId('runs'));

/** @type {{stop: AbortController, keys: Record<string, (e: KeyboardEvent) => void>} | null} */
let shown = null; // the page that is shown
let current = ''; // the run that it is about
let known = []; // the runs

// parseAddress is what the page's address names.
function parseAddress() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const [run, word, ...rest] = path.split('/').map(decodeURIComponent);
  const params = Object.fromEntries(new URLSearchParams(query || ''));
  return { run: run || '', word: word || 'overview', rest, query: params };
}

// go is the address of a page about a run.
function go(run, word, rest = [], query = {}) {
  const q = api.encodeQuery(query);
  return '#/' + [run, word, ...rest].map(encodeURIComponent).join('/') + q;
}

// show shows the page that the address names, in place of the page before.
async function show() {
  const at = parseAddress();
  if (shown) shown.stop.abort();
  const stop = new AbortController();
  shown = { stop, keys: {} };
  const entry = at.run ? pages[at.word] : { page: runsPage };
  current = at.run;
  drawMenu(at, entry);
  if (!entry) {
    put(main, h('p', null, 'There is no such page. ', h('a', { href: go(at.run, 'overview') }, 'To the overview')));
    return;
  }
  main.setAttribute('aria-busy', 'true');
  const again = (seconds, fn) => repeat(stop.signal, seconds, fn);
  try {
    await entry.page.show({ main, ...at, signal: stop.signal, go, keys: shown.keys, every: again });
  } catch (err) {
    if (err.name !== 'AbortError' && !stop.signal.aborted) showTrouble(err);
  }
  if (!stop.signal.aborted) main.removeAttribute('aria-busy');
}

// repeat calls fn again and again until the page is left. What fails is said, and tried again.
function repeat(signal, seconds, fn) {
  const again = async () => {
    if (signal.aborted) return;
    try {
      if (!document.hidden) await fn();
    } catch (err) {
      if (err.name !== 'AbortError' && !signal.aborted) say(err.message);
    }
    setTimeout(again, seconds * 1000);
  };
  setTimeout(again, seconds * 1000);
}

function showTrouble(err) {
  if (err.status === 401) {
    askForToken();
    return;
  }
  put(
    main,
    panelWithTitle('That did not work', h('p', null, err.message), h('button', { onclick: show }, 'try again')),
  );
}

function askForToken() {
  const field = h('input', { type: 'password', 'aria-label': 'token', autocomplete: 'off' });
  const onsubmit = (e) => {
    e.preventDefault();
    api.setToken(field.value.trim());
    readRuns().then(show);
  };
  const form = h('form', { class: 'bar', onsubmit }, field, h('button', { class: 'main' }, 'look'));
  const about =
    "It was printed with the page's address when the page was started, or stands in the file " +
    'that view.token_file names.';
  put(main, panelWithTitle('A token is needed', h('p', null, about), form));
  field.focus();
}

const panelWithTitle = (title, ...rest) => h('div', { class: 'panel' }, h('h1', null, title), rest);

function drawMenu(at, entry) {
  const word = entry && entry.of ? entry.of : at.word;
  const named = Object.entries(pages).filter(([, p]) => p.name);
  const links = named.map(([w, p]) =>
    h('a', { href: go(at.run, w), 'aria-current': w === word ? 'page' : null, title: 'g ' + p.key }, p.name),
  );
  put(byId('nav'), at.run ? links : null);
  const open = byId('nav').querySelector('[aria-current]');
  if (open) open.scrollIntoView({ inline: 'center', block: 'nearest' });
  runChoice.hidden = !at.run || !known.length;
  if (at.run) runChoice.value = at.run;
  drawState();
  document.title = at.run ? `${at.run} · ${(entry && entry.name) || at.word} · Weir` : 'Weir';
}

// drawState shows how the current run stands.
function drawState() {
  const r = known.find((x) => x.name === current);
  put(byId('state'), r ? stateBadge(r.state, r.detail) : null);
}

// readRuns reads which runs there are and how the current one stands.
async function readRuns() {
  try {
    known = (await api.runs()).runs;
  } catch (err) {
    if (err.status === 401) askForToken();
    else say(err.message);
    return;
  }
  put(
    runChoice,
    known.map((r) => h('option', { value: r.name }, r.name)),
  );
  runChoice.hidden = !current;
  if (current) runChoice.value = current;
  drawState();
  if (!location.hash.replace(/^#\/?/, '') && known.length === 1) location.replace(go(known[0].name, 'overview'));
}

runChoice.addEventListener('change', () => {
  const { word } = parseAddress();
  location.hash = go(runChoice.value, word === 'trajectory' ? 'trajectories' : word);
});
byId('theme').addEventListener('click', flipTheme);
byId('keys').addEventListener('click', () => showHelp(pages));
listenToKeys({
  pages,
  own: (key) => shown && shown.keys[key],
  open: (word) => {
    const run = current || (known[0] && known[0].name);
    if (run) location.hash = go(run, word);
    return !!run;
  },
  back: () => {
    if (parseAddress().word === 'trajectory') history.back();
  },
});
addEventListener('hashchange', () => {
  api.takeToken();
  show();
  readRuns();
});

useTheme();
api.takeToken();
runChoice.hidden = true;
put(main, note('The runs are read; a long run takes some seconds.'));
await readRuns();
await show();
setInterval(() => {
  if (!document.hidden) readRuns();
}, 5000);
