// A worker with the workflow of trip.sql, and the step "charge". SIGTERM ends it.

import { StepFailed, Worker, inTransaction } from './node/durable-worker.mjs';

async function trip(ctx, input) {
  ctx.now();
  ctx.random();
  ctx.uuid();
  let price;
  if (ctx.patched('priced first')) {
    price = await ctx.localStep('price', ({ nights }) => ({ total: nights * 80 }), { input });
  }
  ctx.setEvent('state', 'priced');
  ctx.upsertSearchAttributes({ city: input.city });
  ctx.log('info', 'priced', price);
  const charge = await ctx.step('charge', price, { retries: 3, backoffMs: 1 });
  const squares = await ctx.stepAll('square', [1, 2, 3]);
  const leg = await ctx.child('leg', { to: 'airport' });
  await ctx.sleep(20);
  const guide = await ctx.waitForSignal(`guide:${ctx.runId}`);
  let late = false;
  try {
    await ctx.waitForSignal(`nobody:${ctx.runId}`, { timeoutMs: 20 });
  } catch (error) {
    if (error.code !== 'WF004') throw error;
    late = true;
  }
  let refused;
  try {
    await ctx.step('insure', { age: 200 });
  } catch (error) {
    if (!(error instanceof StepFailed) || error.code !== '22003') throw error;
    refused = error.message;
  }
  ctx.sideEffect(() => 'chosen');
  const settled = (await ctx.stepAll('root', [4, -1, 9], { mode: 'settled', maxInFlight: 2 }))
    .map(({ status, value, error }) => (status === 'completed' ? value : error.code));
  let called;
  try {
    await ctx.stepAll('root', [-1, 16, 25], { mode: 'fail_fast', maxInFlight: 1 });
  } catch (error) {
    if (error.code !== '2201F') throw error;
    called = 'off';
  }
  const first = await ctx.awaitAny([ctx.stepAsync('nobody', 1), ctx.stepAsync('root', 36)]);
  const root = await ctx.await(first);
  return { charge, squares, leg, guide, late, refused, settled, called, root };
}

// It fails at last, and what it did is undone.
async function retreat(ctx, input) {
  const room = await ctx.localStep('reserve', ({ nights }) => ({ room: nights }), { input });
  ctx.compensate('release', ({ room }) => `room ${room} is free`, { input: room });
  const squared = await ctx.step('square', 3);
  ctx.compensate('undo', { run: ctx.runId, what: squared });
  await ctx.step('root', 16);
  ctx.compensate('root', -1);
  await ctx.stepAll('square', [1, 2]);
  ctx.compensate('undo', { run: ctx.runId, what: 'squares' }, { retries: 2 });
  await ctx.step('insure', { age: 200 });
  return 'never comes here';
}

// Steps one after the other, which this worker serves itself.
async function chain(ctx) {
  ctx.now();
  const said = [];
  for (let n = 0; n < 3; n++) {
    said.push(await ctx.step('echo_node', { n }, { retries: 2, backoffMs: 1 }));
    ctx.sideEffect(() => 'chosen');
    ctx.log('info', 'said', said[n]);
  }
  await ctx.localStep('here', () => 'here');
  said.push(await ctx.step('echo_node', { n: 3 }));
  ctx.sideEffect(() => 'chosen');
  ctx.setEvent('state', 'said');
  const aside = ctx.stepAsync('square', 7);
  let refused;
  try {
    await ctx.step('insure', { age: 200 });
  } catch (error) {
    if (error.code !== '22003') throw error;
    refused = error.message;
  }
  said.push(await ctx.step('echo_node', { n: 4 }));
  return { said, aside: await ctx.await(aside), refused };
}

async function hop(ctx, n) {
  const said = await ctx.step('echo_node', { n });
  ctx.sideEffect(() => 'hopped');
  return said;
}

// What the body sees of a result must be the same before it is stored and after. A local step
// after it needs a turn that is claimed, with the history that the database has.
async function odd(ctx, what) {
  const value = await ctx.step('odd_node', what);
  if (what === 'body') return '\0';
  const before = ctx.sideEffect(() => String(JSON.stringify(value)));
  await ctx.step('odd_node', 'none');
  await ctx.localStep('turn', async () => null);
  return { before, after: String(JSON.stringify(value)) };
}

async function oddResult(what) {
  return {
    keys: { longer: { b: 1, a: [2] }, b: 3, a: null, 'Zé': 'é' },
    numbers: [1e16, 1.25e20, 1e-7, -0, 0, 1, 1.1, 2 ** 70, 1.7976931348623157e308, 5e-324, true],
    nul: '\0', set: new Set([1]), nan: NaN,
  }[what];
}

