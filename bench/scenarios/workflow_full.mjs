// What stands in the tables must not matter: suspended and finished runs by the
// million, timers that all are due at once, an old snapshot.
import { addNote, addRow, note, number, table } from '../lib/report.mjs';
import { checkpoint, connect, dropDatabase, query, sleep, tidy } from '../lib/db.mjs';
import { addCpu, compare, interleave } from '../lib/compare.mjs';
import { mean, median, quantile } from '../lib/stats.mjs';
import { drain, drains, durableRuns, inSessions, installDurable, lastNumber } from '../peers/workflows.mjs';

// 1,000,000 suspended runs, half of them asleep and half waiting for a signal, and as
// many finished ones: new runs against an empty database, and the sweep.
export async function full({ quick, rounds }) {
  const half = quick ? 50_000 : 500_000;
  const sides = ['empty', 'full'].map((label) => durableRuns('three', label, `bench_wf_${label}`));
  const [empty, filled] = sides;
  for (const side of sides) {
    await side.install(side.database);
    await side.run(100);
  }
  note('full: filling');
  const client = await connect(filled.database);
  await client.query(`SELECT durable.start('nap', jsonb_build_object('until', now() + '1 day'), 'nap')`);
  await client.query(`SELECT durable.start('patient', '{"token": "never"}', 'never')`);
  await client.query(`SELECT durable.start('three', '{"n": 1}', 'done')`);
  await drain(filled.database, await lastNumber(filled.database));
  for (const [id, count] of [['nap', half], ['never', half], ['done', 2 * half]]) {
    for (let left = count; left > 0; left -= 50_000) await client.query('CALL multiply($1, $2)', [id, Math.min(left, 50_000)]);
  }
  const { rows } = await client.query('SELECT status, count(*) AS n FROM durable.run GROUP BY 1 ORDER BY 1');
  note(`full: ${rows.map((r) => `${r.n} ${r.status}`).join(', ')}`);
  await client.end();
  for (const side of sides) await tidy(side.database);
  await checkpoint();
  const series = await interleave(
    'full',
    sides.map((side) => ({
      label: side.label,
      run: async () => {
        const result = await side.run(quick ? 1000 : 2000);
        return { ...result, sweep: await sweepTime(side.database) };
      },
    })),
    rounds(11, 5),
  );
  addRow({
    scenario: 'full',
    measure: `runs of 3 steps; ${number(2 * half)} suspended and ${number(2 * half)} finished`,
    peer: 'itself, empty',
    unit: 'runs/s',
    ...compare(series, filled, empty),
    target: { min: 0.85 },
  });
  addRow({
    scenario: 'full',
    measure: 'a sweep when nothing is due',
    peer: 'itself, empty',
    unit: 'µs',
    ...compare(series, filled, empty, 'sweep'),
    cpu: undefined,
  });
  addCpu('full', series);
  for (const side of sides) await dropDatabase(side.database);
}

// In microseconds, the median of thirty.
async function sweepTime(database) {
  const client = await connect(database);
  const times = [];
  for (let i = 0; i < 30; i++) {
    const begin = performance.now();
    await client.query({ name: 'sweep', text: 'SELECT durable.sweep()' });
    times.push((performance.now() - begin) * 1000);
  }
  await client.end();
  return median(times);
}

