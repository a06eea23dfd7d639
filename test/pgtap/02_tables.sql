-- The tables: what is dumped, what is indexed, who may touch them.
\set ECHO none
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
BEGIN;
SELECT plan(73);

SELECT tables_are('durable', ARRAY['checkpoint', 'dead_letter', 'handler', 'identity', 'last_sweep', 'lease', 'limiter', 'limiter_blocked', 'limiter_freed', 'limiter_key', 'limiter_queue', 'limiter_slot', 'limiter_state', 'limiter_tick', 'limiter_turn', 'namespace_access', 'queue', 'quota', 'retention_archive', 'retention_due', 'retention_member', 'retention_policy', 'retention_state', 'run', 'run_blocked', 'run_log', 'schedule', 'signal_buffer', 'singleton', 'sweep_failure', 'task', 'task_deadline', 'task_delayed', 'task_limited', 'task_progress', 'task_ready', 'task_result', 'waiter', 'worker', 'worker_pause', 'worker_queue', 'workflow']);
SELECT sequences_are('durable', ARRAY['lease_seq', 'limiter_seq', 'task_seq']);
SELECT views_are('durable', ARRAY['limiters', 'queues', 'retention', 'retention_failures', 'retention_match', 'schedules', 'singletons', 'workers']);
SELECT is_empty($$ SELECT relname FROM pg_class WHERE relnamespace = 'durable'::regnamespace AND relkind = 'r' AND obj_description(oid, 'pg_class') IS NULL $$,
	'every table has a comment');
SELECT is((SELECT reloptions FROM pg_class WHERE oid = v::regclass), ARRAY['security_invoker=true'], v || ' reads with the caller''s rights') FROM unnest('{durable.schedules,durable.singletons,durable.workers,durable.retention,durable.retention_failures}'::text[]) v;
SELECT ok((SELECT 'security_invoker=true' = ANY (reloptions) FROM pg_class WHERE oid = 'durable.limiters'::regclass), 'and so does the view limiters');
SELECT is_empty($$ SELECT relname FROM pg_class WHERE relnamespace = 'durable'::regnamespace AND relkind = 'r' AND relpersistence <> 'p' $$, 'every table is logged');

-- pg_dump: the data of users, and nothing that only this server can mean
SELECT set_eq($$ SELECT c.relname::text FROM pg_extension e, unnest(e.extconfig) t(oid) JOIN pg_class c ON c.oid = t.oid WHERE e.extname = 'durable' $$,
	ARRAY['checkpoint', 'dead_letter', 'handler', 'identity', 'lease_seq', 'namespace_access', 'queue', 'quota', 'retention_archive', 'retention_due', 'retention_member', 'retention_policy', 'retention_state', 'run', 'run_log', 'schedule', 'signal_buffer', 'singleton', 'task', 'task_deadline', 'task_delayed', 'task_ready', 'task_result', 'task_seq', 'waiter', 'worker_pause', 'workflow', 'limiter', 'limiter_blocked', 'limiter_freed', 'limiter_key', 'limiter_queue', 'limiter_slot', 'limiter_state', 'limiter_tick', 'limiter_turn', 'task_limited', 'limiter_seq'],
	'dumped are tasks, results, settings and the sequences; not leases, heartbeats and workers');
SELECT is_empty($$ SELECT unnest(extcondition) FROM pg_extension WHERE extname = 'durable' EXCEPT VALUES ('') $$, 'dumped completely');
-- pg_upgrade refuses a column of any reg* type but these three
SELECT is_empty($$ SELECT attrelid::regclass, attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid
	WHERE c.relnamespace = 'durable'::regnamespace AND a.attnum > 0 AND t.typname LIKE 'reg%' AND t.typname NOT IN ('regclass', 'regrole', 'regtype') $$,
	'no column of a type that pg_upgrade refuses');