// Quick, and many of them.
async function rush(ctx, n) {
  return await ctx.step('dash', n);
}

// Its step takes longer than it may be silent.
async function calm(ctx) {
  return await ctx.step('stay', { long: true }, { timeoutMs: 2500 });
}

// Endless, as far as a test goes.
async function marathon(ctx) {
  for (let n = 0; n < 1000000; n++) await ctx.step('dash', n);
}

// To be killed while it undoes.
async function unwind(ctx) {
  ctx.compensate('undo', { run: ctx.runId, what: 'first' });
  ctx.compensate('wait', async () => { await new Promise((resolve) => { setTimeout(resolve, Number(process.env.WORK_MS ?? 0)); }); return 'node'; });
  ctx.compensate(process.env.UNDO ?? 'undo', { run: ctx.runId, what: 'second' });
  throw Object.assign(new Error('nothing left'), { code: 'P0001' });
}

// One worker begins, another one ends it: both know the workflow.
async function relay(ctx) {
  const first = await ctx.localStep('first', () => 'node');
  const signal = await ctx.waitForSignal(`baton:${ctx.runId}`);
  const second = await ctx.localStep('second', () => 'node');
  return { first, signal, second };
}

// Long enough to be frozen in the middle.
async function frozen(ctx) {
  const by = await ctx.localStep('by', async () => { await new Promise((resolve) => { setTimeout(resolve, Number(process.env.WORK_MS ?? 0)); }); return 'node'; });
  const step = await ctx.step('slow');
  return { by, step };
}

// The second step is long enough to be killed or frozen in it. Who decides what follows says so.
async function pair(ctx) {
  const first = await ctx.step('stay', { long: false });
  ctx.sideEffect(() => 'node');
  const second = await ctx.step('stay', { long: true });
  ctx.sideEffect(() => 'node');
  return [first, second];
}

// Something that is written once, whatever becomes of the workers.
async function load(ctx, input) {
  await ctx.transaction('book', async (client) => {
    await client.query('INSERT INTO trip.booked VALUES ($1, $2)', [ctx.runId, input.n]);
  });
  const [a, b] = await Promise.all([ctx.step('double', input.n), ctx.step('charge', { total: input.n }, { retries: 3 })]);
  await ctx.sleep(1);
  await ctx.step('double', a);
  ctx.sideEffect(() => 'node');
  await ctx.step('ship', { n: input.n });
  return { a, b };
}

const worker = new Worker({
  workflows: { trip_node: trip, retreat_node: retreat, chain_node: chain, hop_node: hop, odd_node: odd, pair, calm, rush, marathon, unwind, relay, load, frozen, 'two@1': async () => 'one, in node', 'two@2': async () => 'two, in node' },
  handlers: {
    charge: async (price, task) => {
      if (task.attempt === 1) throw Object.assign(new Error('the card reader is busy'), { code: '55006' });
      return { paid: price.total };
    },
    odd_node: oddResult,
    echo_node: async ({ n }, task) => {
      if (n === 1 && task.attempt === 1) throw Object.assign(new Error('once more'), { code: '55006' });
      return { said: n };
    },
    stay: async ({ long }) => { await new Promise((resolve) => { setTimeout(resolve, long ? Number(process.env.WORK_MS ?? 0) : 0); }); return 'node'; },
    double: async (n) => n * 2,
    dash: async (n) => n,
    ship: inTransaction(async (client, { n }, task) => {
      await client.query('INSERT INTO trip.shipped VALUES ($1, $2)', [task.run_id, n]);
    }),
    slow: async () => { await new Promise((resolve) => { setTimeout(resolve, Number(process.env.WORK_MS ?? 0)); }); return 'node'; },
    patience: (_, { signal }) => new Promise((_resolve, reject) => { signal.onabort = () => reject(new Error('handed back')); }),
  },
  concurrency: Number(process.env.CONCURRENCY ?? 8),
  leaseMs: Number(process.env.LEASE_MS ?? 30000),
  pollMs: 500,
  ...(process.env.BEAT_MS ? { beatMs: Number(process.env.BEAT_MS) } : {}),
  history: process.env.HISTORY ? Number(process.env.HISTORY) : null,
});
worker.start();
process.on('SIGTERM', () => worker.stop({ graceMs: 300 }).then(() => process.exit(0)));
