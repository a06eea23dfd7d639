// Live work while a million finished runs are removed, against the same work where they
// stay. Two databases with the same rows; one of them has a policy. In each database the
// scheduler runs only during its own slices, so that nothing is removed, and nobody
// uses the machine, while the other is measured.
import { addNote, addRow, note, number, table } from '../lib/report.mjs';
import { checkpoint, connect, dropDatabase, query, sleep, tidy } from '../lib/db.mjs';
import { addCpu, compare, interleave } from '../lib/compare.mjs';
import { median } from '../lib/stats.mjs';
import { pgbench } from '../lib/pgbench.mjs';
import { drain, durableRuns, installDurable, lastNumber, useWorkers } from '../peers/workflows.mjs';

export async function retention({ quick, mine, rounds }) {
  const count = quick ? 100_000 : 1_000_000;
  const [kept, removed] = ['kept', 'removed'].map((name) => ({ label: name, database: `${mine.database}_retention_${name}` }));
  for (const { label, database } of [kept, removed]) {
    note(`retention: filling '${label}'`);
    await install(mine, database, label === 'removed');
    await fill(database, count);
    await tidy(database);
  }
  await checkpoint();
  const swept = { label: 'swept', database: removed.database };
  const before = await finished(removed.database);
  const series = await interleave(
    'retention',
    [
      { label: kept.label, run: () => inBackground(kept.database, () => work(mine, kept.database, quick)) },
      { label: removed.label, run: () => inBackground(removed.database, () => whileRemoved(mine, removed.database, quick)) },
      { label: swept.label, run: () => besideSweeps(removed.database, () => whileRemoved(mine, removed.database, quick)) },
    ],
    rounds(11, 4),
  );
  report(series, { kept, removed, swept }, count);
  const left = await finished(removed.database);
  note(`retention: ${before - left} of ${before} were removed`);
  if (left === 0) throw new Error('all were removed before the last slice: nothing was measured at the end');
  for (const { database } of [kept, removed]) await dropDatabase(database);
}

function report(series, { kept, removed, swept }, count) {
  const words = number(count);
  for (const [side, how, target] of [[removed, 'in the background', { min: 0.85 }], [swept, 'by a sweep each second']]) {
    for (const [part, measure, unit] of [['cycle', 'dispatch, claim 1, complete 1', 'tasks/s'], ['runs', 'runs of 1 step', 'runs/s']]) {
      addRow({
        scenario: 'retention', measure: `${measure}, while ${words} finished runs are removed ${how}`, peer: 'itself, while they stay', unit,
        ...compare(series, side, kept, part, `${part}Cpu`), target,
      });
    }
  }
  for (const part of ['cycle', 'runs']) {
    addCpu(`retention: ${part}`, Object.fromEntries(Object.entries(series).map(([label, parts]) => [label, { cpu: parts[`${part}Cpu`] }])));
  }
  addNote(
    'retention: finished runs removed a second, beside that work',
    table(['how', 'median', 'least'], [['in the background', removed], ['by a sweep each second', swept]].map(([how, { label }]) =>
      [how, number(median(series[label].removed)), number(Math.min(...series[label].removed))])),
  );
}

// Nothing of the background runs until a slice wants it.
async function install(mine, database, policy) {
  await installDurable(database);
  await useWorkers(0);
  await query(database, `ALTER DATABASE ${database} SET durable.background = off`);
  await query(database, `
    CREATE FUNCTION one(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
    BEGIN
      RETURN durable.local_step('public.effect', jsonb_build_object('n', input -> 'n', 'step', 1));
    END $$;
    SELECT durable.register_workflow('one', 'public.one')`);
  await noScheduler(database);
  await mine.prefill(database, 'q', 100);
  if (policy) {
    await query(database, `SELECT durable.set_retention('{completed}', max_age => '7 d')`);
    // what a new policy looks for is not there; all that comes has its entries
    await query(database, 'SELECT durable.sweep()');
  }
}

// Runs of three steps that ended a month ago, with the entries that tell retention so.
async function fill(database, count) {
  const client = await connect(database);
  await client.query(`SELECT durable.start('three', '{"n": 1}', 'done')`);
  await drain(database, await lastNumber(database));
  await client.query(`UPDATE durable.run SET finished_at = finished_at - interval '30 d' WHERE run_id = 'done'`);
  await client.query(`UPDATE durable.retention_due d SET look_at = r.finished_at FROM durable.run r WHERE r.run_id = 'done' AND d.run = r.id`);
  for (let left = count; left > 0; left -= 50_000) await client.query('CALL multiply($1, $2)', ['done', Math.min(left, 50_000)]);
  await client.end();
}

async function finished(database) {
  const [{ n }] = await query(database, `SELECT count(*) AS n FROM durable.run WHERE finished_at < now() - interval '7 d'`);
  return n;
}

// The work of one slice.
async function work(mine, database, quick) {
  const cycle = await pgbench(database, {
    scripts: [[...mine.dispatch('q'), ...mine.claim('q'), ...mine.complete()]],
    clients: 4,
    seconds: quick ? 2 : 3,
  });
  const runs = await durableRuns('one', 'one', database).run(quick ? 2000 : 4000);
  return { cycle: cycle.rate, cycleCpu: cycle.cpu, runs: runs.rate, runsCpu: runs.cpu };
}

// With how many runs a second were removed beside it. A slice beside which none were is
// not what the scenario is about.
async function whileRemoved(mine, database, quick) {
  const client = await connect(database);
  try {
    const deleted = async () => (await client.query('SELECT sum(deleted)::int8 AS n FROM durable.retention')).rows[0].n;
    let first = await deleted();
    for (const begin = first; first <= begin; first = await deleted()) await sleep(20);
    await sleep(1000); // the batches grow to their size
    first = await deleted();
    const begin = performance.now();
    const result = await work(mine, database, quick);
    const removed = ((await deleted()) - first) / ((performance.now() - begin) / 1000);
    if (removed === 0) throw new Error('nothing was removed during a slice');
    return { ...result, removed };
  } finally {
    await client.end();
  }
}

const SCHEDULERS = `SELECT pid FROM durable.workers() WHERE kind = 'scheduler' AND state <> 'starting'`;

async function noScheduler(database) {
  const client = await connect(database);
  try {
    while ((await client.query(`SELECT pg_terminate_backend(pid) FROM durable.workers()`)).rows.length > 0) await sleep(50);
  } finally {
    await client.end();
  }
}

// A new scheduler looks for what retention has to do at once.
async function inBackground(database, act) {
  await query('postgres', `ALTER DATABASE ${database} SET durable.background = on`);
  try {
    while ((await query(database, SCHEDULERS)).length === 0) await sleep(50);
    return await act();
  } finally {
    await query('postgres', `ALTER DATABASE ${database} SET durable.background = off`);
    await noScheduler(database);
  }
}

async function besideSweeps(database, act) {
  const client = await connect(database);
  let over = false;
  const sweeping = (async () => {
    while (!over) {
      await client.query('SELECT durable.sweep()');
      await sleep(1000);
    }
  })();
  try {
    return await act();
  } finally {
    over = true;
    await sweeping;
    await client.end();
  }
}
