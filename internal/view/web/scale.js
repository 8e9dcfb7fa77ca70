// Scales of charts: where values lie in a picture, and the round values that axes name.

export function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const v of values) {
    low = Math.min(low, v);
    high = Math.max(high, v);
  }
  return { low, high };
}

// widen makes room where all values are one.
export function widen({ low, high }, by) {
  if (high - low > 1e-9 * Math.max(Math.abs(low), Math.abs(high))) return { low, high };
  return { low: low - by(low), high: high + by(high) };
}

// linear places values between two ends of a picture.
export function linear({ low, high }, from, to) {
  const place = (v) => from + ((v - low) / (high - low)) * (to - from);
  const value = (p) => low + ((p - from) / (to - from)) * (high - low);
  return { low, high, place, value, ticks: (n) => roundTicks(low, high, n) };
}

// logarithmic places positive values.
export function logarithmic({ low, high }, from, to) {
  const inner = linear({ low: Math.log10(low), high: Math.log10(high) }, from, to);
  const place = (v) => inner.place(Math.log10(Math.max(v, low)));
  return { low, high, place, value: (p) => 10 ** inner.value(p), ticks: () => powerTicks(low, high) };
}

// roundTicks are about n round numbers between two values.
export function roundTicks(low, high, n) {
  const raw = (high - low) / n;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * size).find((k) => k >= raw) || raw;
  const first = Math.ceil(low / step);
  const out = [];
  for (let i = 0; i <= 2 * n && (first + i) * step <= high + step * 1e-9; i++) {
    out.push(Number(((first + i) * step).toPrecision(12)));
  }
  return out;
}

// powerTicks are powers of ten, with 2 and 5 between them where few powers are in sight.
function powerTicks(low, high) {
  const from = Math.floor(Math.log10(low));
  const to = Math.ceil(Math.log10(high));
  const every = Math.max(1, Math.ceil((to - from) / 4));
  const factors = to - from <= 2 ? [1, 2, 5] : [1];
  const out = [];
  for (let e = from; e <= to; e += every) out.push(...factors.map((k) => k * 10 ** e));
  return out.filter((t) => t >= low * 0.999 && t <= high * 1.001);
}

const clockSteps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];

// clockTicks are about n round times, in seconds.
export function clockTicks(low, high, n) {
  const step = clockSteps.find((s) => s >= (high - low) / n) || 86400 * Math.ceil((high - low) / n / 86400);
  const out = [];
  for (let t = Math.ceil(low / step) * step; t <= high; t += step) out.push(t);
  return out;
}

// nearest is the index of the value that is nearest to x, of values that rise.
export function nearest(xs, x) {
  let low = 0;
  let high = xs.length - 1;
  while (high - low > 1) {
    const mid = (low + high) >> 1;
    if (xs[mid] < x) low = mid;
    else high = mid;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}
