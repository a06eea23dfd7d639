--
-- Retention: which ended runs are deleted when, and deleting runs by hand.
--
-- A tree of runs goes as a whole, with its root, the run that no other one started.
-- When a root ends, an entry of retention_due is written. The next pass looks at the
-- run once, and puts the entry where its first policy is due, or drops it. So a pass
-- reads what is due, whatever else there is.
--

CREATE TABLE durable.retention_policy (
	id				bigint NOT NULL,
	created_at		timestamptz NOT NULL,
	owner			regrole NOT NULL,
	max_count		int,
	dropped			boolean NOT NULL,			-- goes with what belongs to it
	namespace		text COLLATE "C" NOT NULL,	-- '*': all
	workflow		text COLLATE "C",
	tag				text COLLATE "C",
	archive			text,
	max_age			interval,
	statuses		text[] COLLATE "C" NOT NULL,
	CONSTRAINT retention_policy_pkey PRIMARY KEY (id)
) USING heap;
CREATE UNIQUE INDEX retention_policy_scope ON durable.retention_policy USING btree
	(namespace, COALESCE(workflow, ''), COALESCE(tag, ''), statuses) WHERE NOT dropped;
COMMENT ON TABLE durable.retention_policy IS 'which ended runs are deleted when';
SELECT pg_catalog.pg_extension_config_dump('durable.retention_policy', '');

-- Policies are written by their owners, this by passes and archivers, each its own row,
-- so that nobody waits for a transaction that somebody keeps open.
CREATE TABLE durable.retention_state (
	policy			bigint NOT NULL,
	archiver		boolean NOT NULL,
	scanned			bigint NOT NULL,	-- runs up to this number have been looked at
	scan_to			bigint,				-- … of those that were there; NULL: not begun
	changed			boolean NOT NULL,	-- max_count: there are new members
	deleted			bigint NOT NULL,
	task			bigint,				-- the one that calls the archive function
	CONSTRAINT retention_state_pkey PRIMARY KEY (policy, archiver)
) USING heap WITH (fillfactor = 50);
COMMENT ON TABLE durable.retention_state IS 'how far retention has come with each policy';
SELECT pg_catalog.pg_extension_config_dump('durable.retention_state', '');

CREATE TABLE durable.retention_due (
	look_at		timestamptz NOT NULL,
	run			bigint NOT NULL,
	CONSTRAINT retention_due_pkey PRIMARY KEY (look_at, run)
) USING heap;
COMMENT ON TABLE durable.retention_due IS 'when retention looks at which ended run';
SELECT pg_catalog.pg_extension_config_dump('durable.retention_due', '');

-- of policies with max_count; it may list runs that have been tried again or are gone
CREATE TABLE durable.retention_member (
	policy		bigint NOT NULL,
	created_at	timestamptz NOT NULL,
	run			bigint NOT NULL,
	CONSTRAINT retention_member_pkey PRIMARY KEY (policy, created_at, run)
) USING heap;
COMMENT ON TABLE durable.retention_member IS 'the runs that a policy with max_count counts';
SELECT pg_catalog.pg_extension_config_dump('durable.retention_member', '');

CREATE TABLE durable.retention_archive (
	policy		bigint NOT NULL,
	run			bigint NOT NULL,
	not_before	timestamptz NOT NULL,
	finished_at	timestamptz NOT NULL,
	failed_at	timestamptz,
	failures	int NOT NULL DEFAULT 0,
	error		text COLLATE "C",
	CONSTRAINT retention_archive_pkey PRIMARY KEY (policy, run)
) USING heap;
CREATE INDEX retention_archive_next ON durable.retention_archive USING btree (policy, not_before);
COMMENT ON TABLE durable.retention_archive IS 'runs that are deleted once their policy''s archive function has taken them';
SELECT pg_catalog.pg_extension_config_dump('durable.retention_archive', '');

CREATE INDEX signal_buffer_created_at ON durable.signal_buffer USING btree (created_at);

-- Sessions that work know which policies' archive functions are theirs.
CREATE TRIGGER settings_changed
	AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE
	ON durable.retention_policy
	FOR EACH STATEMENT EXECUTE FUNCTION durable.settings_changed();

