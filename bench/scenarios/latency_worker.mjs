// The waiting end of latency.mjs: reports the time at which each task was in
// hand. Arguments: which queue, which database.
import { connect } from '../lib/db.mjs';

const [, , label, database] = process.argv;

function inHand(n) {
  process.send({ n, at: String(process.hrtime.bigint()) });
}

// One round trip: the procedure waits, holding no snapshot, and claims.
async function oneCall() {
  const client = await connect(database);
  const send = (text, values) => client.query({ name: text, text, values });
  process.send({ ready: true });
  for (;;) {
    const { rows } = await send(`CALL durable.wait_and_claim(ARRAY['q'])`);
    for (const task of rows[0].tasks ?? []) {
      inHand(task.input.n);
      await send('SELECT durable.complete($1, $2)', [task.task_id, task.token]);
    }
  }
}

// The two steps as statements, each a transaction of its own; in pipeline mode
// they are sent together.
async function twoSteps(pipeline) {
  const client = await connect(database, { pipeline });
  const send = (text, values) => client.query({ name: text, text, values });
  process.send({ ready: true });
  for (;;) {
    const waited = send(`CALL durable.wait_for_work(ARRAY['q'], '30 s')`);
    if (!pipeline) await waited;
    const [{ rows }] = await Promise.all([send(`SELECT * FROM durable.claim(ARRAY['q'], 1)`), waited]);
    if (rows.length === 0) continue;
    inHand(rows[0].input.n);
    await send('SELECT durable.complete($1, $2)', [rows[0].task_id, rows[0].token]);
  }
}

const workers = {
  durable: oneCall,
  'durable, wait_for_work + claim': () => twoSteps(false),
  'durable, the same pipelined': () => twoSteps(true),

  'graphile-worker': async () => {
    const { graphile } = await import('../peers/graphile.mjs');
    await graphile.work(database, (payload) => inHand(payload.n), { concurrentJobs: 1, pollInterval: 2000 });
    // Its LISTEN is on its way; one poll interval is certainly enough.
    setTimeout(() => process.send({ ready: true }), 2000);
  },

  'pg-boss': async () => {
    const { pgboss } = await import('../peers/pgboss.mjs');
    const boss = await pgboss.start(database, { useListenNotify: true }, { notify: true });
    await boss.work('job', async ([job]) => inHand(job.data.n));
    setTimeout(() => process.send({ ready: true }), 2000);
  },
};

await workers[label]();
