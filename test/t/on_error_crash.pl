# The server is killed while runs fail, are handed over and are ended by their handlers: each
# failure has one handler, each handler's step is done once, and each run has one outcome.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $RUNS = 120;
my $CRASHES = 6;

my $node = durable_node('handoff', { preload => 1 });
$node->safe_psql('postgres', q{
	CREATE TABLE effect (run text);
	CREATE FUNCTION mend(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO effect VALUES (i ->> 'run_id') RETURNING '"mended"'::jsonb $$;
	CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.now(), durable.step_async('in flight');
		RAISE EXCEPTION 'broken %', i;
	END $$;
	CREATE FUNCTION handler(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		i := durable.local_step('mend', i);
		PERFORM durable.sleep('1 ms');
		RETURN i;
	END $$;
	CREATE FUNCTION parent(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.child('body', i); END $$;
	SELECT durable.register_workflow('parent', 'parent'), durable.register_workflow('body', 'body', on_error => '[{"workflow": "handler"}]'), durable.register_workflow('handler', 'handler');
});
$node->safe_psql('postgres', qq{SELECT count(durable.start('parent', to_jsonb(n), 'p' || n)) FROM generate_series(1, $RUNS) n});

sub ended
{
	my ($workflow) = @_;
	return $node->safe_psql('postgres', qq{SELECT count(*) FROM durable.run WHERE workflow = '$workflow' AND finished_at IS NOT NULL});
}

# killed in the midst of it, each time a little further on
for my $i (1 .. $CRASHES)
{
	my @workers = map { DurableTest::Session->new($node) } 1 .. 2;
	$_->send(q{CALL durable.work(duration => '10 min')}) for @workers;
	my $enough = $RUNS * $i / ($CRASHES + 1);
	wait_for(sub { ended('handler') >= $enough }, "$enough handlers to have ended");
	crash($node);
	$node->start;
	$_->quit for @workers;
}
cmp_ok(ended('parent'), '<', $RUNS, 'killed in the midst of the work');
# what was in hand is taken over once its lease has lapsed
$node->safe_psql('postgres', q{ALTER DATABASE postgres SET durable.clock_offset = 60});
$node->safe_psql('postgres', q{CALL durable.work(duration => '0')});
wait_for(sub {
		$node->safe_psql('postgres', q{CALL durable.work(duration => '0')});
		return ended('parent') == $RUNS;
	}, 'all to end');

is($node->safe_psql('postgres', q{SELECT workflow, status, output, count(*) FROM durable.run GROUP BY 1, 2, 3 ORDER BY 1}),
	join("\n", map { "$_|completed|\"mended\"|$RUNS" } qw(body handler parent)), 'every run has completed with the outcome of its handler');
is($node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT run) FROM effect}), "$RUNS|$RUNS", 'the step of each handler was done once');
is($node->safe_psql('postgres', q{SELECT kind, status, count(*) FROM durable.checkpoint WHERE seq < 0 GROUP BY 1, 2}), "handoff|completed|$RUNS", 'one handoff each');
is($node->safe_psql('postgres', q{SELECT (SELECT count(*) FROM durable.task), (SELECT count(*) FROM durable.task_ready), (SELECT count(*) FROM durable.waiter)}), '0|0|0', 'nothing is left over');
is(damage($node), '', 'no table or index is damaged');
$node->stop;
done_testing();