// Runs that sleep until the same moment. From then on: how long until all have gone on,
// and how long a new run takes meanwhile, ten of them a second.
export async function timers({ quick }) {
  const count = quick ? 10_000 : 100_000;
  const database = 'bench_wf_timers';
  await installDurable(database);
  const client = await connect(database);
  // far away; brought near when all are there
  await client.query(`SELECT durable.start('nap', jsonb_build_object('until', now() + '1 day'), 'nap')`);
  const first = await lastNumber(database);
  await inSessions(database, 1, `CALL durable.work(duration => '1 s')`);
  await client.query('CALL multiply($1, $2)', ['nap', count - 1]);
  const last = await lastNumber(database);
  await client.query(`
    DO $$
    DECLARE due timestamptz := clock_timestamp();
    BEGIN
      UPDATE durable.run SET wake_at = due WHERE status = 'suspended';
      UPDATE durable.task_delayed SET run_at = due;
      UPDATE durable.checkpoint SET wake_at = due WHERE kind = 'sleep';
    END $$`);
  await tidy(database);
  await checkpoint();

  let resuming = true;
  let over = false;
  const begin = performance.now();
  const workers = drains.mechanism === 'work' ? Array.from({ length: drains.count }, () => working(database, () => over)) : [];
  const probes = [];
  const resumed = { name: 'resumed', text: 'SELECT count(*) AS n FROM durable.run WHERE id BETWEEN $1 AND $2 AND finished_at IS NULL', values: [first, last] };
  const prober = await connect(database);
  const probing = (async () => {
    while (resuming) {
      const { rows } = await prober.query(`SELECT durable.start('three', '{"n": 1}') AS id`);
      probes.push(rows[0].id);
      await sleep(100);
    }
  })();
  for (;;) {
    const left = (await client.query(resumed)).rows[0].n;
    if (left === 0) break;
    await sleep(500);
  }
  const seconds = (performance.now() - begin) / 1000;
  resuming = false;
  await probing;
  await sleep(1000); // the last of them
  over = true;
  await Promise.all(workers);
  const { rows } = await client.query(
    `SELECT extract(epoch FROM finished_at - created_at) * 1000 AS ms FROM durable.run WHERE run_id = ANY ($1) AND finished_at IS NOT NULL`,
    [probes],
  );
  await client.end();
  await prober.end();
  const times = rows.map((r) => Number(r.ms));
  note(`timers: ${count} in ${number(seconds)} s; new runs: ${times.length} of ${probes.length}, p50 ${number(median(times))} ms, longest ${number(Math.max(...times))} ms`);
  addRow({
    scenario: 'timers',
    measure: `${count.toLocaleString('en')} timers due at once: the longest that a new run took meanwhile`,
    peer: 'until all have gone on',
    unit: 's',
    mine: Math.max(...times) / 1000,
    other: seconds,
    ratio: Math.max(...times) / 1000 / seconds,
    target: { max: 0.1 },
  });
  addNote(
    'timers',
    `${count.toLocaleString('en')} runs went on in ${number(seconds)} s, ${number(count / seconds)} a second. ` +
      `A new run meanwhile: p50 ${number(median(times))} ms, p99 ${number(quantile(times, 0.99))} ms, longest ${number(Math.max(...times))} ms.`,
  );
  await dropDatabase(database);
}

// A session that executes until it is over.
async function working(database, over) {
  const client = await connect(database);
  while (!over()) await client.query(`CALL durable.work(duration => '500 ms')`);
  await client.end();
}

const SECONDS = 60;

// One transaction holds a snapshot for a minute, while runs of three steps start and end.
export async function wfxmin({ rounds }) {
  const kept = [];
  const lines = [];
  for (let round = 0; round < rounds(2, 1); round++) {
    const side = durableRuns('three', 'durable', 'bench_wf_xmin');
    await side.install(side.database);
    await side.run(2000);
    await checkpoint();
    const holder = await connect(side.database);
    await holder.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await holder.query('SELECT count(*) FROM pg_catalog.pg_class');
    const tens = [];
    for (let ten = 0; ten < SECONDS / 10; ten++) {
      const rates = [];
      const end = performance.now() + 10_000;
      while (performance.now() < end) rates.push((await side.run(500)).rate);
      tens.push(mean(rates));
    }
    await holder.query('ROLLBACK');
    await holder.end();
    await dropDatabase(side.database);
    kept.push(tens.at(-1) / tens[0]);
    lines.push([...tens.map(number), number(kept.at(-1))]);
    note(`wfxmin: ${tens.map(number).join(' ')}`);
  }
  addRow({
    scenario: 'wfxmin',
    measure: 'runs of 3 steps: last 10 s of 60 s under a held snapshot, against the first 10',
    peer: 'itself, first 10 s',
    unit: 'of the rate',
    mine: median(kept),
    other: 1,
    ratio: median(kept),
    low: Math.min(...kept),
    high: Math.max(...kept),
    target: { min: 0.8 },
  });
  addNote('wfxmin: runs/s in each ten seconds', table(['0–10', '10–20', '20–30', '30–40', '40–50', '50–60', 'last/first'], lines));
}
