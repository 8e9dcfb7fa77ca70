import * as api from './api.js';
import { dim, fateBadge, h, note, panel, put } from './dom.js';
import { round } from './format.js';
import { cutIntoParts, partText } from './turns.js';

// drawSiblings shows the group of a trajectory side by side.
export async function drawSiblings({ box, run, group, id, signal, go, keys }) {
  const members = await readMembers(run, group, signal);
  if (members.length < 2) return;
  const here = members.findIndex((m) => m.id === id);
  const step = (by) => {
    const m = members[here + by];
    if (m) location.replace(go(run, 'trajectory', [m.id]));
  };
  Object.assign(keys, { j: () => step(1), k: () => step(-1) });
  const cards = members.map((m) => memberCard(m, go(run, 'trajectory', [m.id]), m.id === id));
  const title = [`Its group, ${group}: ${members.length} samples of one prompt `, dim('j, k: the next, the previous')];
  put(box, panel(title, h('div', { class: 'side' }, cards)));
  for (let i = 0; i < members.length; i++) {
    const detail = await api.get(run, 'trajectories/' + encodeURIComponent(members[i].id), null, signal);
    put(cards[i].lastChild, memberText(detail));
  }
}

// readMembers are the members of a group, each once and in their order. A group that the record does not have has none.
async function readMembers(run, group, signal) {
  try {
    const { members } = await api.get(run, 'groups/' + encodeURIComponent(group), null, signal);
    const byId = new Map(members.map((m) => [m.id, m]));
    return [...byId.values()].sort((a, b) => a.id.localeCompare(b.id, 'en', { numeric: true }));
  } catch (err) {
    if (err.status === 404) return [];
    throw err;
  }
}

// memberCard has room for the text as its last child.
const memberCard = (m, href, isHere) =>
  h(
    'div',
    { class: 'panel' + (isHere ? ' at' : '') },
    h('h2', null, h('a', { class: 'mono', href }, m.id), ' ', fateBadge(m.fate)),
    h('p', null, m.rewarded ? 'reward ' + round(m.reward) : m.reason),
    h('div', null),
  );

function memberText(detail) {
  const t = detail.trajectory;
  if (!t) return note(detail.missing);
  const parts = cutIntoParts(t).filter((p) => p.who !== 'prompt');
  return parts.map((p) => h('pre', { class: 'talk' + (p.who === 'policy' ? '' : ' dim') }, partText(t, p).trim()));
}
