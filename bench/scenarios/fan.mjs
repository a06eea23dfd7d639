// Fans: what an element costs in a fan of 10,000 against one of 1,000. From the start of the run to
// its end: dispatching, claiming and completing each step by itself or by the hundred, and the
// turns. The ratio is 1 when the cost of an element does not depend on the size of the fan.
import { addRow } from '../lib/report.mjs';
import { connect, freshDatabase, serverCpu, tidy } from '../lib/db.mjs';
import { interleave, ratioOf } from '../lib/compare.mjs';
import { median } from '../lib/stats.mjs';

const DATABASE = 'bench_fan';
const FEW = 1_000;
const MANY = 10_000;

const SETUP = `
CREATE EXTENSION durable;
CREATE FUNCTION fan(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN to_jsonb(cardinality(durable.step_all('out', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, (i ->> 'n')::int) n),
    max_in_flight => (i ->> 'window')::int)));
END $$;
CREATE FUNCTION awaited(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  handles int[];
BEGIN
  FOR n IN 1..(i ->> 'n')::int LOOP
    handles := handles || durable.step_async('out', to_jsonb(n));
  END LOOP;
  RETURN to_jsonb(cardinality(durable.await_all(handles)));
END $$;
-- the worker: one transaction for each claim, one for each settle
CREATE PROCEDURE drain(batch int) LANGUAGE plpgsql AS $$
DECLARE
  ids text[];
  t uuid;
BEGIN
  LOOP
    SELECT array_agg(c.task_id), (array_agg(c.token))[1] INTO ids, t FROM durable.claim('{out}', batch) c;
    EXIT WHEN ids IS NULL;
    COMMIT;
    IF (SELECT count(*) FROM durable.complete_many(t, ids, array_fill('1'::jsonb, ARRAY[cardinality(ids)]))) <> cardinality(ids) THEN
      RAISE 'not settled';
    END IF;
    COMMIT;
  END LOOP;
END $$;
SELECT durable.register_workflow('fan', 'fan'), durable.register_workflow('awaited', 'awaited');`;

// Elements per second; the session's CPU time counts when it has ended.
async function once(kind, n, run) {
  await tidy(DATABASE);
  const before = await serverCpu();
  const seconds = await drive(kind, n, run);
  return { rate: n / seconds, cpu: ((await serverCpu()) - before) / n };
}

async function drive({ workflow, window, batch }, n, run) {
  const client = await connect(DATABASE);
  try {
    const begin = process.hrtime.bigint();
    await client.query('SELECT durable.start($1, $2, $3)', [workflow, JSON.stringify({ n, window }), run]);
    await client.query("CALL durable.work(duration => '0')");
    await client.query('CALL drain($1)', [batch]);
    await client.query("CALL durable.work(duration => '0')");
    const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
    const { rows } = await client.query('SELECT durable.result($1) AS n', [run]);
    if (rows[0].n !== n) throw new Error(`${run}: ${rows[0].n} of ${n} results`);
    return seconds;
  } finally {
    await client.end();
  }
}

export async function fan({ rounds }) {
  const kinds = [
    { measure: 'step_all, one by one', workflow: 'fan', batch: 1 },
    { measure: 'step_all, by the hundred', workflow: 'fan', batch: 100 },
    { measure: 'step_all, 10 in flight', workflow: 'fan', window: 10, batch: 10 },
    { measure: 'step_async and await_all, by the hundred', workflow: 'awaited', batch: 100 },
  ];
  await freshDatabase(DATABASE);
  const client = await connect(DATABASE);
  await client.query(SETUP);
  await client.end();
  for (const kind of kinds) {
    // one of 10,000 against ten of 1,000, so that both sides write as many rows
    const few = async (round) => {
      const parts = [];
      for (let i = 0; i < MANY / FEW; i++) parts.push(await once(kind, FEW, `${kind.measure} few ${round} ${i}`));
      return { rate: median(parts.map((p) => p.rate)), cpu: median(parts.map((p) => p.cpu)) };
    };
    const series = await interleave(
      `fan, ${kind.measure}`,
      [
        { label: 'few', run: few },
        { label: 'many', run: (round) => once(kind, MANY, `${kind.measure} many ${round}`) },
      ],
      rounds(7, 3),
    );
    const r = ratioOf(series.many.rate, series.few.rate);
    addRow({
      scenario: 'fan',
      measure: kind.measure,
      peer: 'a fan of 1,000',
      unit: 'elements/s',
      ...r,
      mine: r.a,
      other: r.b,
      cpu: ratioOf(series.few.cpu, series.many.cpu),
      target: { min: 0.8 },
    });
  }
}
