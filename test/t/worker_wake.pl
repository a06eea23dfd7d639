# Background workers do things when they are due, at once and not before: at the
# commit of a start, when a timer ends, when a standby is promoted.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $node = durable_node('wake', { background => 1, init => { allows_streaming => 1 } });
$node->safe_psql('postgres', q{
	CREATE TABLE effect (run text, at timestamptz DEFAULT clock_timestamp());
	CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id());
		RETURN i;
	END $$;
	CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF i ? 'sleep' THEN
			PERFORM durable.sleep((i ->> 'sleep')::interval);
		END IF;
		RETURN durable.local_step('act', i);
	END $$;
	CREATE FUNCTION waiter(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RETURN durable.wait_for_signal('go ' || durable.run_id(), '2 s');
	EXCEPTION WHEN SQLSTATE 'WF004' THEN
		RETURN '"timed out"';
	END $$;
	CREATE FUNCTION dispatching(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.step('act', i); END $$;
	SELECT durable.register_workflow('w', 'body'), durable.register_workflow('waiter', 'waiter'),
		durable.register_workflow('dispatching', 'dispatching'), durable.register_handler('act', 'act')});

sub start
{
	my ($run, $input, $more) = @_;
	return "SELECT durable.start('w', '$input', '$run'" . ($more // '') . ')';
}

sub done { return $node->poll_query_until('postgres', "SELECT status = 'completed' FROM durable.get_run('$_[0]')"); }

# whoever comes first starts the executor, all others find it
for my $i (1 .. 20)
{
	$node->safe_psql('postgres', start("quick $i", '{}'));
}
ok(done("quick $_"), "quick $_") for 1 .. 20;
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM durable.workers() WHERE kind = 'executor'}), '<', 20,
	'not each had a process of its own');

# a sleeping run with nothing else happening; the first timer is in the future of
# one that is set later and due earlier
$node->safe_psql('postgres', start('long', '{"sleep": "1 hour"}'));
$node->safe_psql('postgres', start('short', '{"sleep": "700 ms"}'));
$node->safe_psql('postgres', start('delayed', '{}', q{, start_at => clock_timestamp() + interval '600 ms'}));
ok(done('short'), 'a timer ends by itself');
ok(done('delayed'), 'a delayed start comes by itself');
is($node->safe_psql('postgres', q{SELECT status FROM durable.get_run('long')}), 'suspended', 'the other one sleeps on');
is($node->safe_psql('postgres', q{SELECT bool_and(e.at >= r.created_at + interval '600 ms') FROM effect e JOIN durable.run r ON r.run_id = e.run WHERE e.run IN ('short', 'delayed')}),
	't', 'neither was early');
note $node->safe_psql('postgres', q{
	SELECT e.run, e.at - greatest(c.wake_at, r.wake_at) FROM effect e JOIN durable.run r ON r.run_id = e.run
	  LEFT JOIN durable.checkpoint c ON c.run = r.id AND c.seq = 0 WHERE e.run IN ('short', 'delayed')});
$node->safe_psql('postgres', q{SELECT durable.start('waiter', NULL, 'waits')});
ok(done('waits'), 'a bounded wait ends by itself');
is($node->safe_psql('postgres', q{SELECT durable.result('waits')}), '"timed out"', 'with its timeout');
$node->safe_psql('postgres', q{SELECT durable.start('waiter', NULL, 'signalled')});
$node->safe_psql('postgres', q{SELECT durable.signal('go signalled', '1')});
ok(done('signalled'), 'a signal wakes a run');
$node->safe_psql('postgres', q{SELECT durable.start('dispatching', '1', 'dispatched')});
ok(done('dispatched'), 'a step that a handler serves is executed');

# a hundred timers at once
$node->safe_psql('postgres', q{
	SELECT durable.start_many('w', array_fill('{"sleep": "1 s"}'::jsonb, '{1000}'), ARRAY(SELECT 'many ' || g FROM generate_series(1, 1000) g))});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1000 FROM durable.run WHERE run_id LIKE 'many %' AND status = 'completed'}),
	'a thousand timers end');

