// Limiters. What waits behind busy keys must not cost the rest: the cycle of tasks
// without a limiter, with and without 100,000 parked in the same queue; the same for
// graphile-worker with jobs of two named queues that are busy. What an admission costs
// must not depend on how much waits: 10 and 100,000 tasks, 10 and 100,000 keys, each claimed
// and completed under a limit of 8; and while a snapshot is held. And how long it takes from the commit
// that frees a slot until a client that waits for it has the next task.
import { addRow, addNote, note, number, table } from '../lib/report.mjs';
import { connect, dropDatabase, freshDatabase, query, sleep, tidy } from '../lib/db.mjs';
import { addCpu, compare, interleave } from '../lib/compare.mjs';
import { median, quantile } from '../lib/stats.mjs';
import { pgbench } from '../lib/pgbench.mjs';
import { durable } from '../peers/durable.mjs';
import { graphile } from '../peers/graphile.mjs';

const words = (n) => n.toLocaleString('en');

async function parkedDurable(database, count) {
  await query(database, `SELECT durable.register_limiter('tenants', key_concurrency => 1)`);
  await query(
    database,
    `SELECT count(*) FROM generate_series(0, 1) k, LATERAL durable.dispatch_many('job', array_fill('{"n": 1}'::jsonb, ARRAY[$1::int / 2]), 'q',
       limiter => 'tenants', fairness_key => 'busy ' || k)`,
    [count],
  );
  await query(database, `SELECT count(*) FROM durable.claim('{q}', 2, '1 day')`); // both keys are busy
}

async function parkedGraphile(database, count) {
  await query(database, `SELECT graphile_worker.add_job('job', '{"n": 1}'::json, 'busy ' || g % 2) FROM generate_series(1, $1) g`, [count]);
  await query(database, `UPDATE graphile_worker._private_job_queues SET locked_at = now(), locked_by = 'busy'`);
}

// Tasks without a limiter in a queue where others are parked.
async function beside(quick, rounds) {
  const parked = quick ? 20_000 : 100_000;
  const sides = [];
  for (const [peer, park] of quick ? [[durable, parkedDurable]] : [[durable, parkedDurable], [graphile, parkedGraphile]]) {
    for (const full of [false, true]) {
      const side = { peer, full, label: `${peer.label}${full ? ', parked' : ''}`, database: `${peer.database}_limiter_${full}` };
      note(`limiter: filling ${side.label}`);
      await freshDatabase(side.database);
      await peer.install(side.database);
      if (full) await park(side.database, parked);
      await peer.prefill(side.database, 'q', 100);
      await tidy(side.database);
      sides.push(side);
    }
  }
  const series = await interleave(
    'limiter, beside',
    sides.map((s) => ({
      label: s.label,
      run: async () => {
        const { rate, cpu } = await pgbench(s.database, { scripts: [[...s.peer.dispatch('q'), ...s.peer.claim('q'), ...s.peer.complete()]], clients: 4, seconds: 2 });
        return { rate, cpu };
      },
    })),
    rounds(9, 5),
  );
  for (let i = 0; i < sides.length; i += 2) {
    addRow({
      scenario: 'limiter',
      measure: `${sides[i].peer.label}: tasks without a limiter, ${words(parked)} others parked behind 2 busy keys`,
      peer: 'itself, none parked',
      unit: 'tasks/s',
      ...compare(series, sides[i + 1], sides[i]),
      target: sides[i].peer === durable ? { min: 0.9 } : undefined,
    });
  }
  for (const side of sides) await dropDatabase(side.database);
}

const states = (large) => [
  { name: 'no limiter', fill: `SELECT count(*) FROM durable.dispatch_many('job', array_fill('{"n": 1}'::jsonb, ARRAY[1000]), 'q')`, again: `SELECT durable.dispatch('job', queue => 'q');` },
  { name: '10 tasks', tasks: 10, keys: 1 },
  { name: `${words(large)} tasks`, tasks: large, keys: 1 },
  { name: '10 keys', tasks: 10, keys: 10 },
  { name: `${words(large)} keys`, tasks: large, keys: large },
  { name: `${words(large)} keys, old snapshot`, tasks: large, keys: large, pinned: true },
];

