// Questions to the server. The token comes with the page's address, after the #, and stays in this tab.

const place = 'weir-token';

export function takeToken() {
  const found = /^#token=([^&]+)/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(place, decodeURIComponent(found[1]));
  history.replaceState(null, '', location.pathname + '#/');
}

export const token = () => sessionStorage.getItem(place) || '';
export const setToken = (t) => sessionStorage.setItem(place, t);

export class Refused extends Error {
  constructor(status, why) { super(why); this.status = status; }
}

async function reach(path, init) {
  const headers = { ...(init.headers || {}) };
  if (token()) headers.Authorization = 'Bearer ' + token();
  try {
    return await fetch('/api/' + path, { ...init, headers });
  } catch (err) {
    if (err.name === 'AbortError') throw err;
    throw new Refused(0, 'the page\'s server does not answer: it has ended, or the network is gone');
  }
}

async function ask(path, init = {}) {
  const res = await reach(path, init);
  let body = null;
  try { body = await res.json(); } catch { /* told below */ }
  if (!res.ok) throw new Refused(res.status, (body && body.error) || `${res.status} ${res.statusText}`);
  return body;
}

const of = (run) => 'runs/' + encodeURIComponent(run) + '/';
const query = (q) => {
  const out = new URLSearchParams();
  for (const [k, v] of Object.entries(q || {})) if (v !== '' && v !== null && v !== undefined) out.set(k, v);
  const text = out.toString();
  return text ? '?' + text : '';
};

export const runs = (signal) => ask('runs', { signal });
export const get = (run, path, q, signal) => ask(of(run) + path + query(q), { signal });
export const post = (run, path, body, signal) => ask(of(run) + path, {
  method: 'POST', signal, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
});

// lines sends a body, and calls each with every line of JSON that comes of it, as it comes.
export async function lines(run, path, body, signal, each) {
  const res = await reach(of(run) + path, { method: 'POST', signal, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
  if (!res.ok) {
    let why = null;
    try { why = await res.json(); } catch { /* told below */ }
    throw new Refused(res.status, (why && why.error) || `${res.status} ${res.statusText}`);
  }
  const reader = res.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '', last = null;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const all = (rest + value).split('\n');
    rest = all.pop();
    for (const text of all) { last = JSON.parse(text); each(last); }
  }
  if (!last || last.move) throw new Refused(0, 'the answer was cut off: the page\'s server has ended, or the network is gone');
}
