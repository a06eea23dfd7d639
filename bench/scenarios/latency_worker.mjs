// The waiting end of latency.mjs: reports the time at which each task was in
// hand. Arguments: which queue, which database.
import { connect } from '../lib/db.mjs';

const [, , label, database] = process.argv;

function inHand(n) {
  process.send({ n, at: String(process.hrtime.bigint()) });
}

const workers = {
  // Wait, claim until nothing is left, settle, wait again.
  durable: async () => {
    const client = await connect(database);
    process.send({ ready: true });
    for (;;) {
      await client.query(`CALL durable.wait_for_work(ARRAY['q'], '30 s')`);
      for (;;) {
        const { rows } = await client.query({ name: 'c', text: `SELECT * FROM durable.claim(ARRAY['q'], 1)` });
        if (rows.length === 0) break;
        inHand(rows[0].input.n);
        await client.query({ name: 's', text: 'SELECT durable.complete($1, $2)', values: [rows[0].task_id, rows[0].token] });
      }
    }
  },

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