// One more is dispatched for each that is completed, so the number stays.
async function depth(quick, rounds) {
  const all = states(quick ? 10_000 : 100_000).map((s, i) => ({ ...s, label: s.name, database: `bench_limiter_${i}` }));
  for (const s of all) {
    note(`limiter: filling '${s.name}'`);
    await freshDatabase(s.database);
    await durable.install(s.database);
    if (!s.fill) {
      await query(s.database, `SELECT durable.register_limiter('l', concurrency => 8, fairness => 'key', key_concurrency => 8)`);
      for (let done = 0; done < s.tasks; done += 10_000) {
        await query(s.database, `SELECT count(durable.dispatch('job', queue => 'q', limiter => 'l', fairness_key => 'k' || g % $2)) FROM generate_series($1 + 1, least($1 + 10000, $3)) g`, [done, s.keys, s.tasks]);
      }
    } else await query(s.database, s.fill);
    await tidy(s.database);
    s.script = [
      `\\set k random(0, ${Math.max((s.keys ?? 1) - 1, 1)})`,
      s.again ?? `SELECT durable.dispatch('job', queue => 'q', limiter => 'l', fairness_key => 'k' || :k % ${s.keys});`,
      ...durable.claim('q'),
      ...durable.complete(),
    ];
    if (s.pinned) {
      s.snapshot = await connect(s.database);
      await s.snapshot.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
    }
  }
  const series = await interleave(
    'limiter, depth',
    all.map((s) => ({
      label: s.label,
      run: async () => {
        const { rate, cpu } = await pgbench(s.database, { scripts: [s.script], clients: 1, seconds: 2 });
        return { rate, cpu };
      },
    })),
    rounds(9, 5),
  );
  const row = (mine, other, target) =>
    addRow({ scenario: 'limiter', measure: `dispatch, claim, complete under a limiter: ${mine.name}`, peer: other.name, unit: 'tasks/s', ...compare(series, mine, other), target });
  row(all[1], all[0]);
  row(all[2], all[1], { min: 0.9 });
  row(all[4], all[3], { min: 0.9 });
  row(all[5], all[4], { min: 0.8 });
  addCpu('limiter', series);
  for (const s of all) {
    await s.snapshot?.end();
    await dropDatabase(s.database);
  }
}

// A client holds the only slot, another waits.
async function latency(quick) {
  const samples = quick ? 100 : 400;
  const database = 'bench_limiter_latency';
  await freshDatabase(database);
  await durable.install(database);
  await query(database, `SELECT durable.register_limiter('one', concurrency => 1)`);
  const holder = await connect(database);
  const waiter = await connect(database);
  const now = () => Number(process.hrtime.bigint()) / 1e6;
  const times = [];
  for (let i = 0; i < samples; i++) {
    await holder.query(`SELECT count(*) FROM durable.dispatch_many('job', '{1,2}', 'q', limiter => 'one')`);
    const { rows: [held] } = await holder.query(`SELECT task_id, token FROM durable.claim('{q}')`);
    const next = waiter.query(`CALL durable.wait_and_claim('{q}', timeout => '10 s')`).then(({ rows }) => ({ at: now(), task: rows[0].tasks[0] }));
    await sleep(5 + Math.random() * 10);
    await holder.query('BEGIN');
    await holder.query(`SELECT durable.complete($1, $2)`, [held.task_id, held.token]);
    const began = now();
    await holder.query('COMMIT');
    const { at, task } = await next;
    times.push(at - began);
    await waiter.query(`SELECT durable.complete($1, $2)`, [task.task_id, task.token]);
  }
  await holder.end();
  await waiter.end();
  await dropDatabase(database);
  addRow({ scenario: 'limiter', measure: 'from the commit that frees a slot to the next task, p50', mine: median(times), other: 3, peer: 'target', unit: 'ms', ratio: median(times) / 3, target: { max: 1 } });
  addNote('limiter: from COMMIT of the holder, its flush included, to the next task in the waiting client\'s hand', table(['p50', 'p90', 'p99', 'samples'], [[0.5, 0.9, 0.99].map((q) => `${number(quantile(times, q))} ms`).concat(samples)]));
}

export async function limiter({ quick, rounds }) {
  await beside(quick, rounds);
  await depth(quick, rounds);
  await latency(quick);
}
