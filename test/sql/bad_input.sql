-- Bad input: each gets its SQLSTATE and a clear message, and changes nothing.
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

CREATE FUNCTION try(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
BEGIN
	EXECUTE command;
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN SQLSTATE || ' ' || SQLERRM || CASE WHEN detail = '' THEN '' ELSE '. ' || detail END;
END $$;
-- the arguments of a function, one after the other bad
CREATE FUNCTION try_all(pattern text, cases text[]) RETURNS TABLE (given text, answer text) LANGUAGE sql AS $$
	SELECT left(c, 60), try(format(pattern, c)) FROM unnest(cases) c
$$;
-- one claimed task, one ready, one result taken
SELECT durable.dispatch('q', task_id => 't1', priority => 2), durable.dispatch('q', task_id => 't2'), durable.dispatch('r', task_id => 'r1') \g /dev/null
SELECT durable.cancel_task('r1') \g /dev/null
SELECT token FROM durable.claim('{q}', lease => '1 hour') \gset
SELECT token AS reads FROM durable.claim_results('{r}', lease => '1 hour') \gset
CREATE VIEW state AS
SELECT (SELECT string_agg(t::text, E'\n' ORDER BY t.id) FROM durable.task t) AS tasks,
       (SELECT string_agg(t::text, E'\n' ORDER BY t.id) FROM durable.task_ready t) AS ready,
       (SELECT string_agg(t::text, E'\n' ORDER BY t.id) FROM durable.task_delayed t) AS delayed,
       (SELECT string_agg(t::text, E'\n' ORDER BY t.id) FROM durable.lease t) AS leases,
       (SELECT string_agg(t::text, E'\n' ORDER BY t.id) FROM durable.task_result t) AS results,
       (SELECT string_agg(t::text, E'\n' ORDER BY t.id) FROM durable.task_progress t) AS progress,
       (SELECT string_agg(t::text, E'\n') FROM durable.queue t) AS queues,
       (SELECT string_agg(t::text, E'\n') FROM durable.namespace_access t) AS access;
CREATE TABLE before AS SELECT * FROM state;
\pset format unaligned
\pset fieldsep ' -> '
\pset tuples_only on

\echo dispatch
SELECT * FROM try_all('SELECT durable.dispatch(%s)', ARRAY[
	'NULL', '''''', 'repeat(''x'', 256)', 'repeat(''ü'', 128)',
	'''n'', task_id => ''''', '''n'', task_id => repeat(''x'', 513)', '''n'', task_id => ''~1''', '''n'', task_id => ''~x''',
	'''n'', queue => ''''', '''n'', queue => repeat(''x'', 256)', '''n'', namespace => repeat(''x'', 256)',
	'''n'', run_at => ''infinity''', '''n'', run_at => ''294277-01-01''', '''n'', run_at => ''yesterday-ish''',
	'''n'', max_attempts => 0', '''n'', max_attempts => -1', '''n'', max_attempts => 2147483648',
	'''n'', priority => 2147483648', '''n'', priority => ''high''',
	'''n'', backoff => ''-1 s''', '''n'', backoff => ''-1 month 1 day''', '''n'', backoff_max => ''-1 us''',
	'''n'', backoff_kind => ''linear''', '''n'', backoff_kind => ''''', '''n'', backoff_kind => ''EXP''',
	'''n'', ''{''', '''n'', ''"\u0000"''', '''n'', nosuch => 1']);

\echo dispatch_many
SELECT * FROM try_all('SELECT * FROM durable.dispatch_many(%s)', ARRAY[
	'NULL, ''{1}''', ''''', ''{1}''', 'repeat(''x'', 256), ''{1}''', '''n'', NULL', '''n'', ''{x}''',
	'''n'', ''{1,2}'', task_ids => ''{a}''', '''n'', ''{1}'', task_ids => ''{a,b}''', '''n'', ''{1}'', task_ids => ''{}''',
	'''n'', ''{1,2}'', task_ids => ''{a,""}''', '''n'', ''{1,2}'', task_ids => ''{a,~1}''',
	'''n'', ''{1,2}'', task_ids => ARRAY[''a'', repeat(''x'', 513)]',
	'''n'', ''{1}'', queue => ''''', '''n'', ''{1}'', namespace => repeat(''x'', 256)', '''n'', ''{1}'', run_at => ''infinity''',
	'''n'', ''{1}'', max_attempts => 0', '''n'', ''{1}'', backoff => ''-1 s''', '''n'', ''{1}'', backoff_max => ''-1 s''',
	'''n'', ''{1}'', backoff_kind => ''x''']);

\echo claim
SELECT * FROM try_all('SELECT * FROM durable.claim(%s)', ARRAY[
	'NULL', '''{}''', '''{NULL}''', '''{q,NULL}''', '''{""}''', '''{q,""}''', 'ARRAY[''q'', repeat(''x'', 256)]',
	'ARRAY(SELECT ''q'' || i FROM generate_series(1, 100001) i)',
	'''{q}'', NULL', '''{q}'', 0', '''{q}'', -1', '''{q}'', -2147483648', '''{q}'', 2147483647', '''{q}'', 2147483648',
	'''{q}'', 1, NULL', '''{q}'', 1, ''0''', '''{q}'', 1, ''-1 s''', '''{q}'', 1, ''1 day -24:00''', '''{q}'', 1, ''-1 us''',
	'''{q}'', 1, ''367 days''', '''{q}'', 1, ''178000000 years''', '''{q}'', 1, ''1 month -31 days''',
	'''{q}'', worker => ''''', '''{q}'', worker => repeat(''x'', 256)', '''{q}'', namespace => repeat(''x'', 256)']);

\echo settle_and_claim
SELECT left(replace(c, :'token', 'TOKEN'), 60), try(format('SELECT * FROM durable.settle_and_claim(%s)', c))
  FROM unnest(ARRAY[
	'''t1'', NULL, NULL, ''{q}''', format(''''', %L, NULL, ''{q}''', :'token'), format('repeat(''x'', 513), %L, NULL, ''{q}''', :'token'),
	format('''t1'', %L, NULL, NULL', :'token'), format('''t1'', %L, NULL, ''{}''', :'token'), format('''t1'', %L, NULL, ''{NULL}''', :'token'),
	format('''t1'', %L, NULL, ''{q}'', 0', :'token'), format('''t1'', %L, NULL, ''{q}'', NULL', :'token'),
	format('''t1'', %L, NULL, ''{q}'', 1, ''0''', :'token'), format('''t1'', %L, NULL, ''{q}'', 1, NULL', :'token'),
	format('''t1'', %L, NULL, ''{q}'', namespace => repeat(''x'', 256)', :'token'), '''t1'', ''not a token'', NULL, ''{q}''']) c;

\echo complete
SELECT left(replace(c, :'token', 'TOKEN'), 60), try(format('SELECT durable.complete(%s)', c))
  FROM unnest(ARRAY[format('NULL, %L', :'token'), format(''''', %L', :'token'), format('repeat(''x'', 513), %L', :'token'), '''t1'', NULL', '''t1'', ''x''', format('''t1'', %L, ''{''', :'token')]) c;
\echo complete_many
SELECT left(replace(c, :'token', 'TOKEN'), 60), try(format('SELECT * FROM durable.complete_many(%s)', c))
  FROM unnest(ARRAY['NULL, ''{t1}''', format('%L, NULL', :'token'), format('%L, ''{NULL}''', :'token'), format('%L, ''{t1,""}''', :'token'), format('%L, ARRAY[repeat(''x'', 513)]', :'token'),
	format('%L, ''{t1}'', ''{}''', :'token'), format('%L, ''{t1}'', ''{1,2}''', :'token'), format('%L, ''{t1,t2}'', ''{1}''', :'token'), format('%L, array_fill(''t1''::text, ''{100001}'')', :'token')]) c;
\echo fail
SELECT left(replace(c, :'token', 'TOKEN'), 60), try(format('SELECT durable.fail(%s)', c))
  FROM unnest(ARRAY[format('NULL, %L, ''1''', :'token'), format(''''', %L, ''1''', :'token'), '''t1'', NULL, ''1''', format('''t1'', %L', :'token')]) c;
\echo renew
SELECT left(replace(c, :'token', 'TOKEN'), 60), try(format('SELECT durable.renew(%s)', c))
  FROM unnest(ARRAY['NULL', format('%L, NULL', :'token'), format('%L, ''0''', :'token'), format('%L, ''-1 s''', :'token'), format('%L, ''367 days''', :'token')]) c;
\echo release
SELECT left(replace(c, :'token', 'TOKEN'), 60), try(format('SELECT durable.release(%s)', c))
  FROM unnest(ARRAY['NULL', 'NULL, ''{t1}''', format('%L, ''{NULL}''', :'token'), format('%L, ''{t1,""}''', :'token'), format('%L, ARRAY[''t1'', repeat(''x'', 513)]', :'token')]) c;
\echo heartbeat
SELECT left(replace(c, :'token', 'TOKEN'), 60), try(format('SELECT durable.heartbeat(%s)', c))
  FROM unnest(ARRAY[format('NULL, %L', :'token'), format(''''', %L', :'token'), '''t1'', NULL']) c;
\echo task_status, queue_depth, cancel_task, pause_queue, resume_queue
SELECT * FROM try_all('SELECT durable.task_status(%s)', ARRAY['NULL', 'NULL, NULL', '''t1'', repeat(''x'', 256)']);
SELECT * FROM try_all('SELECT durable.queue_depth(%s)', ARRAY['NULL', '''q'', repeat(''x'', 256)']);
SELECT * FROM try_all('SELECT durable.cancel_task(%s)', ARRAY['NULL', '''''', 'repeat(''x'', 513)', '''t1'', repeat(''x'', 256)']);
SELECT * FROM try_all('SELECT durable.pause_queue(%s)', ARRAY['NULL', '''''', 'repeat(''x'', 256)', '''q'', repeat(''x'', 256)']);
SELECT * FROM try_all('SELECT durable.resume_queue(%s)', ARRAY['NULL', '''''', 'repeat(''x'', 256)', '''q'', repeat(''x'', 256)']);
\echo claim_results
SELECT * FROM try_all('SELECT * FROM durable.claim_results(%s)', ARRAY[
	'NULL', '''{}''', '''{NULL}''', '''{""}''', 'ARRAY[repeat(''x'', 256)]', '''{r}'', NULL', '''{r}'', 0', '''{r}'', -1', '''{r}'', 2147483647',
	'''{r}'', 1, NULL', '''{r}'', 1, ''0''', '''{r}'', 1, ''-1 s''', '''{r}'', 1, ''367 days''', '''{r}'', namespace => repeat(''x'', 256)']);
\echo ack_results
SELECT left(replace(c, :'reads', 'TOKEN'), 60), try(format('SELECT durable.ack_results(%s)', c))
  FROM unnest(ARRAY['NULL', 'NULL, ''{r1}''', format('%L, ''{NULL}''', :'reads'), format('%L, ''{r1,NULL}''', :'reads')]) c;
\echo wait_for_work
SELECT * FROM try_all('CALL durable.wait_for_work(%s)', ARRAY[
	'NULL', '''{}''', '''{NULL}''', '''{""}''', 'ARRAY[repeat(''x'', 256)]', '''{q}'', NULL', '''{q}'', ''-1 s''', '''{q}'', ''-1 us''', '''{q}'', ''0'', repeat(''x'', 256)']);
\echo wait_and_claim
SELECT * FROM try_all('CALL durable.wait_and_claim(%s)', ARRAY[
	'NULL', '''{}''', '''{q,NULL}''', '''{""}''', '''{q}'', NULL', '''{q}'', 0', '''{q}'', 2147483647', '''{q}'', 1, NULL', '''{q}'', 1, ''0''', '''{q}'', 1, ''367 days''',
	'''{q}'', timeout => NULL', '''{q}'', timeout => ''-1 us''', '''{q}'', worker => ''''', '''{q}'', namespace => repeat(''x'', 256)']);
\echo sweep
SELECT * FROM try_all('SELECT durable.sweep(%s)', ARRAY['NULL', '0', '-1', '2147483647']);
\echo triggers
SELECT * FROM try_all('SELECT durable.%s()', '{settings_changed,list_changed}');

\echo settings
SELECT given, left(answer, 5) FROM try_all('SET durable.%s', ARRAY['clock_offset = -1', 'clock_offset = ''1 fortnight''', 'max_reclaims = -1', 'max_reclaims = ''x''', 'max_payload = 0', 'max_payload = ''1TB''',
	'result_retention = -2', 'heartbeat_interval = -1', 'poll_interval = 9', 'poll_interval = 60001', 'scan_hints = ''perhaps''', 'async_claim = 2', 'careful_period = -1', 'nosuch = 1']);
SELECT length(set_config('durable.namespace', repeat('x', 256), false));
SELECT try('SELECT durable.dispatch(''x'')');
RESET durable.namespace;
-- those that could hide work or time are not for everybody
CREATE ROLE durable_test_user;
SET ROLE durable_test_user;
SELECT name, context FROM pg_settings WHERE name LIKE 'durable.%' ORDER BY name;
SET durable.clock_offset = 1;
SET durable.max_payload = 1;
SET durable.max_reclaims = 1;
SET durable.result_retention = 1;
SET durable.scan_hints = off;
SET durable.namespace = 'mine';
RESET durable.namespace;
RESET ROLE;
DROP ROLE durable_test_user;

\echo too large
SET durable.max_payload = '10kB';
CREATE FUNCTION big() RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_agg(md5(i::text)) FROM generate_series(1, 300) i $$;
CREATE FUNCTION compressible() RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(repeat('x', 11000)) $$;
CREATE FUNCTION fits() RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(repeat('x', 10 * 1024 - 12)) $$;
CREATE TABLE stored AS SELECT compressible() AS doc;
SELECT * FROM try_all('SELECT durable.dispatch(''n'', %s)', ARRAY['big()', 'to_jsonb(repeat(''x'', 10229))', 'compressible()', '(SELECT doc FROM stored)', 'headers => big()']);
SELECT * FROM try_all('SELECT durable.dispatch_many(''n'', ARRAY[''1'', %s])', ARRAY['big()']);
SELECT replace(c, :'token', 'TOKEN'), try(c)
  FROM unnest(ARRAY['SELECT durable.dispatch_many(''n'', ARRAY[''1''::jsonb], headers => big())',
	format('SELECT durable.complete(''t1'', %L, big())', :'token'), format('SELECT durable.complete(''t1'', %L, ''1'', big())', :'token'),
	format('SELECT durable.complete_many(%L, ''{t1}'', ARRAY[big()])', :'token'), format('SELECT durable.settle_and_claim(''t1'', %L, big(), ''{q}'')', :'token'),
	format('SELECT durable.fail(''t1'', %L, big())', :'token'), format('SELECT durable.fail(''t1'', %L, ''1'', big())', :'token'),
	format('SELECT durable.heartbeat(''t1'', %L, big())', :'token')]) c;
DROP TABLE stored;

-- nothing changed
\pset format aligned
\pset tuples_only off
SELECT count(*) AS unchanged FROM before JOIN state ON before IS NOT DISTINCT FROM state;

-- exactly at the limit is fine
SELECT length(durable.dispatch('n', fits())) > 0 AS fits;
RESET durable.max_payload;
SELECT length(durable.dispatch('n', big())) > 0 AS fits;

-- an unknown token is not an error: the claim is just lost
SELECT durable.complete('t1', gen_random_uuid()), durable.fail('t1', gen_random_uuid(), NULL), durable.heartbeat('t1', gen_random_uuid()),
       durable.renew(gen_random_uuid()), durable.release(gen_random_uuid()), durable.ack_results(gen_random_uuid());

DROP VIEW state;
DROP TABLE before;
DROP FUNCTION try_all, try, big, compressible, fits;
