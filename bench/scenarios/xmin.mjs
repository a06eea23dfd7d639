// One transaction holds a snapshot for a minute while four clients cycle at depth
// 10,000: how much of the first ten seconds' rate is left in the last ten?
import { addNote, addRow, note, number, table } from '../lib/report.mjs';
import { checkpoint, connect, freshDatabase, tidy } from '../lib/db.mjs';
import { pgbench } from '../lib/pgbench.mjs';
import { mean, median } from '../lib/stats.mjs';
import { hand } from '../peers/handwritten.mjs';
import { graphile } from '../peers/graphile.mjs';

const DEPTH = 10_000;
const SECONDS = 60;

export async function xmin({ quick, mine, rounds }) {
  const peers = quick ? [mine, hand] : [mine, hand, graphile];
  const kept = Object.fromEntries(peers.map((p) => [p.label, []]));
  const lines = [];
  for (let round = 0; round < rounds(2, 1); round++) {
    for (const peer of peers) {
      const { first, last, progress } = await hold(peer);
      kept[peer.label].push(last / first);
      const tens = [0, 10, 20, 30, 40, 50].map((at) => number(mean(progress.slice(at, at + 10))));
      lines.push([peer.label, ...tens, number(last / first)]);
      note(`xmin: ${peer.label}: ${tens.join(' ')}`);
    }
  }
  for (const peer of peers.slice(1)) {
    const a = median(kept[mine.label]);
    const b = median(kept[peer.label]);
    addRow({
      scenario: 'xmin',
      measure: 'last 10 s of 60 s under a held snapshot, against the first 10',
      peer: `${peer.label} (for information)`,
      unit: 'of the rate',
      mine: a,
      other: b,
      ratio: a / b,
    });
  }
  const own = kept[mine.label];
  addRow({
    scenario: 'xmin',
    measure: 'last 10 s of 60 s under a held snapshot, against the first 10',
    peer: 'itself, first 10 s',
    unit: 'of the rate',
    mine: median(own),
    other: 1,
    ratio: median(own),
    low: Math.min(...own),
    high: Math.max(...own),
    target: { min: 0.8 },
  });
  addNote('xmin: tasks/s in each ten seconds', table(['queue', '0–10', '10–20', '20–30', '30–40', '40–50', '50–60', 'last/first'], lines));
}

async function hold(peer) {
  const database = `${peer.database}_xmin`;
  await freshDatabase(database);
  await peer.install(database);
  await peer.prefill(database, 'q', DEPTH);
  await tidy(database);
  await checkpoint();
  const scripts = [[...peer.dispatch('q'), ...peer.claim('q'), ...peer.complete()]];
  await pgbench(database, { scripts, clients: 4, seconds: 3 }); // warm
  const holder = await connect(database);
  try {
    await holder.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await holder.query('SELECT count(*) FROM pg_catalog.pg_class');
    const { progress } = await pgbench(database, { scripts, clients: 4, seconds: SECONDS, progress: true });
    await holder.query('ROLLBACK');
    return { progress, first: mean(progress.slice(0, 10)), last: mean(progress.slice(SECONDS - 10, SECONDS)) };
  } finally {
    await holder.end();
  }
}
