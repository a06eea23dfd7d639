# Limiters with workers: background workers execute local steps and handlers under one, and
# go on as soon as a slot is free or a window opens, without anybody looking again and again;
# a client that waits for work is woken, too. And fairness: a tenant with very many tasks
# does not keep those with few waiting. DURABLE_LIMITER_TASKS says how many.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use DurableTest;

my $TASKS = $ENV{DURABLE_LIMITER_TASKS} // 3000;

# so seldom does anybody look by itself
my $node = durable_node('limiter_workers', { background => 1 }, 'durable.poll_interval = 60s', 'durable.workers = 4');
$node->safe_psql('postgres', q{
	CREATE TABLE violation (what text);
	CREATE TABLE effect (what text);
	CREATE FUNCTION watched(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		mine int;
	BEGIN
		FOR g IN 1 .. 2 LOOP
			IF pg_try_advisory_lock(1, g) THEN
				mine := g;
				EXIT;
			END IF;
		END LOOP;
		IF mine IS NULL THEN
			INSERT INTO violation VALUES ('more than two');
		END IF;
		INSERT INTO effect VALUES (i #>> '{}');
		PERFORM pg_sleep(0.001);
		PERFORM pg_advisory_unlock(1, mine);
		RETURN i;
	END $$;
	CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.local_step('watched', '"local"', limiter => 'two');
		PERFORM durable.step('watched', '"step"', limiter => 'two');
		PERFORM durable.step_all('watched', '{1,2,3}', limiter => 'two');
		RETURN durable.local_step('watched', '"last"', limiter => 'two', fairness_key => 'x');
	END $$;
	SELECT durable.register_limiter('two', concurrency => 2, fairness => 'key'), durable.register_workflow('body', 'body'),
		durable.register_handler('watched', 'watched');
});

$node->safe_psql('postgres', q{SELECT durable.start_many('body', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 60) i))});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 60 FROM durable.run WHERE status = 'completed'}), 'all runs end');
is($node->safe_psql('postgres', 'SELECT count(*) FROM violation'), 0, 'never more than two at once');
is($node->safe_psql('postgres', 'SELECT count(*) FROM effect'), 360, 'each step once');
is($node->safe_psql('postgres', q{SELECT running, waiting FROM durable.limiters}), '0|0', 'nothing is left');

# A slot that a client gives back is taken at once by who waits for it.
$node->safe_psql('postgres', q{SELECT durable.register_limiter('one', concurrency => 1), durable.dispatch('job', task_id => 'a', limiter => 'one'), durable.dispatch('job', task_id => 'b', limiter => 'one')});
my $token = $node->safe_psql('postgres', q{SELECT token FROM durable.claim('{job}', 10, '1 h')});
my $waiting = DurableTest::Session->new($node, name => 'waiting');
$waiting->send(q{CALL durable.wait_and_claim('{job}', timeout => '100 s')});
ok($node->poll_query_until('postgres', q{SELECT wait_event = 'DurableWaitForWork' OR wait_event = 'Extension' FROM pg_stat_activity WHERE application_name = 'waiting'}), 'a client waits');
$node->safe_psql('postgres', qq{SELECT durable.complete('a', '$token')});
like($waiting->answer, qr/"b"/, 'and has the slot when it is free');

# A window opens by itself: for a client, and for a worker that is not even there.
$node->safe_psql('postgres', q{SELECT durable.register_limiter('rate', rate_limit => 1, rate_period => '1 s'),
	durable.dispatch('timed', task_id => 't1', limiter => 'rate'), durable.dispatch('timed', task_id => 't2', limiter => 'rate')});
$node->safe_psql('postgres', q{SELECT durable.claim('{timed}', 10, '1 h')});
$waiting->send(q{CALL durable.wait_and_claim('{timed}', timeout => '100 s')});
like($waiting->answer, qr/"t2"/, 'a client waits until the window opens');
$node->safe_psql('postgres', q{
	CREATE FUNCTION timed(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RETURN durable.local_step('watched', i, limiter => 'rate');
	END $$;
	SELECT durable.register_workflow('timed', 'timed'), durable.start_many('timed', '{1,2,3}')});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 3 FROM durable.run WHERE workflow = 'timed' AND status = 'completed'}), 'workers, too');

# A worker that is killed: what it held comes back. (The whole server restarts.)
$node->safe_psql('postgres', q{
	CREATE FUNCTION slow(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES ('slow');
		PERFORM pg_sleep(3600) WHERE NOT EXISTS (SELECT FROM violation WHERE what = 'go on');
		RETURN i;
	END $$;
	CREATE FUNCTION slowly(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RETURN durable.local_step('slow', i, limiter => 'two');
	END $$;
	SELECT durable.register_workflow('slowly', 'slowly'), durable.start('slowly', run_id => 'slow')});
ok($node->poll_query_until('postgres', q{SELECT running = 1 FROM durable.limiters WHERE name = 'two'}), 'a worker holds a slot');
$node->safe_psql('postgres', q{INSERT INTO violation VALUES ('go on')});
crash($node);
$node->start;
ok($node->poll_query_until('postgres', q{SELECT status = 'completed' FROM durable.run WHERE run_id = 'slow'}), 'after a crash its run goes on');
is($node->safe_psql('postgres', q{SELECT count(*) FROM durable.limiter_slot s JOIN durable.limiter l ON l.id = s.limiter WHERE l.name = 'two'}), 0, 'with the slot, which is free again');

# Fairness.
$node->safe_psql('postgres', qq{
	SELECT durable.register_limiter('fair', concurrency => 8, fairness => 'key');
	CREATE TABLE served (n serial, key text);
	SELECT count(*) FROM durable.dispatch_many('work', (SELECT array_agg('"big"'::jsonb) FROM generate_series(1, $TASKS)), limiter => 'fair', fairness_key => 'big');
	SELECT count(durable.dispatch('work', to_jsonb('small ' || i % 99), limiter => 'fair', fairness_key => 'small ' || i % 99)) FROM generate_series(0, 989) i;
	CREATE PROCEDURE serve() LANGUAGE plpgsql AS \$\$
	DECLARE
		c record;
	BEGIN
		LOOP
			SELECT * INTO c FROM durable.claim('{work}');
			COMMIT;
			IF NOT FOUND AND NOT EXISTS (SELECT FROM durable.task WHERE queue = 'work') THEN
				RETURN;
			END IF;
			CONTINUE WHEN c.task_id IS NULL;
			INSERT INTO served (key) VALUES (c.input #>> '{}');
			PERFORM durable.complete(c.task_id, c.token);
			COMMIT;
		END LOOP;
	END \$\$;
});
my @sessions = map { DurableTest::Session->new($node, name => "serve $_") } 1 .. 4;
$_->send('CALL serve()') for @sessions;
for my $session (@sessions)
{
	$session->answer;
	is($session->error, '', 'a session serves');
	$session->quit;
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM served'), $TASKS + 990, 'all tasks are done');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM served WHERE key = 'big' AND n < (SELECT max(n) FROM served WHERE key <> 'big')}),
	'<=', 10 + 2 * 8, 'before the last of the small tenants the big one had no more turns than they');
is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
is(damage($node), '', 'no damage');

$waiting->quit;
$node->stop;
done_testing();