-- Which ended roots fall under which policies; due_at is NULL without max_age.
CREATE VIEW durable.retention_match AS
SELECT p.id AS policy, r.id AS run, r.created_at, r.finished_at, p.max_count, p.archive,
	   r.finished_at OPERATOR(pg_catalog.+) p.max_age AS due_at
  FROM durable.run r
  JOIN durable.retention_policy p
	ON NOT p.dropped AND r.status OPERATOR(pg_catalog.=) ANY (p.statuses)
   AND (p.namespace OPERATOR(pg_catalog.=) '*' OR p.namespace OPERATOR(pg_catalog.=) r.namespace)
   AND (p.workflow IS NULL OR p.workflow OPERATOR(pg_catalog.=) r.workflow)
   AND (p.tag IS NULL OR p.tag OPERATOR(pg_catalog.=) ANY (r.tags))
 WHERE r.parent IS NULL AND r.finished_at IS NOT NULL;
COMMENT ON VIEW durable.retention_match IS
'internal: the ended runs that were started by no other one, and the policies that they fall under';

CREATE VIEW durable.retention WITH (security_invoker = true) AS
SELECT p.id, p.namespace, p.statuses, p.workflow, p.tag, p.max_age, p.max_count, p.archive,
	   p.owner, p.created_at, COALESCE(s.deleted, 0) AS deleted, a.waiting, a.failing,
	   CASE WHEN p.archive IS NOT NULL AND NOT EXISTS (
			SELECT FROM pg_catalog.pg_roles o WHERE o.oid OPERATOR(pg_catalog.=) p.owner)
			THEN 'the role that owns the policy does not exist'
			ELSE a.errors[1] END AS last_error,
	   a.runs[1] AS last_error_run, a.last_error_at
  FROM durable.retention_policy p
 CROSS JOIN LATERAL (
	SELECT pg_catalog.sum(x.deleted)::bigint AS deleted FROM durable.retention_state x
	 WHERE x.policy OPERATOR(pg_catalog.=) p.id) s
 CROSS JOIN LATERAL (
	SELECT pg_catalog.count(*) AS waiting, pg_catalog.count(x.error) AS failing,
		   pg_catalog.max(x.failed_at) AS last_error_at,
		   pg_catalog.array_agg(x.error ORDER BY x.failed_at DESC) FILTER (WHERE x.error IS NOT NULL) AS errors,
		   pg_catalog.array_agg(r.run_id ORDER BY x.failed_at DESC) FILTER (WHERE x.error IS NOT NULL) AS runs
	  FROM durable.retention_archive x
	  LEFT JOIN durable.run r ON r.id OPERATOR(pg_catalog.=) x.run
	 WHERE x.policy OPERATOR(pg_catalog.=) p.id) a
 WHERE NOT p.dropped
 ORDER BY p.id;
COMMENT ON VIEW durable.retention IS
'the retention policies, what they have deleted, what waits for an archive function, and its last error';

CREATE VIEW durable.retention_failures WITH (security_invoker = true) AS
SELECT a.policy, r.namespace, r.run_id, r.status, r.finished_at, a.error, a.failures,
	   a.failed_at, a.not_before AS next_try
  FROM durable.retention_archive a
  JOIN durable.run r ON r.id OPERATOR(pg_catalog.=) a.run
 WHERE a.error IS NOT NULL
 ORDER BY a.policy, a.failed_at;
COMMENT ON VIEW durable.retention_failures IS
'runs that are kept because the archive function of their policy failed, and why';

-- ------------------------------------------------------------------ deleting

-- The runs that were started by each of these, and so on. A child stands in the
-- history of the run that started it.
CREATE FUNCTION durable.run_trees(roots bigint[], OUT root bigint, OUT run bigint)
RETURNS SETOF record LANGUAGE sql STABLE ROWS 1000
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
	WITH RECURSIVE tree (root, run) AS (
		SELECT r.id, r.id FROM durable.run r WHERE r.id = ANY ($1)
		UNION
		SELECT t.root, c.id
		  FROM tree t
		 CROSS JOIN LATERAL (SELECT regexp_replace(k.name, '^(child|(retired:)?handoff):', '') AS id
							   FROM durable.checkpoint k
							  WHERE k.run = t.run AND k.kind IN ('child', 'handoff') OFFSET 0) k
		 CROSS JOIN LATERAL (SELECT r.id FROM durable.run r
							  WHERE r.run_id = k.id AND r.parent = t.run OFFSET 0) c)
	SELECT t.root, t.run FROM tree t;
$$;
COMMENT ON FUNCTION durable.run_trees(bigint[]) IS
'internal: the numbers of the runs of each tree';