# the clock moves: what sleeps for an hour is due
$node->safe_psql('postgres', 'ALTER SYSTEM SET durable.clock_offset = 4000');
$node->reload;
ok(done('long'), 'the engine clock moves, and the sleeper wakes');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET durable.clock_offset');
$node->reload;

# a start in a transaction that is held open
my $session = DurableTest::Session->new($node);
$session->query('BEGIN; ' . start('held', '{}') . '; SAVEPOINT s; ' . start('undone', '{}') . '; ROLLBACK TO s');
$node->safe_psql('postgres', start('meanwhile', '{}'));
ok(done('meanwhile'), 'another one runs meanwhile');
is($node->safe_psql('postgres', q{SELECT count(*) FROM effect WHERE run = 'held'}), 0, 'what is not committed does not run');
$session->query('COMMIT');
ok(done('held'), 'after the commit it does');
is($node->safe_psql('postgres', q{SELECT count(*) FROM durable.run WHERE run_id = 'undone'}), 0, 'and what was rolled back does not');

# prepared and committed by somebody else
$session->query('BEGIN; ' . start('prepared', '{}') . q{; PREPARE TRANSACTION 'p'});
$node->safe_psql('postgres', start('meanwhile 2', '{}'));
ok(done('meanwhile 2'), 'another one runs meanwhile');
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
ok(done('prepared'), 'a prepared start runs after COMMIT PREPARED');

# an external worker dies: its claim is taken over when its lease ends, though
# nobody else looks at the queue
$node->safe_psql('postgres', q{SELECT durable.dispatch('outside', '1', task_id => 'lost')});
$node->safe_psql('postgres', q{SELECT FROM durable.claim('{outside}', 1, '500 ms')});
is($node->safe_psql('postgres', q{SELECT status FROM durable.task_status('lost')}), 'claimed', 'claimed by somebody');
ok($node->poll_query_until('postgres', q{SELECT status = 'ready' AND reclaims = 1 FROM durable.task_status('lost')}),
	'and taken over when its lease has ended');
# in a queue of its own: where something is ready, due tasks are left to the claims
$node->safe_psql('postgres', q{SELECT durable.dispatch('outside later', '1', task_id => 'later', run_at => clock_timestamp() + interval '500 ms')});
ok($node->poll_query_until('postgres', q{SELECT status = 'ready' FROM durable.task_status('later')}), 'a delayed task becomes ready by itself');

# nobody holds anything while there is nothing to do
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'durable %' AND (backend_xmin IS NOT NULL OR xact_start IS NOT NULL) AND state = 'idle'}),
	0, 'idle workers hold no snapshot and no transaction');

# a standby runs nothing; promoted it goes on
$node->safe_psql('postgres', start('on the standby', '{"sleep": "2 s"}'));
$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;
$node->safe_psql('postgres', 'SELECT durable.pause()');
ok($node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM durable.workers() WHERE kind = 'executor')}), 'the primary is paused');
$node->safe_psql('postgres', start('left over', '{}'));
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'durable %'}), 0, 'a standby has no workers');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM durable.workers()}), 0, 'and shows none');
is(sqlstate($standby, 'SELECT durable.resume()'), '25006', 'resume() is refused there');
$node->stop('immediate');
$standby->promote;
$node = $standby;
$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM durable.workers() WHERE kind = 'scheduler')});
pass('promoted: there is a scheduler');
is($node->safe_psql('postgres', q{SELECT status FROM durable.get_run('left over')}), 'pending', 'which is paused as the primary was');
$node->safe_psql('postgres', 'SELECT durable.resume()');
ok(done('left over'), 'what was left over runs');
ok(done('on the standby'), 'what slept wakes');
is($node->safe_psql('postgres', q{SELECT count(*) - count(DISTINCT run) FROM effect}), 0, 'every effect is there once');
is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');

$session->quit;
$node->stop;
done_testing();
