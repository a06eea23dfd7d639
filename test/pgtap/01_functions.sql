-- The contract of the SQL surface: names, arguments and their order, defaults,
-- results, volatility. A changed line here is a changed API.
\set ECHO none
\pset format unaligned
\pset tuples_only on
SET IntervalStyle = postgres;
SET client_min_messages = warning;
BEGIN;
SELECT plan(22);

CREATE TEMP TABLE contract (name text, kind "char", volatility "char", result text, arguments text[]);
INSERT INTO contract VALUES
	-- producers
	('dispatch', 'f', 'v', 'text', ARRAY['name text', 'input jsonb DEFAULT NULL::jsonb', 'task_id text DEFAULT NULL::text',
		'queue text DEFAULT NULL::text', 'namespace text DEFAULT NULL::text', 'priority integer DEFAULT 0',
		'run_at timestamp with time zone DEFAULT NULL::timestamp with time zone', 'max_attempts integer DEFAULT 1',
		'backoff interval DEFAULT ''00:00:00''::interval', 'backoff_max interval DEFAULT NULL::interval', 'headers jsonb DEFAULT NULL::jsonb',
		'backoff_kind text DEFAULT NULL::text', 'jitter boolean DEFAULT false', 'limiter text DEFAULT NULL::text', 'fairness_key text DEFAULT NULL::text',
		'on_conflict text DEFAULT NULL::text', 'debounce interval DEFAULT NULL::interval', 'debounce_max interval DEFAULT NULL::interval',
		'throttle interval DEFAULT NULL::interval']),
	('dispatch_many', 'f', 'v', 'SETOF text', ARRAY['name text', 'inputs jsonb[]', 'queue text DEFAULT NULL::text',
		'namespace text DEFAULT NULL::text', 'priority integer DEFAULT 0',
		'run_at timestamp with time zone DEFAULT NULL::timestamp with time zone', 'max_attempts integer DEFAULT 1',
		'backoff interval DEFAULT ''00:00:00''::interval', 'backoff_max interval DEFAULT NULL::interval', 'headers jsonb DEFAULT NULL::jsonb',
		'backoff_kind text DEFAULT NULL::text', 'jitter boolean DEFAULT false', 'task_ids text[] DEFAULT NULL::text[]', 'limiter text DEFAULT NULL::text', 'fairness_key text DEFAULT NULL::text',
		'on_conflict text DEFAULT NULL::text', 'debounce interval DEFAULT NULL::interval', 'debounce_max interval DEFAULT NULL::interval',
		'throttle interval DEFAULT NULL::interval']),
	('cancel_task', 'f', 'v', 'boolean', ARRAY['task_id text', 'namespace text DEFAULT NULL::text']),
	('claim_results', 'f', 'v', 'SETOF record', ARRAY['names text[]', 'max_results integer DEFAULT 100',
		'lease interval DEFAULT ''00:00:30''::interval', 'namespace text DEFAULT NULL::text']),
	('ack_results', 'f', 'v', 'integer', ARRAY['token uuid', 'task_ids text[] DEFAULT NULL::text[]']),
	-- workers
	('claim', 'f', 'v', 'SETOF record', ARRAY['queues text[]', 'max_tasks integer DEFAULT 1', 'lease interval DEFAULT ''00:00:30''::interval',
		'worker text DEFAULT NULL::text', 'namespace text DEFAULT NULL::text', 'history integer DEFAULT NULL::integer']),
	('settle_and_claim', 'f', 'v', 'SETOF record', ARRAY['task_id text', 'token uuid', 'output jsonb', 'queues text[]', 'max_tasks integer DEFAULT 1',
		'lease interval DEFAULT ''00:00:30''::interval', 'worker text DEFAULT NULL::text', 'namespace text DEFAULT NULL::text',
		'strict boolean DEFAULT false', 'history integer DEFAULT NULL::integer']),
	('renew', 'f', 'v', 'integer', ARRAY['token uuid', 'lease interval DEFAULT ''00:00:30''::interval']),
	('release', 'f', 'v', 'integer', ARRAY['token uuid', 'task_ids text[] DEFAULT NULL::text[]']),
	('complete', 'f', 'v', 'boolean', ARRAY['task_id text', 'token uuid', 'output jsonb DEFAULT NULL::jsonb', 'events jsonb DEFAULT NULL::jsonb']),
	('complete_many', 'f', 'v', 'SETOF text', ARRAY['token uuid', 'task_ids text[]', 'outputs jsonb[] DEFAULT NULL::jsonb[]']),
	('fail', 'f', 'v', 'boolean', ARRAY['task_id text', 'token uuid', 'error jsonb', 'events jsonb DEFAULT NULL::jsonb']),
	('heartbeat', 'f', 'v', 'boolean', ARRAY['task_id text', 'token uuid', 'progress jsonb DEFAULT NULL::jsonb']),
	('wait_for_work', 'p', 'v', NULL, ARRAY['queues text[]', 'timeout interval DEFAULT ''00:00:30''::interval', 'namespace text DEFAULT NULL::text',
		'INOUT ready boolean DEFAULT NULL::boolean']),
	('wait_and_claim', 'p', 'v', NULL, ARRAY['queues text[]', 'max_tasks integer DEFAULT 1', 'lease interval DEFAULT ''00:00:30''::interval',
		'timeout interval DEFAULT ''00:00:30''::interval', 'worker text DEFAULT NULL::text', 'namespace text DEFAULT NULL::text',
		'INOUT tasks jsonb DEFAULT NULL::jsonb', 'history integer DEFAULT NULL::integer']),
	-- workflows: definitions
	('register_workflow', 'f', 'v', 'void', ARRAY['name text', 'body text DEFAULT NULL::text', 'version text DEFAULT ''1''::text', 'namespace text DEFAULT NULL::text',
		'tags text[] DEFAULT ''{}''::text[]', 'queue text DEFAULT NULL::text', 'input_check text DEFAULT NULL::text',
		'singleton_key jsonpath DEFAULT NULL::jsonpath', 'singleton_limit integer DEFAULT 1', 'singleton_max_queued integer DEFAULT NULL::integer',
		'concurrency_key jsonpath DEFAULT NULL::jsonpath', 'concurrency_limit integer DEFAULT NULL::integer', 'turn_silence interval DEFAULT NULL::interval',
		'on_error jsonb DEFAULT NULL::jsonb', 'dead_letter_workflow text DEFAULT NULL::text', 'requires text[] DEFAULT ''{}''::text[]',
		'atomic boolean DEFAULT false']),
	('stalled_runs', 'f', 's', 'SETOF record', ARRAY['threshold interval DEFAULT ''00:15:00''::interval', 'max_runs integer DEFAULT 100']),
	('redrive', 'f', 'v', 'SETOF record', ARRAY['filter jsonb', 'max_runs integer DEFAULT 1000', 'rate double precision DEFAULT NULL::double precision', 'start_at timestamp with time zone DEFAULT NULL::timestamp with time zone']),
	('cancel_where', 'f', 'v', 'SETOF record', ARRAY['filter jsonb', 'reason text DEFAULT NULL::text', 'max_runs integer DEFAULT 1000']),
	('filter_texts', 'f', 'i', 'text[]', ARRAY['value jsonb']),
	('find_runs', 'f', 's', 'SETOF bigint', ARRAY['filter jsonb', 'namespace text', 'now timestamp with time zone', 'statuses text[]', 'to_requeue boolean', 'max_runs integer', 'since bigint']),
	('set_dead_letter_workflow', 'f', 'v', 'void', ARRAY['workflow text', 'namespace text DEFAULT NULL::text']),
	('unregister_workflow', 'f', 'v', 'integer', ARRAY['name text', 'version text DEFAULT NULL::text', 'namespace text DEFAULT NULL::text']),
	('register_handler', 'f', 'v', 'void', ARRAY['name text', 'handler text', 'namespace text DEFAULT NULL::text',
		'input_check text DEFAULT NULL::text', 'output_check text DEFAULT NULL::text', 'retries integer DEFAULT NULL::integer',
		'backoff interval DEFAULT NULL::interval', 'backoff_kind text DEFAULT NULL::text', 'backoff_max interval DEFAULT NULL::interval',
		'jitter boolean DEFAULT NULL::boolean', 'timeout interval DEFAULT NULL::interval', 'pickup_timeout interval DEFAULT NULL::interval']),
	('unregister_handler', 'f', 'v', 'boolean', ARRAY['name text', 'namespace text DEFAULT NULL::text']),
	-- runs
	('start', 'f', 'v', 'text', ARRAY['workflow text', 'input jsonb DEFAULT NULL::jsonb', 'run_id text DEFAULT NULL::text', 'version text DEFAULT NULL::text',
		'namespace text DEFAULT NULL::text', 'tags text[] DEFAULT ''{}''::text[]', 'priority integer DEFAULT 0',
		'start_at timestamp with time zone DEFAULT NULL::timestamp with time zone', 'search_attributes jsonb DEFAULT NULL::jsonb', 'concurrency_key text DEFAULT NULL::text',
		'concurrency_limit integer DEFAULT NULL::integer', 'headers jsonb DEFAULT NULL::jsonb',
		'on_conflict text DEFAULT NULL::text', 'debounce interval DEFAULT NULL::interval', 'debounce_max interval DEFAULT NULL::interval',
		'throttle interval DEFAULT NULL::interval']),
	('start_many', 'f', 'v', 'SETOF text', ARRAY['workflow text', 'inputs jsonb[]', 'run_ids text[] DEFAULT NULL::text[]', 'version text DEFAULT NULL::text',
		'namespace text DEFAULT NULL::text', 'tags text[] DEFAULT ''{}''::text[]', 'priority integer DEFAULT 0',
		'start_at timestamp with time zone DEFAULT NULL::timestamp with time zone', 'search_attributes jsonb DEFAULT NULL::jsonb', 'concurrency_key text DEFAULT NULL::text',
		'concurrency_limit integer DEFAULT NULL::integer', 'headers jsonb DEFAULT NULL::jsonb',
		'on_conflict text DEFAULT NULL::text', 'debounce interval DEFAULT NULL::interval', 'debounce_max interval DEFAULT NULL::interval',
		'throttle interval DEFAULT NULL::interval']),
	('cancel', 'f', 'v', 'text', ARRAY['run_id text', 'reason text DEFAULT NULL::text']),
	('redispatch', 'f', 'v', 'integer', ARRAY['run_id text']),
	('requeue', 'f', 'v', 'text', ARRAY['run_id text']),
	('retry', 'f', 'v', 'text', ARRAY['run_id text']),
	('retry_with_input', 'f', 'v', 'text', ARRAY['run_id text', 'input jsonb']),
	('signal', 'f', 'v', 'text', ARRAY['token text', 'payload jsonb DEFAULT NULL::jsonb', 'namespace text DEFAULT NULL::text']),
	('get_run', 'f', 's', 'durable.run', ARRAY['run_id text']),
	('result', 'f', 'v', 'jsonb', ARRAY['run_id text']),
	('history', 'f', 's', 'SETOF durable.checkpoint', ARRAY['run_id text', 'since_seq integer DEFAULT ''-1''::integer']),
	('get_event', 'f', 's', 'jsonb', ARRAY['run_id text', 'key text']),
	('wait_for_run', 'p', 'v', NULL, ARRAY['run_id text', 'timeout interval DEFAULT ''00:00:30''::interval', 'terminal boolean DEFAULT true',
		'INOUT status text DEFAULT NULL::text', 'INOUT output jsonb DEFAULT NULL::jsonb', 'INOUT error jsonb DEFAULT NULL::jsonb']),
	('work', 'p', 'v', NULL, ARRAY['queues text[] DEFAULT NULL::text[]', 'duration interval DEFAULT ''00:00:55''::interval', 'max_tasks integer DEFAULT NULL::integer']),
	-- background workers
	('pause', 'f', 'v', 'boolean', '{}'),
	('resume', 'f', 'v', 'boolean', '{}'),
	('workers', 'f', 'v', 'SETOF record', '{}'),
	-- workers outside
	('announce_worker', 'f', 'v', 'jsonb', ARRAY['worker text', 'queues text[]', 'workflows text[] DEFAULT ''{}''::text[]', 'capabilities text[] DEFAULT NULL::text[]',
		'protocol integer[] DEFAULT NULL::integer[]', 'status jsonb DEFAULT NULL::jsonb', 'ttl interval DEFAULT ''00:00:35''::interval', 'namespace text DEFAULT NULL::text']),
	('withdraw_worker', 'f', 'v', 'boolean', ARRAY['worker text', 'namespace text DEFAULT NULL::text']),
	('protocol', 'f', 'i', 'integer[]', '{}'),
	('queue_workers', 'f', 's', 'SETOF record', ARRAY['namespace text DEFAULT NULL::text']),
	('workflow_directory', 'f', 's', 'SETOF record', ARRAY['namespace text DEFAULT NULL::text']),
	-- external workflows
	('complete_turn', 'f', 'v', 'boolean', ARRAY['task_id text', 'token uuid', 'decision jsonb']),
	('record_step', 'f', 'v', 'boolean', ARRAY['task_id text', 'token uuid', 'seq integer', 'name text', 'output jsonb DEFAULT NULL::jsonb',
		'error jsonb DEFAULT NULL::jsonb', 'input jsonb DEFAULT NULL::jsonb', 'attempts integer DEFAULT 1',
		'started_at timestamp with time zone DEFAULT NULL::timestamp with time zone', 'finished_at timestamp with time zone DEFAULT NULL::timestamp with time zone']),
	('exchange', 'f', 'v', 'record', ARRAY['settled jsonb', 'queues text[]', 'max_tasks integer DEFAULT 1', 'lease interval DEFAULT ''00:00:30''::interval',
		'worker text DEFAULT NULL::text', 'namespace text DEFAULT NULL::text', 'history integer DEFAULT NULL::integer']),
	-- inside a body
	('is_recorded', 'f', 'v', 'boolean', ARRAY['kind integer']),
	('recorded', 'f', 'v', 'jsonb', ARRAY['name text']),
	('local_step_support', 'f', 'v', 'pg_catalog.internal', ARRAY['pg_catalog.internal']),
	('step_support', 'f', 'v', 'pg_catalog.internal', ARRAY['pg_catalog.internal']),
	('local_step', 'f', 'v', 'jsonb', ARRAY['handler text', 'input jsonb DEFAULT NULL::jsonb', 'name text DEFAULT NULL::text', 'retries integer DEFAULT 1',
		'backoff interval DEFAULT ''00:00:00''::interval', 'backoff_kind text DEFAULT NULL::text', 'backoff_max interval DEFAULT NULL::interval',
		'jitter boolean DEFAULT false', 'limiter text DEFAULT NULL::text', 'fairness_key text DEFAULT NULL::text']),
	('side_effect', 'f', 'v', 'jsonb', ARRAY['handler text', 'input jsonb DEFAULT NULL::jsonb']),
	('step', 'f', 'v', 'jsonb', ARRAY['name text', 'input jsonb DEFAULT NULL::jsonb', 'retries integer DEFAULT NULL::integer',
		'backoff interval DEFAULT NULL::interval', 'backoff_kind text DEFAULT NULL::text', 'backoff_max interval DEFAULT NULL::interval',
		'jitter boolean DEFAULT NULL::boolean', 'timeout interval DEFAULT NULL::interval', 'pickup_timeout interval DEFAULT NULL::interval', 'queue text DEFAULT NULL::text', 'priority integer DEFAULT NULL::integer', 'limiter text DEFAULT NULL::text', 'fairness_key text DEFAULT NULL::text', 'requires text[] DEFAULT NULL::text[]']),
	('step_async', 'f', 'v', 'integer', ARRAY['name text', 'input jsonb DEFAULT NULL::jsonb', 'retries integer DEFAULT NULL::integer',
		'backoff interval DEFAULT NULL::interval', 'backoff_kind text DEFAULT NULL::text', 'backoff_max interval DEFAULT NULL::interval',
		'jitter boolean DEFAULT NULL::boolean', 'timeout interval DEFAULT NULL::interval', 'pickup_timeout interval DEFAULT NULL::interval', 'queue text DEFAULT NULL::text', 'priority integer DEFAULT NULL::integer', 'limiter text DEFAULT NULL::text', 'fairness_key text DEFAULT NULL::text', 'requires text[] DEFAULT NULL::text[]']),
	('step_all', 'f', 'v', 'jsonb[]', ARRAY['name text', 'inputs jsonb[]', 'mode text DEFAULT ''wait_all''::text', 'max_in_flight integer DEFAULT NULL::integer',
		'retries integer DEFAULT NULL::integer',
		'backoff interval DEFAULT NULL::interval', 'backoff_kind text DEFAULT NULL::text', 'backoff_max interval DEFAULT NULL::interval',
		'jitter boolean DEFAULT NULL::boolean', 'timeout interval DEFAULT NULL::interval', 'pickup_timeout interval DEFAULT NULL::interval', 'queue text DEFAULT NULL::text', 'priority integer DEFAULT NULL::integer', 'limiter text DEFAULT NULL::text', 'fairness_key text DEFAULT NULL::text', 'requires text[] DEFAULT NULL::text[]']),
	('await', 'f', 'v', 'jsonb', ARRAY['handle integer']),
	('await_all', 'f', 'v', 'jsonb[]', ARRAY['handles integer[]']),
	('await_any', 'f', 'v', 'integer', ARRAY['handles integer[]']),
	('sleep', 'f', 'v', 'void', ARRAY['duration interval']),
	('sleep_until', 'f', 'v', 'void', ARRAY['t timestamp with time zone']),
	('wait_for_signal', 'f', 'v', 'jsonb', ARRAY['token text', 'timeout interval DEFAULT NULL::interval']),
	('child', 'f', 'v', 'jsonb', ARRAY['workflow text', 'input jsonb DEFAULT NULL::jsonb', 'child_id text DEFAULT NULL::text',
		'priority integer DEFAULT NULL::integer', 'version text DEFAULT NULL::text']),
	('start_child', 'f', 'v', 'text', ARRAY['workflow text', 'input jsonb DEFAULT NULL::jsonb', 'child_id text DEFAULT NULL::text',
		'priority integer DEFAULT NULL::integer', 'version text DEFAULT NULL::text']),
	('now', 'f', 'v', 'timestamp with time zone', '{}'),
	('random', 'f', 'v', 'double precision', '{}'),
	('uuid', 'f', 'v', 'uuid', '{}'),
	('patched', 'f', 'v', 'boolean', ARRAY['id text']),
	('set_event', 'f', 'v', 'void', ARRAY['key text', 'value jsonb']),
	('upsert_search_attributes', 'f', 'v', 'void', ARRAY['attributes jsonb']),
	('log', 'f', 'v', 'void', ARRAY['level text', 'message text', 'data jsonb DEFAULT NULL::jsonb']),
	('fail_run', 'f', 'v', 'void', ARRAY['message text', 'code text DEFAULT NULL::text', 'details jsonb DEFAULT NULL::jsonb']),
	('run_id', 'f', 'v', 'text', '{}'),
	('run_namespace', 'f', 'v', 'text', '{}'),
	-- looking
	('task_status', 'f', 's', 'record', ARRAY['task_id text', 'namespace text DEFAULT NULL::text']),
	('queue_depth', 'f', 's', 'record', ARRAY['queue text', 'namespace text DEFAULT NULL::text']),
	('engine_now', 'f', 's', 'timestamp with time zone', '{}'),
	('scan_hints', 'f', 'v', 'record', '{}'),
	('has_access', 'f', 's', 'boolean', ARRAY['namespace text', 'privilege text']),
	('require_access', 'f', 's', 'text', ARRAY['namespace text', 'privilege text']),
	-- schedules
	('create_schedule', 'f', 'v', 'timestamp with time zone', ARRAY['schedule_id text', 'workflow text', 'input jsonb DEFAULT NULL::jsonb', 'cron text DEFAULT NULL::text', 'every interval DEFAULT NULL::interval',
		'timezone text DEFAULT ''UTC''::text', 'jitter interval DEFAULT ''00:00:00''::interval', 'overlap text DEFAULT ''allow''::text', 'catchup text DEFAULT ''one''::text',
		'max_catchup integer DEFAULT NULL::integer', 'paused boolean DEFAULT false', 'tags text[] DEFAULT ''{}''::text[]', 'namespace text DEFAULT NULL::text',
		'version text DEFAULT NULL::text', 'priority integer DEFAULT 0', 'search_attributes jsonb DEFAULT NULL::jsonb', 'headers jsonb DEFAULT NULL::jsonb', 'note text DEFAULT NULL::text',
		'concurrency_key text DEFAULT NULL::text', 'concurrency_limit integer DEFAULT NULL::integer']),
	('upsert_schedule', 'f', 'v', 'timestamp with time zone', ARRAY['schedule_id text', 'workflow text', 'input jsonb DEFAULT NULL::jsonb', 'cron text DEFAULT NULL::text', 'every interval DEFAULT NULL::interval',
		'timezone text DEFAULT ''UTC''::text', 'jitter interval DEFAULT ''00:00:00''::interval', 'overlap text DEFAULT ''allow''::text', 'catchup text DEFAULT ''one''::text',
		'max_catchup integer DEFAULT NULL::integer', 'paused boolean DEFAULT NULL::boolean', 'tags text[] DEFAULT ''{}''::text[]', 'namespace text DEFAULT NULL::text',
		'version text DEFAULT NULL::text', 'priority integer DEFAULT 0', 'search_attributes jsonb DEFAULT NULL::jsonb', 'headers jsonb DEFAULT NULL::jsonb', 'note text DEFAULT NULL::text',
		'concurrency_key text DEFAULT NULL::text', 'concurrency_limit integer DEFAULT NULL::integer']),
	('pause_schedule', 'f', 'v', 'boolean', ARRAY['schedule_id text', 'note text DEFAULT NULL::text']),
	('resume_schedule', 'f', 'v', 'timestamp with time zone', ARRAY['schedule_id text']),
	('trigger_schedule', 'f', 'v', 'text', ARRAY['schedule_id text']),
	('backfill_schedule', 'f', 'v', 'SETOF text', ARRAY['schedule_id text', 'since timestamp with time zone DEFAULT NULL::timestamp with time zone',
		'until timestamp with time zone DEFAULT NULL::timestamp with time zone', 'max_runs integer DEFAULT NULL::integer']),
	('delete_schedule', 'f', 'v', 'boolean', ARRAY['schedule_id text']),
	('next_fires', 'f', 's', 'SETOF timestamp with time zone', ARRAY['cron text', 'timezone text DEFAULT ''UTC''::text', 'n integer DEFAULT 10',
		'after timestamp with time zone DEFAULT NULL::timestamp with time zone']),
	-- retention
	('set_retention', 'f', 'v', 'bigint', ARRAY['statuses text[]', 'max_age interval DEFAULT NULL::interval', 'max_count integer DEFAULT NULL::integer',
		'workflow text DEFAULT NULL::text', 'namespace text DEFAULT NULL::text', 'tag text DEFAULT NULL::text', 'archive text DEFAULT NULL::text']),
	('drop_retention', 'f', 'v', 'boolean', ARRAY['id bigint']),
	('delete_run', 'f', 'v', 'integer', ARRAY['run_id text']),
	('purge_runs', 'f', 'v', 'integer', ARRAY['filter jsonb', 'force boolean DEFAULT false', 'max_runs integer DEFAULT 1000']),
	-- operation
	('pause_queue', 'f', 'v', 'boolean', ARRAY['queue text', 'namespace text DEFAULT NULL::text']),
	('register_limiter', 'f', 'v', 'boolean', ARRAY['name text', 'concurrency integer DEFAULT NULL::integer', 'rate_limit integer DEFAULT NULL::integer',
		'rate_period interval DEFAULT NULL::interval', 'rate_kind text DEFAULT ''fixed''::text', 'fairness text DEFAULT ''fifo''::text',
		'ordering text DEFAULT ''fifo''::text', 'namespace text DEFAULT NULL::text', 'key_concurrency integer DEFAULT NULL::integer']),
	('drop_limiter', 'f', 'v', 'boolean', ARRAY['name text', 'namespace text DEFAULT NULL::text']),
	('pause_limiter', 'f', 'v', 'boolean', ARRAY['name text', 'namespace text DEFAULT NULL::text']),
	('resume_limiter', 'f', 'v', 'boolean', ARRAY['name text', 'namespace text DEFAULT NULL::text']),
	('limiter_usage', 'f', 's', 'record', ARRAY['namespace text', 'name text']),
	('resume_queue', 'f', 'v', 'boolean', ARRAY['queue text', 'namespace text DEFAULT NULL::text']),
	('sweep', 'f', 'v', 'jsonb', ARRAY['max_work integer DEFAULT 1000']),
	('keep_sweeping', 'p', 'v', NULL, ARRAY['duration interval DEFAULT ''00:00:55''::interval', 'every interval DEFAULT ''00:00:05''::interval',
		'max_work integer DEFAULT 1000', 'INOUT done jsonb DEFAULT NULL::jsonb']),
	('schedule_sweeps', 'f', 'v', 'SETOF bigint', ARRAY['every text DEFAULT ''5 seconds''::text', 'jobs text[] DEFAULT NULL::text[]']),
	('unschedule_sweeps', 'f', 'v', 'integer', '{}'),
	('health', 'f', 'v', 'SETOF record', ARRAY['thresholds jsonb DEFAULT ''{}''::jsonb']),
	('activate', 'f', 'v', 'bigint', '{}'),
	('grant_usage', 'f', 'v', 'void', ARRAY['role regrole', 'namespace text DEFAULT ''default''::text',
		'privileges text[] DEFAULT ''{start,signal,work,read}''::text[]']),
	('revoke_usage', 'f', 'v', 'void', ARRAY['role regrole', 'namespace text DEFAULT ''default''::text',
		'privileges text[] DEFAULT ''{start,signal,work,read,manage}''::text[]']);
