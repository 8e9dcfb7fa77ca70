import { button, dim, h } from './dom.js';

const place = 'weir-look';

/**
 * Look is how all charts of a page are drawn. It is kept in the tab, but for the zoom.
 *
 * @typedef {object} Look
 * @property {number} smoothing weight of the values before, 0 to 0.98
 * @property {boolean} log whether y is logarithmic where all values are positive
 * @property {'step' | 'time'} along what x is
 * @property {{low: number, high: number} | null} zoom the stretch of x that is shown; null is all
 */

/** @returns {Look} */
export function readLook() {
  /** @type {Look} */
  const look = { smoothing: 0, log: false, along: 'step', zoom: null };
  try {
    const kept = JSON.parse(sessionStorage.getItem(place) || '{}');
    if (kept.smoothing >= 0 && kept.smoothing <= 0.98) look.smoothing = kept.smoothing;
    look.log = kept.log === true;
    if (kept.along === 'time') look.along = 'time';
  } catch {
    // what a tab keeps may be anything
  }
  return look;
}

function keep({ smoothing, log, along }) {
  sessionStorage.setItem(place, JSON.stringify({ smoothing, log, along }));
}

/**
 * lookBar has the controls of a look; changed is called after each change.
 *
 * @param {Look} look
 * @param {() => void} changed
 * @param {string} [hint]
 */
export function lookBar(look, changed, hint = 'drag over a chart to zoom') {
  const pressed = (on) => ({ 'aria-pressed': String(on) });
  const steps = button('steps', () => along('step'), pressed(look.along === 'step'));
  const time = button('wall clock', () => along('time'), pressed(look.along === 'time'));
  const log = button('log scale', () => change({ log: !look.log }), pressed(look.log));
  const whole = button('whole run', () => change({ zoom: null }), { id: 'whole', hidden: !look.zoom });
  const amount = h('span', { class: 'amount' }, look.smoothing.toFixed(2));
  const slider = h('input', {
    type: 'range',
    min: 0,
    max: 0.98,
    step: 0.02,
    value: look.smoothing,
    'aria-label': 'smoothing',
    oninput: (e) => change({ smoothing: Number(e.target.value) }),
  });
  const along = (to) => change({ along: to, zoom: null });
  const change = (more) => {
    Object.assign(look, more);
    keep(look);
    mark();
    changed();
  };
  const mark = () => {
    steps.setAttribute('aria-pressed', String(look.along === 'step'));
    time.setAttribute('aria-pressed', String(look.along === 'time'));
    log.setAttribute('aria-pressed', String(look.log));
    whole.hidden = !look.zoom;
    amount.textContent = look.smoothing.toFixed(2);
  };
  const bar = h(
    'div',
    { class: 'bar look' },
    h('label', null, dim('smoothing '), slider, amount),
    log,
    steps,
    time,
    whole,
  );
  bar.append(dim(hint));
  return { bar, mark };
}

/**
 * smooth weighs each value with those before it, as if there had been the same before the first.
 *
 * @param {number[]} values
 * @param {number} weight
 */
export function smooth(values, weight) {
  let sum = 0;
  let total = 0;
  return values.map((v) => {
    sum = weight * sum + v;
    total = weight * total + 1;
    return sum / total;
  });
}
