# The places for background workers are few. Workers that leave give theirs back at once,
# whoever started them, and a scheduler that is told to end is replaced at once.

use strict;
use warnings;

use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;

use DurableTest;

# more than are ever running or ending at a time
my $node = durable_node('slots', { background => 1 }, 'max_worker_processes = 16', 'durable.workers = 4');
$node->safe_psql('postgres', q{
	CREATE FUNCTION long(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1000); RETURN i; END $$;
	CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('long', i); END $$;
	SELECT durable.register_workflow('w', 'body');
	SELECT count(*) FROM durable.start_many('w', array_fill('1'::jsonb, '{4}'))});

sub all_busy
{
	my ($when) = @_;
	return ok($node->poll_query_until('postgres', q{SELECT count(*) = 4 FROM durable.workers() WHERE state = 'busy'}), $when);
}

all_busy('all executors are busy');
for my $round (1 .. 5)
{
	$node->safe_psql('postgres', 'BEGIN; DROP EXTENSION durable; ROLLBACK');
	all_busy("round $round: they had to leave, and others came");
}
unlike(slurp_file($node->logfile), qr/all of them are in use/, 'there was room for them at once');

# an executor outlives its scheduler, and then ends
for my $round (1 .. 8)
{
	my $scheduler = $node->safe_psql('postgres', q{SELECT pid FROM durable.workers() WHERE kind = 'scheduler'});
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($scheduler)");
	ok($node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM durable.workers() WHERE kind = 'scheduler' AND pid <> $scheduler)"),
		"round $round: the scheduler is terminated, and there is another one");
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM durable.workers() WHERE kind = 'executor'});
	all_busy("round $round: there are other executors");
}
unlike(slurp_file($node->logfile), qr/all of them are in use/, 'there was room for them, too');
# with the pauses after failures, 1 s, 2 s, 4 s, ..., the last had begun two minutes later
is($node->safe_psql('postgres', q{SELECT pg_postmaster_start_time() > started_at - interval '100 s' FROM durable.workers() WHERE kind = 'scheduler'}),
	't', 'being told to end is no failure');

$node->stop;
done_testing();
