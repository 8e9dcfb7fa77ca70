import * as api from './api.js';
import { h, put, round, copy } from './dom.js';

// Questions to a version of the policy, each an episode of its own: what it says, its calls and what they bring, as they come.
export async function show({ main, run, query, signal }) {
  const offer = await api.get(run, 'chat', null, signal);
  const talk = h('div', { id: 'chat' });
  const notes = offer.notes.map((t) => h('p', { class: 'dim' }, t));
  if (!offer.versions.length) {
    put(main, h('h1', null, 'Chat'), h('div', { class: 'panel' }, h('h2', null, 'No version can be asked here'), notes));
    return;
  }
  const notesAt = h('div', null, notes);
  const choose = (name, options, chosen) => {
    const s = h('select', { id: 'chat-' + name, 'aria-label': name }, options.map(([value, text]) => h('option', { value }, text)));
    if (options.some(([value]) => value === chosen)) s.value = chosen;
    return s;
  };
  const version = choose('version', offer.versions.map((v) => [v.key, v.name]), query.version);
  const task = choose('task', offer.tasks.map((t) => [t.name, 'task ' + t.name]), query.task);
  const agent = choose('agent', [['', 'the task\'s agent'], ...offer.agents.map((a) => [a, 'agent ' + a])], query.agent);
  const tools = choose('tools', [['', 'the task\'s tools'], ['-', 'no tool'], ...offer.tools.map((t) => [t, 'tool ' + t])], query.tools);
  const temperature = h('input', { type: 'number', id: 'chat-temperature', min: 0, max: 10, step: 0.1, value: query.temperature || '0', 'aria-label': 'temperature' });
  const seed = h('input', { type: 'number', id: 'chat-seed', min: 0, step: 1, value: query.seed || '1', 'aria-label': 'seed' });
  const field = h('textarea', { id: 'chat-question', rows: 2, maxlength: 16000, 'aria-label': 'question', value: query.question || '' });
  const send = h('button', { id: 'chat-send', class: 'main' }, 'ask'), stop = h('button', { id: 'chat-stop', type: 'button', hidden: true }, 'stop');
  const cost = h('p', { class: 'dim' }), about = h('p', { class: 'dim' });
  const describe = () => {
    const t = offer.tasks.find((x) => x.name === task.value), v = offer.versions.find((x) => x.key === version.value);
    put(cost, `What it takes: ${v.cost}. Nothing of it is trained on.`);
    field.placeholder = t && t.examples.length ? t.examples[0] : 'a question';
    put(about, t ? [`Tools of the task: ${t.tools.join(', ') || 'none'}. `, t.examples.length ? 'Questions of its kind: ' : '', t.examples.map((x) => [h('button', { type: 'button', class: 'example', onclick: () => { field.value = x; field.focus(); } }, x), ' '])] : null);
  };
  version.addEventListener('change', describe);
  task.addEventListener('change', describe);
  let asking = null;
  const renew = async () => {
    const chosen = version.value;
    offer.versions = (await api.get(run, 'chat', null, signal)).versions;
    put(version, offer.versions.map((v) => h('option', { value: v.key }, v.name)));
    if (offer.versions.some((v) => v.key === chosen)) version.value = chosen;
    describe();
  };
  signal.addEventListener('abort', () => { if (asking) asking.abort(); });
  stop.addEventListener('click', () => { if (asking) asking.abort(); });
  const ask = async () => {
    const question = field.value.trim() || field.placeholder;
    if (asking) return;
    asking = new AbortController();
    send.disabled = true;
    stop.hidden = false;
    const box = h('div', { class: 'panel episode', 'aria-live': 'polite' }, h('h2', null, question, ' ', h('span', { class: 'dim' }, version.selectedOptions[0].textContent)));
    const moves = h('div', null), end = h('div', { class: 'end' }, h('span', { class: 'dim' }, 'it is asked'));
    box.append(moves, end);
    talk.prepend(box);
    let calls = 0;
    try {
      await api.lines(run, 'chat', {
        version: version.value, task: task.value, agent: agent.value, tools: tools.value && tools.value !== '-' ? [tools.value] : [], no_tool: tools.value === '-',
        question, temperature: Number(temperature.value), seed: Number(seed.value),
      }, asking.signal, (line) => {
        if (line.error) throw new Error(line.error);
        if (line.move) { if (line.move.kind === 'tool') calls++; moves.append(part(line.move)); }
        if (line.end) put(end, result(line.end, calls));
      });
    } catch (err) {
      put(end, h('span', { class: 'bad' }, err.name === 'AbortError' ? 'stopped' : err.message));
    }
    await renew().catch(() => {}); // a run that goes on keeps other checkpoints by now; the list may be old
    asking = null;
    send.disabled = false;
    stop.hidden = true;
  };
  const form = h('form', { class: 'panel', onsubmit: (e) => { e.preventDefault(); ask(); } },
    h('div', { class: 'bar' }, version, offer.tasks.length > 1 ? task : null, offer.agents.length ? agent : null, tools, h('label', null, 'temperature ', temperature), h('label', null, 'seed ', seed)),
    h('div', { class: 'bar ask' }, field, send, stop), about, cost, notesAt);
  field.addEventListener('keydown', (e) => { if (e.key === 'Enter' && !e.shiftKey) { e.preventDefault(); ask(); } });
  put(main, h('h1', null, 'Chat ', h('span', { class: 'dim' }, 'each question is an episode of its own: the policy remembers none before it')), form, talk);
  describe();
  field.focus();
  if (!api.token()) return;
  // The tasks are opened for who has the token alone: that reads data and starts tools.
  try {
    offer.tasks = (await api.post(run, 'chat/tasks', {}, signal)).tasks;
    describe();
  } catch (err) {
    if (err.name !== 'AbortError') notesAt.append(h('p', { class: 'warn' }, err.message));
  }
}

const words = { prompt: 'prompt', context: 'context', policy: 'policy', tool: 'call', observation: 'observation' };

function part(m) {
  const who = h('div', { class: 'who' }, (words[m.kind] || m.kind) + (m.agent ? ' ' + m.agent : ''));
  if (m.kind === 'tool') return h('div', { class: 'part call' }, who, h('pre', { class: 'talk' }, `${m.tool}(${m.text})`));
  return h('div', { class: 'part ' + (m.kind === 'policy' ? 'policy' : 'observation') }, who,
    h('pre', { class: 'talk' + (m.kind === 'policy' ? '' : ' dim') }, m.text, m.tool ? h('span', { class: m.failed ? 'bad' : 'dim' }, `  ${m.tool}, ${round(m.seconds)} s`) : null));
}

function result(e, calls) {
  const versions = e.oldest_version === e.newest_version ? `version ${e.newest_version}` : `versions ${e.oldest_version} to ${e.newest_version}`;
  return [
    h('p', null, e.stop === 'answer' ? [h('b', null, 'answer '), h('span', { class: 'mono answer' }, e.answer)] : h('b', null, `no answer: stopped by ${e.stop}${e.error ? ': ' + e.error : ''}`)),
    h('p', { class: 'dim' }, `${versions}, ${e.sampled} tokens sampled, ${calls} calls, ${round(e.seconds)} s`),
    e.notes.map((t) => h('p', { class: 'warn' }, t)),
    e.command ? h('div', { class: 'command' }, h('span', { class: 'dim' }, 'the same again'), h('code', null, e.command), h('button', { type: 'button', onclick: () => copy(e.command) }, 'copy')) : null,
  ];
}
