// The sides of the workflow scenarios. run(count) makes count runs of three steps and
// returns when all have ended.
import { readFile } from 'node:fs/promises';
import { connect, freshDatabase, query, serverCpu, sleep } from '../lib/db.mjs';

// --drains=N sessions (or background workers) execute; --drain=work|workers.
export const drains = { count: 4, mechanism: 'work' };

const sql = async (name) => await readFile(new URL(name, import.meta.url), 'utf8');

export async function installHand(database) {
  await freshDatabase(database);
  await query(database, await sql('workflow.sql'));
}

export async function installDurable(database) {
  await installHand(database);
  await query(database, await sql('workflow_durable.sql'));
  await useWorkers(drains.mechanism === 'workers' ? drains.count : 0);
}

// How many background workers execute; where there are none, only 0 will do.
export async function useWorkers(count) {
  const [{ known }] = await query('postgres', `SELECT EXISTS (SELECT FROM pg_settings WHERE name = 'durable.workers') AS known`);
  if (!known && count > 0) throw new Error('this server has no durable.workers');
  if (!known) return;
  const client = await connect('postgres');
  try {
    await client.query(`ALTER SYSTEM SET durable.workers = ${count}`);
    await client.query('SELECT pg_reload_conf()');
  } finally {
    await client.end();
  }
}

// The same statement in several sessions at once.
export async function inSessions(database, count, statement) {
  await Promise.all(Array.from({ length: count }, () => query(database, statement)));
}

// { rate, cpu } of count runs; cpu in microseconds of the server for each.
export async function timed(count, work) {
  const cpu = await serverCpu();
  const begin = performance.now();
  await work();
  const seconds = (performance.now() - begin) / 1000;
  // a background worker that lives on has not been counted yet
  if (drains.mechanism === 'workers') return { rate: count / seconds };
  return { rate: count / seconds, cpu: ((await serverCpu()) - cpu) / count };
}

// Execute until nothing is ready; with background workers, until no run is left that
// was started after number "since".
export async function drain(database, since) {
  if (drains.mechanism === 'work') {
    await inSessions(database, drains.count, `CALL durable.work(duration => '0')`);
    return;
  }
  const client = await connect(database);
  try {
    const left = { name: 'left', text: 'SELECT count(*) AS n FROM durable.run WHERE id > $1 AND finished_at IS NULL', values: [since] };
    while ((await client.query(left)).rows[0].n > 0) await sleep(10);
  } finally {
    await client.end();
  }
}

export async function lastNumber(database) {
  const [{ last }] = await query(database, 'SELECT last_value AS last FROM durable.task_seq');
  return last;
}

export async function startRuns(database, workflow, count) {
  for (let left = count; left > 0; left -= 1000) {
    await query(
      database,
      `SELECT count(*) FROM durable.start_many($1, ARRAY(SELECT jsonb_build_object('n', g) FROM generate_series(1, $2::int) g))`,
      [workflow, Math.min(left, 1000)],
    );
  }
}

export function durableRuns(workflow, label, database) {
  return {
    label,
    database,
    install: installDurable,
    async run(count) {
      const since = await lastNumber(database);
      return await timed(count, async () => {
        await startRuns(database, workflow, count);
        await drain(database, since);
      });
    },
  };
}

export function handRuns(oneCommit, label, database) {
  return {
    label,
    database,
    install: installHand,
    async run(count) {
      const each = Math.ceil(count / drains.count);
      return await timed(each * drains.count, () => inSessions(database, drains.count, `CALL hand(${each}, ${oneCommit})`));
    },
  };
}
