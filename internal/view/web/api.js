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

// Refused is an answer of the server that is no success; its status is 0 where there was no answer.
export class Refused extends Error {
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

const cutOff = "the answer was cut off: the page's server has ended, or the network is gone";

/**
 * @param {string} path
 * @param {RequestInit} init
 */
async function reach(path, init) {
  /** @type {Record<string, string>} */
  const headers = init.body ? { 'Content-Type': 'application/json' } : {};
  if (token()) headers.Authorization = 'Bearer ' + token();
  let res;
  try {
    res = await fetch('/api/' + path, { ...init, headers });
  } catch (err) {
    if (err.name === 'AbortError') throw err;
    throw new Refused(0, "the page's server does not answer: it has ended, or the network is gone");
  }
  if (!res.ok) throw await refusal(res);
  return res;
}

async function refusal(res) {
  let why = `${res.status} ${res.statusText}`;
  try {
    why = (await res.json()).error || why;
  } catch {
    // the status says it
  }
  return new Refused(res.status, why);
}

async function ask(path, init) {
  const res = await reach(path, init);
  return res.json().catch(() => null);
}

const of = (run) => 'runs/' + encodeURIComponent(run) + '/';

// encodeQuery is a query with its question mark; what is empty is left out.
export function encodeQuery(q) {
  const given = Object.entries(q || {}).filter(([, v]) => v !== '' && v !== null && v !== undefined);
  const text = new URLSearchParams(given.map(([k, v]) => [k, String(v)])).toString();
  return text ? '?' + text : '';
}

export const runs = (signal) => ask('runs', { signal });
export const get = (run, path, q, signal) => ask(of(run) + path + encodeQuery(q), { signal });
export const post = (run, path, body, signal) =>
  ask(of(run) + path, { method: 'POST', signal, body: JSON.stringify(body) });

// lines sends a body, and calls each with every line of JSON that comes of it, as it comes.
export async function lines(run, path, body, signal, each) {
  const res = await reach(of(run) + path, { method: 'POST', signal, body: JSON.stringify(body) });
  const reader = /** @type {ReadableStream} */ (res.body).pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let last = null;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const all = (rest + value).split('\n');
    rest = all.pop() || '';
    for (const text of all) {
      last = JSON.parse(text);
      each(last);
    }
  }
  if (!last || last.move) throw new Refused(0, cutOff);
}
