// Interleaved measurement: in every round each side runs once, and the order
// turns round from one round to the next, so that a machine that gets slower or
// faster meanwhile treats all sides alike. What counts is the median of the
// ratios within the rounds.
import { median, paired, quantile } from './stats.mjs';
import { note } from './report.mjs';

// sides: [{ label, run: async (round) => number | { part: number, … } }]
// Returns { label: { part: [value of round 0, …] } }; a bare number is part 'rate'.
export async function interleave(title, sides, rounds) {
  const series = Object.fromEntries(sides.map((s) => [s.label, {}]));
  for (let round = 0; round < rounds; round++) {
    const order = round % 2 === 0 ? sides : [...sides].reverse();
    for (const side of order) {
      let values = await side.run(round);
      if (typeof values === 'number') values = { rate: values };
      for (const [part, value] of Object.entries(values)) {
        (series[side.label][part] ??= []).push(value);
      }
    }
    note(`${title}: round ${round + 1}/${rounds}  ` + sides.map((s) => `${s.label} ${brief(series[s.label], round)}`).join(', '));
  }
  return series;
}

function brief(parts, round) {
  return Object.values(parts)
    .map((values) => Math.round(values[round]).toLocaleString('en'))
    .join('/');
}

// { ratio, low, high, a, b }: the median of a/b over the rounds, its quartiles,
// and the medians of both sides.
export function ratioOf(a, b) {
  const ratios = paired(a, b);
  return {
    ratio: median(ratios),
    low: quantile(ratios, 0.25),
    high: quantile(ratios, 0.75),
    a: median(a),
    b: median(b),
  };
}
