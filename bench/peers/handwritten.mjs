// The hand-written queue's statements (see handwritten.sql), in two variants:
// 'hand' deletes a task when it is done; 'hand+results' keeps its output until
// somebody acknowledges it, as durable does.
import { readFile } from 'node:fs/promises';
import { query } from '../lib/db.mjs';

const schema = await readFile(new URL('handwritten.sql', import.meta.url), 'utf8');

// What \aset reads: one row with the token, the ids and how many there are.
const asBatch = (claim) =>
  `WITH claimed AS (${claim}) SELECT token, array_agg(id) AS ids, count(input) AS n FROM claimed GROUP BY token`;

const onConflict = 'ON CONFLICT (namespace, task_id) WHERE task_id IS NOT NULL DO NOTHING RETURNING id, task_id;';

// Join by ctid: the row was locked by this very statement, and it saves a look-up.
export function claimStatement(queue, limit) {
  return (
    `UPDATE hand.task t SET state = 'c', token = c.new_token, lease_until = now() + interval '30 s', attempt = attempt + 1 ` +
    `FROM (SELECT ctid AS at, (SELECT gen_random_uuid()) AS new_token FROM hand.task ` +
    `WHERE namespace = 'default' AND queue = '${queue}' AND state = 'r' ` +
    `ORDER BY priority DESC, id LIMIT ${limit} FOR UPDATE SKIP LOCKED) c ` +
    `WHERE t.ctid = c.at RETURNING t.id, t.task_id, t.token, t.name, t.input, t.attempt, t.reclaims, t.headers, t.lease_until`
  );
}

class Handwritten {
  constructor(keepResults) {
    this.keepResults = keepResults;
    this.label = keepResults ? 'hand+results' : 'hand';
    this.database = keepResults ? 'bench_hand_results' : 'bench_hand';
  }

  async install(database) {
    await query(database, schema);
  }

  // taskId: an SQL expression for the caller's own id, or NULL.
  dispatch(queue, input = `'{"n": 1}'`, taskId = 'NULL') {
    const task = `VALUES ('${queue}', 'job', ${input}::jsonb, ${taskId}::text)`;
    const unread = this.keepResults
      ? `SELECT v.* FROM (${task}) v (queue, name, input, task_id) ` +
        `WHERE NOT EXISTS (SELECT FROM hand.result r WHERE r.namespace = 'default' AND r.task_id = v.task_id)`
      : task;
    return [`INSERT INTO hand.task (queue, name, input, task_id) ${unread} ${onConflict}`];
  }

  dispatchMany(queue, count) {
    return [
      `INSERT INTO hand.task (queue, name, input) ` +
        `SELECT '${queue}', 'job', i FROM unnest(array_fill('{"n": 1}'::jsonb, ARRAY[${count}])) i ${onConflict}`,
    ];
  }

  claim(queue) {
    return [claimStatement(queue, 1) + ' \\aset'];
  }

  complete() {
    if (!this.keepResults) return [`DELETE FROM hand.task WHERE id = :id AND token = :token;`];
    return [
      `WITH done AS (DELETE FROM hand.task WHERE id = :id AND token = :token RETURNING id, task_id, namespace, name, headers) ` +
        `INSERT INTO hand.result (id, task_id, namespace, name, headers, output) ` +
        `SELECT id, task_id, namespace, name, headers, '{"ok": true}'::jsonb FROM done;`,
    ];
  }

  // One task per call, in a worker that has nothing to do but the next one.
  workerLoop(queue) {
    return [...this.claim(queue), ...this.complete()];
  }

  workBatch(queue, count) {
    const claim = asBatch(claimStatement(queue, count)) + ' \\aset';
    if (!this.keepResults) return [claim, `DELETE FROM hand.task WHERE id = ANY (:ids::bigint[]) AND token = :token;`];
    return [
      claim,
      `WITH done AS (DELETE FROM hand.task WHERE id = ANY (:ids::bigint[]) AND token = :token RETURNING id, task_id, namespace, name, headers) ` +
        `INSERT INTO hand.result (id, task_id, namespace, name, headers, output) ` +
        `SELECT id, task_id, namespace, name, headers, o.output FROM done ` +
        `JOIN unnest(:ids::bigint[], array_fill('{"ok": true}'::jsonb, ARRAY[:n::int])) o (id, output) USING (id);`,
    ];
  }

  async prefill(database, queue, count) {
    await query(
      database,
      `INSERT INTO hand.task (queue, name, input) SELECT $1, 'job', jsonb_build_object('n', g) FROM generate_series(1, $2) g`,
      [queue, count],
    );
  }

  async prefillDelayed(database, queue, count) {
    await query(
      database,
      `INSERT INTO hand.task (queue, name, input, state, run_at) ` +
        `SELECT $1, 'job', jsonb_build_object('n', g), 'd', now() + interval '1 day' FROM generate_series(1, $2) g`,
      [queue, count],
    );
  }

  // Claim count tasks for a day.
  async claimAway(database, queue, count) {
    await query(database, claimStatement(queue, count).replace(`'30 s'`, `'1 day'`));
  }

  // Prefill and finish count tasks.
  async prefillFinished(database, queue, count) {
    if (!this.keepResults) return;
    await query(
      database,
      `INSERT INTO hand.result (id, namespace, name, output) ` +
        `SELECT g, 'default', 'job', '{"ok": true}' FROM generate_series(1, $1) g`,
      [count],
    );
  }

  async depth(database) {
    const [{ n }] = await query(database, `SELECT count(*) AS n FROM hand.task WHERE state = 'r'`);
    return n;
  }
}

export const hand = new Handwritten(false);
export const handResults = new Handwritten(true);

// With the faster compression for its payloads, which is not PostgreSQL's default.
export const handLz4 = Object.assign(new Handwritten(false), {
  label: 'hand+lz4',
  database: 'bench_hand_lz4',
  async install(database) {
    await query(database, schema);
    await query(database, 'ALTER TABLE hand.task ALTER COLUMN input SET COMPRESSION lz4');
  },
});
