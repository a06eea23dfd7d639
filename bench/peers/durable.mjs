// durable's statements: the functions a client would call.
import { query, connect } from '../lib/db.mjs';

const output = `'{"ok": true}'::jsonb`;

export const durable = {
  label: 'durable',
  database: 'bench_durable',

  async install(database) {
    await query(database, 'CREATE EXTENSION durable');
  },

  // taskId: an SQL expression for the caller's own id, or NULL.
  dispatch(queue, input = `'{"n": 1}'`, taskId = 'NULL') {
    const id = taskId === 'NULL' ? '' : `${taskId}::text, `;
    return [`SELECT durable.dispatch('job', ${input}::jsonb, ${id}queue => '${queue}');`];
  },

  dispatchMany(queue, count) {
    return [`SELECT durable.dispatch_many('job', array_fill('{"n": 1}'::jsonb, ARRAY[${count}]), queue => '${queue}');`];
  },

  claim(queue) {
    return [
      `SELECT task_id, token, name, input, attempt, reclaims, headers, lease_until FROM durable.claim(ARRAY['${queue}'], 1) \\aset`,
    ];
  },

  complete() {
    return [`SELECT durable.complete(:task_id, :token, ${output});`];
  },

  // The first call of a client has nothing to settle yet; run with -D settle=0.
  workerLoop(queue) {
    return [
      '\\if :settle',
      `SELECT task_id, token, name, input, attempt, reclaims, headers, lease_until ` +
        `FROM durable.settle_and_claim(:task_id, :token, ${output}, ARRAY['${queue}'], 1) \\aset`,
      '\\else',
      ...this.claim(queue),
      '\\set settle 1',
      '\\endif',
    ];
  },

  workBatch(queue, count) {
    return [
      `SELECT token, array_agg(task_id) AS ids, count(input) AS n FROM durable.claim(ARRAY['${queue}'], ${count}) GROUP BY token \\aset`,
      `SELECT count(*) FROM durable.complete_many(:token, :ids, array_fill(${output}, ARRAY[:n::int]));`,
    ];
  },

  async prefill(database, queue, count) {
    await inThousands(database, count, (n) => ({
      text: `SELECT count(*) FROM durable.dispatch_many('job', ARRAY(SELECT jsonb_build_object('n', g) FROM generate_series(1, $1) g), queue => $2)`,
      values: [n, queue],
    }));
  },

  async prefillDelayed(database, queue, count) {
    await inThousands(database, count, (n) => ({
      text: `SELECT count(durable.dispatch('job', jsonb_build_object('n', g), queue => $2, run_at => now() + interval '1 day')) FROM generate_series(1, $1) g`,
      values: [n, queue],
    }));
  },

  async claimAway(database, queue, count) {
    await inThousands(database, count, (n) => ({
      text: `SELECT count(*) FROM durable.claim(ARRAY[$2], $1, '1 day')`,
      values: [n, queue],
    }));
  },

  async prefillFinished(database, queue, count) {
    await this.prefill(database, queue, count);
    await inThousands(database, count, (n) => ({
      text:
        `WITH c AS (SELECT token, array_agg(task_id) AS ids FROM durable.claim(ARRAY[$2], $1) GROUP BY token) ` +
        `SELECT count(*) FROM c, durable.complete_many(c.token, c.ids, array_fill(${output}, ARRAY[cardinality(c.ids)]))`,
      values: [n, queue],
    }));
  },

  async depth(database, queue) {
    const [{ ready }] = await query(database, 'SELECT ready FROM durable.queue_depth($1)', [queue]);
    return ready;
  },
};

// Run statement(n) until count rows are through, a thousand a transaction.
async function inThousands(database, count, statement) {
  const client = await connect(database);
  try {
    for (let left = count; left > 0; left -= 1000) {
      await client.query({ name: 'prefill', ...statement(Math.min(left, 1000)) });
    }
  } finally {
    await client.end();
  }
}
