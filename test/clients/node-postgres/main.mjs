// The queue from node-postgres: a pool, typed values, named (prepared) statements.

import pg from 'pg';
import { isDeepStrictEqual, inspect } from 'node:util';

let n = 0;
let failed = 0;
function is(got, wanted, what) {
  n += 1;
  if (isDeepStrictEqual(got, wanted)) {
    console.log(`ok ${n} - ${what}`);
  } else {
    failed += 1;
    console.log(`not ok ${n} - ${what}\n#      got: ${inspect(got)}\n#   wanted: ${inspect(wanted)}`);
  }
}

const admin = new pg.Client();
await admin.connect();
await admin.query('CREATE ROLE node_worker LOGIN');
await admin.query('CREATE ROLE node_stranger LOGIN');
await admin.query("SELECT durable.grant_usage('node_worker')");
await admin.query('CREATE TABLE effect (task_id text, n int)');
await admin.query('GRANT ALL ON effect TO node_worker');

const pool = new pg.Pool({ user: 'node_worker', max: 8 });
const row = async (text, values, client = pool) => (await client.query(text, values)).rows[0];
const value = async (text, values, client = pool) => Object.values(await row(text, values, client))[0];

// A transaction on one client of the pool; rolled back when the body throws.
async function transaction(body) {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const result = await body(client);
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
}

// Dispatch, rolled back and committed.
const undone = new Error('undone');
await transaction(async (client) => {
  await value("SELECT durable.dispatch('mail', $1, task_id => $2)", [{ to: 'nobody' }, 'never'], client);
  throw undone;
}).catch((error) => is(error, undone, 'a transaction is rolled back'));
is(await value("SELECT status FROM durable.task_status($1)", ['never']), null, 'and its dispatch with it');

const input = { to: 'ada', list: [1, 2.5, null, 'ü'], nested: { deep: true }, big: '12345678901234567890' };
const headers = { trace: 'abc' };
const later = new Date('2100-01-01T00:00:00Z');
is(
  await value(
    `SELECT durable.dispatch('mail', $1, task_id => $2, queue => $3, priority => $4, max_attempts => $5,
       backoff => $6, headers => $7)`,
    [input, 'mail:1', 'post', 7, 3, '1 minute', headers],
  ),
  'mail:1',
  'dispatch with typed arguments',
);
const delayed = await value("SELECT durable.dispatch('mail', queue => 'post', run_at => $1)", [later]);
const status = await row('SELECT status, run_at FROM durable.task_status($1)', [delayed]);
is(status, { status: 'delayed', run_at: later }, 'a timestamptz goes in and comes out as a Date');
is(
  await row("SELECT * FROM durable.queue_depth('post')").then((d) => [d.ready, d.claimed, d.delayed, d.parked]),
  ['1', '0', '1', '0'],
  'queue_depth counts in bigint',
);

// Arrays.
const inputs = [{ n: 1 }, [2], 'three', null];
const ids = (
  await pool.query("SELECT id FROM durable.dispatch_many('array', $1::jsonb[], task_ids => $2) AS id", [
    inputs.map((x) => JSON.stringify(x)),
    ['a', 'b', 'c', 'd'],
  ])
).rows.map((r) => r.id);
is(ids, ['a', 'b', 'c', 'd'], 'dispatch_many with jsonb[] and text[]');

// Wait and claim.
is((await row("CALL durable.wait_for_work($1, $2)", [['post'], '1 minute'])).ready, true, 'CALL wait_for_work returns a row');
const claim = { name: 'claim', text: 'SELECT * FROM durable.claim($1, $2, $3, $4)' };
const [task] = (await pool.query({ ...claim, values: [['nothing', 'post'], 1, '10 minutes', 'node'] })).rows;
is(
  [task.task_id, task.kind, task.name, task.queue, task.namespace, task.attempt, task.reclaims, task.priority, task.run_id, task.seq],
  ['mail:1', 'task', 'mail', 'post', 'default', 1, 0, 7, null, null],
  'claim returns the task',
);
is([task.input, task.headers], [input, headers], 'jsonb arrives as objects');
is(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(task.token), true, 'the token is a uuid');
is(task.lease_until > new Date(Date.now() + 500_000), true, 'lease_until is a Date');

// Settle with a write of one's own: rolled back, committed.
const complete = { name: 'complete', text: 'SELECT durable.complete($1, $2, $3) AS done' };
await transaction(async (client) => {
  await client.query('INSERT INTO effect VALUES ($1, 1)', [task.task_id]);
  const { done } = (await client.query({ ...complete, values: [task.task_id, task.token, { sent: true }] })).rows[0];
  is(done, true, 'complete');
  throw undone;
}).catch(() => {});
is(await value('SELECT status FROM durable.task_status($1)', ['mail:1']), 'claimed', 'rolled back, the task is still claimed');
is(await value('SELECT count(*) FROM effect'), '0', 'and the own write is undone');
is(await value('SELECT durable.renew($1)', [task.token]), 1, 'the token still holds');
is(await value('SELECT durable.heartbeat($1, $2, $3)', [task.task_id, task.token, { percent: 50 }]), true, 'heartbeat');
await transaction(async (client) => {
  await client.query('INSERT INTO effect VALUES ($1, 1)', [task.task_id]);
  await client.query({ ...complete, values: [task.task_id, task.token, { sent: [true, input] }] });
});
is(
  await row('SELECT status, output FROM durable.task_status($1)', ['mail:1']),
  { status: 'completed', output: { sent: [true, input] } },
  'committed, the task is completed with its output',
);
is(await value('SELECT count(*) FROM effect'), '1', 'and the own write is there');
is((await pool.query({ ...complete, values: [task.task_id, task.token, null] })).rows[0].done, false, 'once');

