// By the hundred: dispatch_many 100; claim 100 and complete_many 100. With
// pgbench against the hand-written queue, then through the clients that
// graphile-worker, pg-boss and PgQ have, all from one node process.
import { addRow } from '../lib/report.mjs';
import { connect, freshDatabase, query, sleep, tidy } from '../lib/db.mjs';
import { addCpu, compare, interleave, ratioOf } from '../lib/compare.mjs';
import { pgbench } from '../lib/pgbench.mjs';
import { durable } from '../peers/durable.mjs';
import { claimStatement, hand, handResults } from '../peers/handwritten.mjs';
import { graphile } from '../peers/graphile.mjs';
import { pgboss } from '../peers/pgboss.mjs';
import { pgq } from '../peers/pgq.mjs';

const CLIENTS = 4;
const SIZE = 100;

export async function batch({ quick, mine, rounds }) {
  const perClient = quick ? 150 : 300; // batches
  const sides = [mine, hand, handResults];
  for (const peer of sides) {
    await freshDatabase(peer.database);
    await peer.install(peer.database);
    await peer.prefill(peer.database, 'q', SIZE * CLIENTS * 2); // so that the last claims are full ones
  }
  const run = async (peer) => {
    const options = { clients: CLIENTS, transactions: perClient };
    await tidy(peer.database);
    const dispatch = await pgbench(peer.database, { ...options, scripts: [peer.dispatchMany('q', SIZE)] });
    await tidy(peer.database);
    const work = await pgbench(peer.database, { ...options, scripts: [peer.workBatch('q', SIZE)] });
    return { dispatch: dispatch.rate * SIZE, work: work.rate * SIZE, dispatchCpu: dispatch.cpu / SIZE, workCpu: work.cpu / SIZE };
  };
  const series = await interleave(
    'batch',
    sides.map((peer) => ({ label: peer.label, run: () => run(peer) })),
    rounds(9, 5),
  );
  for (const part of ['dispatch', 'work']) {
    addCpu(`batch, ${part} by 100`, Object.fromEntries(sides.map((s) => [s.label, { cpu: series[s.label][`${part}Cpu`] }])));
  }
  for (const [part, measure, min] of [
    ['work', 'claim 100, complete 100; 4 clients', 1.2],
    ['dispatch', 'dispatch 100 in one statement; 4 clients', 1.0],
  ]) {
    for (const peer of sides.slice(1)) {
      addRow({
        scenario: 'batch',
        measure,
        peer: peer.label,
        unit: 'tasks/s',
        ...compare(series, mine, peer, part, `${part}Cpu`),
        target: peer === hand ? { min } : undefined,
      });
    }
  }
}

// The same through node: four connections of one process, whole rows fetched.
export async function clients({ quick, mine, rounds }) {
  const count = quick ? 20_000 : 50_000;
  const sides = [sqlClient(mine), sqlClient(hand), graphileClient, pgbossClient];
  if (await pgq.available()) sides.push(pgqClient);
  for (const side of sides) {
    await freshDatabase(side.database);
    await side.install();
  }
  const series = await interleave(
    'clients',
    sides.map((side) => ({
      label: side.label,
      run: async () => {
        await tidy(side.database);
        await side.fill(count);
        await tidy(side.database);
        const begin = process.hrtime.bigint();
        const done = await side.drain(count);
        const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
        if (done < count) throw new Error(`${side.label}: ${done} of ${count} jobs done`);
        return done / seconds;
      },
    })),
    rounds(7, 3),
  );
  await pgbossClient.boss.stop({ graceful: false, close: true });
  for (const side of sides.slice(1)) {
    const r = ratioOf(series[sides[0].label].rate, series[side.label].rate);
    addRow({
      scenario: 'clients',
      measure: 'fetch by 100, settle by 100, in one node process',
      peer: side.label,
      unit: 'tasks/s',
      mine: r.a,
      other: r.b,
      ...r,
    });
  }
}