-- names and ids are compared byte by byte
SELECT is_empty($$ SELECT a.attrelid::regclass, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
	WHERE c.relnamespace = 'durable'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid = 'text'::regtype
	  AND a.attcollation <> '"C"'::regcollation AND (c.relname, a.attname) NOT IN (('queue', 'paused_by'), ('limiter', 'paused_by'), ('workflow', 'body'), ('workflow', 'input_check'), ('handler', 'handler'),
		('handler', 'input_check'), ('handler', 'output_check'), ('run_log', 'level'), ('run_log', 'message'), ('retention_policy', 'archive'),
		('sweep_failure', 'message'), ('sweep_failure', 'context')) $$, 'every key is COLLATE "C"');

-- the indexes, which the C code relies on
SELECT index_is_unique('durable', 'task', 'task_pkey');
SELECT index_is_primary('durable', 'task', 'task_pkey');
SELECT is((SELECT indexdef FROM pg_indexes x WHERE x.schemaname = 'durable' AND x.tablename = i.tab AND x.indexname = i.name), i.def, 'index ' || i.name) FROM (VALUES
	('task', 'task_pkey', 'CREATE UNIQUE INDEX task_pkey ON durable.task USING btree (id)'),
	('task', 'task_task_id_key', 'CREATE UNIQUE INDEX task_task_id_key ON durable.task USING btree (namespace, task_id) WHERE (task_id IS NOT NULL)'),
	('task_ready', 'task_ready_order', 'CREATE UNIQUE INDEX task_ready_order ON durable.task_ready USING btree (namespace, queue, priority DESC, id)'),
	('task_delayed', 'task_delayed_due', 'CREATE UNIQUE INDEX task_delayed_due ON durable.task_delayed USING btree (namespace, queue, run_at, id)'),
	('task_deadline', 'task_deadline_pkey', 'CREATE UNIQUE INDEX task_deadline_pkey ON durable.task_deadline USING btree (id)'),
	('task_deadline', 'task_deadline_due', 'CREATE INDEX task_deadline_due ON durable.task_deadline USING btree (namespace, queue, due_at, id)'),
	('lease', 'lease_pkey', 'CREATE UNIQUE INDEX lease_pkey ON durable.lease USING btree (id)'),
	('lease', 'lease_until_idx', 'CREATE INDEX lease_until_idx ON durable.lease USING btree (namespace, queue, lease_until)'),
	('task_result', 'task_result_pkey', 'CREATE UNIQUE INDEX task_result_pkey ON durable.task_result USING btree (id)'),
	('task_result', 'task_result_task_id_key', 'CREATE UNIQUE INDEX task_result_task_id_key ON durable.task_result USING btree (namespace, task_id) WHERE (task_id IS NOT NULL)'),
	('workflow', 'workflow_pkey', 'CREATE UNIQUE INDEX workflow_pkey ON durable.workflow USING btree (namespace, name, version)'),
	('handler', 'handler_pkey', 'CREATE UNIQUE INDEX handler_pkey ON durable.handler USING btree (namespace, name)'),
	('run', 'run_pkey', 'CREATE UNIQUE INDEX run_pkey ON durable.run USING btree (id)'),
	('run', 'run_run_id_key', 'CREATE UNIQUE INDEX run_run_id_key ON durable.run USING btree (run_id)'),
	('checkpoint', 'checkpoint_pkey', 'CREATE UNIQUE INDEX checkpoint_pkey ON durable.checkpoint USING btree (run, seq)'),
	('waiter', 'waiter_pkey', 'CREATE UNIQUE INDEX waiter_pkey ON durable.waiter USING btree (namespace, token)'),
	('signal_buffer', 'signal_buffer_pkey', 'CREATE UNIQUE INDEX signal_buffer_pkey ON durable.signal_buffer USING btree (namespace, token, id)'),
	('schedule', 'schedule_pkey', 'CREATE UNIQUE INDEX schedule_pkey ON durable.schedule USING btree (schedule_id)'),
	('schedule', 'schedule_next_fire', 'CREATE INDEX schedule_next_fire ON durable.schedule USING btree (next_fire)'),
	('schedule', 'schedule_last_window', 'CREATE INDEX schedule_last_window ON durable.schedule USING btree (last_window DESC NULLS LAST)'),
	('signal_buffer', 'signal_buffer_created_at', 'CREATE INDEX signal_buffer_created_at ON durable.signal_buffer USING btree (created_at)'),
	('retention_due', 'retention_due_pkey', 'CREATE UNIQUE INDEX retention_due_pkey ON durable.retention_due USING btree (look_at, run)'),
	('dead_letter', 'dead_letter_pkey', 'CREATE UNIQUE INDEX dead_letter_pkey ON durable.dead_letter USING btree (namespace)'),
	('retention_member', 'retention_member_pkey', 'CREATE UNIQUE INDEX retention_member_pkey ON durable.retention_member USING btree (policy, created_at, run)'),
	('retention_archive', 'retention_archive_next', 'CREATE INDEX retention_archive_next ON durable.retention_archive USING btree (policy, not_before)'),
	('singleton', 'singleton_order', 'CREATE UNIQUE INDEX singleton_order ON durable.singleton USING btree (namespace, workflow, key, state, run)'),
	('quota', 'quota_pkey', 'CREATE UNIQUE INDEX quota_pkey ON durable.quota USING btree (namespace, key, run)'),
	('worker', 'worker_pkey', 'CREATE UNIQUE INDEX worker_pkey ON durable.worker USING btree (namespace, worker)'),
	('worker_queue', 'worker_queue_pkey', 'CREATE UNIQUE INDEX worker_queue_pkey ON durable.worker_queue USING btree (namespace, queue, worker)'),
	('run_blocked', 'run_blocked_pkey', 'CREATE UNIQUE INDEX run_blocked_pkey ON durable.run_blocked USING btree (run)'),
	('run_blocked', 'run_blocked_queue', 'CREATE INDEX run_blocked_queue ON durable.run_blocked USING btree (namespace, queue, run)'),
	('limiter', 'limiter_pkey', 'CREATE UNIQUE INDEX limiter_pkey ON durable.limiter USING btree (namespace, name)'),
	('limiter', 'limiter_id_key', 'CREATE UNIQUE INDEX limiter_id_key ON durable.limiter USING btree (id)'),
	('limiter_queue', 'limiter_queue_pair', 'CREATE INDEX limiter_queue_pair ON durable.limiter_queue USING btree (namespace, queue, limiter)'),
	('limiter_queue', 'limiter_queue_limiter', 'CREATE INDEX limiter_queue_limiter ON durable.limiter_queue USING btree (limiter)'),
	('task_limited', 'task_limited_order', 'CREATE INDEX task_limited_order ON durable.task_limited USING btree (limiter, key, queue, priority, id)'),
	('limiter_turn', 'limiter_turn_order', 'CREATE INDEX limiter_turn_order ON durable.limiter_turn USING btree (list, queue, priority DESC, "position", head)'),
	('limiter_turn', 'limiter_turn_key', 'CREATE INDEX limiter_turn_key ON durable.limiter_turn USING btree (list, key, queue, priority, "position")'),
	('limiter_blocked', 'limiter_blocked_key', 'CREATE UNIQUE INDEX limiter_blocked_key ON durable.limiter_blocked USING btree (limiter, key, n)'),
	('limiter_slot', 'limiter_slot_pkey', 'CREATE UNIQUE INDEX limiter_slot_pkey ON durable.limiter_slot USING btree (id)'),
	('limiter_freed', 'limiter_freed_order', 'CREATE UNIQUE INDEX limiter_freed_order ON durable.limiter_freed USING btree (limiter, n)'),
	('limiter_state', 'limiter_state_version', 'CREATE UNIQUE INDEX limiter_state_version ON durable.limiter_state USING btree (limiter, version)'),
	('limiter_key', 'limiter_key_version', 'CREATE UNIQUE INDEX limiter_key_version ON durable.limiter_key USING btree (limiter, key, version)'),
	('limiter_tick', 'limiter_tick_order', 'CREATE UNIQUE INDEX limiter_tick_order ON durable.limiter_tick USING btree (limiter, n)'),
	('run_log', 'run_log_pkey', 'CREATE UNIQUE INDEX run_log_pkey ON durable.run_log USING btree (run, seq, number)'),
	('task_result', 'task_result_unread', 'CREATE INDEX task_result_unread ON durable.task_result USING btree (namespace, name, finished_at, id) WHERE (lease_id IS NULL)')
) i (tab, name, def);
-- a beat changes no column of an index
SELECT is(count(*), 1::bigint, 'a worker is entered in one index') FROM pg_index WHERE indrelid = 'durable.worker'::regclass;
-- no other index costs a write; the claim order is the order of its index
SELECT is(count(*), 5::bigint, 'a task that goes through the queue is entered in five indexes')
  FROM pg_index WHERE indrelid IN ('durable.task'::regclass, 'durable.task_ready'::regclass, 'durable.lease'::regclass);
