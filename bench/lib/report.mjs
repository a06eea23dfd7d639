// The table. One row per comparison: what durable did, what the other side did,
// the ratio, and what was asked for.

const rows = [];
const notes = [];

// Progress, on stderr.
export function note(text) {
  if (!process.env.QUIET) process.stderr.write(`${new Date().toTimeString().slice(0, 8)} ${text}\n`);
}

// row:
//   scenario, measure, peer   words
//   mine, other               medians, for the eye only
//   unit                      'per s', 'ms', 'bytes', …
//   ratio, low, high          median and quartiles of the ratio mine / other
//   cpu                       as compare() gives it, if measured
//   target                    { min } or { max } of the ratio, or absent: for information
export function addRow(row) {
  rows.push(row);
}

// A paragraph or a table under the main one.
export function addNote(title, text) {
  notes.push({ title, text });
}

export function number(x) {
  if (x === undefined || !Number.isFinite(x)) return '–';
  if (Math.abs(x) >= 100) return Math.round(x).toLocaleString('en');
  return x.toFixed(Math.abs(x) >= 10 ? 1 : 2);
}

export function verdict({ target, ratio }) {
  if (!target) return '';
  if (!Number.isFinite(ratio)) return 'not measured';
  const met = (target.min === undefined || ratio >= target.min) && (target.max === undefined || ratio <= target.max);
  return met ? 'met' : 'not met';
}

function wanted(target) {
  if (!target) return '';
  const parts = [];
  if (target.min !== undefined) parts.push(`≥ ${target.min}`);
  if (target.max !== undefined) parts.push(`≤ ${target.max}`);
  return parts.join(', ');
}

function spread(r) {
  const quartiles = r.low === undefined ? '' : ` (${number(r.low)} – ${number(r.high)})`;
  return `**${number(r.ratio)}**${quartiles}`;
}

export function table(header, lines) {
  const all = [header, header.map(() => '---'), ...lines];
  return all.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

export function render() {
  const lines = rows.map((r) => [
    r.scenario,
    r.measure,
    `${number(r.mine)} ${r.unit}`,
    r.peer,
    `${number(r.other)} ${r.unit}`,
    spread(r),
    r.cpu ? `${number(r.cpu.ratio)} (${number(r.cpu.low)} – ${number(r.cpu.high)})` : '',
    wanted(r.target),
    verdict(r),
  ]);
  let text = table(['scenario', 'measure', 'durable', 'against', 'its value', 'ratio (quartiles)', 'CPU ratio', 'target', ''], lines);
  for (const n of notes) text += `\n\n### ${n.title}\n\n${n.text}`;
  return text + '\n';
}

export function asJson() {
  return JSON.stringify({ rows: rows.map((r) => ({ ...r, verdict: verdict(r) })), notes }, null, 1);
}
