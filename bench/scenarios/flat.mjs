// What a queue holds must not matter: the same cycle with 100,000 and 1,000,000
// tasks waiting, with 100,000 claimed at the head, with 100,000 delayed and with
// 1,000,000 finished. Each state has a database of its own; the ratio is against
// the empty one of the same peer.
import { addRow, addNote, number, table } from '../lib/report.mjs';
import { checkpoint, dropDatabase, freshDatabase, tidy } from '../lib/db.mjs';
import { interleave, ratioOf } from '../lib/compare.mjs';
import { note } from '../lib/report.mjs';
import { pgbench } from '../lib/pgbench.mjs';
import { hand } from '../peers/handwritten.mjs';

function states(scale) {
  const large = 100_000 / scale;
  const huge = 1_000_000 / scale;
  const words = (n) => n.toLocaleString('en');
  return [
    { name: 'empty', title: 'empty', fill: async () => {} },
    { name: 'large', title: `${words(large)} waiting`, fill: (p, db) => p.prefill(db, 'q', large) },
    { name: 'huge', title: `${words(huge)} waiting`, fill: (p, db) => p.prefill(db, 'q', huge) },
    {
      name: 'inflight',
      title: `${words(large)} claimed, in flight, at the head`,
      fill: async (p, db) => {
        await p.prefill(db, 'q', large);
        await p.claimAway(db, 'q', large);
      },
    },
    { name: 'delayed', title: `${words(large)} delayed`, fill: (p, db) => p.prefillDelayed(db, 'q', large) },
    { name: 'finished', title: `${words(huge)} finished`, fill: (p, db) => p.prefillFinished(db, 'q', huge) },
  ];
}

export async function flat({ quick, mine, rounds }) {
  const peers = quick ? [mine] : [mine, hand];
  const perPeer = [];
  for (const peer of peers) perPeer.push(await measure(peer, quick, peer === mine ? rounds(15, 5) : rounds(3, 3)));
  for (const { state, ...r } of perPeer[0]) {
    addRow({ scenario: 'flat', measure: state.title, peer: 'itself, empty', unit: 'tasks/s', mine: r.a, other: r.b, ...r, target: { min: 0.9 } });
  }
  if (perPeer[1]) {
    const lines = perPeer[1].map(({ state, ...r }) => [state.title, `${number(r.a)} tasks/s`, `${number(r.b)} tasks/s`, number(r.ratio)]);
    addNote('flat: the hand-written queue against itself', table(['state', 'rate', 'rate when empty', 'ratio'], lines));
  }
}

async function measure(peer, quick, rounds) {
  const all = states(quick ? 10 : 1).map((s) => ({ ...s, database: `${peer.database}_${s.name}` }));
  for (const s of all) {
    note(`flat: ${peer.label}: filling '${s.title}'`);
    await freshDatabase(s.database);
    await peer.install(s.database);
    await s.fill(peer, s.database);
    await peer.prefill(s.database, 'q', 100);
    await tidy(s.database);
  }
  await checkpoint();
  const series = await interleave(
    `flat, ${peer.label}`,
    all.map((s) => ({
      label: s.name,
      run: async () => {
        const { rate } = await pgbench(s.database, {
          scripts: [[...peer.dispatch('q'), ...peer.claim('q'), ...peer.complete()]],
          clients: 4,
          seconds: 2,
        });
        return rate;
      },
    })),
    rounds,
  );
  for (const s of all) await dropDatabase(s.database);
  return all.slice(1).map((state) => ({ state, ...ratioOf(series[state.name].rate, series.empty.rate) }));
}
