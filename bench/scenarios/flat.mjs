// What a queue holds must not matter: the same cycle with 100,000 and 1,000,000
// tasks waiting, with 100,000 claimed at the head, with 100,000 delayed and with
// 1,000,000 finished. Each state has a database of its own; the ratio is against
// the empty one of the same peer.
import { addRow, addNote, number, table } from '../lib/report.mjs';
import { checkpoint, connect, dropDatabase, freshDatabase, tidy } from '../lib/db.mjs';
import { compare, interleave } from '../lib/compare.mjs';
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
  for (const peer of peers) perPeer.push(await measure(peer, quick, peer === mine ? rounds(15, 5) : 3));
  for (const { state, buffers, ...r } of perPeer[0]) {
    addRow({ scenario: 'flat', measure: state.title, peer: 'itself, empty', unit: 'tasks/s', ...r, target: { min: 0.9 } });
  }
  addNote(
    'flat: pages that one claim touches',
    table(['queue', 'state', 'pages', 'when empty'], perPeer.flatMap((rows, i) => rows.map((r) => [peers[i].label, r.state.title, ...r.buffers]))),
  );
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
        const { rate, cpu } = await pgbench(s.database, {
          scripts: [[...peer.dispatch('q'), ...peer.claim('q'), ...peer.complete()]],
          clients: 4,
          seconds: 2,
        });
        return { rate, cpu };
      },
    })),
    rounds,
  );
  for (const s of all) {
    s.label = s.name;
    s.buffers = await claimBuffers(peer, s.database);
    await dropDatabase(s.database);
  }
  const [empty, ...full] = all;
  return full.map((state) => ({ state, buffers: [state.buffers, empty.buffers], ...compare(series, state, empty) }));
}

// How many pages one claim touches: unlike time, a machine that is busy otherwise
// does not change it.
async function claimBuffers(peer, database) {
  const client = await connect(database);
  try {
    const claim = peer.claim('q')[0].replace(/ \\aset$/, '');
    let touched;
    for (let i = 0; i < 5; i++) {
      const { rows } = await client.query(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${claim}`);
      const plan = rows[0]['QUERY PLAN'][0].Plan;
      touched = plan['Shared Hit Blocks'] + plan['Shared Read Blocks'];
    }
    return touched; // the first ones read catalogs, too
  } finally {
    await client.end();
  }
}
