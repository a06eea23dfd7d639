// Dispatch, claim one, complete one: three transactions per task, at 1, 4 and 16
// clients. And a worker loop on a full queue: settle_and_claim, one commit per
// task, against claim and delete, two.
import { addRow } from '../lib/report.mjs';
import { freshDatabase, tidy } from '../lib/db.mjs';
import { addCpu, compare, interleave } from '../lib/compare.mjs';
import { pgbench } from '../lib/pgbench.mjs';
import { hand, handResults } from '../peers/handwritten.mjs';
import { graphile } from '../peers/graphile.mjs';

const SECONDS = 2; // short slices, many rounds: neighbours see the same machine
const DEPTH = 100; // so that no client ever finds the queue empty

export async function cycle({ quick, mine, rounds }) {
  const sides = [mine, hand, handResults, ...(quick ? [] : [graphile])];
  for (const peer of sides) {
    await freshDatabase(peer.database);
    await peer.install(peer.database);
    await peer.prefill(peer.database, 'q', DEPTH);
  }
  for (const { clients, ownIds } of [{ clients: 1 }, { clients: 4 }, { clients: 16 }, { clients: 4, ownIds: true }]) {
    const taking = ownIds ? [mine, hand] : sides.filter((peer) => peer !== graphile || clients === 4);
    const measure = `dispatch, claim 1, complete 1; ${clients} clients${ownIds ? ", with the callers' own ids" : ''}`;
    const series = await interleave(
      `cycle, ${clients} clients${ownIds ? ', own ids' : ''}`,
      taking.map((peer) => ({ label: peer.label, run: () => slice(peer, clients, SECONDS, ownIds) })),
      rounds(15, 5),
    );
    for (const peer of taking.slice(1)) {
      addRow({
        scenario: 'cycle',
        measure,
        peer: peer.label,
        unit: 'tasks/s',
        ...compare(series, mine, peer),
        target: peer === hand && !ownIds ? { min: 1.2 } : undefined,
      });
    }
    addCpu(`cycle, ${clients} clients${ownIds ? ', own ids' : ''}`, series);
  }
}

async function slice(peer, clients, seconds, ownIds) {
  await tidy(peer.database);
  const dispatch = ownIds
    ? ['\\set k random(1, 9223372036854775807)', ...peer.dispatch('q', undefined, `'order-' || :k::bigint`)]
    : peer.dispatch('q');
  const { rate, cpu } = await pgbench(peer.database, {
    scripts: [[...dispatch, ...peer.claim('q'), ...peer.complete()]],
    clients,
    seconds,
  });
  return { rate, cpu };
}

export async function settle({ quick, mine, rounds }) {
  const perClient = quick ? 3000 : 6000;
  const sides = [mine, hand, handResults];
  for (const peer of sides) {
    await freshDatabase(peer.database);
    await peer.install(peer.database);
    await peer.prefill(peer.database, 'q', DEPTH);
  }
  for (const clients of [1, 4]) {
    const series = await interleave(
      `settle, ${clients} clients`,
      sides.map((peer) => ({
        label: peer.label,
        run: async () => {
          await peer.prefill(peer.database, 'q', perClient * clients);
          await tidy(peer.database);
          const { rate, cpu } = await pgbench(peer.database, {
            scripts: [peer.workerLoop('q')],
            clients,
            transactions: perClient,
            variables: { settle: 0 },
          });
          return { rate, cpu };
        },
      })),
      rounds(9, 5),
    );
    for (const peer of sides.slice(1)) {
      addRow({
        scenario: 'settle',
        measure: `worker loop, settle_and_claim against claim + delete; ${clients} clients`,
        peer: peer.label,
        unit: 'tasks/s',
        ...compare(series, mine, peer),
        target: peer === hand ? { min: 1.4 } : undefined,
      });
    }
    addCpu(`settle, ${clients} clients`, series);
  }
}
