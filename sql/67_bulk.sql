--
-- Many runs at once: which ones a filter means, and what can be done with them.
--

-- A string, or an array of strings.
CREATE FUNCTION durable.filter_texts(value jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
	SELECT CASE jsonb_typeof($1)
		   WHEN 'array' THEN ARRAY(SELECT jsonb_array_elements_text($1))
		   WHEN 'string' THEN ARRAY[$1 #>> '{}'] END;
$$;
COMMENT ON FUNCTION durable.filter_texts(jsonb) IS 'internal: a value of a filter of runs';

-- In order of their numbers. Who calls has checked the filter and the access.
CREATE FUNCTION durable.find_runs(
	filter jsonb, namespace text, now timestamptz, statuses text[], to_requeue boolean, max_runs int,
	since bigint)
RETURNS SETOF bigint LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	only_status text[] := durable.filter_texts(filter -> 'status');
	workflows text[] := durable.filter_texts(filter -> 'workflow');
	versions text[] := durable.filter_texts(filter -> 'version');
	any_tags text[] := durable.filter_texts(filter -> 'tag');
	codes text[] := durable.filter_texts(filter -> 'code');
	attributes jsonb := filter -> 'search_attributes';
	pattern text := filter ->> 'message';
	older timestamptz := now - (filter ->> 'older_than')::interval;
	created_before timestamptz := (filter ->> 'created_before')::timestamptz;
	created_after timestamptz := (filter ->> 'created_after')::timestamptz;
	finished_before timestamptz := (filter ->> 'finished_before')::timestamptz;
	finished_after timestamptz := (filter ->> 'finished_after')::timestamptz;
BEGIN
	RETURN QUERY
	SELECT r.id FROM durable.run r
	 WHERE r.id > since
	   AND (find_runs.namespace = '*' OR r.namespace = find_runs.namespace)
	   AND (statuses IS NULL OR r.status = ANY (statuses))
	   AND (only_status IS NULL OR r.status = ANY (only_status))
	   AND (workflows IS NULL OR r.workflow = ANY (workflows))
	   AND (versions IS NULL OR r.version = ANY (versions))
	   AND (any_tags IS NULL OR r.tags && any_tags)
	   AND (attributes IS NULL OR r.search_attributes @> attributes)
	   AND (codes IS NULL OR r.error ->> 'code' = ANY (codes)
			-- two characters are a class of SQLSTATEs
			OR length(r.error ->> 'code') = 5 AND left(r.error ->> 'code', 2) = ANY (codes))
	   AND (pattern IS NULL OR r.error ->> 'message' LIKE pattern)
	   AND (older IS NULL OR COALESCE(r.finished_at, r.created_at) < older)
	   AND (created_before IS NULL OR r.created_at < created_before)
	   AND (created_after IS NULL OR r.created_at >= created_after)
	   AND (finished_before IS NULL OR r.finished_at < finished_before)
	   AND (finished_after IS NULL OR r.finished_at >= finished_after)
	   -- who failed as a handler is done with: its run has failed, too
	   AND (NOT to_requeue OR COALESCE(r.parent_seq, 0) >= 0 AND EXISTS (
			SELECT FROM durable.workflow w
			 WHERE w.namespace = r.namespace AND w.name = r.workflow AND w.version = r.version))
	 ORDER BY r.id LIMIT max_runs;
END $$;
COMMENT ON FUNCTION durable.find_runs(jsonb, text, timestamptz, text[], boolean, int, bigint) IS
'internal: the runs that a filter means, of these statuses (NULL = all), after a number';

CREATE FUNCTION durable.redrive(
	filter jsonb, max_runs int DEFAULT 1000, rate float8 DEFAULT NULL,
	start_at timestamptz DEFAULT NULL, OUT run_id text, OUT wake_at timestamptz)
RETURNS SETOF record LANGUAGE c ROWS 100 AS 'MODULE_PATHNAME', 'durable_redrive_runs';
COMMENT ON FUNCTION durable.redrive(jsonb, int, float8, timestamptz) IS
'requeue the failed and dead runs that fit a filter, with their failed children, oldest first and so many per second; call it until it returns none';

CREATE FUNCTION durable.cancel_where(
	filter jsonb, reason text DEFAULT NULL, max_runs int DEFAULT 1000, OUT run_id text, OUT status text)
RETURNS SETOF record LANGUAGE c ROWS 100 AS 'MODULE_PATHNAME', 'durable_cancel_where';
COMMENT ON FUNCTION durable.cancel_where(jsonb, text, int) IS
'cancel the runs that fit a filter; those that have ended stay as they are, and are told only when the filter names a status';
