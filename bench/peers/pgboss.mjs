// pg-boss from npm, through its API.
import { PgBoss } from 'pg-boss';
import { connectionString } from '../lib/db.mjs';

export const pgboss = {
  label: 'pg-boss',
  database: 'bench_pgboss',

  async start(database, options = {}, queueOptions = {}) {
    const boss = new PgBoss({ connectionString: connectionString(database), max: 8, supervise: false, schedule: false, ...options });
    boss.on('error', (error) => {
      process.stderr.write(`pg-boss: ${error}\n`);
    });
    await boss.start();
    await boss.createQueue('job', queueOptions);
    return boss;
  },
};
