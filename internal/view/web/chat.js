import * as api from './api.js';
import { button, dim, h, note, panel, put } from './dom.js';
import { Episode } from './episode.js';

/** @typedef {import('../webcheck/api').ChatOffer} ChatOffer */

// Questions to a version of the policy, each an episode of its own: what it says, its calls and what they bring, as
// they come.
export async function show({ main, run, query, signal }) {
  /** @type {ChatOffer} */
  const offer = await api.get(run, 'chat', null, signal);
  const notes = h('div', null, offer.notes.map(note));
  if (!offer.versions.length) {
    put(main, h('h1', null, 'Chat'), panel('No version can be asked here', notes));
    return;
  }
  const talk = h('div', { id: 'chat' });
  const form = new Form(offer, query);
  const asking = new Asking(run, form, talk, signal);
  const about = 'each question is an episode of its own: the policy remembers none before it';
  put(
    main,
    h('h1', null, 'Chat ', dim(about)),
    form.draw(
      () => asking.ask(),
      () => asking.stop(),
      notes,
    ),
    talk,
  );
  form.describe();
  form.question.focus();
  if (api.token()) await openTasks(run, form, notes, signal);
}

// openTasks has the run's tasks opened, for whoever has the token alone: that reads data and starts tools.
async function openTasks(run, form, notes, signal) {
  try {
    form.offer.tasks = (await api.post(run, 'chat/tasks', {}, signal)).tasks;
    form.describe();
  } catch (err) {
    if (err.name !== 'AbortError') notes.append(h('p', { class: 'warn' }, err.message));
  }
}

// Form is what a question is made of.
class Form {
  /** @param {ChatOffer} offer */
  constructor(offer, query) {
    this.offer = offer;
    const agents = [['', "the task's agent"], ...offer.agents.map((a) => [a, 'agent ' + a])];
    const tools = [['', "the task's tools"], ['-', 'no tool'], ...offer.tools.map((t) => [t, 'tool ' + t])];
    this.version = choice('version', versionOptions(offer), query.version);
    this.task = choice(
      'task',
      offer.tasks.map((t) => [t.name, 'task ' + t.name]),
      query.task,
    );
    this.agent = choice('agent', agents, query.agent);
    this.tools = choice('tools', tools, query.tools);
    this.temperature = number('temperature', { max: 10, step: 0.1, value: query.temperature || '0' });
    this.seed = number('seed', { step: 1, value: query.seed || '1' });
    this.question = h('textarea', {
      id: 'chat-question',
      rows: 2,
      maxlength: 16000,
      'aria-label': 'question',
      value: query.question || '',
    });
    this.send = h('button', { id: 'chat-send', class: 'main' }, 'ask');
    this.halt = h('button', { id: 'chat-stop', type: 'button', hidden: true }, 'stop');
    this.cost = note();
    this.about = note();
    for (const field of [this.version, this.task]) field.addEventListener('change', () => this.describe());
  }

  draw(ask, stop, notes) {
    const { offer, version, agent, tools, temperature, seed } = this;
    this.halt.addEventListener('click', stop);
    this.question.addEventListener('keydown', (e) => {
      if (e.key !== 'Enter' || e.shiftKey) return;
      e.preventDefault();
      ask();
    });
    const onsubmit = (e) => {
      e.preventDefault();
      ask();
    };
    const choices = [
      version,
      offer.tasks.length > 1 ? this.task : null,
      offer.agents.length ? agent : null,
      tools,
      h('label', null, 'temperature ', temperature),
      h('label', null, 'seed ', seed),
    ];
    const question = h('div', { class: 'bar ask' }, this.question, this.send, this.halt);
    const bar = h('div', { class: 'bar' }, choices);
    return h('form', { class: 'panel', onsubmit }, bar, question, this.about, this.cost, notes);
  }

  // describe says what the chosen version takes, and what questions the chosen task has.
  describe() {
    const version = this.offer.versions.find((v) => v.key === this.version.value);
    const task = this.offer.tasks.find((t) => t.name === this.task.value);
    put(this.cost, `What it takes: ${version ? version.cost : ''}. Nothing of it is trained on.`);
    this.question.placeholder = task && task.examples.length ? task.examples[0] : 'a question';
    put(this.about, task ? this.describeTask(task) : null);
  }

  describeTask(task) {
    const take = (text) => () => {
      this.question.value = text;
      this.question.focus();
    };
    const examples = task.examples.map((text) => [button(text, take(text), { class: 'example' }), ' ']);
    const kind = examples.length ? 'Questions of its kind: ' : '';
    return [`Tools of the task: ${task.tools.join(', ') || 'none'}. `, kind, examples];
  }

  // offerVersions takes another list of versions, and keeps the choice where it is still offered.
  offerVersions(versions) {
    const chosen = this.version.value;
    this.offer.versions = versions;
    put(this.version, versionOptions(this.offer).map(option));
    if (versions.some((v) => v.key === chosen)) this.version.value = chosen;
    this.describe();
  }

  // body is the question as the API takes it.
  body() {
    const tools = this.tools.value;
    return {
      version: this.version.value,
      task: this.task.value,
      agent: this.agent.value,
      tools: tools && tools !== '-' ? [tools] : [],
      no_tool: tools === '-',
      question: this.question.value.trim() || this.question.placeholder,
      temperature: Number(this.temperature.value),
      seed: Number(this.seed.value),
    };
  }
}

const option = ([value, text]) => h('option', { value }, text);
const versionOptions = (offer) => offer.versions.map((v) => [v.key, v.name]);

function choice(name, options, chosen) {
  const select = h('select', { id: 'chat-' + name, 'aria-label': name }, options.map(option));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
  return select;
}

const number = (name, props) =>
  h('input', { type: 'number', id: 'chat-' + name, min: 0, 'aria-label': name, ...props });

// Asking asks one question at a time.
class Asking {
  constructor(run, form, talk, signal) {
    this.run = run;
    this.form = form;
    this.talk = talk;
    this.signal = signal;
    /** @type {AbortController | null} */
    this.going = null;
    signal.addEventListener('abort', () => this.stop());
  }

  stop() {
    if (this.going) this.going.abort();
  }

  async ask() {
    if (this.going) return;
    const { run, form } = this;
    this.going = new AbortController();
    form.send.disabled = true;
    form.halt.hidden = false;
    const body = form.body();
    const episode = new Episode(body.question, form.version.selectedOptions[0].textContent);
    this.talk.prepend(episode.box);
    try {
      await api.lines(run, 'chat', body, this.going.signal, (line) => episode.take(line));
    } catch (err) {
      episode.fail(err.name === 'AbortError' ? 'stopped' : err.message);
    }
    await this.renew().catch(() => {}); // the list may be old
    this.going = null;
    form.send.disabled = false;
    form.halt.hidden = true;
  }

  // renew reads the versions again: a run that goes on keeps other checkpoints by now.
  async renew() {
    this.form.offerVersions((await api.get(this.run, 'chat', null, this.signal)).versions);
  }
}