// Many at once, and results.
const many = (await pool.query({ ...claim, values: [['array'], 10, '10 minutes', null] })).rows;
is(many.map((t) => t.input), inputs, 'claimed in order, a JSON null is null');
is(
  (
    await pool.query('SELECT id FROM durable.complete_many($1, $2, $3::jsonb[]) AS id', [
      many[0].token,
      many.map((t) => t.task_id),
      many.map((t, i) => JSON.stringify({ i })),
    ])
  ).rows.map((r) => r.id).sort(),
  ['a', 'b', 'c', 'd'],
  'complete_many',
);
const results = (await pool.query('SELECT * FROM durable.claim_results($1)', [['array', 'mail']])).rows;
is(
  results.map((r) => [r.task_id, r.status, r.output]).sort(),
  [['a', 'completed', { i: 0 }], ['b', 'completed', { i: 1 }], ['c', 'completed', { i: 2 }], ['d', 'completed', { i: 3 }],
    ['mail:1', 'completed', { sent: [true, input] }]],
  'claim_results',
);
is(results[0].finished_at instanceof Date, true, 'finished_at is a Date');
is(await value('SELECT durable.ack_results($1, $2)', [results[0].token, ['a', 'b']]), 2, 'ack_results of some');
is(await value('SELECT durable.ack_results($1)', [results[0].token]), 3, 'ack_results of the rest');

// Errors carry their code.
await pool.query("SELECT * FROM durable.claim($1, $2)", [[], 1]).catch((e) => is(e.code, '22023', 'an empty queue list is refused'));
await pool.query("SELECT durable.complete('x', $1)", ['no uuid']).catch((e) => is(e.code, '22P02', 'a token that is no uuid'));
const stranger = new pg.Client({ user: 'node_stranger' });
await stranger.connect();
await stranger.query("SELECT durable.dispatch('x')").catch((e) => is(e.code, '42501', 'a role without rights is refused'));
await stranger.end();

// A waiter is woken by a commit; one whose statement is cancelled leaves no trace.
const waiter = await pool.connect();
const { pid } = (await waiter.query('SELECT pg_backend_pid() AS pid')).rows[0];
const asleep = async () => {
  while ((await value("SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event IN ('Extension', 'DurableWaitForWork')", [pid], admin)) !== '1') {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};
let call = waiter.query("CALL durable.wait_for_work('{bell}', '10 minutes')");
await asleep();
await value("SELECT durable.dispatch('bell')");
is((await call).rows[0].ready, true, 'a waiter is woken by a dispatch');
call = waiter.query("CALL durable.wait_for_work('{silence}', '10 minutes')").catch((e) => e.code);
await asleep();
await admin.query('SELECT pg_cancel_backend($1)', [pid]);
is(await call, '57014', 'a wait can be cancelled');
is((await waiter.query('SELECT 1 AS one')).rows[0].one, 1, 'and its connection goes on');
waiter.release();

// Six workers that wait, claim with prepared statements and settle; producers dispatch
// meanwhile, at times in transactions that are rolled back.
const TASKS = 300;
let settled = 0;
async function worker(name) {
  for (;;) {
    const [got] = (await pool.query({ ...claim, values: [['load'], 1, '5 minutes', name] })).rows;
    if (!got) {
      if (settled >= TASKS) return;
      await pool.query({ name: 'wait', text: 'CALL durable.wait_for_work($1, $2)', values: [['load'], '50 ms'] });
      continue;
    }
    if (got.input.n % 10 === 0 && got.attempt === 1) {
      await pool.query({ name: 'fail', text: 'SELECT durable.fail($1, $2, $3)', values: [got.task_id, got.token, { message: 'first time' }] });
      continue;
    }
    await transaction(async (client) => {
      await client.query('INSERT INTO effect VALUES ($1, $2)', [got.task_id, got.input.n]);
      const { done } = (await client.query({ ...complete, values: [got.task_id, got.token, { by: name }] })).rows[0];
      if (!done) throw new Error('lost');
    });
    settled += 1;
  }
}
async function producer() {
  for (let i = 1; i <= TASKS; i += 1) {
    const dispatch = (client) =>
      client.query({ name: 'dispatch', text: "SELECT durable.dispatch('load', $1, max_attempts => 2)", values: [{ n: i }] });
    if (i % 7 === 0) {
      await transaction(async (client) => {
        await dispatch(client);
        throw undone;
      }).catch(() => {});
    }
    await transaction(dispatch);
  }
}
await Promise.all([producer(), ...[1, 2, 3, 4, 5, 6].map((i) => worker(`w${i}`))]);
is(
  await row('SELECT count(*), count(DISTINCT task_id) AS ids, sum(n) FROM effect WHERE n > 0 AND task_id LIKE $1', ['~%']),
  { count: String(TASKS), ids: String(TASKS), sum: String((TASKS * (TASKS + 1)) / 2) },
  'six workers: every task has its effect once',
);
is(
  await row("SELECT count(*) FILTER (WHERE status = 'completed') AS completed, count(*) FILTER (WHERE attempt = 2) AS retried FROM durable.task_result WHERE name = 'load'"),
  { completed: String(TASKS), retried: String(TASKS / 10) },
  'and its result, after a retry where it failed',
);
is(await value("SELECT rescued FROM durable.scan_hints()", [], admin), '0', 'no row was found behind a hint');

await pool.end();
await admin.end();
console.log(`1..${n}`);
process.exit(failed ? 1 : 0);
