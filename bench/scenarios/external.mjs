// One external Node.js worker with 32 slots: runs of one dispatched step, which are two
// turns and a step each, against the job queues doing the same number of jobs. The
// jobs are there when the worker starts. DBOS starts its runs itself, 32 at a time, in one
// process, and executes the step there. And what a turn costs after 10 and after 5,000
// checkpoints, for a worker that keeps histories.
import { run as runGraphile, Logger } from 'graphile-worker';
import { addRow } from '../lib/report.mjs';
import { connect, connectionString, freshDatabase, query, sleep, tidy } from '../lib/db.mjs';
import { compare, interleave } from '../lib/compare.mjs';
import { Worker } from '../peers/durable-worker.mjs';
import { dbos } from '../peers/dbos.mjs';
import { graphile } from '../peers/graphile.mjs';
import { pgboss } from '../peers/pgboss.mjs';

const SLOTS = 32;
const quiet = new Logger(() => () => {});

// The time from the worker's start until the last of them is done.
async function drain(count, start, done) {
  const begin = performance.now();
  const stop = await start();
  while (!(await done())) await sleep(20);
  const rate = (count * 1000) / (performance.now() - begin);
  await stop();
  return rate;
}

const external = {
  label: 'durable, external worker',
  database: 'bench_external',

  async install() {
    await freshDatabase(this.database);
    await query(this.database, 'CREATE EXTENSION durable');
    await query(this.database, `SELECT durable.register_workflow('one')`);
  },

  async run(count) {
    await tidy(this.database);
    await query(this.database, `SELECT count(*) FROM durable.start_many('one', array_fill('1'::jsonb, ARRAY[${count}]))`);
    let settled = 0;
    const worker = new Worker({
      connection: { database: this.database },
      workflows: {
        one: async (ctx, input) => {
          const output = await ctx.step('job', input);
          settled += 1;
          return output;
        },
      },
      handlers: { job: async (n) => n },
      concurrency: SLOTS,
    });
    // pg-boss is connected when it begins, too
    await worker.connect();
    return drain(count,
      async () => {
        worker.start();
        return () => worker.stop();
      },
      async () => settled >= count && (await query(this.database, 'SELECT count(*) AS n FROM durable.run WHERE finished_at IS NULL'))[0].n === 0);
  },
};

const jobs = {
  label: 'graphile-worker',
  database: 'bench_external_graphile',

  async install() {
    await freshDatabase(this.database);
    await graphile.install(this.database);
  },

  async run(count) {
    await tidy(this.database);
    await query(this.database, `SELECT count(*) FROM graphile_worker.add_jobs((SELECT array_agg(('job', '1', NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec)
      FROM generate_series(1, ${count})))`);
    let settled = 0;
    return drain(count,
      async () => {
        const runner = await runGraphile({
          connectionString: connectionString(this.database), concurrency: SLOTS, maxPoolSize: 10, noHandleSignals: true, logger: quiet,
          taskList: { job: async () => { settled += 1; } },
        });
        return () => runner.stop();
      },
      async () => settled >= count && (await query(this.database, 'SELECT count(*) AS n FROM graphile_worker._private_jobs'))[0].n === 0);
  },
};

// It looks every half second at most; only batches make up for that.
const bossOf = (label, batchSize) => ({
  label,
  database: 'bench_external_pgboss',

  async install() {
    await freshDatabase(this.database);
    await (await pgboss.start(this.database)).stop({ graceful: false });
  },

  async run(count) {
    await tidy(this.database);
    const instance = await pgboss.start(this.database, { max: 10 });
    for (let left = count; left > 0; left -= 5000) await instance.insert('job', Array.from({ length: Math.min(left, 5000) }, () => ({ data: { n: 1 } })));
    let settled = 0;
    return drain(count,
      async () => {
        for (let i = 0; i < SLOTS; i++) {
          await instance.work('job', { batchSize, pollingIntervalSeconds: 0.5 }, async (batch) => { settled += batch.length; });
        }
        return () => instance.stop({ graceful: false });
      },
      async () => settled >= count && (await query(this.database, `SELECT count(*) AS n FROM pgboss.job WHERE name = 'job' AND state < 'completed'`))[0].n === 0);
  },
});

