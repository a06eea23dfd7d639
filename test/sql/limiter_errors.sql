-- limiters: what is refused, and who may do what
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
DROP ROLE IF EXISTS limiter_manager, limiter_starter, limiter_worker, limiter_reader, limiter_nobody;
CREATE EXTENSION durable;
RESET client_min_messages;

-- names and limits
\set VERBOSITY sqlstate
SELECT durable.register_limiter(NULL);
SELECT durable.register_limiter('');
SELECT durable.register_limiter(repeat('x', 256));
SELECT durable.register_limiter(repeat('x', 255), concurrency => 1);
SELECT durable.register_limiter('a', namespace => repeat('n', 256));
SELECT durable.register_limiter('a', concurrency => 0);
SELECT durable.register_limiter('a', concurrency => -1);
SELECT durable.register_limiter('a', key_concurrency => 0);
SELECT durable.register_limiter('a', rate_limit => 0, rate_period => '1 s');
SELECT durable.register_limiter('a', rate_limit => 1);
SELECT durable.register_limiter('a', rate_period => '1 s');
SELECT durable.register_limiter('a', rate_limit => 1, rate_period => '0');
SELECT durable.register_limiter('a', rate_limit => 1, rate_period => '-1 s');
SELECT durable.register_limiter('a', rate_limit => 1, rate_period => '200 years');
SELECT durable.register_limiter('a', rate_kind => 'leaky');
SELECT durable.register_limiter('a', rate_kind => NULL);
SELECT durable.register_limiter('a', fairness => 'none');
SELECT durable.register_limiter('a', fairness => NULL);
SELECT durable.register_limiter('a', ordering => 'random');
SELECT durable.register_limiter('a', ordering => NULL);
SELECT durable.register_limiter('a', rate_limit => 100001, rate_period => '1 day', rate_kind => 'sliding');
SELECT durable.register_limiter('a', rate_limit => 100001, rate_period => '1 day');
SELECT durable.register_limiter('a', concurrency => 2147483647, key_concurrency => 2147483647, rate_limit => 2147483647, rate_period => '100 years');
SELECT concurrency, key_concurrency, rate_limit, rate_period, rate_kind, fairness, ordering FROM durable.limiters WHERE name = 'a';

-- what names one
SELECT durable.dispatch('job', limiter => 'none');
SELECT durable.dispatch('job', limiter => '');
SELECT durable.dispatch('job', limiter => 'a', fairness_key => '');
SELECT durable.dispatch('job', limiter => 'a', fairness_key => repeat('k', 256));
SELECT durable.dispatch('job', fairness_key => 'k');
SELECT durable.dispatch('job', limiter => 'a', namespace => 'other');
SELECT count(*) FROM durable.dispatch_many('job', '{1,2}', limiter => 'none');
SELECT count(*) FROM durable.dispatch_many('job', '{1,2}', fairness_key => 'k');
SELECT count(*) FROM durable.dispatch_many('job', '{}', limiter => 'none');
SELECT count(*) FROM durable.task;
SELECT durable.dispatch('job', task_id => 'x', limiter => 'a', fairness_key => repeat('k', 255));
SELECT durable.dispatch('job', task_id => 'x', limiter => 'a', fairness_key => repeat('k', 255));
SELECT durable.step('x', limiter => 'a');
SELECT durable.local_step('now', limiter => 'a');

SELECT durable.pause_limiter('none');
SELECT durable.resume_limiter(NULL);
SELECT durable.pause_limiter('a', 'other');
SELECT durable.drop_limiter(NULL);
SELECT durable.drop_limiter('a');
SELECT durable.drop_limiter('a', 'other');
SELECT * FROM durable.limiter_usage('default', NULL);
SELECT * FROM durable.limiter_usage('default', 'none');

-- read-only
BEGIN READ ONLY;
SELECT durable.register_limiter('b');
ROLLBACK;
BEGIN READ ONLY;
SELECT durable.drop_limiter('b');
ROLLBACK;
BEGIN READ ONLY;
SELECT durable.pause_limiter('a');
ROLLBACK;
BEGIN READ ONLY;
SELECT durable.resume_limiter('a');
ROLLBACK;

-- namespaces have limiters of their own
SELECT durable.register_limiter('a', concurrency => 1, namespace => 'other');
SELECT durable.dispatch('job', task_id => 'o' || i, limiter => 'a', namespace => 'other') FROM generate_series(1, 2) i;
SELECT namespace, running, waiting FROM durable.limiters WHERE name = 'a' ORDER BY 1;
SELECT task_id FROM durable.claim('{job}', 10, namespace => 'other');
SELECT task_id FROM durable.claim('{job}', 10);
SELECT namespace, running, waiting FROM durable.limiters WHERE name = 'a' ORDER BY 1;

-- roles
CREATE ROLE limiter_manager;
CREATE ROLE limiter_starter;
CREATE ROLE limiter_worker;
CREATE ROLE limiter_reader;
CREATE ROLE limiter_nobody;
SELECT durable.grant_usage('limiter_manager', 'default', '{manage,read}'), durable.grant_usage('limiter_starter', 'default', '{start}'),
	durable.grant_usage('limiter_worker', 'default', '{work}'), durable.grant_usage('limiter_reader', 'default', '{read}') \g /dev/null
SET ROLE limiter_manager;
SELECT durable.register_limiter('m', concurrency => 1), durable.pause_limiter('m'), durable.resume_limiter('m');
SELECT durable.register_limiter('m', namespace => 'other');
SELECT durable.drop_limiter('a', 'other');
SELECT namespace, name FROM durable.limiters ORDER BY 1, length(name), 2;
SELECT count(*) FROM durable.limiter_slot;
SELECT count(*) FROM durable.limiter_state;
INSERT INTO durable.limiter_slot VALUES (1, 1, '');
RESET ROLE;
SET ROLE limiter_starter;
SELECT durable.register_limiter('s');
SELECT durable.drop_limiter('m');
SELECT durable.pause_limiter('m');
SELECT durable.resume_limiter('m');
SELECT count(*) FROM durable.limiters;
SELECT durable.dispatch('mine', task_id => 'm' || i, limiter => 'm') FROM generate_series(1, 2) i;
SELECT durable.dispatch('mine', limiter => 'none');
RESET ROLE;
SET ROLE limiter_worker;
SELECT task_id, durable.complete(task_id, token) FROM durable.claim('{mine}', 10);
SELECT count(*) FROM durable.limiters;
RESET ROLE;
SET ROLE limiter_reader;
SELECT name, running, waiting FROM durable.limiters WHERE name = 'm';
SELECT count(*) FROM durable.task_limited;
SELECT status FROM durable.task_status('m2');
SELECT * FROM durable.limiter_usage('other', 'a');
SELECT durable.drop_limiter('m');
RESET ROLE;
SET ROLE limiter_nobody;
SELECT count(*) FROM durable.limiters;
SELECT durable.register_limiter('n');
SELECT durable.limiter_usage('default', 'm');
RESET ROLE;
SET client_min_messages = warning;
DROP EXTENSION durable CASCADE;
DROP ROLE limiter_manager, limiter_starter, limiter_worker, limiter_reader, limiter_nobody;
