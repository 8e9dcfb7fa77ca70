import * as api from './api.js';
import { dim, h, note, panel, put, terms } from './dom.js';
import { round } from './format.js';

/** @typedef {import('../webcheck/api').Accounting} Accounting */

// Where every ticket went. A bar leads to its trajectories.
export async function show({ main, run, signal, go, every }) {
  const draw = async () => {
    /** @type {Accounting} */
    const a = await api.get(run, 'accounting', null, signal);
    const link = (b) => (b.fate ? go(run, 'trajectories', [], { fate: b.fate, reason: b.reason }) : null);
    put(
      main,
      h('h1', null, 'Accounting'),
      note(aboutStep(a.step)),
      h(
        'div',
        { class: 'panel fall', id: 'fall' },
        a.bars.map((b) => drawBar(b, link(b), a.issued)),
      ),
      h('div', { class: 'grid' }, panel('Groups', groupsOf(a)), panel('Further messages', furtherOf(a))),
      a.unsure ? h('p', { class: 'warn' }, unsureText(a.unsure)) : null,
      note(
        h('code', { class: 'mono' }, 'weir audit'),
        ' proves the same from the record: nothing used twice, nothing missing, nothing staler than the bound.',
      ),
    );
  };
  await draw();
  every(5, draw);
}

function aboutStep(step) {
  if (step < 0) return 'The record has no step yet.';
  return (
    `Every ticket that was issued by step ${step}, and what became of it. ` +
    'Each row takes away from the row above it; the sum is exact.'
  );
}

// drawBar is a row of the waterfall: name, track and count.
function drawBar(b, href, issued) {
  const share = (n) => (issued ? (100 * n) / issued : 0);
  const piece = h('span', { class: 'piece ' + (b.sum ? 'sum' : b.fate) });
  piece.style.left = (b.sum ? 0 : share(b.left)) + '%';
  piece.style.width = share(b.count) + '%';
  const sum = b.sum ? ' sum' : '';
  const tag = href ? 'a' : 'span';
  return [
    h(tag, { class: 'name' + sum, href, title: b.what }, (b.sum ? '' : '− ') + b.label.replaceAll('_', ' ')),
    h(tag, { class: 'track', href, title: b.what, 'aria-label': `${b.label}: ${b.count}` }, piece),
    h('span', { class: 'count' + sum }, b.count.toLocaleString('en'), ' ', dim(share(b.count).toFixed(1) + ' %')),
  ];
}

const inOrder = (counts) => Object.entries(counts).map(([name, n]) => [name, round(n)]);

/** @param {Accounting} a */
const groupsOf = (a) => terms([...inOrder(a.groups).sort(), ['prompts to be issued again', round(a.again)]]);

/** @param {Accounting} a */
function furtherOf(a) {
  const all = inOrder(a.further);
  return all.length ? terms(all) : note('none: no ticket has more than one end');
}

const unsureText = (groups) =>
  `The record does not say how many tickets ${groups} of the groups had: it was written by an older build. ` +
  "Their neighbours' size was taken.";
