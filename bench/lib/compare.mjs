// Interleaved measurement: in every round each side runs once, and the order
// turns round from one round to the next, so that a machine that gets slower or
// faster meanwhile treats all sides alike. What counts is the median of the
// ratios within the rounds.
import { median, paired, quantile } from './stats.mjs';
import { addNote, note, number, table } from './report.mjs';
import { waitForCalm, watchOthers } from './machine.mjs';

// With --calm only the calmer half of the rounds counts: those during which other
// processes used less of the machine. With --patience=SECONDS each round waits up
// to so long for a calm moment.
export const settings = { calm: false, patience: 0 };

// sides: [{ label, run: async (round) => number | { part: number, … } }]
// Returns { label: { part: [value of round 0, …] } }; a bare number is part 'rate'.
export async function interleave(title, sides, rounds) {
  const series = Object.fromEntries(sides.map((s) => [s.label, {}]));
  const others = [];
  for (let round = 0; round < rounds; round++) {
    const order = round % 2 === 0 ? sides : [...sides].reverse();
    await waitForCalm(settings.patience);
    const shareOfOthers = await watchOthers();
    for (const side of order) {
      let values = await side.run(round);
      if (typeof values === 'number') values = { rate: values };
      for (const [part, value] of Object.entries(values)) {
        (series[side.label][part] ??= []).push(value);
      }
    }
    others.push(await shareOfOthers());
    note(
      `${title}: round ${round + 1}/${rounds}  ` +
        sides.map((s) => `${s.label} ${brief(series[s.label], round)}`).join(', ') +
        `  (others: ${Math.round(others[round] * 100)} % of the machine)`,
    );
  }
  if (settings.calm) keepCalm(series, others);
  return series;
}

function keepCalm(series, others) {
  const kept = others
    .map((share, round) => ({ share, round }))
    .sort((a, b) => a.share - b.share)
    .slice(0, Math.ceil(others.length / 2))
    .map((o) => o.round)
    .sort((a, b) => a - b);
  for (const parts of Object.values(series)) {
    for (const [part, values] of Object.entries(parts)) parts[part] = kept.map((round) => values[round]);
  }
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

// The same for two sides of interleave's result; with how many times the CPU time
// of mine the other one's sessions took for a task, as cpu.
export function compare(series, mine, other, part = 'rate', cpuPart = 'cpu') {
  const r = ratioOf(series[mine.label][part], series[other.label][part]);
  const cpu = [series[other.label][cpuPart], series[mine.label][cpuPart]];
  return { ...r, mine: r.a, other: r.b, cpu: cpu.every(Boolean) ? ratioOf(...cpu) : undefined };
}

const cpuLines = [];

// Keep the server's CPU time per task of a series for one table under the report:
// it varies less with the machine than a rate does.
export function addCpu(title, series) {
  for (const [label, parts] of Object.entries(series)) {
    if (parts.cpu) cpuLines.push([title, label, `${number(median(parts.cpu))} µs`]);
  }
}

export function reportCpu() {
  if (cpuLines.length > 0) {
    addNote('CPU time of the server per task (user + system, all sessions)', table(['scenario', 'queue', 'median'], cpuLines));
  }
}
