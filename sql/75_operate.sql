--
-- Operation: what sweeps did, pg_cron, health.
--

-- Not part of a dump: it is about this server.
CREATE TABLE durable.last_sweep (
	only_one	boolean NOT NULL DEFAULT true CHECK (only_one),
	at			timestamptz NOT NULL,
	by_role		text COLLATE "C" NOT NULL,
	pid			int NOT NULL,
	done		jsonb NOT NULL,
	CONSTRAINT last_sweep_pkey PRIMARY KEY (only_one)
) USING heap WITH (fillfactor = 50);
COMMENT ON TABLE durable.last_sweep IS
'who swept last, when, and what was done; written at most every 15 seconds, not by the background worker';

CREATE TABLE durable.sweep_failure (
	part		text COLLATE "C" NOT NULL,
	since		timestamptz NOT NULL,
	at			timestamptz NOT NULL,
	failures	int NOT NULL,
	code		text COLLATE "C" NOT NULL,
	message		text NOT NULL,
	context		text,
	CONSTRAINT sweep_failure_pkey PRIMARY KEY (part)
) USING heap WITH (fillfactor = 50);
COMMENT ON TABLE durable.sweep_failure IS
'parts of the sweep that failed when they were last tried; a row goes when its part succeeds';

CREATE PROCEDURE durable.keep_sweeping(
	duration interval DEFAULT '55 s', every interval DEFAULT '5 s', max_work int DEFAULT 1000,
	INOUT done jsonb DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_keep_sweeping';
COMMENT ON PROCEDURE durable.keep_sweeping(interval, interval, int, jsonb) IS
'sweep every so often for a while, each time in a transaction of its own; holds no snapshot in between; what was done in all';

--
-- pg_cron
--

-- The jobs that look after this database: pg_cron knows seconds since 1.5. With minutes only,
-- a job goes on until just before the next one begins.
CREATE FUNCTION durable.cron_jobs(
	every text, cron_version text, OUT kind text, OUT job_name text, OUT schedule text,
	OUT command text)
RETURNS SETOF record LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number text[] := regexp_match($2, '^(\d+)\.(\d+)');
	knows_seconds boolean := COALESCE(number::int[] >= '{1,5}', false);
	span interval;
	s numeric;
BEGIN
	IF $1 IS NULL THEN
		RAISE EXCEPTION 'every must not be null' USING ERRCODE = 'null_value_not_allowed';
	END IF;
	BEGIN
		span := $1::interval;
	EXCEPTION WHEN data_exception THEN
		NULL;
	END;
	s := extract(epoch FROM span);
	IF (CASE WHEN s >= 60 THEN 3600 % s <> 0 OR s % 60 <> 0 WHEN s >= 1 THEN s <> trunc(s) ELSE true END) THEN
		RAISE EXCEPTION 'invalid value for every'
			USING ERRCODE = 'invalid_parameter_value',
				  DETAIL = format('It is "%s".', $1),
				  HINT = 'Give whole seconds from 1 to 59, like ''5 seconds'', or minutes that divide an hour, like ''10 minutes''.';
	END IF;
	schedule := CASE WHEN s < 60 AND knows_seconds THEN s::int || ' seconds'
					 WHEN s <= 60 THEN '* * * * *'
					 WHEN s = 3600 THEN '0 * * * *'
					 ELSE '*/' || (s / 60)::int || ' * * * *' END;
	kind := 'sweep';
	command := CASE WHEN s < 60 AND NOT knows_seconds
					THEN format('CALL durable.keep_sweeping(duration => ''59 seconds'', every => ''%s seconds'')', s::int)
					ELSE 'SELECT durable.sweep()' END;
	job_name := format('durable sweep of database %s', d.oid)
		FROM pg_database d WHERE d.datname = current_database();
	RETURN NEXT;
	kind := 'work';
	command := format('CALL durable.work(duration => ''%s seconds'')',
					  CASE WHEN s >= 60 THEN 0 WHEN knows_seconds THEN 55 ELSE 59 END);
	job_name := replace(job_name, 'durable sweep of', 'durable work in');
	RETURN NEXT;
END $$;
COMMENT ON FUNCTION durable.cron_jobs(text, text) IS
'internal: the pg_cron jobs that schedule_sweeps installs with that version of pg_cron';

-- Its functions by their membership in the extension, and not by the name of a schema:
-- whoever may create schemas could have laid out one.
CREATE FUNCTION durable.cron_function(name text, arguments text) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	home regnamespace;
	found text;
BEGIN
	SELECT p.pronamespace, format('%I.%I', n.nspname, p.proname) INTO home, found
	  FROM pg_extension e
	  JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
	   AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
	  JOIN pg_proc p ON p.oid = d.objid
	  JOIN pg_namespace n ON n.oid = p.pronamespace
	 WHERE e.extname = 'pg_cron' AND p.proname = $1
	   AND pg_get_function_identity_arguments(p.oid) = $2;
	IF found IS NULL THEN
		RAISE EXCEPTION 'pg_cron has no function %(%)', $1, $2
			USING ERRCODE = 'feature_not_supported',
				  HINT = 'Update it: ALTER EXTENSION pg_cron UPDATE. durable needs pg_cron 1.4 or later.';
	END IF;
	IF NOT has_schema_privilege(home, 'USAGE') THEN
		RAISE EXCEPTION 'permission denied for pg_cron'
			USING ERRCODE = 'insufficient_privilege',
				  DETAIL = format('The role %I may not use the schema %s.', current_user, home),
				  HINT = format('A superuser can GRANT USAGE ON SCHEMA %s TO %I.', home, current_user);
	END IF;
	RETURN found;
END $$;
COMMENT ON FUNCTION durable.cron_function(text, text) IS
'internal: the qualified name of a function of pg_cron that the current role may use';

CREATE FUNCTION durable.cron_database() RETURNS text
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'durable_cron_database';
COMMENT ON FUNCTION durable.cron_database() IS
'internal: the database that pg_cron''s jobs are kept in; NULL when pg_cron is not running';

CREATE FUNCTION durable.cron_lock() RETURNS void
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_cron_lock';
COMMENT ON FUNCTION durable.cron_lock() IS
'internal: to the end of the transaction nobody else schedules or removes our jobs';

-- 'here', or 'none' where there is no pg_cron that could know this database.
CREATE FUNCTION durable.cron_place(required boolean, elsewhere text) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	place text := durable.cron_database();
	exists_here boolean := EXISTS (SELECT FROM pg_extension e WHERE e.extname = 'pg_cron');
BEGIN
	IF place IS NULL THEN
		IF NOT $1 AND NOT exists_here THEN
			RETURN 'none';
		END IF;
		RAISE EXCEPTION 'pg_cron is not running in this server'
			USING ERRCODE = CASE WHEN exists_here THEN 'object_not_in_prerequisite_state' ELSE 'undefined_object' END,
				  HINT = format('Install pg_cron, set shared_preload_libraries = ''pg_cron'' (beside what is there) and cron.database_name = %L, restart the server, and CREATE EXTENSION pg_cron.', current_database());
	ELSIF place <> current_database() THEN
		RAISE EXCEPTION 'pg_cron lives in another database'
			USING ERRCODE = 'feature_not_supported',
				  DETAIL = format('Its jobs are kept in the database %I.', place),
				  HINT = format('There, as a superuser: %s', $2);
	ELSIF NOT exists_here THEN
		IF NOT $1 THEN
			RETURN 'none';
		END IF;
		RAISE EXCEPTION 'extension "pg_cron" does not exist'
			USING ERRCODE = 'undefined_object',
				  HINT = 'A superuser can CREATE EXTENSION pg_cron in this database.';
	END IF;
	RETURN 'here';
END $$;
COMMENT ON FUNCTION durable.cron_place(boolean, text) IS
'internal: whether pg_cron can be used from this database, or an error that says what is missing';

-- Which of the jobs the current role may have: what is executed is executed as the role
-- that the job belongs to.
CREATE FUNCTION durable.cron_kinds(jobs text[]) RETURNS text[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	may text[] := ARRAY(
		SELECT k FROM (VALUES
			('sweep', has_function_privilege('durable.sweep(int)', 'EXECUTE')
				  AND has_function_privilege('durable.keep_sweeping(interval, interval, int, jsonb)', 'EXECUTE')),
			('work', has_function_privilege('durable.work(text[], interval, int)', 'EXECUTE'))) v (k, allowed)
		 WHERE allowed);
	wrong text;
BEGIN
	IF array_position($1, NULL) IS NOT NULL OR cardinality($1) = 0 THEN
		RAISE EXCEPTION 'invalid value for jobs'
			USING ERRCODE = 'invalid_parameter_value', DETAIL = 'It must not be empty and have no nulls.';
	END IF;
	SELECT j INTO wrong FROM unnest($1) j WHERE j <> ALL ('{sweep,work}'::text[]) LIMIT 1;
	IF wrong IS NOT NULL THEN
		RAISE EXCEPTION 'unknown job "%"', wrong
			USING ERRCODE = 'invalid_parameter_value', HINT = 'The jobs are sweep and work.';
	END IF;
	SELECT j INTO wrong FROM unnest(CASE WHEN may = '{}' THEN '{sweep}' ELSE $1 END) j
	 WHERE j <> ALL (may) LIMIT 1;
	IF wrong IS NOT NULL THEN
		RAISE EXCEPTION 'permission denied to schedule the job "%"', wrong
			USING ERRCODE = 'insufficient_privilege',
				  DETAIL = format('The job would run as the role %I, which may not execute its command.', current_user),
				  HINT = CASE wrong WHEN 'work' THEN 'The extension''s owner can grant it with durable.grant_usage(..., ''{work}'').'
							  ELSE 'The extension''s owner can GRANT EXECUTE ON FUNCTION durable.sweep, and ON PROCEDURE durable.keep_sweeping.' END;
	END IF;
	RETURN COALESCE($1, may);
END $$;
COMMENT ON FUNCTION durable.cron_kinds(text[]) IS
'internal: the jobs to schedule for the current role, or an error';

CREATE FUNCTION durable.schedule_sweeps(every text DEFAULT '5 seconds', jobs text[] DEFAULT NULL)
RETURNS SETOF bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	kinds text[] := durable.cron_kinds($2);
	version text := COALESCE((SELECT e.extversion FROM pg_extension e WHERE e.extname = 'pg_cron'),
							 (SELECT a.default_version FROM pg_available_extensions a WHERE a.name = 'pg_cron'));
	scheduler text;
	job record;
	id bigint;
BEGIN
	PERFORM durable.cron_place(true, (
		SELECT string_agg(format('SELECT cron.schedule_in_database(%L, %L, %L, %L, %L);',
								 j.job_name, j.schedule, j.command, current_database(), current_user), ' ')
		  FROM durable.cron_jobs($1, version) j WHERE j.kind = ANY (kinds)));
	IF NOT (SELECT r.rolcanlogin FROM pg_roles r WHERE r.rolname = current_user) THEN
		RAISE EXCEPTION 'role "%" is not permitted to log in', current_user
			USING ERRCODE = 'object_not_in_prerequisite_state',
				  DETAIL = 'pg_cron executes a job in a connection of its role.',
				  HINT = format('ALTER ROLE %I LOGIN, or schedule the jobs as another role.', current_user);
	END IF;
	PERFORM durable.cron_lock();
	scheduler := durable.cron_function('schedule', 'job_name text, schedule text, command text');
	FOR job IN EXECUTE 'SELECT j.jobid FROM cron.job j WHERE j.jobname = ANY ($1) AND j.username = current_user'
		 USING ARRAY(SELECT j.job_name FROM durable.cron_jobs($1, version) j WHERE j.kind <> ALL (kinds))
	LOOP
		EXECUTE format('SELECT %s($1)', durable.cron_function('unschedule', 'job_id bigint')) USING job.jobid;
	END LOOP;
	FOR job IN SELECT * FROM durable.cron_jobs($1, version) j WHERE j.kind = ANY (kinds)
	LOOP
		EXECUTE format('SELECT %s($1, $2, $3)', scheduler) INTO id
		  USING job.job_name, job.schedule, job.command;
		RETURN NEXT id;
	END LOOP;
END $$;
COMMENT ON FUNCTION durable.schedule_sweeps(text, text[]) IS
'let pg_cron sweep this database and execute what the current role registered; calling it again replaces the jobs; their ids';

CREATE FUNCTION durable.unschedule_sweeps() RETURNS int
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	names text[] := ARRAY(SELECT j.job_name FROM durable.cron_jobs('1 min', '1.4') j);
	unscheduler text;
	job bigint;
	n int := 0;
BEGIN
	IF durable.cron_place(false, format('SELECT cron.unschedule(jobid) FROM cron.job WHERE jobname = ANY (%L);', names)) = 'none' THEN
		RETURN 0;
	END IF;
	PERFORM durable.cron_lock();
	unscheduler := durable.cron_function('unschedule', 'job_id bigint');
	-- its row security shows those of the current role, to superusers all
	FOR job IN EXECUTE 'SELECT j.jobid FROM cron.job j WHERE j.jobname = ANY ($1) ORDER BY j.jobid' USING names
	LOOP
		EXECUTE format('SELECT %s($1)', unscheduler) USING job;
		n := n + 1;
	END LOOP;
	RETURN n;
END $$;
COMMENT ON FUNCTION durable.unschedule_sweeps() IS
'remove the jobs of schedule_sweeps: the current role''s own, for superusers everybody''s; how many';
