// WAL bytes per task of the cycle, from a checkpoint on, and which records they are.
import { addNote, addRow, number, table } from '../lib/report.mjs';
import { checkpoint, freshDatabase, query, tidy } from '../lib/db.mjs';
import { interleave, ratioOf } from '../lib/compare.mjs';
import { pgbench } from '../lib/pgbench.mjs';
import { hand, handResults } from '../peers/handwritten.mjs';
import { graphile } from '../peers/graphile.mjs';

const CLIENTS = 4;

export async function wal({ quick, mine, rounds }) {
  const sides = [mine, hand, handResults, ...(quick ? [] : [graphile])];
  const perClient = quick ? 2500 : 5000;
  for (const peer of sides) {
    await freshDatabase(peer.database);
    await peer.install(peer.database);
    await peer.prefill(peer.database, 'q', 100);
  }
  await query('postgres', 'CREATE EXTENSION IF NOT EXISTS pg_walinspect');
  const records = {};
  const series = await interleave(
    'wal',
    sides.map((peer) => ({
      label: peer.label,
      run: async () => {
        const { bytes, byType } = await measure(peer, perClient);
        records[peer.label] = byType;
        return bytes;
      },
    })),
    rounds(3, 2),
  );
  for (const peer of sides.slice(1)) {
    const r = ratioOf(series[mine.label].rate, series[peer.label].rate);
    addRow({
      scenario: 'wal',
      measure: 'WAL per task of the cycle',
      peer: peer.label,
      unit: 'bytes',
      mine: r.a,
      other: r.b,
      ...r,
      target: peer === hand || peer === handResults ? { max: 1.2 } : undefined,
    });
  }
  for (const peer of sides) addNote(`wal: records per task, ${peer.label}`, records[peer.label]);
}

async function measure(peer, perClient) {
  await tidy(peer.database);
  const scripts = [[...peer.dispatch('q'), ...peer.claim('q'), ...peer.complete()]];
  await pgbench(peer.database, { scripts, clients: CLIENTS, transactions: 50 }); // warm the connections' catalogs
  await checkpoint();
  const [{ at: begin }] = await query('postgres', 'SELECT pg_current_wal_insert_lsn() AS at');
  const { transactions } = await pgbench(peer.database, { scripts, clients: CLIENTS, transactions: perClient });
  const [{ bytes, at: end }] = await query(
    'postgres',
    'SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1)::float8 AS bytes, pg_current_wal_insert_lsn() AS at',
    [begin],
  );
  return { bytes: bytes / transactions, byType: await breakDown(begin, end, transactions) };
}

async function breakDown(begin, end, transactions) {
  // pg_walinspect reads only what is flushed.
  await query('postgres', `SELECT pg_logical_emit_message(true, 'bench', '')`);
  const rows = await query(
    'postgres',
    `SELECT "resource_manager/record_type" AS type, count::float8 AS count, record_size::float8 AS size, fpi_size::float8 AS fpi
     FROM pg_get_wal_stats($1::pg_lsn, $2::pg_lsn, true)
     WHERE count > 0 ORDER BY record_size + fpi_size DESC`,
    [begin, end],
  );
  const lines = rows
    .filter((r) => (r.size + r.fpi) / transactions >= 0.5)
    .map((r) => [r.type, (r.count / transactions).toFixed(2), number(r.size / transactions), number(r.fpi / transactions)]);
  return table(['record', 'count', 'bytes', 'full-page bytes'], lines);
}
