// The clients of background.mjs: they execute the step for those who have no
// background workers. Arguments: which, which database.
import { connect } from '../lib/db.mjs';

const [, , label, database] = process.argv;

const workers = {
  'hand, LISTEN': async () => {
    const client = await connect(database);
    const take = () => client.query({ name: 'take', text: 'SELECT take() AS id' });
    let busy = false;
    let again = false;
    async function work() {
      again = true;
      if (busy) return;
      busy = true;
      while (again) {
        again = false;
        while ((await take()).rows[0].id !== null);
      }
      busy = false;
    }
    client.on('notification', () => void work());
    await client.query('LISTEN job');
    process.send({ ready: true });
  },

  'graphile-worker': async () => {
    const { graphile } = await import('../peers/graphile.mjs');
    const act = (payload, helpers) => helpers.withPgClient((client) => client.query('SELECT act($1::jsonb)', [JSON.stringify(payload)]));
    await graphile.work(database, act, { concurrentJobs: 1, pollInterval: 2000 });
    // Its LISTEN is on its way; one poll interval is certainly enough.
    setTimeout(() => process.send({ ready: true }), 2000);
  },
};

await workers[label]();
