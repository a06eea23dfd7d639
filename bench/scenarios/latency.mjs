// How long an idle worker takes to have a task in hand, from the moment that the
// dispatcher knows its commit. Dispatcher and worker are two node processes; both
// read the machine's monotonic clock.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { addNote, addRow, note, number, table } from '../lib/report.mjs';
import { freshDatabase, sleep } from '../lib/db.mjs';
import { quantile } from '../lib/stats.mjs';
import { interleave, ratioOf } from '../lib/compare.mjs';
import { durable } from '../peers/durable.mjs';
import { graphile } from '../peers/graphile.mjs';
import { pgboss } from '../peers/pgboss.mjs';
import { connect } from '../lib/db.mjs';

const worker = fileURLToPath(new URL('latency_worker.mjs', import.meta.url));

// 'durable' sends its wait and its claim at once (pipeline mode, which libpq,
// node-postgres and others have); this one waits for the answer to the first.
const SEQUENTIAL = 'durable, no pipeline';

// How each side dispatches; latency_worker.mjs has the other end.
const dispatchers = {
  durable: async (database) => {
    const client = await connect(database);
    const dispatch = (n) => client.query({ name: 'd', text: `SELECT durable.dispatch('job', $1::jsonb, queue => 'q')`, values: [{ n }] });
    return { dispatch, end: () => client.end() };
  },
  [SEQUENTIAL]: (database) => dispatchers.durable(database),
  'graphile-worker': async (database) => {
    const client = await connect(database);
    const dispatch = (n) => client.query({ name: 'd', text: `SELECT graphile_worker.add_job('job', $1::json)`, values: [{ n }] });
    return { dispatch, end: () => client.end() };
  },
  'pg-boss': async (database) => {
    const boss = await pgboss.start(database, { useListenNotify: true }, { notify: true });
    return { dispatch: (n) => boss.send('job', { n }), end: () => boss.stop({ graceful: false, close: true }) };
  },
};

export async function latency({ quick, mine, rounds }) {
  const count = quick ? 60 : 100;
  const sequential = { label: SEQUENTIAL, database: 'bench_durable_sequential', install: durable.install };
  const sides = [mine, sequential, graphile, pgboss].filter((side) => side.label in dispatchers);
  for (const side of sides) {
    await freshDatabase(side.database);
    await side.install?.(side.database);
  }
  const samples = Object.fromEntries(sides.map((s) => [s.label, { ack: [], send: [] }]));
  const series = await interleave(
    'latency (µs)',
    sides.map((side) => ({
      label: side.label,
      run: async () => {
        const { ack, send } = await measure(side, count);
        samples[side.label].ack.push(...ack);
        samples[side.label].send.push(...send);
        return { p50: quantile(ack, 0.5) * 1000, p99: quantile(ack, 0.99) * 1000 };
      },
    })),
    rounds(5, 3),
  );
  for (const side of sides.filter((s) => s !== mine)) {
    if (sides[0] !== mine) break; // a stand-in cannot wait
    for (const [part, p] of [['p50', 0.5], ['p99', 0.99]]) {
      const r = ratioOf(series[mine.label][part], series[side.label][part]);
      addRow({
        scenario: 'latency',
        measure: `idle pick-up, commit known to claim in hand, ${part}`,
        peer: side.label,
        unit: 'ms',
        ...r,
        mine: quantile(samples[mine.label].ack, p),
        other: quantile(samples[side.label].ack, p),
        target: side === graphile ? { max: 0.5 } : undefined,
      });
    }
  }
  const lines = sides.map((s) => [
    s.label,
    ...[samples[s.label].ack, samples[s.label].send].flatMap((v) => [0.5, 0.9, 0.99].map((p) => `${quantile(v, p).toFixed(2)} ms`)),
  ]);
  addNote(
    'latency: from the commit known, and from the dispatch sent, to the claim in hand',
    table(['queue', 'p50', 'p90', 'p99', 'sent: p50', 'p90', 'p99'], lines),
  );
}

async function measure(side, count) {
  const child = fork(worker, [side.label, side.database]);
  const got = new Map();
  let wake;
  child.on('message', (m) => {
    if (m.n === undefined) return;
    got.set(m.n, BigInt(m.at));
    if (m.n >= 0) wake?.(m.n);
  });
  const dispatcher = await dispatchers[side.label](side.database);
  try {
    const [ready] = await once(child, 'message');
    if (ready.ready !== true) throw new Error(`${side.label}: the worker did not start`);
    const ack = [];
    const send = [];
    for (let n = 0; n < count + 10; n++) {
      await sleep(15 + Math.random() * 40);
      const picked = new Promise((resolve) => (wake = (m) => m === n && resolve()));
      const sent = process.hrtime.bigint();
      await dispatcher.dispatch(n);
      const known = process.hrtime.bigint();
      await within(picked, 20_000, `${side.label}: nobody picked up task ${n}`);
      if (n < 10) continue; // warm
      ack.push(Number(got.get(n) - known) / 1e6);
      send.push(Number(got.get(n) - sent) / 1e6);
    }
    return { ack, send };
  } finally {
    child.kill('SIGKILL');
    await dispatcher.end();
  }
}

async function within(promise, ms, message) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error(message)), ms)));
  try {
    await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
