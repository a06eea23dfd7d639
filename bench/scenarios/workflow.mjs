// Workflows of local steps, with sessions (or background workers) that execute them.
// What they are measured against makes the same writes with no engine at all.
import { addRow } from '../lib/report.mjs';
import { connect, dropDatabase, query, sleep, tidy } from '../lib/db.mjs';
import { addCpu, compare, interleave } from '../lib/compare.mjs';
import { dbos } from '../peers/dbos.mjs';
import { drain, drains, durableRuns, handRuns, installDurable, lastNumber, timed, useWorkers } from '../peers/workflows.mjs';

// Runs of three steps, a commit for each step or one for the run.
export async function workflow({ quick, rounds }) {
  const count = quick ? 2000 : 4000;
  const steps = durableRuns('three', 'durable', 'bench_wf');
  const atomic = durableRuns('three_atomic', 'durable, atomic', 'bench_wf_atomic');
  const handSteps = handRuns(false, 'hand', 'bench_wf_hand');
  const handAtomic = handRuns(true, 'hand, one commit', 'bench_wf_hand_atomic');
  const sides = [steps, atomic, handSteps, handAtomic, dbos];
  for (const side of sides) await side.install(side.database);
  try {
    const series = await interleave(
      'workflow',
      sides.map((side) => ({
        label: side.label,
        run: async () => {
          await tidy(side.database);
          return await side.run(side === dbos ? Math.ceil(count / 5) : count);
        },
      })),
      rounds(9, 5),
    );
    const row = (measure, mine, other, min) =>
      addRow({ scenario: 'workflow', measure, peer: other.label, unit: 'runs/s', ...compare(series, mine, other), target: { min } });
    row('runs of 3 local steps, a commit for each step', steps, handSteps, 0.4);
    row('runs of 3 local steps, one commit', atomic, handAtomic, 0.4);
    row('runs of 3 local steps, a commit for each step', steps, dbos, 5);
    addCpu('workflow', series);
  } finally {
    await dbos.stop();
    for (const side of sides) await dropDatabase(side.database);
  }
}

const STEPS = 1000;

// One run of many steps, one after the other; and what a run with a long history
// costs the others.
export async function long({ rounds }) {
  const database = 'bench_wf_long';
  await installDurable(database);
  const whole = (label, name) => ({
    label,
    run: async () =>
      await timed(STEPS, async () => {
        const since = await lastNumber(database);
        await query(database, `SELECT durable.start($1, jsonb_build_object('steps', $2::int, 'n', 1, 'step', 1))`, [name, STEPS]);
        await drain(database, since);
      }),
  });
  const bare = { label: 'bare', run: async () => await timed(STEPS, () => query(database, `CALL bare(${STEPS})`)) };
  const loop = whole('loop', 'loop');
  const lean = whole('lean', 'lean');
  const atomic = whole('loop_atomic', 'loop_atomic');
  try {
    const series = await interleave('long', [loop, lean, atomic, bare], rounds(9, 5));
    const row = (measure, side, target) =>
      addRow({ scenario: 'long', measure, peer: 'bare transactions of the handler', unit: 'steps/s', ...compare(series, side, bare), target });
    row(`one run of ${STEPS} local steps, a commit each; a body that builds its arguments`, loop, { min: 0.4 });
    row(`one run of ${STEPS} local steps, a commit each; a body that only calls`, lean, { min: 0.4 });
    row(`one run of ${STEPS} local steps, all in one commit`, atomic);
    addCpu('long', series);
    await useWorkers(0);
    await besideLoop(database, rounds(5, 3));
    await useWorkers(drains.mechanism === 'workers' ? drains.count : 0);
  } finally {
    await dropDatabase(database);
  }
}

const HISTORY = 2000;

// Short runs in one session beside another one that executes a run far in its history,
// or that is just busy: a session that computes has its share of the machine either way.
async function besideLoop(database, rounds) {
  const busy = {
    label: 'busy',
    run: () => beside(database, `DO 'BEGIN LOOP PERFORM 1; END LOOP; END'`),
  };
  const far = {
    label: 'far in',
    run: async () => {
      await query(database, `SELECT durable.start('loop_aside', '{"steps": 1000000}')`);
      return await beside(database, `CALL durable.work(ARRAY['aside'], '10 min')`, await lastNumber(database));
    },
  };
  const series = await interleave('long, others', [far, busy], rounds);
  addRow({
    scenario: 'long',
    measure: `runs of 3 steps beside a run with ${HISTORY} steps behind it`,
    peer: 'the same beside a busy session',
    unit: 'runs/s',
    ...compare(series, far, busy),
    target: { min: 0.9 },
  });
}

// With a run, not before that has its history.
async function beside(database, statement, run) {
  const other = await connect(database);
  other.on('error', () => {}); // it will be terminated
  const ended = other.query(statement).catch(() => {});
  const steps = async () => (await query(database, 'SELECT count(*) AS n FROM durable.checkpoint WHERE run = $1', [run]))[0].n;
  while (run && (await steps()) < HISTORY) await sleep(50);
  let runs = 0;
  const begin = performance.now();
  const client = await connect(database);
  while (performance.now() - begin < 2000) {
    await client.query(`SELECT count(*) FROM durable.start_many('three', array_fill('{"n": 1}'::jsonb, ARRAY[50]))`);
    await client.query(`CALL durable.work(duration => '0')`);
    runs += 50;
  }
  const rate = runs / ((performance.now() - begin) / 1000);
  await client.query('SELECT pg_terminate_backend($1)', [other.processID]);
  await ended;
  await client.query('SELECT count(durable.cancel(run_id)) FROM durable.run WHERE finished_at IS NULL');
  await client.query('DELETE FROM durable.checkpoint c USING durable.run r WHERE r.id = c.run AND r.finished_at IS NOT NULL');
  await client.query('DELETE FROM durable.run WHERE finished_at IS NOT NULL');
  await client.end();
  return rate;
}