SELECT is_empty($$ SELECT conrelid::regclass FROM pg_constraint WHERE connamespace = 'durable'::regnamespace AND contype = 'f' $$, 'no foreign keys');
-- rows can be replicated: every table has an identity
SELECT is_empty($$ SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'durable'::regnamespace AND c.relkind = 'r'
	AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident)) AND c.relreplident <> 'f' $$, 'every table has a replica identity');

-- nobody but the owner
SELECT is_empty($$ SELECT c.oid::regclass, a.privilege_type FROM pg_class c, aclexplode(c.relacl) a
	WHERE c.relnamespace = 'durable'::regnamespace AND a.grantee <> c.relowner $$, 'no privilege on a table or sequence for anybody, PUBLIC included');
SELECT is_empty($$ SELECT nspacl FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname = 'durable' AND a.grantee <> n.nspowner $$, 'nor on the schema');
SELECT set_eq($$ SELECT relname::text FROM pg_class WHERE relnamespace = 'durable'::regnamespace AND relrowsecurity $$,
	ARRAY['checkpoint', 'dead_letter', 'handler', 'lease', 'queue', 'quota', 'retention_archive', 'retention_policy', 'retention_state', 'run', 'run_log', 'schedule', 'signal_buffer', 'singleton', 'task', 'task_deadline', 'task_delayed', 'task_progress', 'task_ready', 'task_result', 'waiter', 'workflow', 'run_blocked', 'worker', 'worker_queue', 'limiter', 'task_limited'], 'row security on everything that "read" opens');
