# Work that kills its backend, and with it the whole server, each time that it is begun:
# it is counted each time, also when the server has just restarted, and the run ends as
# dead. What runs have done before, and steps that are in flight, are not touched.

use strict;
use warnings;

use Test::More;

use DurableTest;

my ($node, $offset, $mode);

my $SCHEMA = q{
	CREATE TABLE effect (run text, step text);
	CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), i #>> '{}');
		RETURN i;
	END $$;
	-- says that it has begun, and waits for its end
	CREATE FUNCTION deadly(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), 'deadly');
		PERFORM pg_advisory_xact_lock_shared(7), pg_sleep(1000);
		RETURN i;
	END $$;
	CREATE FUNCTION in_step(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		h int := durable.step_async('out', '"in flight"');
	BEGIN
		PERFORM durable.local_step('act', '"before"');
		PERFORM durable.local_step('deadly');
		RETURN durable.await(h);
	END $$;
	CREATE FUNCTION in_body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.local_step('act', '"before"');
		PERFORM durable.now();
		PERFORM pg_advisory_xact_lock_shared(7), pg_sleep(1000);
		RETURN NULL;
	END $$;
	CREATE FUNCTION in_handler(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.local_step('act', '"before"');
		RETURN durable.step('deadly', retries => 2);
	END $$;
	SELECT durable.register_workflow(w, w) FROM unnest('{in_step,in_body,in_handler}'::text[]) w;
	SELECT durable.register_handler('deadly', 'deadly');
};

# Also for the sessions of the next server, without a reload that they could miss.
sub skip_time
{
	my ($seconds) = @_;
	$offset += $seconds;
	$node->safe_psql('postgres', "ALTER DATABASE postgres SET durable.clock_offset = $offset");
	return;
}

sub look
{
	my ($run) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT status, recovery_attempts, (SELECT string_agg(step, ',') FROM effect WHERE run = run_id)
		  FROM durable.get_run('$run')});
}

sub run_all
{
	my ($preload) = @_;
	$mode = $preload ? 'preload' : 'no preload';
	$offset = 0;
	$node = durable_node($preload ? 'preload' : 'nopreload', { preload => $preload });
	$node->safe_psql('postgres', $SCHEMA);

	# the first crash may take the claim along, as it is not on disk after a clean start
	for my $case ([ 'in_step', 'dead', 'before' ], $preload ? ([ 'in_body', 'dead', '' ], [ 'in_handler', 'failed', 'before' ]) : ())
	{
		my ($workflow, $status, $before) = @$case;
		my ($crashes, $counted) = (0, -1);
		$node->safe_psql('postgres', "SELECT durable.start('$workflow', '1', '$workflow')");
		# a step that is in flight is with somebody else
		my ($id, $token);
		while ($crashes < 20 && crash_in_body($node,
			# an own setting that would let claims be lost
			$workflow eq 'in_handler' && $crashes > 0 ? 'SET synchronous_commit = off' : undef))
		{
			$crashes++;
			if ($workflow eq 'in_step' && !$id)
			{
				($id, $token) = split /\|/, $node->safe_psql('postgres', q{SELECT task_id, token FROM durable.claim('{out}', 1, '1 year')});
				ok($id, "$mode: $workflow: a step of the run is in flight");
			}
			elsif ($id && look($workflow) !~ /^dead/)
			{
				is($node->safe_psql('postgres', "SELECT durable.heartbeat('$id', '$token')"), 't', "$mode: $workflow: it stays there, crash or not");
			}
			skip_time(15);
		}
		like(look($workflow), qr/^$status\|\d+\|$before$/, "$mode: $workflow: given up, with what was done before");
		# a dispatched step has max_attempts * (max_reclaims + 1) claims
		my $bound = $workflow eq 'in_handler' ? 8 : 4;
		cmp_ok($crashes, '>=', $bound, "$mode: $workflow: not before its time");
		cmp_ok($crashes, '<=', $bound + 1, "$mode: $workflow: after a few crashes ($crashes)");
		like($node->safe_psql('postgres', "SELECT error ->> 'message' FROM durable.get_run('$workflow')"),
			qr/^claim lapsed more than 3 times$/, "$mode: $workflow: it says why");
		is($node->safe_psql('postgres', "SELECT recovery_attempts FROM durable.get_run('$workflow')"), $workflow eq 'in_handler' ? 0 : 3,
			"$mode: $workflow: what was counted");
		is($node->safe_psql('postgres', "SELECT durable.complete('$id', '$token')"), 'f', "$mode: $workflow: the step in flight is of no use any more") if $id;
		$node->safe_psql('postgres', 'TRUNCATE effect');
	}

	# a limit over the whole life of the run
	$node->safe_psql('postgres', 'ALTER DATABASE postgres SET durable.max_recovery_attempts = 1');
	$node->safe_psql('postgres', q{SELECT durable.start('in_step', '1', 'limited')});
	my $crashes = 0;
	while ($crashes < 20 && crash_in_body($node))
	{
		$crashes++;
		skip_time(15);
	}
	cmp_ok($crashes, '<=', 3, "$mode: max_recovery_attempts: two or three crashes");
	is(look('limited'), 'dead|1|before', "$mode: max_recovery_attempts: dead");
	is($node->safe_psql('postgres', q{SELECT error ->> 'code' FROM durable.get_run('limited')}), 'max_recovery_attempts', "$mode: max_recovery_attempts: it says why");

	# mended, it goes on where it was
	$node->safe_psql('postgres', q{
		CREATE OR REPLACE FUNCTION deadly(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN '"mended"'; END $$;
		SELECT durable.requeue('limited');
		CALL durable.work(duration => '0');
		SELECT durable.complete(task_id, token, '"out"') FROM durable.claim('{out}');
		CALL durable.work(duration => '0');
	});
	is(look('limited'), 'completed|0|before', "$mode: mended and requeued: completed");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM durable.task}), 0, "$mode: nothing is left over");
	is(damage($node), '', "$mode: no table or index is damaged");
	$node->stop;
	return;
}

run_all(1);
run_all(0);
done_testing();
