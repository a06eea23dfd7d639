// Singletons and start-time quotas: what a start pays for its key, how long it takes from
// the end of the run that holds the slot to the first step of the next, and whether an
// operation costs more with 100,000 waiters of a key, or 100,000 keys, than with 10.
import { addNote, addRow, note, number, table } from '../lib/report.mjs';
import { checkpoint, connect, dropDatabase, freshDatabase, query, sleep, tidy } from '../lib/db.mjs';
import { addCpu, interleave, ratioOf } from '../lib/compare.mjs';
import { pgbench } from '../lib/pgbench.mjs';
import { median, quantile } from '../lib/stats.mjs';

export async function admission({ quick, mine, rounds }) {
  await starts(mine, rounds(12, 4), quick);
  await promotion(mine, rounds(6, 2));
  await depth(mine, rounds(12, 4), quick);
}

const install = async (mine, database) => {
  await freshDatabase(database);
  await mine.install(database);
  await query(database, `ALTER DATABASE ${database} SET durable.background = off`);
};

async function starts(mine, rounds, quick) {
  const database = `${mine.database}_admission_start`;
  await install(mine, database);
  await query(database, `
    SELECT durable.register_workflow('plain', queue => 'q'), durable.register_workflow('single', queue => 'q', singleton_key => '$.k'),
      durable.register_workflow('bounded', queue => 'q', singleton_key => '$.k', singleton_max_queued => 100),
      durable.register_workflow('quota', queue => 'q', concurrency_key => '$.k', concurrency_limit => 1000)`);
  const sides = ['plain', 'single', 'bounded', 'quota'].map((workflow) => ({
    label: workflow,
    run: async () => {
      const { rate, cpu } = await pgbench(database, {
        scripts: [['\\set k random(1, 1000000)', `SELECT durable.start('${workflow}', jsonb_build_object($$k$$, :k::int));`]],
        clients: 4,
        seconds: quick ? 1 : 3,
      });
      return { rate, cpu };
    },
  }));
  const series = await interleave('admission, start', sides, rounds);
  addCpu('admission: start', series);
  for (const [label, target] of [['single', { min: 1 / 1.15 }], ['bounded'], ['quota']]) {
    const r = ratioOf(series[label].rate, series.plain.rate);
    addRow({ scenario: 'admission', measure: `starts, ${label}`, peer: 'without a key', unit: 'per s', ...r, mine: r.a, other: r.b, target });
  }
  await dropDatabase(database);
}

// A chain: all runs of one key, executed by background workers. From the last step of one
// to the first of the next there are the commit of the one and the claim of the other.
async function promotion(mine, rounds) {
  const database = `${mine.database}_admission_chain`;
  const count = 100;
  const samples = [];
  await freshDatabase(database);
  await mine.install(database);
  await query(database, `
    CREATE TABLE effect (run int, what text, at timestamptz);
    CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
    BEGIN
      IF i ->> 'what' = 'ends' THEN PERFORM pg_sleep(0.01); END IF;
      INSERT INTO effect VALUES ((i ->> 'n')::int, i ->> 'what', clock_timestamp());
      RETURN NULL;
    END $$;
    CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
    BEGIN
      PERFORM durable.local_step('act', i || '{"what": "begins"}'), durable.local_step('act', i || '{"what": "ends"}');
      RETURN NULL;
    END $$;
    SELECT durable.register_workflow('w', 'body', singleton_key => '$.k')`);
  for (let round = -1; round < rounds; round++) {
    await query(database, `SELECT count(durable.start('w', jsonb_build_object('k', 1, 'n', n))) FROM generate_series(1, ${count}) n`);
    while ((await query(database, 'SELECT EXISTS (SELECT FROM durable.run WHERE finished_at IS NULL) AS busy'))[0].busy) await sleep(100);
    const rows = await query(database, `
      SELECT extract(epoch FROM b.at - a.at)::float8 * 1000 AS ms FROM effect a JOIN effect b ON b.run = a.run + 1 AND b.what = 'begins'
       WHERE a.what = 'ends' ORDER BY a.run OFFSET 10`);
    await query(database, 'TRUNCATE effect');
    if (round < 0) continue; // to get warm
    samples.push(rows.map((r) => r.ms));
    note(`admission, promotion: round ${round + 1}/${rounds}  p50 ${quantile(samples.at(-1), 0.5).toFixed(2)} ms, p99 ${quantile(samples.at(-1), 0.99).toFixed(2)} ms`);
  }
  const all = samples.flat();
  const p50 = samples.map((s) => median(s));
  addRow({
    scenario: 'admission', measure: 'end of a run to the first step of the next, p50', peer: 'the goal', unit: 'ms',
    ...ratioOf(p50, p50.map(() => 3)), mine: median(p50), other: 3, target: { max: 1 },
  });
  addNote('admission: from the last step of a run to the first step of the one that gets its slot',
    table(['samples', 'p50', 'p90', 'p99'], [[all.length, ...[0.5, 0.9, 0.99].map((p) => `${quantile(all, p).toFixed(2)} ms`)]]));
  await dropDatabase(database);
}

