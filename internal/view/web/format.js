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

// duration is a number of seconds in the unit that fits it.
export function duration(seconds) {
  if (typeof seconds !== 'number' || Number.isNaN(seconds)) return none;
  if (seconds === 0) return '0 s';
  if (seconds < 1e-3) return round(1e6 * seconds, 2) + ' µs';
  if (seconds < 1) return round(1e3 * seconds) + ' ms';
  if (seconds < 100) return round(seconds) + ' s';
  if (seconds < 5400) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

// clockText is a time since the run began, in seconds.
export function clockText(seconds) {
  const pad = (n) => String(n).padStart(2, '0');
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  if (hours > 0) return `${hours}:${pad(minutes)} h`;
  return `${minutes}:${pad(whole % 60)}`;
}

export function ago(at) {
  const s = Math.max(0, (Date.now() - new Date(at).getTime()) / 1000);
  if (s < 90) return `${Math.round(s)} s ago`;
  return s < 5400 ? `${Math.round(s / 60)} min ago` : `${Math.round(s / 3600)} h ago`;
}

export const clock = (at) => new Date(at).toLocaleTimeString();

export const day = (at) => new Date(at).toLocaleDateString(undefined, { dateStyle: 'medium' });
