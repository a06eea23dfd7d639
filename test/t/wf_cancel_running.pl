# A run is cancelled while a session executes its body or step: that session is
# interrupted when the cancel commits, not before and not if it is rolled back, goes on
# with other work, and never sees an error because of it. With and without preload.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $SCHEMA = q{
	CREATE TABLE effect (run text, step text);
	CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), coalesce(i #>> '{}', 'act'));
		RETURN i;
	END $$;
	CREATE FUNCTION gate(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), 'gate');
		PERFORM pg_advisory_xact_lock_shared(1);
		RETURN i;
	END $$;
	CREATE FUNCTION endless_step(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), 'endless');
		LOOP
			PERFORM 1;
		END LOOP;
	END $$;
	CREATE FUNCTION in_body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.local_step('act', '"before"'), pg_advisory_xact_lock_shared(1);
		RETURN durable.local_step('act', '"after"');
	END $$;
	CREATE FUNCTION in_step(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.local_step('act', '"before"'), durable.local_step('gate');
		RETURN durable.local_step('act', '"after"');
	END $$;
	CREATE FUNCTION in_handler(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.local_step('act', '"before"'), durable.step('gate');
		RETURN durable.local_step('act', '"after"');
	END $$;
	CREATE FUNCTION in_child(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.local_step('act', '"before"'), durable.child('child');
		RETURN durable.local_step('act', '"after"');
	END $$;
	CREATE FUNCTION child(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('gate'); END $$;
	CREATE FUNCTION endless(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN LOOP PERFORM 1; END LOOP; END $$;
	CREATE FUNCTION endless_in_step(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('endless_step'); END $$;
	CREATE FUNCTION stubborn(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		LOOP
			BEGIN
				PERFORM pg_advisory_xact_lock_shared(1);
			EXCEPTION WHEN query_canceled THEN
				-- and on it goes
				PERFORM durable.local_step('act', '"after"');
			END;
		END LOOP;
	END $$;
	CREATE FUNCTION raises(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = 'query_canceled'; END $$;
	CREATE FUNCTION raises_in_step(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('raises'); END $$;
	CREATE FUNCTION raises_far(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.step('raises'); END $$;
	CREATE FUNCTION short(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		FOR n IN 1..3 LOOP
			PERFORM durable.local_step('act', to_jsonb(n), 'act' || n);
		END LOOP;
		RETURN durable.step('act', '4');
	END $$;
	SELECT durable.register_workflow(w, w) FROM unnest('{in_body,in_step,in_handler,in_child,child,endless,endless_in_step,stubborn,raises,raises_in_step,raises_far,short}'::text[]) w;
	SELECT durable.register_workflow('atomic', 'in_step', atomic => true);
	SELECT durable.register_handler('gate', 'gate'), durable.register_handler('act', 'act'), durable.register_handler('raises', 'raises');
};

my ($node, $keeper, $mode);

sub look
{
	my ($run) = @_;
	return $keeper->query(qq{
		SELECT status, recovery_attempts, (SELECT string_agg(step, ',' ORDER BY step) FROM effect WHERE run = run_id)
		  FROM durable.get_run('$run')});
}

# Somebody waits at the gate.
sub at_gate
{
	my ($worker) = @_;
	$keeper->poll('SELECT EXISTS (SELECT FROM pg_locks WHERE pid = ' . $worker->pid . q{ AND locktype = 'advisory' AND NOT granted)});
	return 1;
}

sub open_gate { return $keeper->query('SELECT pg_advisory_unlock(1)'); }
sub close_gate { return $keeper->query('SELECT pg_advisory_lock(1)'); }

# A session that works until it is told to stop.
sub worker
{
	my ($run, $workflow, $input) = @_;
	$input //= 'null';
	my $worker = DurableTest::Session->new($node);
	$keeper->query("SELECT durable.start('$workflow', '$input', '$run')");
	$worker->send(q{CALL durable.work(duration => '1 hour')});
	return $worker;
}

# It has gone on: another run completes while it has its hands free, and it has seen no error.
my $next = 0;
sub is_free
{
	my ($worker, $name) = @_;
	my $run = 'next ' . ++$next;
	$keeper->query("SELECT durable.start('short', '1', '$run')");
	$keeper->poll("SELECT status = 'completed' FROM durable.get_run('$run')");
	pass("$mode: $name: the session goes on with other work");
	$keeper->query('SELECT pg_cancel_backend(' . $worker->pid . ')');
	$worker->answer;
	# that error is the one that we have just made
	is($worker->sqlstate, '57014', "$mode: $name: and was alive to the end");
	$worker->quit;
	is($keeper->query(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid > 2}), 0,
		"$mode: $name: it holds no lock any more");
	return;
}

sub run_all
{
	my ($preload) = @_;
	$mode = $preload ? 'preload' : 'no preload';
	$node = durable_node($preload ? 'preload' : 'nopreload', { preload => $preload }, 'durable.poll_interval = 20ms');
	$node->safe_psql('postgres', $SCHEMA);
	$keeper = DurableTest::Session->new($node);
	my $canceller = DurableTest::Session->new($node);
	my @workers;

	# where the gate is; what is committed before the cancel (a step is with the replay that
	# follows it)
	for my $case ([ 'in_body', '' ], [ 'in_step', 'before' ], [ 'in_handler', 'before' ], [ 'in_child', 'before' ], [ 'atomic', '' ])
	{
		my ($workflow, $before) = @$case;
		for my $end ('COMMIT', $workflow eq 'in_step' ? ('ROLLBACK', 'SAVEPOINT') : $workflow eq 'atomic' ? 'ROLLBACK' : ())
		{
			my $run = "$workflow $end";
			close_gate();
			my $worker = worker($run, $workflow);
			ok(at_gate($worker), "$mode: $run: a session is busy with it");
			$canceller->query('BEGIN');
			$canceller->query('SAVEPOINT s') if $end eq 'SAVEPOINT';
			is($canceller->query("SELECT durable.cancel('$run')"), 'cancelled', "$mode: $run: cancelled without a wait");
			$canceller->query('ROLLBACK TO s') if $end eq 'SAVEPOINT';
			ok(at_gate($worker), "$mode: $run: which is not decided yet");
			if ($end eq 'COMMIT')
			{
				$canceller->query('COMMIT');
				is_free($worker, $run);
				is(look($run), "cancelled|0|$before", "$mode: $run: nothing is left of what was interrupted");
				open_gate();
				next;
			}
			$canceller->query($end eq 'SAVEPOINT' ? 'COMMIT' : 'ROLLBACK');
			ok(at_gate($worker), "$mode: $run: and not interrupted");
			open_gate();
			$keeper->poll("SELECT status = 'completed' FROM durable.get_run('$run')");
			is(look($run), 'completed|0|' . ($workflow eq 'in_body' || $workflow eq 'in_child' ? 'after,before' : 'after,before,gate'), "$mode: $run: and completes");
			is_free($worker, $run);
		}
	}

	# what never ends by itself
	for my $workflow ('endless', 'endless_in_step')
	{
		my $worker = worker($workflow, $workflow);
		ok($node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 5)}), "$mode: $workflow: begun");
		is($node->safe_psql('postgres', "SELECT durable.cancel('$workflow')"), 'cancelled', "$mode: $workflow: cancelled");
		is_free($worker, $workflow);
		is(look($workflow), 'cancelled|0|', "$mode: $workflow: nothing is left");
	}

	# a body that catches the interrupt gets no further than its next call
	close_gate();
	my $worker = worker('stubborn', 'stubborn');
	ok(at_gate($worker), "$mode: stubborn: begun");
	$node->safe_psql('postgres', q{SELECT durable.cancel('stubborn')});
	is_free($worker, 'stubborn');
	is(look('stubborn'), 'cancelled|0|', "$mode: stubborn: nothing is left");
	open_gate();

	# a requeue takes the run away from who executes it
	close_gate();
	$worker = worker('requeued', 'in_step');
	ok(at_gate($worker), "$mode: requeue: begun");
	my ($before) = $node->safe_psql('postgres', q{SELECT max(id) FROM durable.lease});
	is($node->safe_psql('postgres', q{SELECT durable.requeue('requeued')}), 'pending', "$mode: requeue");
	ok($node->poll_query_until('postgres', "SELECT max(id) > $before FROM durable.lease"), "$mode: requeue: claimed anew");
	open_gate();
	ok($node->poll_query_until('postgres', q{SELECT status = 'completed' FROM durable.get_run('requeued')}), "$mode: requeue: and done");
	is(look('requeued'), 'completed|0|after,before,gate', "$mode: requeue: each step once");
	is_free($worker, 'requeue');

	# the same SQLSTATE of the step's own making is its failure
	$worker = worker('raises', 'raises');
	$node->safe_psql('postgres', q{SELECT durable.start('raises_in_step', NULL, 'raises in step'), durable.start('raises_far', NULL, 'raises far')});
	is_free($worker, 'raises');
	is($node->safe_psql('postgres', qq{SELECT string_agg(status || ' ' || (error ->> 'code') || ' ' || (error ->> 'message'), ',' ORDER BY run_id) FROM durable.run WHERE run_id LIKE 'raises%'}),
		join(',', ('failed 57014 mine', ('failed WF003 mine') x 2)), "$mode: raises: the runs have failed");

	# a statement timeout hands the claim back, and is an error of the call
	close_gate();
	$node->safe_psql('postgres', q{SELECT durable.start('in_step', NULL, 'timeout')});
	$worker = DurableTest::Session->new($node);
	$worker->query(q{SET statement_timeout = '100ms'});
	$worker->try(q{CALL durable.work(duration => '1 hour')});
	is($worker->sqlstate, '57014', "$mode: statement_timeout: an error of the call");
	is(look('timeout'), 'running|0|before', "$mode: statement_timeout: the run is as it was");
	open_gate();
	$worker->query(q{SET statement_timeout = 0});
	$worker->query(q{CALL durable.work(duration => '0')});
	is(look('timeout'), 'completed|0|after,before,gate', "$mode: statement_timeout: handed back at once");
	$worker->quit;

	storm($canceller);
	is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM durable.task), (SELECT count(*) FROM durable.lease)'), '0|0', "$mode: nothing is left over");
	$canceller->quit;
	$keeper->quit;
	$node->stop;
	return;
}

# Signals come at any moment of the work, the last one of a run above all. No session
# sees an error, and every run that was not cancelled is done, each step once.
sub storm
{
	my ($canceller) = @_;
	my $runs = 600;
	my @workers = map { DurableTest::Session->new($node) } 1 .. 4;
	$node->safe_psql('postgres', "SELECT count(*) FROM durable.start_many('short', array_fill('1'::jsonb, ARRAY[$runs]), ARRAY(SELECT 'storm ' || n FROM generate_series(1, $runs) n))");
	$_->send(q{CALL durable.work(duration => '0')}) for @workers;
	# in another session, without a pause: whatever is being executed at the moment
	$canceller->query(q{DO $$
	DECLARE
		r text;
	BEGIN
		WHILE EXISTS (SELECT FROM durable.run WHERE finished_at IS NULL) LOOP
			FOR r IN SELECT t.run_id FROM pg_locks l JOIN durable.task t ON t.id = l.objid
				WHERE l.locktype = 'advisory' AND l.objsubid = 5 AND random() < 0.3 LOOP
				PERFORM durable.cancel(r);
				COMMIT;
			END LOOP;
			COMMIT;
			PERFORM pg_sleep(0.002);
			IF NOT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'CALL durable.work%' AND state = 'active') THEN
				EXIT;
			END IF;
		END LOOP;
	END $$});
	for my $worker (@workers)
	{
		$worker->answer;
		is($worker->error, '', "$mode: storm: a session saw no error");
	}
	# what was cancelled by its child or step while nobody looked is done now
	$workers[0]->query(q{CALL durable.work(duration => '0')});
	is($workers[0]->error, '', "$mode: storm: nor the last one");
	$_->quit for @workers;
	my $seen = $node->safe_psql('postgres', q{SELECT status, count(*) FROM durable.run WHERE run_id LIKE 'storm%' GROUP BY 1 ORDER BY 1});
	note $seen;
	like($seen, qr/^cancelled\|\d+\ncompleted\|\d+$/, "$mode: storm: runs were cancelled, and others completed");
	is($node->safe_psql('postgres', q{
		SELECT count(*) FROM durable.run r WHERE run_id LIKE 'storm%' AND status = 'completed'
		   AND (SELECT string_agg(step, ',' ORDER BY step) FROM effect e WHERE e.run = r.run_id) IS DISTINCT FROM '1,2,3,4'}),
		0, "$mode: storm: each step of these once");
	is($node->safe_psql('postgres', q{
		SELECT count(*) FROM (SELECT run, step FROM effect WHERE run LIKE 'storm%' GROUP BY 1, 2 HAVING count(*) > 1) twice}),
		0, "$mode: storm: and none of the others twice");
	is($node->safe_psql('postgres', q{SELECT sum(recovery_attempts) FROM durable.run}), 0, "$mode: storm: nothing was counted");
	return;
}

run_all(1);
run_all(0);
done_testing();
