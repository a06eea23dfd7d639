# Work that kills the server each time that it is begun, until its run is dead: there is one
# dead letter, and it is worked on. A server that ends before the death is committed has
# neither; and background workers do all of it by themselves.

use strict;
use warnings;

use Test::More;

use DurableTest;

my ($node, $offset);

my $SCHEMA = q{
	CREATE TABLE letter (dead text);
	CREATE FUNCTION take(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO letter VALUES (i ->> 'dead_run_id') RETURNING to_jsonb(dead) $$;
	CREATE FUNCTION letters(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('take', i); END $$;
	-- says that it has begun, and waits for its end
	CREATE FUNCTION deadly(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock_shared(7), pg_sleep(1000);
		RETURN i;
	END $$;
	CREATE FUNCTION poison(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('deadly'); END $$;
	SELECT durable.register_workflow('letters', 'letters'), durable.register_workflow('poison', 'poison', dead_letter_workflow => 'letters');
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
	return $node->safe_psql('postgres', q{
		SELECT string_agg(run_id || ' ' || status, ', ' ORDER BY run_id), (SELECT count(*) FROM letter) FROM durable.run});
}

sub by_hand
{
	my ($preload) = @_;
	my $mode = $preload ? 'preload' : 'no preload';
	$offset = 0;
	$node = durable_node($preload ? 'preload' : 'nopreload', { preload => $preload });
	$node->safe_psql('postgres', $SCHEMA);
	$node->safe_psql('postgres', q{SELECT durable.start('poison', '1', 'p')});

	# until the claim that has lapsed is its last one
	my $crashes = 0;
	while ($crashes < 20 && $node->safe_psql('postgres', q{SELECT recovery_attempts FROM durable.run WHERE run_id = 'p'}) < 3)
	{
		$crashes++;
		crash_in_body($node);
		skip_time(15);
	}
	cmp_ok($crashes, '>=', 4, "$mode: after a few crashes ($crashes)");
	is(look(), 'p pending|0', "$mode: not dead before its time");

	# the death and its letter are one transaction
	my $sweeper = DurableTest::Session->new($node);
	$sweeper->query('BEGIN');
	is($sweeper->query(q{SELECT durable.sweep() ->> 'taken_over'}), 1, "$mode: the last claim is taken over");
	is($sweeper->query(q{SELECT string_agg(run_id || ' ' || status, ', ' ORDER BY run_id) FROM durable.run}), 'dlq:p pending, p dead', "$mode: which kills the run");
	# what has been written so far is on disk, and is of no use without a commit
	$node->safe_psql('postgres', 'CHECKPOINT');
	crash($node);
	$node->start;
	$sweeper->quit;
	is(look(), 'p pending|0', "$mode: a server that ends before the commit leaves neither");

	$node->safe_psql('postgres', q{SELECT durable.sweep(); CALL durable.work(duration => '0')});
	is(look(), 'dlq:p completed, p dead|1', "$mode: then there is one letter, and it is worked on");
	crash($node);
	$node->start;
	skip_time(15);
	$node->safe_psql('postgres', q{SELECT durable.sweep(); CALL durable.work(duration => '0')});
	is(look(), 'dlq:p completed, p dead|1', "$mode: once");
	is(damage($node), '', "$mode: no table or index is damaged");
	$node->stop;
	return;
}

# the scheduler and an executor, with a step that ends its session
sub by_itself
{
	$node = durable_node('background', { preload => 1, background => 1 });
	$node->safe_psql('postgres', $SCHEMA);
	$node->safe_psql('postgres', q{
		CREATE OR REPLACE FUNCTION deadly(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(1000); END $$;
		SELECT durable.start('poison', '1', 'p');
	});
	wait_for(sub { look() eq 'dlq:p completed, p dead|1' }, 'the dead letter to be worked on');
	is(look(), 'dlq:p completed, p dead|1', 'background workers: one letter');
	$node->stop;
	return;
}

by_hand(1);
by_hand(0);
by_itself();
done_testing();