-- parts of the extension that are nobody's API
CREATE TEMP TABLE internal (name text);
INSERT INTO internal VALUES ('check_privileges'), ('privilege_objects'), ('settings_changed'), ('list_changed'), ('cron_jobs'), ('cron_function'), ('cron_database'), ('cron_place'), ('cron_kinds'), ('cron_lock'),
	('ready_heads'), ('delayed_heads'), ('ready_since'), ('queue_counts'), ('queue_list'), ('health_thresholds'), ('health_queries'), ('health_of_cron'), ('health_checks'), ('is_active'),
	('run_trees'), ('has_live_letter'), ('delete_locked_runs'), ('delete_trees'), ('retention_drop'), ('retention_scan'), ('retention_judge'), ('retention_cut'), ('retention_remove'), ('retention_pass'),
	('archive_next'), ('archive_run'), ('archive_document'), ('archive_state'), ('archive_done'), ('archive_again');

CREATE TEMP VIEW procs AS
SELECT p.oid, p.proname::text AS name, p.prokind, p.provolatile, pg_get_function_result(p.oid) AS result,
       regexp_replace(regexp_replace(pg_get_function_arguments(p.oid), '(^|, )OUT .*$', ''), '(^|, )IN ', '\1', 'g') AS arguments,
       l.lanname, p.prosecdef, p.proconfig, p.proparallel, p.proacl, p.proargnames, p.proargmodes, p.proallargtypes, p.proisstrict
  FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
 WHERE p.pronamespace = 'durable'::regnamespace;

