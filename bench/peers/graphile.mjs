// graphile-worker from npm. Its SQL is not in this repository: it is asked from
// the installed package, by handing its own query builders a client that only
// listens.
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { run, runMigrations, Logger } from 'graphile-worker';
import { connectionString, query } from '../lib/db.mjs';

const dist = path.dirname(fileURLToPath(import.meta.resolve('graphile-worker')));
const load = (file) => import(pathToFileURL(path.join(dist, file)).href);
const { batchGetJobs } = await load('sql/getJobs.js');
const { batchCompleteJobs } = await load('sql/completeJobs.js');

const quiet = new Logger(() => () => {});

// The statement that action sends last, with literals for its parameters.
async function heard(action, literals) {
  let text;
  const client = {
    query: async (q) => {
      text = q.text;
      return { rows: [{ id: '1', identifier: 'job' }] };
    },
  };
  const withClient = Object.assign((f) => f(client), { withRetries: (f) => f(client) });
  const options = {
    escapedWorkerSchema: '"graphile_worker"',
    workerSchema: 'graphile_worker',
    resolvedPreset: { worker: { preparedStatements: true, useNodeTime: false } },
    logger: quiet,
  };
  await action(options, withClient);
  return text.replace(/\s+/g, ' ').replace(/\$(\d+)/g, (_, n) => literals[n - 1]);
}

const getJob = await heard((o, c) => batchGetJobs(o, c, { job: true }, 'bench', null, 1), [`'bench'`, `'{1}'`]);
const completeJob = await heard((o, c) => batchCompleteJobs(o, c, 'bench', [{ id: '1', job_queue_id: null }]), [':id']);

export const graphile = {
  label: 'graphile-worker',
  database: 'bench_graphile',

  async install(database) {
    await runMigrations({ connectionString: connectionString(database), logger: quiet });
    await query(database, `SELECT graphile_worker.add_job('job')`);
    const [{ id }] = await query(database, `SELECT id FROM graphile_worker._private_tasks WHERE identifier = 'job'`);
    if (id !== 1) throw new Error(`the task's id is ${id}`);
    await query(database, `DELETE FROM graphile_worker._private_jobs`);
  },

  dispatch(queue, input = `'{"n": 1}'`) {
    return [`SELECT graphile_worker.add_job('job', ${input}::json);`];
  },

  claim() {
    return [`${getJob} \\aset`];
  },

  complete() {
    return [`${completeJob};`];
  },

  async prefill(database, queue, count) {
    await query(
      database,
      `INSERT INTO graphile_worker._private_jobs (task_id, payload) SELECT 1, json_build_object('n', g) FROM generate_series(1, $1) g`,
      [count],
    );
  },

  async depth(database) {
    const [{ n }] = await query(database, `SELECT count(*) AS n FROM graphile_worker._private_jobs WHERE locked_at IS NULL`);
    return n;
  },

  // Its runner, which calls handler(payload) for every job.
  async work(database, handler, worker = {}) {
    return await run({
      preset: { worker: { connectionString: connectionString(database), ...worker } },
      taskList: { job: handler },
      noHandleSignals: true,
      logger: quiet,
    });
  },
};
