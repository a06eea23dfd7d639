// The cycle with real webhook payloads, 10 kB on average, sent over the wire as
// their JSON text and fetched back with the claim.
import { createRequire } from 'node:module';
import { addRow, note } from '../lib/report.mjs';
import { freshDatabase, tidy } from '../lib/db.mjs';
import { addCpu, compare, interleave } from '../lib/compare.mjs';
import { pgbench } from '../lib/pgbench.mjs';
import { hand, handLz4, handResults } from '../peers/handwritten.mjs';

const SCRIPTS = 64; // pgbench takes up to 128

// Every fifth or so, so that all kinds of event are among them.
function payloads() {
  const events = createRequire(import.meta.url)('@octokit/webhooks-examples');
  const all = events.flatMap((e) => e.examples).map((e) => JSON.stringify(e));
  return Array.from({ length: SCRIPTS }, (_, i) => all[Math.floor((i * all.length) / SCRIPTS)]);
}

export async function payload({ quick, mine, rounds }) {
  const texts = payloads();
  const average = texts.reduce((n, t) => n + Buffer.byteLength(t), 0) / texts.length;
  note(`payload: ${texts.length} payloads, ${Math.round(average)} bytes on average`);
  const variables = Object.fromEntries(texts.map((t, i) => [`p${i}`, t]));
  const sides = [mine, hand, handLz4, ...(quick ? [] : [handResults])];
  for (const peer of sides) {
    await freshDatabase(peer.database);
    await peer.install(peer.database);
    await peer.prefill(peer.database, 'q', 100);
  }
  const series = await interleave(
    'payload',
    sides.map((peer) => ({
      label: peer.label,
      run: async () => {
        await tidy(peer.database);
        const scripts = texts.map((_, i) => [...peer.dispatch('q', `:p${i}`), ...peer.claim('q'), ...peer.complete()]);
        const { rate, cpu } = await pgbench(peer.database, { scripts, clients: 4, seconds: 3, variables });
        return { rate, cpu };
      },
    })),
    rounds(11, 5),
  );
  addCpu('payload', series);
  for (const peer of sides.slice(1)) {
    addRow({
      scenario: 'payload',
      measure: `the cycle with payloads of ${Math.round(average / 1024)} kB; 4 clients`,
      peer: peer.label,
      unit: 'tasks/s',
      ...compare(series, mine, peer),
      target: peer === hand ? { min: 1.2 } : undefined,
    });
  }
}
