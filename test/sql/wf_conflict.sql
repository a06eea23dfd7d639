-- start and start_many: what happens when the run id is taken
\set VERBOSITY default
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

CREATE FUNCTION echo(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN i; END $$;
CREATE FUNCTION naps(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM durable.sleep('1 h'); RETURN i; END $$;
CREATE FUNCTION breaks(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.fail_run('no'); END $$;
CREATE FUNCTION small(i jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT i::int < 1000 $$;
CREATE FUNCTION parent(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.child('echo', i, 'kid'); END $$;
SELECT durable.register_workflow('echo', 'echo', tags => '{static}', input_check => 'small');
SELECT durable.register_workflow('echo', 'echo', version => '2', input_check => 'small');
SELECT durable.register_workflow('naps', 'naps'), durable.register_workflow('breaks', 'breaks'),
       durable.register_workflow('parent', 'parent'), durable.register_workflow('outside');
CREATE VIEW state AS
SELECT r.run_id, r.workflow AS wf, r.version AS v, r.status, r.turn_state AS turn, r.input, r.output, r.tags, r.priority AS prio, t.priority AS tprio,
       r.headers, r.search_attributes AS attr, (SELECT count(*) FROM durable.task_ready l WHERE l.id = r.id) AS ready,
       (SELECT count(*) FROM durable.task_delayed l WHERE l.id = r.id AND l.run_at = r.wake_at) AS delayed
  FROM durable.run r LEFT JOIN durable.task t USING (id) ORDER BY r.id;
CREATE PROCEDURE at(minutes int) LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('durable.clock_offset', (60 * minutes)::text, false); END $$;

SELECT durable.start('echo', '1', 'r', version => '1', tags => '{a}', headers => '{"h": 1}');
-- return and reject
SELECT durable.start('echo', '2', 'r', on_conflict => 'return'), durable.start('echo', '2', 'r');
SELECT durable.start('echo', '2', 'r', on_conflict => 'reject');
SELECT * FROM durable.start_many('echo', '{1,2,3}', '{q,r,q}', on_conflict => 'reject');
SELECT * FROM state;
-- replace: all of it but the id
SELECT durable.start('echo', '3', 'r', tags => '{b}', priority => 4, search_attributes => '{"s": 1}', on_conflict => 'replace');
SELECT * FROM state WHERE run_id = 'r';
SELECT durable.start('echo', '4', 'r', start_at => '2999-01-01', on_conflict => 'replace');
SELECT * FROM state WHERE run_id = 'r';
SELECT durable.start('echo', '5', 'r', start_at => '2999-01-02', on_conflict => 'replace_keep_time');
SELECT input, wake_at::date FROM durable.run WHERE run_id = 'r';
SELECT durable.start('echo', '6', 'r', version => '1', on_conflict => 'replace');
SELECT * FROM state WHERE run_id = 'r';
-- the input is checked first
SELECT durable.start('echo', '5000', 'r', on_conflict => 'replace');
-- in one transaction, taken back in part
BEGIN;
SELECT durable.start('echo', '7', 'r', on_conflict => 'replace');
SAVEPOINT s;
SELECT durable.start('echo', '8', 'r', start_at => '2999-01-01', on_conflict => 'replace');
ROLLBACK TO s;
COMMIT;
SELECT * FROM state WHERE run_id = 'r';
CALL durable.work(duration => '0');
SELECT * FROM state;
-- one that has ended
SELECT durable.start('echo', '9', 'r', on_conflict => 'replace');
SELECT durable.start('echo', '9', 'r', debounce => '1 s');
SELECT durable.start('echo', '9', 'r', on_conflict => 'reject');
SELECT durable.start('breaks', NULL, 'f');
CALL durable.work(duration => '0');
SELECT durable.start('breaks', NULL, 'f', on_conflict => 'replace');
-- one that has begun: it sleeps, its turn is out, a turn was lost that had recorded something
SELECT durable.start('naps', '1', 'n');
CALL durable.work(duration => '0');
SELECT durable.start('naps', '2', 'n', on_conflict => 'replace');
SELECT durable.start('outside', '1', 'o');
SELECT task_id, token FROM durable.claim('{outside}') \gset
SELECT durable.start('outside', '2', 'o', on_conflict => 'replace');
SELECT durable.release(:'token');
SELECT durable.start('outside', '3', 'o', on_conflict => 'replace');
SELECT task_id, token, input -> 'input' AS input FROM durable.claim('{outside}') \gset
SELECT :input AS input, durable.record_step(:'task_id', :'token', 0, 'a', '1');
SELECT durable.release(:'token');
SELECT durable.start('outside', '4', 'o', on_conflict => 'replace');
SELECT task_id, token, input -> 'input' AS input FROM durable.claim('{outside}') \gset
SELECT durable.complete_turn(:'task_id', :'token', '{"status": "completed", "output": 1}');
-- the time until its first turn was lost counts as none
SELECT durable.start('outside', '1', 'l');
SELECT count(*) FROM durable.claim('{outside}', lease => '1 min');
CALL at(2);
SELECT durable.sweep() ->> 'taken_over' AS taken_over;
SELECT reclaims, recovery_attempts FROM durable.task JOIN durable.run USING (id) WHERE durable.run.run_id = 'l';
SELECT durable.start('outside', '2', 'l', on_conflict => 'replace');
SELECT reclaims, recovery_attempts FROM durable.task JOIN durable.run USING (id) WHERE durable.run.run_id = 'l';
CALL at(0);
-- another workflow's, another namespace's, a child
SELECT durable.start('echo', '1', 'w', start_at => '2999-01-01');
SELECT durable.start('naps', '2', 'w', on_conflict => 'replace');
SELECT durable.register_workflow('echo', 'echo', namespace => 'other');
SELECT durable.start('echo', '2', 'w', namespace => 'other', on_conflict => 'replace');
SELECT durable.start('parent', '1', 'p');
CALL durable.work(duration => '0', max_tasks => 1);
SELECT durable.start('echo', '2', 'kid', on_conflict => 'replace');
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM durable.run WHERE run_id IN ('p', 'kid', 'w') ORDER BY 1;

-- many: NULL for those that are refused, the last of two counts
SELECT * FROM durable.start_many('echo', '{1,2,3,4,5}', '{m,r,m,w,n}', on_conflict => 'replace');
SELECT run_id, input FROM durable.run WHERE run_id IN ('m', 'r', 'w', 'n') ORDER BY 1;

-- debounce and throttle
SELECT durable.start('echo', '1', 'd', debounce => '5 min', debounce_max => '7 min'), durable.start('echo', '1', 't', throttle => '5 min');
CALL at(4);
SELECT durable.start('echo', '2', 'd', debounce => '5 min', debounce_max => '7 min'), durable.start('echo', '2', 't', throttle => '5 min');
SELECT run_id, status, input, round(extract(epoch FROM wake_at - created_at) / 60) AS minutes FROM durable.run WHERE run_id IN ('d', 't') ORDER BY 1;
CALL at(6);
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM durable.run WHERE run_id IN ('d', 't') ORDER BY 1;
SELECT * FROM durable.start_many('echo', '{3,3}', '{d,t}', debounce => '1 min');
CALL at(8);
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM durable.run WHERE run_id IN ('d', 't') ORDER BY 1;
CALL at(0);

-- errors
SELECT durable.start('echo', '1', 'e', on_conflict => 'other');
SELECT durable.start('echo', '1', 'e', on_conflict => 'debounce');
SELECT durable.start('echo', '1', 'e', on_conflict => 'replace', throttle => '1 s');
SELECT durable.start('echo', '1', 'e', debounce => '0');
SELECT durable.start('echo', '1', 'e', debounce => '1 s', start_at => now());
SELECT durable.start('echo', '1', 'e', debounce_max => '1 s');
SELECT durable.start('echo', '1', throttle => '1 s');
SELECT durable.start_many('echo', '{1}', on_conflict => 'replace');
SELECT count(*) FROM durable.run WHERE run_id = 'e';

-- a role without the privilege learns nothing of the run
CREATE ROLE conflict_user;
SELECT durable.grant_usage('conflict_user', 'other');
SET ROLE conflict_user;
SELECT durable.start('echo', '1', 'w', namespace => 'other', on_conflict => 'replace');
SELECT durable.start('echo', '1', 'w', namespace => 'other', on_conflict => 'reject');
SELECT durable.start('echo', '1', 'o1', namespace => 'other'), durable.start('echo', '2', 'o1', namespace => 'other', on_conflict => 'replace');
RESET ROLE;
SELECT run_id, namespace, input FROM durable.run WHERE run_id IN ('w', 'o1') ORDER BY 1;
SELECT durable.revoke_usage('conflict_user', 'other');
DROP ROLE conflict_user;

DROP VIEW state;
DROP FUNCTION echo(jsonb), naps(jsonb), breaks(jsonb), small(jsonb), parent(jsonb);
DROP PROCEDURE at(int);
