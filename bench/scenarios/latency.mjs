// How long an idle worker takes to have a task in hand, from the moment that the
// dispatcher knows its commit. Dispatcher and worker are two node processes; both
// read the machine's monotonic clock.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { addNote, addRow, note, number, table } from '../lib/report.mjs';
import { connect, freshDatabase, sleep } from '../lib/db.mjs';
import { quantile } from '../lib/stats.mjs';
import { ratioOf } from '../lib/compare.mjs';
import { durable } from '../peers/durable.mjs';
import { graphile } from '../peers/graphile.mjs';
import { pgboss } from '../peers/pgboss.mjs';

const worker = fileURLToPath(new URL('latency_worker.mjs', import.meta.url));

// 'durable' waits and claims in one call. For information also with the two
// steps one after the other, and with both sent at once (pipeline mode, which
// libpq, node-postgres and others have).
const TWO_STEPS = 'durable, wait_for_work + claim';
const PIPELINED = 'durable, the same pipelined';

// How each side dispatches; latency_worker.mjs has the other end.
const dispatchers = {
  durable: async (database) => {
    const client = await connect(database);
    const dispatch = (n) => client.query({ name: 'd', text: `SELECT durable.dispatch('job', $1::jsonb, queue => 'q')`, values: [{ n }] });
    return { dispatch, end: () => client.end() };
  },
  [TWO_STEPS]: (database) => dispatchers.durable(database),
  [PIPELINED]: (database) => dispatchers.durable(database),
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

// All workers are there all the time, idle; the tasks go to one after the other,
// so every sample has its neighbours of the same moment on the other sides.
export async function latency({ quick, mine, rounds }) {
  const count = 100; // samples of each side in a round
  const twoSteps = { label: TWO_STEPS, database: 'bench_durable_two', install: durable.install };
  const pipelined = { label: PIPELINED, database: 'bench_durable_pipe', install: durable.install };
  const sides = [mine, twoSteps, pipelined, graphile, ...(quick ? [] : [pgboss])].filter((side) => side.label in dispatchers);
  const posts = [];
  try {
    for (const side of sides) {
      await freshDatabase(side.database);
      await side.install?.(side.database);
      posts.push(await startPost(side));
    }
    const perRound = [];
    for (let round = -1, all = rounds(10, 3); round < all; round++) {
      const samples = Object.fromEntries(sides.map((s) => [s.label, { ack: [], send: [] }]));
      for (let n = 0; n < (round < 0 ? 10 : count); n++) {
        for (const post of n % 2 === 0 ? posts : [...posts].reverse()) {
          await sleep(10 + Math.random() * 30);
          const { ack, send } = await post.sample();
          samples[post.label].ack.push(ack);
          samples[post.label].send.push(send);
        }
      }
      if (round < 0) continue; // to get warm
      perRound.push(samples);
      const brief = ({ ack }) => [0.5, 0.99].map((p) => quantile(ack, p).toFixed(2)).join('/');
      note(`latency p50/p99 (ms): round ${round + 1}/${all}  ` + sides.map((s) => `${s.label} ${brief(samples[s.label])}`).join(', '));
    }
    report(mine, sides, perRound);
  } finally {
    for (const post of posts) await post.end();
  }
}

// The percentiles are those of all samples; the quartiles beside a ratio are those
// of the rounds.
function report(mine, sides, perRound) {
  const all = (label, what) => perRound.flatMap((samples) => samples[label][what]);
  for (const side of sides.slice(1)) {
    if (sides[0] !== mine) break; // a stand-in cannot wait
    for (const [part, p] of [['p50', 0.5], ['p99', 0.99]]) {
      const inRounds = (label) => perRound.map((samples) => quantile(samples[label].ack, p));
      const own = quantile(all(mine.label, 'ack'), p);
      const other = quantile(all(side.label, 'ack'), p);
      addRow({
        scenario: 'latency',
        measure: `idle pick-up, commit known to claim in hand, ${part}`,
        peer: side.label,
        unit: 'ms',
        ...ratioOf(inRounds(mine.label), inRounds(side.label)),
        mine: own,
        other,
        ratio: own / other,
        target: side === graphile ? { max: 0.5 } : undefined,
      });
    }
  }
  const lines = sides.map((s) => [
    s.label,
    all(s.label, 'ack').length,
    ...['ack', 'send'].flatMap((what) => [0.5, 0.9, 0.99].map((p) => `${quantile(all(s.label, what), p).toFixed(2)} ms`)),
  ]);
  addNote(
    'latency: from the commit known, and from the dispatch sent, to the claim in hand',
    table(['queue', 'samples', 'p50', 'p90', 'p99', 'sent: p50', 'p90', 'p99'], lines),
  );
}

// A worker in a process of its own, and a connection that dispatches to it.
async function startPost(side) {
  const child = fork(worker, [side.label, side.database]);
  const [ready] = await once(child, 'message');
  if (ready.ready !== true) throw new Error(`${side.label}: the worker did not start`);
  const dispatcher = await dispatchers[side.label](side.database);
  let next = 0;
  let picked;
  child.on('message', (m) => picked?.(m));
  return {
    label: side.label,
    async sample() {
      const n = next++;
      const inHand = new Promise((resolve) => (picked = (m) => m.n === n && resolve(BigInt(m.at))));
      const sent = process.hrtime.bigint();
      await dispatcher.dispatch(n);
      const known = process.hrtime.bigint();
      const at = await within(inHand, 20_000, `${side.label}: nobody picked up task ${n}`);
      return { ack: Number(at - known) / 1e6, send: Number(at - sent) / 1e6 };
    },
    async end() {
      child.kill('SIGKILL');
      await dispatcher.end();
    },
  };
}

// A promise that fails when it takes too long. Returns what it resolves to.
async function within(promise, ms, message) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error(message)), ms)));
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
