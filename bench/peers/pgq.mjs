// PgQ from Debian: events in ticks, one batch per tick, no per-event claim.
import { query } from '../lib/db.mjs';

export const pgq = {
  label: 'PgQ',
  database: 'bench_pgq',

  // False where the package is not installed.
  async available() {
    const rows = await query('postgres', `SELECT FROM pg_available_extensions WHERE name = 'pgq'`);
    return rows.length > 0;
  },

  async install(database) {
    await query(database, 'CREATE EXTENSION pgq');
    await query(database, `SELECT pgq.create_queue('q'), pgq.register_consumer('q', 'worker')`);
    await query(database, `SELECT pgq.set_queue_config('q', 'ticker_max_count', '1'), pgq.set_queue_config('q', 'ticker_max_lag', '0')`);
  },

  dispatchMany(queue, count) {
    return [`SELECT pgq.insert_event('q', 'job', '{"n": 1}') FROM generate_series(1, ${count});`];
  },
};