const dbosRuns = {
  ...dbos,
  label: 'DBOS, one process',
  database: 'bench_external_dbos',
  workflow: 'one',
  count: () => 1,

  async install() {
    await dbos.install.call(this, this.database);
  },

  async run(count) {
    await tidy(this.database);
    return (await dbos.run.call(this, count)).rate;
  },
};

// One more checkpoint each turn; microseconds of the server per turn.
async function turns(base, count) {
  const client = await connect(external.database);
  const runId = `turns-${base}-${performance.now()}`;
  const decide = async (history, commands) => {
    const { rows: [turn] } = await client.query(`SELECT task_id, token, input FROM durable.claim('{turns}', history => $1)`, [history]);
    await client.query('SELECT durable.complete_turn($1, $2, $3)', [turn.task_id, turn.token, JSON.stringify({ status: 'continue', commands: commands(turn.input.history_end) })]);
  };
  const record = (seq) => ({ type: 'record_step', seq, name: 's', output: seq });
  await client.query(`SELECT durable.register_workflow('turns')`);
  await client.query(`SELECT durable.start('turns', run_id => $1)`, [runId]);
  await decide(0, () => Array.from({ length: base }, (_, i) => record(i)));
  const [{ pid }] = (await client.query('SELECT pg_backend_pid() AS pid')).rows;
  const before = await cpuOf(pid);
  for (let i = 0; i < count; i++) await decide(5, (end) => [record(end)]);
  const after = await cpuOf(pid);
  await client.query('SELECT durable.cancel($1)', [runId]);
  await client.end();
  return (after - before) / count;
}

async function cpuOf(pid) {
  const { readFile } = await import('node:fs/promises');
  return Number((await readFile(`/proc/${pid}/schedstat`, 'utf8')).split(' ')[0]) / 1000;
}

// The first side against the others, the same number for each, but for those that are slow.
async function race(count, sides, share, rounds) {
  const series = await interleave(`one worker of 32 slots, ${count}`,
    sides.map((side) => ({ label: side.label, run: () => side.run(Math.ceil(count * (share.get(side) ?? 1))) })), rounds);
  for (const side of sides.slice(1)) {
    addRow({
      scenario: 'external',
      measure: `${count} runs of one dispatched step / jobs, one worker with 32 slots`,
      peer: side.label,
      unit: 'per s',
      ...compare(series, sides[0], side),
      target: { min: 1 },
    });
  }
}

export async function externalWorkers({ quick, rounds }) {
  const batches = bossOf('pg-boss, 100 jobs a slot', 100);
  const single = bossOf('pg-boss', 1);
  const sides = [external, jobs, dbosRuns, ...(quick ? [] : [single]), batches];
  for (const side of sides) await side.install();
  // as many as its slots take at once, which ends as it begins; and a backlog
  await race(quick ? 2000 : 3200, sides, new Map([[dbosRuns, 1 / 5], [single, 1 / 5]]), rounds(9, 3));
  await dbosRuns.stop();
  await race(quick ? 10000 : 30000, [external, batches], new Map(), rounds(9, 3));
  const short = { label: '10 checkpoints' };
  const long = { label: '5,000 checkpoints' };
  const costs = await interleave('cost of a turn',
    [[short, 10], [long, 5000]].map(([side, base]) => ({ label: side.label, run: async () => 1e6 / (await turns(base, 300)) })), rounds(15, 5));
  addRow({
    scenario: 'external', measure: 'turns per second of server time, after 5,000 checkpoints', peer: 'after 10', unit: 'turns/s',
    ...compare(costs, long, short), target: { min: 0.8 },
  });
}
