import * as api from './api.js';
import { h, put, round } from './dom.js';

// Where every ticket went. A bar leads to its trajectories.
export async function show({ main, run, signal, go, every }) {
  const draw = async () => {
    const a = await api.get(run, 'accounting', null, signal);
    const share = (n) => (a.issued ? 100 * n / a.issued : 0);
    put(main, h('h1', null, 'Accounting'),
      h('p', { class: 'dim' }, a.step < 0 ? 'The record has no step yet.' : `Every ticket that was issued by step ${a.step}, and what became of it. Each row takes away from the row above it; the sum is exact.`),
      h('div', { class: 'panel fall', id: 'fall' }, a.bars.flatMap((b) => {
        const href = b.fate ? go(run, 'trajectories', [], { fate: b.fate, reason: b.reason }) : null;
        const piece = h('span', { class: 'piece ' + (b.sum ? 'sum' : b.fate) });
        piece.style.left = (b.sum ? 0 : share(b.left)) + '%';
        piece.style.width = share(b.count) + '%';
        const track = h(href ? 'a' : 'span', { class: 'track', href, title: b.what, 'aria-label': `${b.label}: ${b.count}` }, piece);
        return [h(href ? 'a' : 'span', { class: 'name' + (b.sum ? ' sum' : ''), href, title: b.what }, (b.sum ? '' : '− ') + b.label), track,
          h('span', { class: 'count' + (b.sum ? ' sum' : '') }, b.count.toLocaleString('en'), ' ', h('span', { class: 'dim' }, share(b.count).toFixed(1) + ' %'))];
      })),
      h('div', { class: 'grid' },
        h('div', { class: 'panel' }, h('h2', null, 'Groups'), h('dl', null, Object.entries(a.groups).sort().map(([k, n]) => [h('dt', null, k), h('dd', null, round(n))]), h('dt', null, 'prompts to be issued again'), h('dd', null, round(a.again)))),
        h('div', { class: 'panel' }, h('h2', null, 'Further messages'), Object.keys(a.further).length
          ? h('dl', null, Object.entries(a.further).map(([k, n]) => [h('dt', null, k), h('dd', null, round(n))])) : h('p', { class: 'dim' }, 'none: no ticket has more than one end'))),
      a.unsure ? h('p', { class: 'warn' }, `The record does not say how many tickets ${a.unsure} of the groups had: it was written by an older build. Their neighbours' size was taken.`) : null,
      h('p', { class: 'dim' }, h('code', { class: 'mono' }, 'weir audit'), ' proves the same from the record: nothing used twice, nothing missing, nothing staler than the bound.'));
  };
  await draw();
  every(5, draw);
}
