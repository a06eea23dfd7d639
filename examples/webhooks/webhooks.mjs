// The Node worker of the webhooks: the step "webhook-notify". SIGTERM ends it.
//
// It stands beside durable-worker.mjs, where npm has put pg.

import pg from 'pg';
import { Worker } from './durable-worker.mjs';

const workMs = Number(process.env.WORK_MS ?? 2);
const pool = new pg.Pool({ max: 4, application_name: `${process.env.PGAPPNAME ?? 'node'} handler` });
// a connection that waits in the pool when the server goes: the next one is made anew
pool.on('error', () => {});

// Executed at least once. The key makes it one effect, also when the claim was lost after
// the insert and somebody else comes here again.
async function notify(letter, task) {
  await new Promise((resolve) => { setTimeout(resolve, workMs); });
  await pool.query(
    `INSERT INTO hook.handled (delivery, handler, language, digest, takeovers)
     SELECT l ->> 'delivery', 'notify', 'node', md5((l -> 'payload')::text), $2::int FROM (SELECT $1::jsonb) x (l)
     ON CONFLICT (delivery, handler) DO UPDATE SET executed = handled.executed + 1, takeovers = excluded.takeovers`,
    [JSON.stringify(letter), task.reclaims]);
  return { notified: letter.event, attempt: task.attempt };
}

const worker = new Worker({
  handlers: { 'webhook-notify': notify },
  name: process.env.PGAPPNAME,
  concurrency: 8,
  leaseMs: Number(process.env.LEASE_MS ?? 3000),
  pollMs: 500,
});
worker.start();
process.on('SIGTERM', () => worker.stop({ graceMs: 1000 }).then(() => process.exit(0)));
