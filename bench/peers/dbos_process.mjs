// One process with DBOS: node dbos_process.mjs URL NAME [WORKFLOW]. Says "ready"; for each number
// that it is sent it makes that many runs, AT_ONCE at a time, and says "done".
import { DBOS } from '@dbos-inc/dbos-sdk';
import pg from 'pg';

const AT_ONCE = 32;
const [url, name, workflow] = process.argv.slice(2);
const pool = new pg.Pool({ connectionString: url, max: 10 });

async function effect(n, step) {
  await pool.query({ name: 'effect', text: 'INSERT INTO effect (n, step) VALUES ($1, $2)', values: [n, step] });
  return { n, step };
}

const three = DBOS.registerWorkflow(
  async (n) => {
    let result;
    for (let step = 1; step <= 3; step++) result = await DBOS.runStep(() => effect(n, step), { name: 'effect' });
    return result;
  },
  { name: 'three' },
);

// a step that does nothing
const one = DBOS.registerWorkflow(async (n) => await DBOS.runStep(async () => n, { name: 'job' }), { name: 'one' });

DBOS.setConfig({ name: 'bench', executorID: name, systemDatabaseUrl: url, systemDatabasePoolSize: 20, logLevel: 'error', runAdminServer: false });
await DBOS.launch();

process.on('message', async (count) => {
  let next = 0;
  const runner = async () => {
    while (next < count) {
      const n = next++;
      await (workflow === 'one' ? one : three)(n);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, runner));
  process.send('done');
});
process.on('disconnect', async () => {
  await DBOS.shutdown();
  await pool.end();
  process.exit(0);
});
process.send('ready');
