// Connections, databases, and the small chores around them. Where the server is
// comes from the usual PG* variables, which bench/run sets.
import { readFile } from 'node:fs/promises';
import pg from 'pg';

// int8 as number: nothing here counts past 2^53.
pg.types.setTypeParser(20, Number);

export async function connect(database, options = {}) {
  const client = new pg.Client({ database, ...options });
  await client.connect();
  return client;
}

// Run sql in database, in a connection of its own; returns the rows.
export async function query(database, sql, params) {
  const client = await connect(database);
  try {
    return (await client.query(sql, params)).rows;
  } finally {
    await client.end();
  }
}

export function connectionString(database) {
  const host = encodeURIComponent(process.env.PGHOST);
  const port = process.env.PGPORT;
  const user = process.env.PGUSER;
  return `postgres://${user}@localhost:${port}/${database}?host=${host}`;
}

// A new, empty database. Waits until other sessions (a peer's background
// workers) have let go of the old one.
export async function freshDatabase(name) {
  const client = await connect('postgres');
  try {
    await client.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    await client.query(`CREATE DATABASE ${name}`);
  } finally {
    await client.end();
  }
}

export async function dropDatabase(name) {
  await query('postgres', `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
}

// Vacuum and analyze every table of the peer, so that each slice begins with
// clean tables and true statistics, whoever ran before.
export async function tidy(database) {
  const client = await connect(database);
  try {
    const { rows } = await client.query(`
      SELECT format('%I.%I', n.nspname, c.relname) AS name
      FROM pg_catalog.pg_class c
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE c.relkind = 'r' AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
      ORDER BY 1`);
    for (const { name } of rows) await client.query(`VACUUM (ANALYZE) ${name}`);
  } finally {
    await client.end();
  }
}

export async function checkpoint() {
  await query('postgres', 'CHECKPOINT');
}

export async function sleep(ms) {
  await new Promise((resolve) => setTimeout(resolve, ms));
}

let postmaster;

// The CPU time of all sessions that have ended, in ticks: the server's own count
// of its reaped children.
export async function serverTicks() {
  if (!postmaster) {
    const [{ dir }] = await query('postgres', `SELECT setting AS dir FROM pg_settings WHERE name = 'data_directory'`);
    postmaster = Number((await readFile(`${dir}/postmaster.pid`, 'utf8')).split('\n')[0]);
  }
  await sleep(50); // the last ones are being reaped
  const stat = await readFile(`/proc/${postmaster}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return Number(fields[13]) + Number(fields[14]);
}

// The same in microseconds.
export async function serverCpu() {
  return (await serverTicks()) * 10_000;
}
