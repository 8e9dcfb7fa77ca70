import * as api from './api.js';
import { h, put, say } from './dom.js';
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
  chat: { name: 'Chat', key: 't', page: chat },
};

const main = document.getElementById('main');
let shown = null; // {stop, key}: the page that is shown
let current = '';

function parse() {
  const [path, q] = location.hash.replace(/^#\/?/, '').split('?');
  const [run, word, ...rest] = path.split('/').map(decodeURIComponent);
  return { run: run || '', word: word || 'overview', rest, query: Object.fromEntries(new URLSearchParams(q || '')) };
}

export function go(run, word, rest = [], query = {}) {
  const q = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== '' && v !== undefined && v !== null)).toString();
  return '#/' + [run, word, ...rest].map(encodeURIComponent).join('/') + (q ? '?' + q : '');
}

async function show() {
  const at = parse();
  if (shown) shown.stop.abort();
  const stop = new AbortController();
  shown = { stop, keys: {} };
  const entry = at.run ? pages[at.word] : { page: runsPage };
  current = at.run;
  menu(at, entry);
  if (!entry) {
    put(main, h('p', null, 'There is no such page. ', h('a', { href: go(at.run, 'overview') }, 'To the overview')));
    return;
  }
  main.setAttribute('aria-busy', 'true');
  try {
    await entry.page.show({ main, ...at, signal: stop.signal, go, keys: shown.keys, every: (seconds, fn) => every(stop.signal, seconds, fn) });
  } catch (err) {
    if (err.name !== 'AbortError' && !stop.signal.aborted) trouble(err);
  }
  if (!stop.signal.aborted) main.removeAttribute('aria-busy');
}

// every calls again and again until the page is left; an answer that fails is told, and asked for again.
function every(signal, seconds, fn) {
  const again = async () => {
    if (signal.aborted) return;
    if (!document.hidden) try { await fn(); } catch (err) { if (err.name !== 'AbortError' && !signal.aborted) say(err.message); }
    setTimeout(again, seconds * 1000);
  };
  setTimeout(again, seconds * 1000);
}

function trouble(err) {
  if (err.status === 401) {
    const field = h('input', { type: 'password', 'aria-label': 'token', autocomplete: 'off' });
    const form = h('form', { class: 'bar', onsubmit: (e) => { e.preventDefault(); api.setToken(field.value.trim()); runList().then(show); } }, field, h('button', { class: 'main' }, 'look'));
    put(main, h('div', { class: 'panel' }, h('h1', null, 'A token is needed'), h('p', null, 'It was printed with the page\'s address when the page was started, or stands in the file that view.token_file names.'), form));
    field.focus();
    return;
  }
  put(main, h('div', { class: 'panel' }, h('h1', null, 'That did not work'), h('p', null, err.message), h('button', { onclick: show }, 'try again')));
}

function menu(at, entry) {
  const word = entry && entry.of ? entry.of : at.word;
  put(document.getElementById('nav'), at.run ? Object.entries(pages).filter(([, p]) => p.name).map(([w, p]) =>
    h('a', { href: go(at.run, w), 'aria-current': w === word ? 'page' : null, title: 'g ' + p.key }, p.name)) : null);
  const select = document.getElementById('runs');
  select.hidden = !at.run;
  if (at.run) select.value = at.run;
  document.title = at.run ? `${at.run} · ${(entry && entry.name) || at.word} · Weir` : 'Weir';
  if (!at.run) put(document.getElementById('state'));
}

let known = [];
async function runList() {
  try {
    known = (await api.runs()).runs;
  } catch (err) {
    if (err.status === 401) { trouble(err); return; }
    say(err.message);
    return;
  }
  const select = document.getElementById('runs');
  put(select, known.map((r) => h('option', { value: r.name }, r.name)));
  if (current) select.value = current;
  const r = known.find((x) => x.name === current);
  put(document.getElementById('state'), r ? h('span', { class: 'badge ' + r.state, title: r.detail }, r.state) : null);
  if (!location.hash.replace(/^#\/?/, '') && known.length === 1) location.replace(go(known[0].name, 'overview'));
}

document.getElementById('runs').addEventListener('change', (e) => { location.hash = go(e.target.value, parse().word === 'trajectory' ? 'trajectories' : parse().word); });

// dark and light
const theme = (name) => { document.documentElement.dataset.theme = name; dispatchEvent(new Event('theme')); };
const dark = matchMedia('(prefers-color-scheme: dark)');
theme(localStorage.getItem('weir-theme') || (dark.matches ? 'dark' : 'light'));
dark.addEventListener('change', () => { if (!localStorage.getItem('weir-theme')) theme(dark.matches ? 'dark' : 'light'); });
function flip() {
  const next = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
  localStorage.setItem('weir-theme', next);
  theme(next);
}
document.getElementById('theme').addEventListener('click', flip);

// keys
let lead = 0;
function help() {
  const rows = [['g then a letter', 'a page: ' + Object.values(pages).filter((p) => p.key).map((p) => `${p.key} ${p.name}`).join(', ')],
    ['j k', 'the next and the last line of a list, or sample of a group'], ['Enter', 'open it'], ['/', 'look for an id'], ['c', 'another colouring of tokens'],
    ['h', 'all runs'], ['t', 'dark or light'], ['Escape', 'back']];
  const box = h('dialog', { onclose: () => box.remove() }, h('h1', null, 'Keys'), h('dl', null, rows.map(([k, what]) => [h('dt', null, h('kbd', null, k)), h('dd', null, what)])),
    h('form', { method: 'dialog' }, h('button', { class: 'main' }, 'close')));
  document.body.append(box);
  box.showModal();
}
document.getElementById('keys').addEventListener('click', help);
addEventListener('keydown', (e) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName);
  if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return;
  if (typing) { if (e.key === 'Escape') e.target.blur(); return; }
  if (lead > Date.now() - 1500) {
    lead = 0;
    const found = Object.entries(pages).find(([, p]) => p.key === e.key);
    const run = current || (known[0] && known[0].name);
    if (found && run) { e.preventDefault(); location.hash = go(run, found[0]); }
    return;
  }
  if (e.key === 'g') { lead = Date.now(); return; }
  const own = shown && shown.keys[e.key];
  if (own) { e.preventDefault(); own(e); return; }
  if (e.key === '?') help();
  else if (e.key === 't') flip();
  else if (e.key === 'h') location.hash = '#/';
  else if (e.key === 'Escape' && parse().word === 'trajectory') history.back();
});

api.takeToken();
addEventListener('hashchange', () => { api.takeToken(); show(); runList(); });
await runList();
await show();
setInterval(() => { if (!document.hidden) runList(); }, 5000);