// Everybody is at the gate once, and then parked.
async function park(database) {
  const client = await connect(database);
  try {
    for (;;) {
      await client.query(`SELECT FROM durable.claim('{w}', 1000, '1 day')`);
      const { rows } = await client.query(`SELECT EXISTS (SELECT FROM durable.task_ready) OR EXISTS (SELECT FROM durable.task_delayed) AS more`);
      if (!rows[0].more) return;
    }
  } finally {
    await client.end();
  }
}

// A cycle of one start, one claim and one end, which gives the slot to another run.
async function depth(mine, rounds, quick) {
  const large = quick ? 10_000 : 100_000;
  const states = [
    { name: 'few', title: '10 waiters of a key', keys: 1, waiters: 10 },
    { name: 'waiters', title: `${large.toLocaleString('en')} waiters of a key`, keys: 1, waiters: large },
    { name: 'fewkeys', title: '10 keys with a holder and a waiter', keys: 10, waiters: 1, own: true },
    { name: 'keys', title: `${large.toLocaleString('en')} keys with a holder and a waiter`, keys: large, waiters: 1, own: true },
  ];
  for (const state of states) {
    state.database = `${mine.database}_admission_${state.name}`;
    note(`admission: filling '${state.title}'`);
    await install(mine, state.database);
    await query(state.database, `SELECT durable.register_workflow('w', singleton_key => '$.k')`);
    for (let from = 0; from < state.keys * (state.waiters + 1); from += 10_000) {
      await query(state.database, `
        SELECT count(durable.start('w', jsonb_build_object('k', n % ${state.keys})))
          FROM generate_series(${from}, least(${from} + 10000, ${state.keys * (state.waiters + 1)}) - 1) n`);
    }
    await park(state.database);
    // the holder of the key that the cycle goes through
    if (!state.own) await query(state.database, `SELECT durable.cancel(r.run_id) FROM durable.run r JOIN durable.singleton s ON s.run = r.id WHERE s.state = 'held'`);
    await tidy(state.database);
  }
  await checkpoint();
  const series = await interleave('admission, depth', states.map((state) => ({
    label: state.name,
    run: async () => {
      const { rate, cpu } = await pgbench(state.database, {
        scripts: [[
          // beside the others, or behind them
          ...(state.own ? ['\\set k random(1000000, 2000000)'] : ['\\set k 0']),
          `SELECT durable.start('w', jsonb_build_object($$k$$, :k::int));`,
          `SELECT task_id, token FROM durable.claim('{w}', 1, '1 day', history => 0) \\gset`,
          `SELECT durable.complete_turn(:task_id, :token::uuid, '{"status" : "completed"}');`,
        ]],
        clients: 1,
        seconds: quick ? 1 : 3,
      });
      return { rate, cpu };
    },
  })), rounds);
  addCpu('admission: start, claim, end', series);
  for (const [full, few] of [['waiters', 'few'], ['keys', 'fewkeys']]) {
    const title = states.find((s) => s.name === full).title;
    const r = ratioOf(series[full].rate, series[few].rate);
    addRow({ scenario: 'admission', measure: `start, claim, end with ${title}`, peer: '10 of them', unit: 'per s', ...r, mine: r.a, other: r.b, target: { min: 0.8 } });
  }
  addNote('admission: CPU time of the server per cycle', table(['state', 'median'],
    states.map((s) => [s.title, `${number(median(series[s.name].cpu))} µs`])));
  for (const state of states) await dropDatabase(state.database);
}