SELECT set_eq($$ SELECT tablename::text, policyname::text, permissive, cmd, roles::text FROM pg_policies WHERE schemaname = 'durable' $$,
	$$ SELECT t, 'namespace_read' AS policy, 'PERMISSIVE' AS permissive, 'SELECT' AS cmd, '{public}' AS roles
	     FROM unnest('{checkpoint,dead_letter,handler,lease,queue,quota,retention_archive,retention_policy,retention_state,run,run_log,schedule,signal_buffer,singleton,task,task_deadline,task_delayed,task_progress,task_ready,task_result,waiter,workflow,run_blocked,worker,worker_queue,limiter,task_limited}'::text[]) t $$, 'one policy each, for SELECT');
SELECT is_empty($$ SELECT tgrelid::regclass, tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
	WHERE c.relnamespace = 'durable'::regnamespace AND NOT tgisinternal AND tgtype & 1 = 1 $$, 'no row triggers');
SELECT bag_eq($$ SELECT c.relname::text, t.tgname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
	WHERE c.relnamespace = 'durable'::regnamespace AND NOT tgisinternal $$,
	$$ VALUES ('handler', 'settings_changed'), ('identity', 'settings_changed'), ('namespace_access', 'settings_changed'), ('queue', 'settings_changed'), ('retention_policy', 'settings_changed'),
		('worker_pause', 'settings_changed'), ('workflow', 'settings_changed'),
	          ('lease', 'list_changed'), ('task_deadline', 'list_changed'), ('task_delayed', 'list_changed'), ('task_ready', 'list_changed'),
	          ('limiter_freed', 'list_changed'), ('limiter_turn', 'list_changed') $$,
	'writes by SQL are noticed');

SELECT * FROM finish();
ROLLBACK;
