// What the tokens of a trajectory can be coloured by.

export const modes = ['plain', 'advantage', 'ratio', 'log-probability', 'version'];

// isRecorded reports whether a trajectory has the numbers of a mode.
export function isRecorded(trajectory, mode) {
  if (mode === 'plain') return true;
  if (!trajectory) return false;
  return trajectory.segments.some((s) => numbersOf(s, mode));
}

function numbersOf(segment, mode) {
  if (mode === 'advantage') return segment.advantages;
  return mode === 'ratio' ? segment.start : segment.logprobs;
}

// tokenColour is the colour of a token of a segment; null is none.
export function tokenColour(segment, i, mode) {
  switch (mode) {
    case 'advantage':
      return segment.advantages ? greenOrRed(segment.advantages[i]) : null;
    case 'ratio':
      return segment.start ? greenOrRed(clamp(4 * (segment.start[i] - segment.logprobs[i]), 2)) : null;
    case 'log-probability':
      return `rgba(215,120,20,${Math.min(0.8, -segment.logprobs[i] / 4)})`;
    case 'version':
      return versionColour(segment.versions[i]);
    default:
      return null;
  }
}

const clamp = (x, most) => Math.max(-most, Math.min(most, x));

function greenOrRed(x) {
  if (x === 0) return null;
  const alpha = Math.min(0.75, 0.12 + 0.5 * Math.abs(x));
  return x > 0 ? `rgba(40,160,90,${alpha})` : `rgba(215,60,50,${alpha})`;
}

const hues = [195, 25, 255, 140, 330, 55, 230, 100];

export const versionColour = (version, alpha = 0.35) => `hsla(${hues[version % hues.length]},65%,50%,${alpha})`;

const meanings = {
  advantage: 'green: pushed up, red: pushed down',
  ratio: "green: likelier under the policy at the step's start than when it was sampled, red: less likely",
  'log-probability': 'darker: less likely when it was sampled',
  version: 'a colour for each policy version',
};

// explainMode is what the colours of a mode mean.
export const explainMode = (mode) => (meanings[mode] || '') + ' grey: not sampled, no loss';
