-- The extension comes and goes as a whole, also within one session.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION durable;

-- one schema, its own, that nobody else may use
SELECT nspname, nspacl IS NOT NULL AS has_acl,
       has_schema_privilege('public', oid, 'USAGE') AS public_usage
  FROM pg_namespace WHERE nspname = 'durable';
SELECT extrelocatable FROM pg_extension WHERE extname = 'durable';

-- all that is in the schema belongs to the extension, and nothing outside does
SELECT count(*) AS strays
  FROM (SELECT 'pg_class'::regclass, oid FROM pg_class WHERE relnamespace = 'durable'::regnamespace AND relkind IN ('r', 'S', 'v')
        UNION ALL
        SELECT 'pg_proc'::regclass, oid FROM pg_proc WHERE pronamespace = 'durable'::regnamespace) o (classid, objid)
 WHERE NOT EXISTS (SELECT FROM pg_depend d
                    WHERE d.classid = o.classid AND d.objid = o.objid
                      AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e');
SELECT c.relname, c.relkind FROM pg_class c
 WHERE c.relnamespace = 'durable'::regnamespace AND c.relkind IN ('r', 'v', 'S')
 ORDER BY c.relkind, c.relname;

-- each of them says what it is for
SELECT count(*) AS without_comment
  FROM pg_class c
 WHERE c.relnamespace = 'durable'::regnamespace AND c.relkind IN ('r', 'v')
   AND obj_description(c.oid, 'pg_class') IS NULL;

-- the data types in its tables survive pg_upgrade
SELECT c.relname, a.attname, a.atttypid::regtype
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
 WHERE c.relnamespace = 'durable'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
   AND a.atttypid IN ('regproc'::regtype, 'regprocedure'::regtype, 'regoper'::regtype,
                      'regoperator'::regtype, 'regconfig'::regtype, 'regdictionary'::regtype,
                      'regnamespace'::regtype, 'regcollation'::regtype);

-- it works
SELECT durable.dispatch('hello', '{"to": "world"}');
SELECT token FROM durable.claim('{hello}') \gset
SELECT durable.complete('~1', :'token', '"done"');

-- what hangs on it is not dropped silently
CREATE VIEW depends AS SELECT * FROM durable.task;
DROP EXTENSION durable;
DROP EXTENSION durable CASCADE;
SELECT count(*) FROM pg_namespace WHERE nspname = 'durable';
SELECT durable.dispatch('hello');

-- a schema that is in its way is not adopted
CREATE SCHEMA durable;
CREATE EXTENSION durable;
DROP SCHEMA durable;

-- nor can it be put into another one
CREATE SCHEMA elsewhere;
CREATE EXTENSION durable SCHEMA elsewhere;
DROP SCHEMA elsewhere;
CREATE EXTENSION durable;
ALTER EXTENSION durable SET SCHEMA public;
DROP EXTENSION durable;

-- created and dropped in one transaction, and rolled back both ways
BEGIN;
CREATE EXTENSION durable;
SELECT durable.dispatch('hello');
SELECT task_id, name FROM durable.claim('{hello}');
ROLLBACK;
SELECT durable.dispatch('hello');
CREATE EXTENSION durable;
SELECT durable.dispatch('hello');
BEGIN;
DROP EXTENSION durable;
SELECT durable.dispatch('hello');
ROLLBACK;
SELECT task_id, name FROM durable.claim('{hello}');

-- a new one starts from nothing; this session's caches do not mislead it
DROP EXTENSION durable;
CREATE EXTENSION durable;
SELECT task_id FROM durable.claim('{hello}');
SELECT durable.dispatch('hello');
SELECT task_id, name FROM durable.claim('{hello}');

-- only a superuser may create it
CREATE ROLE durable_test_nobody;
SET ROLE durable_test_nobody;
DROP EXTENSION durable;
RESET ROLE;
DROP EXTENSION durable;
SET ROLE durable_test_nobody;
CREATE EXTENSION durable;
RESET ROLE;
DROP ROLE durable_test_nobody;