-- What a dead letter is to look into stays until it has ended. Its id may have a number.
CREATE FUNCTION durable.has_live_letter(run_id text, run bigint) RETURNS boolean
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off AS $$
	SELECT EXISTS (
		SELECT FROM durable.run d
		 WHERE (d.run_id = 'dlq:' || $1 OR d.run_id > 'dlq:' || $1 || ':' AND d.run_id < 'dlq:' || $1 || ';')
		   AND d.id > $2 AND d.finished_at IS NULL AND d.input ->> 'dead_run_id' = $1);
$$;
COMMENT ON FUNCTION durable.has_live_letter(text, bigint) IS
'internal: whether the dead letter of a dead run has not ended';

-- All that belongs to locked runs which have ended. "listed": retention may still
-- look at them. Tasks that are out are the caller's business.
CREATE FUNCTION durable.delete_locked_runs(runs bigint[], listed boolean) RETURNS bigint[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
	tasks bigint[];
BEGIN
	DELETE FROM durable.signal_buffer s USING durable.run r
	 WHERE r.id = ANY ($1) AND s.namespace = r.namespace AND s.token = 'child:' || r.run_id;
	DELETE FROM durable.run_log l WHERE l.run = ANY ($1);
	WITH gone AS (
		DELETE FROM durable.checkpoint k WHERE k.run = ANY ($1)
		RETURNING k.run, k.status, k.kind, k.name, k.task),
	waits AS (
		DELETE FROM durable.waiter w USING gone g, durable.run r
		 WHERE g.status = 'pending' AND g.kind IN ('signal', 'child') AND r.id = g.run
		   AND w.namespace = r.namespace AND w.token = g.name AND w.run = g.run)
	SELECT array_agg(g.task) INTO tasks FROM gone g
	 WHERE g.status = 'pending' AND g.kind = 'step' AND g.task IS NOT NULL;
	IF listed THEN
		DELETE FROM durable.retention_due d USING durable.run r
		 WHERE r.id = ANY ($1) AND d.look_at = r.finished_at AND d.run = r.id;
	END IF;
	IF EXISTS (SELECT FROM durable.retention_policy p WHERE p.max_count IS NOT NULL) THEN
		DELETE FROM durable.retention_member m USING durable.run r, durable.retention_policy p
		 WHERE r.id = ANY ($1) AND p.max_count IS NOT NULL
		   AND m.policy = p.id AND m.created_at = r.created_at AND m.run = r.id;
	END IF;
	IF EXISTS (SELECT FROM durable.retention_policy p WHERE p.archive IS NOT NULL) THEN
		DELETE FROM durable.retention_archive a USING durable.retention_policy p
		 WHERE a.policy = p.id AND a.run = ANY ($1);
	END IF;
	DELETE FROM durable.run r WHERE r.id = ANY ($1);
	RETURN tasks;
END $$;
COMMENT ON FUNCTION durable.delete_locked_runs(bigint[], boolean) IS
'internal: deletes runs and all that belongs to them; the tasks that are still out';

-- Deletes the trees of which every run has ended and is locked by nobody else; who does not
-- "wait" leaves also a dead run whose dead letter is at work. The
-- roots that are gone, how many runs went with each and in all, and the tasks that are
-- still out.
CREATE FUNCTION durable.delete_trees(
	roots bigint[], wait boolean, listed boolean,
	OUT gone bigint[], OUT sizes bigint[], OUT deleted bigint, OUT tasks bigint[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
	tree_roots bigint[];
	tree_runs bigint[];
	locked_roots bigint[];
	locked_runs bigint[];
	doomed bigint[];
BEGIN
	-- a run that has not ended is not locked, not even for a moment
	SELECT array_agg(m.root), array_agg(m.run) INTO tree_roots, tree_runs
	  FROM (SELECT t.root, t.run,
				   bool_or(r.finished_at IS NULL OR NOT $2 AND r.status = 'dead' AND durable.has_live_letter(r.run_id, r.id))
				   OVER (PARTITION BY t.root) AS lives
			  FROM durable.run_trees($1) t LEFT JOIN durable.run r ON r.id = t.run) m
	 WHERE NOT m.lives;
	IF wait THEN
		PERFORM FROM durable.run r WHERE r.id = ANY (tree_runs) AND r.finished_at IS NOT NULL
		  ORDER BY r.id FOR UPDATE;
	END IF;
	SELECT array_agg(l.root), array_agg(l.run) INTO locked_roots, locked_runs
	  FROM (SELECT u.root, u.run
			  FROM unnest(tree_roots, tree_runs) u(root, run)
			  JOIN durable.run r ON r.id = u.run AND r.finished_at IS NOT NULL
			 ORDER BY r.id FOR UPDATE OF r SKIP LOCKED) l;
	WITH tree AS (
		SELECT u.root, array_agg(u.run) FILTER (WHERE u.n = 1) AS runs
		  FROM (SELECT t.root, t.run, -1 AS n FROM unnest(tree_roots, tree_runs) t(root, run)
				UNION ALL
				SELECT l.root, l.run, 1 FROM unnest(locked_roots, locked_runs) l(root, run)) u
		 GROUP BY u.root
		HAVING sum(u.n) = 0)
	SELECT array_agg(t.root), array_agg(cardinality(t.runs)),
		   (SELECT array_agg(DISTINCT d.run) FROM tree x CROSS JOIN unnest(x.runs) d(run))
	  INTO gone, sizes, doomed FROM tree t;
	deleted := COALESCE(cardinality(doomed), 0);
	tasks := durable.delete_locked_runs(doomed, listed);
END $$;
COMMENT ON FUNCTION durable.delete_trees(bigint[], boolean, boolean) IS
'internal: deletes trees of runs that have ended';

-- ------------------------------------------------------------------ the pass

-- What a policy that was dropped leaves behind, and then itself. How many rows; the task
-- that was to call its archive function.
CREATE FUNCTION durable.retention_drop(
	now timestamptz, max_rows int, OUT dropped bigint, OUT task bigint)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
	old bigint;
BEGIN
	dropped := 0;
	SELECT p.id INTO old FROM durable.retention_policy p
	 WHERE p.dropped ORDER BY p.id LIMIT 1 FOR UPDATE SKIP LOCKED;
	IF old IS NULL THEN
		RETURN;
	END IF;
	WITH gone AS MATERIALIZED (
		SELECT x.policy, x.created_at, x.run FROM durable.retention_member x
		 WHERE x.policy = old LIMIT max_rows FOR UPDATE SKIP LOCKED)
	DELETE FROM durable.retention_member m USING gone g
	 WHERE m.policy = g.policy AND m.created_at = g.created_at AND m.run = g.run;
	GET DIAGNOSTICS dropped = ROW_COUNT;
	IF dropped = 0 THEN
		-- what waited for its function may fall under another policy
		WITH listed AS MATERIALIZED (
			SELECT x.run FROM durable.retention_archive x
			 WHERE x.policy = old LIMIT max_rows FOR UPDATE SKIP LOCKED),
		gone AS (
			DELETE FROM durable.retention_archive a USING listed l
			 WHERE a.policy = old AND a.run = l.run RETURNING a.run)
		INSERT INTO durable.retention_due (look_at, run)
		SELECT now, g.run FROM gone g ON CONFLICT DO NOTHING;
		GET DIAGNOSTICS dropped = ROW_COUNT;
	END IF;
	-- what somebody else is deleting is still to be seen
	IF NOT EXISTS (SELECT FROM durable.retention_member m WHERE m.policy = old)
	   AND NOT EXISTS (SELECT FROM durable.retention_archive a WHERE a.policy = old) THEN
		SELECT s.task INTO task FROM durable.retention_state s WHERE s.policy = old AND NOT s.archiver;
		DELETE FROM durable.retention_state s WHERE s.policy = old;
		DELETE FROM durable.retention_policy p WHERE p.id = old;
		dropped := dropped + 1;
	END IF;
END $$;
COMMENT ON FUNCTION durable.retention_drop(timestamptz, int) IS
'internal: forgets dropped retention policies, little by little';

-- A new policy looks at what has ended before it came. What ends later has entries.
CREATE FUNCTION durable.retention_scan(max_rows int) RETURNS bigint[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
	since bigint;
	until bigint;
	last bigint;
	ended bigint[];
BEGIN
	-- passes are one after another: what an earlier one has looked at, without this
	-- policy, has a number that is given out by now
	INSERT INTO durable.retention_state (policy, archiver, scanned, scan_to, changed, deleted)
	SELECT p.id, false, 0, nextval('durable.task_seq'), false, 0 FROM durable.retention_policy p
	 WHERE NOT p.dropped
	   AND NOT EXISTS (SELECT FROM durable.retention_state s WHERE s.policy = p.id AND NOT s.archiver);
	SELECT s.scanned, max(s.scan_to) INTO since, until FROM durable.retention_state s
	 WHERE s.scanned < s.scan_to
	 GROUP BY s.scanned ORDER BY s.scanned LIMIT 1;
	IF since IS NULL THEN
		RETURN NULL;
	END IF;
	SELECT max(x.id), array_agg(x.id) FILTER (WHERE x.ends) INTO last, ended
	  FROM (SELECT r.id, r.finished_at IS NOT NULL AND r.parent IS NULL AS ends
			  FROM durable.run r WHERE r.id > since AND r.id <= until
			 ORDER BY r.id LIMIT max_rows) x;
	UPDATE durable.retention_state s SET scanned = COALESCE(last, s.scan_to)
	 WHERE s.scanned = since AND s.scan_to > since;
	RETURN COALESCE(ended, '{}');
END $$;
COMMENT ON FUNCTION durable.retention_scan(int) IS
'internal: the next ended runs that a new retention policy has to look at; NULL when there is no new one';

-- Where these runs stand with the policies. Those that are due now, each with the
-- policy that says so, one with an archive function before others.
CREATE FUNCTION durable.retention_judge(
	runs bigint[], now timestamptz, OUT run bigint, OUT policy bigint, OUT archives boolean)
RETURNS SETOF record LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
	WITH added AS (
		INSERT INTO durable.retention_member AS x (policy, created_at, run)
		SELECT m.policy, m.created_at, m.run FROM durable.retention_match m
		 WHERE m.run = ANY (runs) AND m.max_count IS NOT NULL
		   -- the insertion would wait for who is deleting that row
		   AND NOT EXISTS (SELECT FROM durable.retention_member y
							WHERE y.policy = m.policy AND y.created_at = m.created_at AND y.run = m.run)
		ON CONFLICT DO NOTHING RETURNING x.policy)
	UPDATE durable.retention_state s SET changed = true
	 WHERE NOT s.changed AND NOT s.archiver AND s.policy IN (SELECT a.policy FROM added a);
	INSERT INTO durable.retention_due (look_at, run)
	SELECT min(m.due_at), m.run FROM durable.retention_match m
	 WHERE m.run = ANY (runs) AND m.due_at IS NOT NULL
	 GROUP BY m.run HAVING min(m.due_at) > now
	ON CONFLICT DO NOTHING;
	RETURN QUERY
	SELECT DISTINCT ON (m.run) m.run, m.policy, m.archive IS NOT NULL
	  FROM durable.retention_match m
	 WHERE m.run = ANY (runs) AND m.due_at <= now
	 ORDER BY m.run, m.archive IS NULL, m.policy;
END $$;
COMMENT ON FUNCTION durable.retention_judge(bigint[], timestamptz) IS
'internal: sorts ended runs by when retention has to look at them again; those that are due';

-- What is older than the newest ones that a policy keeps. The newest are counted among
-- the runs that fall under the policy now.
CREATE FUNCTION durable.retention_cut(
	max_rows int, OUT run bigint, OUT policy bigint, OUT archives boolean)
RETURNS SETOF record LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
	p durable.retention_policy;
	cutoff timestamptz;
	old bigint[];
BEGIN
	SELECT x.* INTO p FROM durable.retention_state s
	  JOIN durable.retention_policy x ON x.id = s.policy AND NOT x.dropped
	 WHERE s.changed ORDER BY x.id LIMIT 1;
	IF p.id IS NULL THEN
		RETURN;
	END IF;
	IF p.max_count = 0 THEN
		cutoff := 'infinity';
	ELSE
		SELECT x.created_at INTO cutoff
		  FROM (SELECT m.created_at, m.run FROM durable.retention_member m
				 WHERE m.policy = p.id ORDER BY m.created_at DESC, m.run DESC) x
		 CROSS JOIN LATERAL (SELECT FROM durable.retention_match y
							  WHERE y.run = x.run AND y.policy = p.id OFFSET 0) y
		 OFFSET p.max_count - 1 LIMIT 1;
	END IF;
	WITH past AS MATERIALIZED (
		SELECT x.created_at, x.run FROM durable.retention_member x
		 WHERE x.policy = p.id AND x.created_at < cutoff
		 ORDER BY x.created_at, x.run LIMIT max_rows FOR UPDATE SKIP LOCKED),
	old AS (
		DELETE FROM durable.retention_member m USING past x
		 WHERE m.policy = p.id AND m.created_at = x.created_at AND m.run = x.run
		RETURNING m.run)
	SELECT array_agg(o.run) INTO old FROM old o;
	IF COALESCE(cardinality(old), 0) < max_rows THEN
		UPDATE durable.retention_state s SET changed = false WHERE s.policy = p.id AND NOT s.archiver;
	END IF;
	RETURN QUERY SELECT m.run, m.policy, m.archive IS NOT NULL
	  FROM durable.retention_match m WHERE m.run = ANY (old) AND m.policy = p.id;
END $$;
COMMENT ON FUNCTION durable.retention_cut(int) IS
'internal: runs that are older than those that a policy with max_count keeps';

-- Deletes what is due, or puts it on the list of its policy's archive function. What
-- cannot go, because somebody holds it or a run of its tree has not ended, is looked
-- at again later.
CREATE FUNCTION durable.retention_remove(
	runs bigint[], policies bigint[], archives boolean[], now timestamptz,
	OUT deleted bigint, OUT tasks bigint[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
	roots bigint[];
	gone bigint[];
	sizes bigint[];
BEGIN
	INSERT INTO durable.retention_archive (policy, run, not_before, finished_at)
	SELECT u.policy, u.run, now, r.finished_at
	  FROM unnest(runs, policies, archives) u(run, policy, archives)
	  JOIN durable.run r ON r.id = u.run AND r.finished_at IS NOT NULL
	 WHERE u.archives
	   AND NOT EXISTS (SELECT FROM durable.retention_archive a
						WHERE a.policy = u.policy AND a.run = u.run)
	ON CONFLICT DO NOTHING;
	SELECT array_agg(u.run) INTO roots
	  FROM unnest(runs, archives) u(run, archives) WHERE NOT u.archives;
	IF roots IS NULL THEN
		deleted := 0;
		RETURN;
	END IF;
	SELECT d.gone, d.sizes, d.deleted, d.tasks INTO gone, sizes, deleted, tasks
	  FROM durable.delete_trees(roots, false, false) d;
	UPDATE durable.retention_state s SET deleted = s.deleted + x.n
	  FROM (SELECT y.policy, sum(y.size) AS n
			  FROM (SELECT max(u.policy) AS policy, max(u.size) AS size
					  FROM (SELECT a.run, a.policy, NULL::bigint AS size
							  FROM unnest(runs, policies) a(run, policy)
							UNION ALL
							SELECT g.run, NULL, g.size FROM unnest(gone, sizes) g(run, size)) u
					 GROUP BY u.run) y
			 WHERE y.size IS NOT NULL GROUP BY y.policy) x
	 WHERE s.policy = x.policy AND NOT s.archiver;
	INSERT INTO durable.retention_due (look_at, run)
	SELECT now + least(greatest((now - r.finished_at) / 8, '1 min'), '1 day'), r.id
	  FROM (SELECT u.run FROM unnest(roots) u(run)
			EXCEPT SELECT g.run FROM unnest(gone) g(run)) k
	  JOIN durable.run r ON r.id = k.run AND r.finished_at IS NOT NULL
	ON CONFLICT DO NOTHING;
END $$;
COMMENT ON FUNCTION durable.retention_remove(bigint[], bigint[], boolean[], timestamptz) IS
'internal: deletes what retention policies say, or leaves it to their archive functions';

-- One batch. The tasks that are to be dropped; whether there was anything to do that
-- nobody else holds (done).
CREATE FUNCTION durable.retention_pass(
	now timestamptz, max_rows int, OUT deleted bigint, OUT tasks bigint[], OUT done bigint)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
	looked bigint[];
	due bigint[];
	runs bigint[];
	policies bigint[];
	archives boolean[];
	drop_task bigint;
BEGIN
	deleted := 0;
	SELECT d.dropped, d.task INTO done, drop_task FROM durable.retention_drop(now, max_rows) d;
	looked := durable.retention_scan(max_rows);
	IF EXISTS (SELECT FROM durable.retention_policy p WHERE NOT p.dropped) THEN
		WITH first AS MATERIALIZED (
			SELECT x.look_at, x.run FROM durable.retention_due x
			 WHERE x.look_at <= now ORDER BY x.look_at, x.run LIMIT max_rows
			   FOR UPDATE SKIP LOCKED),
		gone AS (
			DELETE FROM durable.retention_due d USING first x
			 WHERE d.look_at = x.look_at AND d.run = x.run RETURNING d.run)
		SELECT array_agg(DISTINCT g.run) INTO due FROM gone g;
	END IF;
	SELECT array_agg(x.run), array_agg(x.policy), array_agg(x.archives)
	  INTO runs, policies, archives
	  FROM (SELECT DISTINCT ON (y.run) y.run, y.policy, y.archives
			  FROM (SELECT j.* FROM durable.retention_judge(looked || due, now) j
					UNION ALL
					SELECT c.* FROM durable.retention_cut(max_rows) c) y
			 ORDER BY y.run, y.archives DESC, y.policy) x;
	IF runs IS NOT NULL THEN
		SELECT r.deleted, r.tasks INTO deleted, tasks
		  FROM durable.retention_remove(runs, policies, archives, now) r;
	END IF;
	IF drop_task IS NOT NULL THEN
		tasks := tasks || drop_task;
	END IF;
	done := done + COALESCE(cardinality(due), 0) + COALESCE(cardinality(runs), 0)
		+ CASE WHEN looked IS NULL THEN 0 ELSE 1 END;
END $$;
COMMENT ON FUNCTION durable.retention_pass(timestamptz, int) IS
'internal: one batch of what retention has to do';

-- ------------------------------------------------------------------ archiving

-- The next run that waits for the policy's archive function. That it is tried is
-- recorded first: if it ends the session, others have their turn before it.
CREATE FUNCTION durable.archive_next(policy bigint, now timestamptz, OUT run bigint, OUT archive text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
	SELECT x.run INTO run FROM durable.retention_archive x
	 WHERE x.policy = $1 AND x.not_before <= $2
	 ORDER BY x.not_before LIMIT 1 FOR UPDATE SKIP LOCKED;
	UPDATE durable.retention_archive a
	   SET failures = a.failures + 1, failed_at = $2,
		   not_before = $2 + '1 min'::interval * power(2, least(a.failures, 10)),
		   error = CASE WHEN a.failures > 0 THEN
				   COALESCE(a.error, 'the session that called the archive function ended') END
	 WHERE a.policy = $1 AND a.run = archive_next.run;
	SELECT p.archive INTO archive FROM durable.retention_policy p
	 WHERE p.id = $1 AND NOT p.dropped AND p.archive IS NOT NULL;
END $$;
COMMENT ON FUNCTION durable.archive_next(bigint, timestamptz) IS
'internal: the next run for a policy''s archive function';

CREATE FUNCTION durable.archive_run(run bigint) RETURNS jsonb
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
	SELECT jsonb_build_object(
		'run', jsonb_build_object(
			'run_id', r.run_id, 'namespace', r.namespace, 'workflow', r.workflow,
			'version', r.version, 'status', r.status, 'priority', r.priority,
			'tags', r.tags, 'search_attributes', r.search_attributes, 'headers', r.headers,
			'input', r.input, 'output', r.output, 'error', r.error,
			'created_at', r.created_at, 'started_at', r.started_at, 'finished_at', r.finished_at,
			'recovery_attempts', r.recovery_attempts, 'parent_seq', r.parent_seq,
			'parent', (SELECT p.run_id FROM durable.run p WHERE p.id = r.parent)),
		'history', (
			SELECT COALESCE(jsonb_agg(jsonb_build_object(
						'seq', k.seq, 'kind', k.kind, 'name', k.name, 'status', k.status,
						'attempts', k.attempts, 'input', k.input, 'output', k.output,
						'error', k.error, 'started_at', k.started_at,
						'finished_at', k.finished_at, 'wake_at', k.wake_at) ORDER BY k.seq), '[]')
			  FROM durable.checkpoint k WHERE k.run = r.id),
		'log', (
			SELECT COALESCE(jsonb_agg(jsonb_build_object(
						'seq', l.seq, 'number', l.number, 'at', l.at, 'level', l.level,
						'message', l.message, 'data', l.data) ORDER BY l.seq, l.number), '[]')
			  FROM durable.run_log l WHERE l.run = r.id))
	  FROM durable.run r WHERE r.id = $1;
$$;
COMMENT ON FUNCTION durable.archive_run(bigint) IS
'internal: a run, its history and its log as an archive function gets them';

-- What the archive function gets, and by what it is known that the tree is still the
-- same afterwards. NULL: the run does not fall under the policy any more.
CREATE FUNCTION durable.archive_document(
	policy bigint, run bigint, OUT document jsonb, OUT state text, OUT namespace text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
	SELECT r.namespace INTO namespace
	  FROM durable.retention_archive a
	  JOIN durable.retention_match m ON m.policy = a.policy AND m.run = a.run
	   AND m.finished_at = a.finished_at
	  JOIN durable.run r ON r.id = a.run
	 WHERE a.policy = $1 AND a.run = $2;
	state := durable.archive_state($2);
	IF namespace IS NOT NULL AND state IS NOT NULL THEN
		document := durable.archive_run($2) || jsonb_build_object(
			'policy', $1,
			'children', (SELECT COALESCE(jsonb_agg(durable.archive_run(t.run) ORDER BY t.run), '[]')
						   FROM durable.run_trees(ARRAY[$2]) t WHERE t.run <> $2));
	END IF;
END $$;
COMMENT ON FUNCTION durable.archive_document(bigint, bigint) IS
'internal: what an archive function gets';

-- NULL: a run of the tree has not ended, or its dead letter has not, or there is none
CREATE FUNCTION durable.archive_state(run bigint) RETURNS text
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
	SELECT string_agg(r.id || ' ' || EXTRACT(epoch FROM r.finished_at), ',' ORDER BY r.id)
	  FROM durable.run_trees(ARRAY[$1]) t JOIN durable.run r ON r.id = t.run
	HAVING bool_and(r.finished_at IS NOT NULL AND (r.status <> 'dead' OR NOT durable.has_live_letter(r.run_id, r.id)));
$$;
COMMENT ON FUNCTION durable.archive_state(bigint) IS
'internal: changes with each run of a tree that is tried again';

-- The function has taken the tree: it goes, if it is the same as before. How many runs
-- went; 0: it is not the same, or somebody holds a run of it.
CREATE FUNCTION durable.archive_done(
	policy bigint, run bigint, state text, OUT deleted bigint, OUT tasks bigint[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
	PERFORM FROM (SELECT t.run FROM durable.run_trees(ARRAY[$2]) t OFFSET 0) t
	  JOIN durable.run r ON r.id = t.run AND r.finished_at IS NOT NULL
	 ORDER BY r.id FOR UPDATE OF r SKIP LOCKED;
	deleted := 0;
	IF durable.archive_state($2) IS DISTINCT FROM $3 THEN
		RETURN;
	END IF;
	SELECT d.deleted, d.tasks INTO deleted, tasks
	  FROM durable.delete_trees(ARRAY[$2], false, false) d;
	INSERT INTO durable.retention_state AS s (policy, archiver, scanned, changed, deleted)
	VALUES ($1, true, 0, false, archive_done.deleted)
	ON CONFLICT ON CONSTRAINT retention_state_pkey DO UPDATE
	   SET deleted = s.deleted + archive_done.deleted;
END $$;
COMMENT ON FUNCTION durable.archive_done(bigint, bigint, text) IS
'internal: deletes a tree of runs that was archived';

-- Off the list; retention looks at the run anew.
CREATE FUNCTION durable.archive_again(policy bigint, run bigint, look_at timestamptz) RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off AS $$
	DELETE FROM durable.retention_archive a WHERE a.policy = $1 AND a.run = $2;
	INSERT INTO durable.retention_due (look_at, run)
	SELECT $3, r.id FROM durable.run r WHERE r.id = $2 ON CONFLICT DO NOTHING;
$$;
COMMENT ON FUNCTION durable.archive_again(bigint, bigint, timestamptz) IS
'internal: takes a run off the list of an archive function';

-- ------------------------------------------------------------------ the API

CREATE FUNCTION durable.set_retention(
	statuses text[], max_age interval DEFAULT NULL, max_count int DEFAULT NULL,
	workflow text DEFAULT NULL, namespace text DEFAULT NULL, tag text DEFAULT NULL,
	archive text DEFAULT NULL)
RETURNS bigint LANGUAGE c AS 'MODULE_PATHNAME', 'durable_set_retention';
COMMENT ON FUNCTION durable.set_retention(text[], interval, int, text, text, text, text) IS
'delete runs that ended in one of the statuses when they are old or many; replaces the policy of the same statuses, workflow, namespace and tag; its id';

CREATE FUNCTION durable.drop_retention(id bigint)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_drop_retention';
COMMENT ON FUNCTION durable.drop_retention(bigint) IS
'remove a retention policy; false = there is none of this id';

CREATE FUNCTION durable.delete_run(run_id text)
RETURNS int LANGUAGE c AS 'MODULE_PATHNAME', 'durable_delete_run';
COMMENT ON FUNCTION durable.delete_run(text) IS
'delete a run that has ended, its history and the runs that it started; how many runs';

CREATE FUNCTION durable.purge_runs(filter jsonb, force boolean DEFAULT false, max_runs int DEFAULT 1000)
RETURNS int LANGUAGE c AS 'MODULE_PATHNAME', 'durable_purge_runs';
COMMENT ON FUNCTION durable.purge_runs(jsonb, boolean, int) IS
'delete the runs that fit a filter, with the runs that they started; live ones are cancelled first (force) or kept; how many runs; call it until that is 0';