SELECT bag_eq('SELECT name FROM procs', 'SELECT name FROM contract UNION ALL SELECT name FROM internal',
	'every function is either in the contract or internal, and none is overloaded');
SELECT set_eq('SELECT name, arguments FROM procs WHERE name NOT IN (SELECT name FROM internal)',
	'SELECT name, array_to_string(arguments, '', '') FROM contract', 'arguments, their order and their defaults');
SELECT set_eq('SELECT name, result FROM procs WHERE name NOT IN (SELECT name FROM internal)', 'SELECT name, result FROM contract', 'results');
SELECT set_eq('SELECT name, prokind, provolatile FROM procs WHERE name NOT IN (SELECT name FROM internal)',
	'SELECT name, kind, volatility FROM contract', 'kind and volatility');

-- the columns of what returns rows
CREATE FUNCTION pg_temp.out_columns(fn text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(format('%s %s', p.proargnames[i], format_type(p.proallargtypes[i], NULL)), ', ' ORDER BY i)
	  FROM procs p, generate_subscripts(p.proargmodes, 1) i
	 WHERE p.name = fn AND p.proargmodes[i] IN ('o', 'b', 't')
$$;
SELECT is(pg_temp.out_columns('claim'),
	'task_id text, token uuid, kind text, name text, queue text, namespace text, input jsonb, run_id text, seq integer, '
	'attempt integer, reclaims integer, priority integer, headers jsonb, lease_until timestamp with time zone', 'columns of claim');
SELECT is(pg_temp.out_columns('settle_and_claim'), pg_temp.out_columns('claim'), 'settle_and_claim returns what claim returns');
SELECT is(pg_temp.out_columns('claim_results'),
	'task_id text, token uuid, name text, queue text, namespace text, status text, output jsonb, error jsonb, events jsonb, '
	'attempt integer, created_at timestamp with time zone, finished_at timestamp with time zone, lease_until timestamp with time zone', 'columns of claim_results');
SELECT is(pg_temp.out_columns('task_status'),
	'status text, output jsonb, error jsonb, attempt integer, reclaims integer, name text, queue text, priority integer, '
	'created_at timestamp with time zone, run_at timestamp with time zone, finished_at timestamp with time zone, progress jsonb, '
	'heartbeat_at timestamp with time zone', 'columns of task_status');
SELECT is(pg_temp.out_columns('queue_depth'), 'ready bigint, claimed bigint, delayed bigint, parked bigint, oldest_ready interval', 'columns of queue_depth');
SELECT is(pg_temp.out_columns('queue_workers'), 'queue text, ready bigint, claimed bigint, depth bigint, live_workers bigint, workers text[], last_seen timestamp with time zone, alert boolean', 'columns of queue_workers');
SELECT is(pg_temp.out_columns('workflow_directory'), 'workflow text, versions text[], kind text, queue text, workers text[], observed text[], disagreements text[]', 'columns of workflow_directory');
SELECT is(pg_temp.out_columns('scan_hints'), 'preloaded boolean, checks bigint, rescued bigint', 'columns of scan_hints');
SELECT is(pg_temp.out_columns('health'), 'name text, level text, value double precision, unit text, hint text, detail jsonb', 'columns of health');

-- the rules for all of them
SELECT is_empty('SELECT name FROM procs WHERE obj_description(oid, ''pg_proc'') IS NULL', 'every function has a comment');
SELECT is_empty('SELECT name FROM procs WHERE obj_description(oid, ''pg_proc'') ~ ''^[A-Z]|\.$''', 'comments are phrases: lower case, no full stop');
SELECT is_empty('SELECT name FROM procs WHERE proisstrict', 'no function is strict: a null argument is an error or has a meaning, never silence');
SELECT is_empty('SELECT name FROM procs WHERE prosecdef', 'no function is security definer');
SELECT set_eq('SELECT name FROM procs WHERE lanname <> ''c'' AND NOT ''search_path=pg_catalog, pg_temp'' = ANY (coalesce(proconfig, ''{}''))', ARRAY[]::text[],
	'every SQL and PL/pgSQL function runs under search_path = pg_catalog, pg_temp');
SELECT is_empty('SELECT name FROM procs WHERE provolatile <> ''v'' AND name IN (SELECT name FROM contract WHERE volatility = ''v'')', 'nothing that writes claims to be stable');
SELECT set_eq('SELECT name FROM procs WHERE proparallel <> ''u''', ARRAY['engine_now', 'has_access'],
	'only what row security and its callers need is parallel safe');
SELECT is_empty('SELECT name FROM procs WHERE proacl IS NULL OR EXISTS (SELECT FROM aclexplode(proacl) a WHERE a.grantee = 0)', 'PUBLIC may execute none of them');
SELECT is_empty('SELECT name FROM procs WHERE prokind = ''f'' AND provolatile = ''v'' AND name IN (''task_status'', ''queue_depth'', ''engine_now'', ''has_access'', ''require_access'')',
	'what only looks is stable, so that a read-only transaction may call it');

SELECT * FROM finish();
ROLLBACK;
