import * as api from './api.js';
import { button, dim, h, note, put, say } from './dom.js';

// shown is what the box was drawn for: it is drawn anew when that changes, so that what is being typed stays.
let shown = '';

// drawActs draws what an operator can change. redraw is called after an act.
export function drawActs(box, run, s, redraw) {
  const c = s.control;
  const now = JSON.stringify([run, !!s.down, c && [c.paused, c.draining, c.eta, c.depth, c.limits], s.tasks]);
  if (now === shown && box.firstChild) return;
  shown = now;
  if (s.down || !c) {
    const why = s.down ? 'A run that is not up cannot be changed.' : 'No trainer has begun the run yet.';
    put(box, h('h2', null, 'Acts'), note(why));
    return;
  }
  const act = (what, body) => doAct(run, what, body, redraw);
  const about = 'each is an event, and what the trainer adopts stands in its record; weir control does the same';
  put(box, h('h2', null, 'Acts ', dim(about)), boundsBar(c, act), limitsBar(c, s.tasks || [], act), limitsNote(c));
}

async function doAct(run, what, body, redraw) {
  const question = `Drain run ${run}? Every role finishes its work and stops; the same command goes on with it later.`;
  if (body.draining && !confirm(question)) return;
  try {
    const done = await api.post(run, 'control', body);
    say(done.changes.length ? done.changes.join('; ') : 'that is so already');
    shown = '';
    await redraw();
  } catch (err) {
    say(`${what}: ${err.message}`);
  }
}

// boundsBar pauses, drains, and sets the bounds of admission.
function boundsBar(c, act) {
  const number = (name, value) =>
    h('input', { type: 'number', min: 0, max: 1000, value, 'aria-label': name, id: 'act-' + name });
  const eta = number('eta', c.eta);
  const depth = number('depth', c.depth);
  const pause = () => act('pause', { paused: !c.paused });
  const drain = () => act('drain', { draining: true });
  const bounds = () => act('bounds', { eta: Number(eta.value), depth: Number(depth.value) });
  return h(
    'div',
    { class: 'bar' },
    button(c.paused ? 'resume' : 'pause', pause, { id: 'act-pause' }),
    button(c.draining ? 'draining' : 'drain', drain, { id: 'act-drain', disabled: c.draining }),
    h('label', null, 'eta ', eta),
    h('label', null, 'depth ', depth),
    button('set', bounds, { id: 'act-bounds' }),
    dim(c.paused ? 'producers take no tickets; rollouts that run go on' : ''),
  );
}

const limitKeys = ['max_turns', 'max_tokens', 'max_total_tokens', 'max_segments'];

// limitsBar sets the limits of episodes: a field that is left empty stays as it is.
function limitsBar(c, tasks, act) {
  const task = taskField(tasks);
  const fields = limitKeys.map((key) => [key, limitField(key)]);
  const timeout = h('input', { id: 'act-timeout', 'aria-label': 'timeout', placeholder: '90s', size: 6 });
  const set = () => {
    const limits = { task: task.value };
    for (const [key, field] of fields) if (field.value !== '') limits[key] = Number(field.value);
    if (timeout.value !== '') limits.timeout = timeout.value;
    return act('limits', { limits });
  };
  const configured = () => act('limits', { limits: { task: task.value, configured: true } });
  return h(
    'div',
    { class: 'bar' },
    h('span', null, 'limits of episodes'),
    h('label', null, 'task ', task),
    fields.map(([key, field]) => h('label', null, key + ' ', field)),
    h('label', null, 'timeout ', timeout),
    button('set limits', set, { id: 'act-limits' }),
    button('as configured', configured, { id: 'act-configured', disabled: c.limits.length === 0 }),
  );
}

// taskField chooses a task, by name where the run's tasks are not known.
function taskField(tasks) {
  const props = { id: 'act-task', 'aria-label': 'task' };
  if (!tasks.length) return h('input', { ...props, placeholder: 'every task', size: 12 });
  const options = tasks.map((t) => h('option', { value: t }, t));
  return h('select', props, h('option', { value: '' }, 'every task'), options);
}

const limitField = (key) =>
  h('input', { type: 'number', min: key === 'max_tokens' ? 1 : 0, 'aria-label': key, id: 'act-' + key });

function limitsNote(c) {
  const set = c.limits.map((l) => `${l.task || 'every task'} ${l.key} ${l.value}`).join(', ');
  const text = set ? 'set: ' + set : 'The limits of episodes are those of the configuration.';
  return h('p', { class: 'dim', id: 'limits' }, text);
}
