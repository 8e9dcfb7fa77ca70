// Numbers, sizes and times for people. What is not known is a dash.

export const none = '–';

export function round(x, digits = 3) {
  if (typeof x !== 'number' || Number.isNaN(x)) return none;
  if (Number.isInteger(x)) return x.toLocaleString('en');
  const size = Math.abs(x);
  if (size >= 1000) return Math.round(x).toLocaleString('en');
  return size < 1e-3 ? x.toExponential(1) : String(Number(x.toPrecision(digits)));
}

export const percent = (x) => (x === null || x === undefined ? none : (100 * x).toFixed(1) + ' %');

export function bytes(n) {
  if (n >= 1 << 30) return (n / (1 << 30)).toFixed(1) + ' GiB';
  if (n >= 1 << 20) return (n / (1 << 20)).toFixed(1) + ' MiB';
  return n >= 1024 ? (n / 1024).toFixed(1) + ' KiB' : n + ' B';
}

// secondsBetween takes two times of the API.
export const secondsBetween = (from, to) => (new Date(to).getTime() - new Date(from).getTime()) / 1000;

export function ago(at) {
  const s = Math.max(0, (Date.now() - new Date(at).getTime()) / 1000);
  if (s < 90) return `${Math.round(s)} s ago`;
  return s < 5400 ? `${Math.round(s / 60)} min ago` : `${Math.round(s / 3600)} h ago`;
}

export const clock = (at) => new Date(at).toLocaleTimeString();