// Four loops over work(client) until count tasks are done; returns how many were.
async function fourLoops(database, count, work) {
  let done = 0;
  const loop = async () => {
    const client = await connect(database);
    try {
      while (done < count) {
        const n = await work(client);
        if (n === 0) break;
        done += n;
      }
    } finally {
      await client.end();
    }
  };
  await Promise.all([loop(), loop(), loop(), loop()]);
  return done;
}

function sqlClient(peer) {
  const statements =
    peer === durable
      ? {
          claim: `SELECT * FROM durable.claim(ARRAY['q'], ${SIZE})`,
          complete: `SELECT durable.complete_many($1, $2, $3)`,
        }
      : {
          claim: claimStatement('q', SIZE),
          complete: `DELETE FROM hand.task WHERE token = $1 AND id = ANY ($2::bigint[]) AND $3::jsonb[] IS NOT NULL`,
        };
  const id = peer === durable ? 'task_id' : 'id';
  return {
    label: peer.label,
    database: peer.database,
    install: () => peer.install(peer.database),
    fill: (count) => peer.prefill(peer.database, 'q', count),
    drain: (count) =>
      fourLoops(peer.database, count, async (client) => {
        const { rows } = await client.query({ name: 'claim', text: statements.claim });
        if (rows.length === 0) return 0;
        const values = [rows[0].token, rows.map((r) => r[id]), rows.map(() => '{"ok": true}')];
        await client.query({ name: 'complete', text: statements.complete, values });
        return rows.length;
      }),
  };
}

const graphileClient = {
  label: graphile.label,
  database: graphile.database,
  install: () => graphile.install(graphile.database),
  fill: (count) => graphile.prefill(graphile.database, 'q', count),
  async drain(count) {
    let done = 0;
    let finished;
    const all = new Promise((resolve) => (finished = resolve));
    const handler = () => {
      if (++done >= count) finished();
    };
    const runner = await graphile.work(graphile.database, handler, {
      concurrentJobs: 24,
      maxPoolSize: 8,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    });
    await all;
    await runner.stop();
    return done;
  },
};

const pgbossClient = {
  label: pgboss.label,
  database: pgboss.database,
  async install() {
    this.boss = await pgboss.start(this.database);
  },
  async fill(count) {
    for (let i = 0; i < count; i += 1000) {
      await this.boss.insert('job', Array.from({ length: Math.min(1000, count - i) }, (_, k) => ({ data: { n: i + k } })));
    }
  },
  async drain(count) {
    let done = 0;
    const loop = async () => {
      while (done < count) {
        const jobs = await this.boss.fetch('job', { batchSize: SIZE });
        if (jobs.length === 0) break;
        await this.boss.complete('job', jobs.map((j) => j.id), { ok: true });
        done += jobs.length;
      }
    };
    await Promise.all([loop(), loop(), loop(), loop()]);
    return done;
  },
};

// PgQ hands out whole ticks, to one consumer at a time: a tick every 100 events.
const pgqClient = {
  label: pgq.label,
  database: pgq.database,
  install: () => pgq.install(pgq.database),
  async fill(count) {
    const client = await connect(this.database);
    try {
      for (let i = 0; i < count; i += SIZE) {
        await client.query(`SELECT pgq.insert_event('q', 'job', '{"n": 1}') FROM generate_series(1, ${SIZE})`);
        await client.query(`SELECT pgq.ticker('q')`);
      }
    } finally {
      await client.end();
    }
  },
  async drain(count) {
    const client = await connect(this.database);
    let done = 0;
    try {
      while (done < count) {
        const { rows } = await client.query({ name: 'next', text: `SELECT pgq.next_batch('q', 'worker') AS batch` });
        if (rows[0].batch === null) break;
        const events = await client.query({ name: 'events', text: 'SELECT * FROM pgq.get_batch_events($1)', values: [rows[0].batch] });
        await client.query({ name: 'finish', text: 'SELECT pgq.finish_batch($1)', values: [rows[0].batch] });
        done += events.rows.length;
      }
    } finally {
      await client.end();
    }
    return done;
  },
};
