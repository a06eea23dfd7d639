// How long an idle server takes from the commit of a start until the first step of
// the run executes in a background worker. The starting procedure reads the server's
// clock right after its COMMIT, and so does the step. Beside it what one would write by
// hand for SQL functions as jobs: a client that listens and calls a function which
// takes a job with SKIP LOCKED; and graphile-worker with a task that calls the step.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { addNote, addRow, note, table } from '../lib/report.mjs';
import { connect, freshDatabase, query, sleep } from '../lib/db.mjs';
import { median, quantile } from '../lib/stats.mjs';
import { ratioOf } from '../lib/compare.mjs';
import { durable } from '../peers/durable.mjs';
import { graphile } from '../peers/graphile.mjs';

const worker = fileURLToPath(new URL('background_worker.mjs', import.meta.url));

const effects = `
  CREATE TABLE effect (n int, at timestamptz);
  CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO effect VALUES ((i ->> 'n')::int, clock_timestamp());
    RETURN i;
  END $$`;

async function installDurable(database) {
  await durable.install(database);
  await query(database, effects);
  await query(database, `
    CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('act', i); END $$;
    SELECT durable.register_workflow('w', 'body')`);
}

const start = `durable.start('w', i)`;

// Starts one and says when it was committed.
const starter = (expression) => `
  CREATE PROCEDURE begin_one(i jsonb, INOUT at float8 DEFAULT NULL) LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM ${expression};
    COMMIT;
    at := extract(epoch FROM clock_timestamp()) * 1000;
  END $$`;
const sides = [
  { label: 'durable', database: 'bench_background', install: installDurable, start },
  {
    // every run finds no executor
    label: 'durable, cold',
    database: 'bench_background_cold',
    install: async (database) => {
      await query(database, `ALTER DATABASE ${database} SET durable.worker_idle_timeout = 0`);
      await installDurable(database);
    },
    start,
  },
  {
    label: 'hand, LISTEN',
    database: 'bench_background_hand',
    client: true,
    install: async (database) => {
      await query(database, effects);
      await query(database, `
        CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, input jsonb);
        CREATE FUNCTION add_job(i jsonb) RETURNS void LANGUAGE sql AS $$
          INSERT INTO job (input) VALUES (i);
          SELECT pg_notify('job', '') $$;
        CREATE FUNCTION take() RETURNS bigint LANGUAGE plpgsql AS $$
        DECLARE
          taken job;
        BEGIN
          DELETE FROM job WHERE id = (SELECT id FROM job ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING * INTO taken;
          IF FOUND THEN
            PERFORM act(taken.input);
          END IF;
          RETURN taken.id;
        END $$`);
    },
    start: 'add_job(i)',
  },
  {
    label: graphile.label,
    database: 'bench_background_graphile',
    client: true,
    install: async (database) => {
      await graphile.install(database);
      await query(database, effects);
    },
    start: `graphile_worker.add_job('job', i::json)`,
  },
];

export async function background({ rounds }) {
  const count = 100;
  const posts = [];
  try {
    for (const side of sides) {
      await freshDatabase(side.database);
      await side.install(side.database);
      await query(side.database, starter(side.start));
      posts.push(await openPost(side));
    }
    const perRound = [];
    for (let round = -1, all = rounds(10, 3); round < all; round++) {
      for (let n = 0; n < (round < 0 ? 10 : count); n++) {
        for (const post of n % 2 === 0 ? posts : [...posts].reverse()) {
          await sleep(10 + Math.random() * 30);
          await post.start(n);
        }
      }
      const samples = {};
      for (const post of posts) samples[post.label] = await post.collect();
      if (round < 0) continue; // to get warm
      perRound.push(samples);
      note(
        `background p50/p99 (ms): round ${round + 1}/${all}  ` +
          sides.map((s) => `${s.label} ${[0.5, 0.99].map((p) => quantile(samples[s.label], p).toFixed(2)).join('/')}`).join(', '),
      );
    }
    report(perRound);
  } finally {
    for (const post of posts) await post.end();
  }
}

function report(perRound) {
  const all = (label) => perRound.flatMap((samples) => samples[label]);
  for (const [part, p, goal] of [['p50', 0.5, 3], ['p99', 0.99, 15]]) {
    const inRounds = (label) => perRound.map((samples) => quantile(samples[label], p));
    const row = { scenario: 'background', measure: `start committed to first step, ${part}`, unit: 'ms', mine: quantile(all('durable'), p) };
    addRow({ ...row, peer: 'the goal', ...ratioOf(inRounds('durable'), perRound.map(() => goal)), other: goal, target: { max: 1 } });
    for (const side of sides.slice(1)) {
      addRow({ ...row, peer: side.label, ...ratioOf(inRounds('durable'), inRounds(side.label)), other: quantile(all(side.label), p) });
    }
  }
  addNote(
    'background: from the commit of a start to the first step',
    table(
      ['who', 'samples', 'p50', 'p90', 'p99', 'median of the rounds'],
      sides.map((s) => [
        s.label,
        all(s.label).length,
        ...[0.5, 0.9, 0.99].map((p) => `${quantile(all(s.label), p).toFixed(2)} ms`),
        `${median(perRound.map((samples) => median(samples[s.label]))).toFixed(2)} ms`,
      ]),
    ),
  );
}

// A session that starts, and for those who need it a client that works.
async function openPost(side) {
  const child = side.client ? fork(worker, [side.label, side.database]) : undefined;
  if (child) {
    const [ready] = await once(child, 'message');
    if (ready.ready !== true) throw new Error(`${side.label}: the worker did not start`);
  }
  const client = await connect(side.database);
  let known = new Map();
  return {
    label: side.label,
    async start(n) {
      const { rows } = await client.query({ name: 'begin', text: 'CALL begin_one($1)', values: [JSON.stringify({ n })] });
      known.set(n, rows[0].at);
    },
    // In milliseconds. Empties the table for the next round.
    async collect() {
      for (let tries = 0; ; tries++) {
        const { rows } = await client.query('SELECT n, extract(epoch FROM at)::float8 * 1000 AS at FROM effect');
        if (rows.length === known.size) {
          const samples = rows.map(({ n, at }) => Math.max(0, at - known.get(n)));
          known = new Map();
          await client.query('TRUNCATE effect');
          return samples;
        }
        if (tries > 200) throw new Error(`${side.label}: ${known.size - rows.length} steps did not come`);
        await sleep(100);
      }
    },
    async end() {
      child?.kill('SIGKILL');
      await client.end();
    },
  };
}
