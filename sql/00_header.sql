-- durable: the install script. Built from sql/NN_*.sql in name order.
\echo Use "CREATE EXTENSION durable" to load this file. \quit

SET LOCAL search_path TO pg_catalog, pg_temp;

-- Fails when a schema of that name is already there: nobody can lay one out
-- beforehand and have the extension adopt it.
CREATE SCHEMA durable;
COMMENT ON SCHEMA durable IS 'durable: task queue and workflows';
