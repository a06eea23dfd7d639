# An executor whose step was cancelled looks for work again before it sleeps, and is
# woken for what comes later. The time for which it may idle is no way out.

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;
use DurableTest;

my $node = durable_node('cancelled', { background => 1 }, 'durable.workers = 1', 'durable.worker_idle_timeout = -1');
$node->safe_psql('postgres', q{
	CREATE TABLE patience (ms int);
	INSERT INTO patience VALUES (1000000);
	CREATE FUNCTION sleeper(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_sleep(ms / 1000.0) FROM patience;
		RETURN i;
	END $$;
	CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN i; END $$;
	CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step(i #>> '{}', '1'); END $$;
	SELECT durable.register_workflow('w', 'body')});

sub start { return $node->safe_psql('postgres', qq{SELECT durable.start('w', '"$_[1]"', '$_[0]')}); }
sub done { return $node->poll_query_until('postgres', "SELECT status = 'completed' FROM durable.get_run('$_[0]')"); }

# The steps take more than a second: then there are no statistics that are to be sent later,
# for which the executor would wake.
my $busy = q{SELECT pid FROM durable.workers() WHERE run_id = 'cancelled' AND step = 'sleeper' AND state = 'busy'};
my $since = q{AND (SELECT clock_timestamp() - since > '1.2 s' FROM durable.workers() WHERE state = 'busy')};
start('cancelled', 'sleeper');
for my $round (1 .. 3)
{
	ok($node->poll_query_until('postgres', "SELECT EXISTS ($busy) $since"), "round $round: the step is executed");
	my $log = -s $node->logfile;
	$node->safe_psql('postgres', 'UPDATE patience SET ms = 0') if $round == 3;
	$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM ($busy) b");
	ok($node->wait_for_log(qr/WARNING:.*canceling statement due to user request/, $log), "round $round: and cancelled");
}
ok(done('cancelled'), 'it is tried again');
start('next', 'act');
ok(done('next'), 'and so is what comes later');
is($node->safe_psql('postgres', q{SELECT coalesce(max(reclaims), 0) FROM durable.task}), 0, 'nothing was counted');

# What an error leaves behind in the executor does not pile up.
my $log = -s $node->logfile;
$node->safe_psql('postgres', q{SELECT pg_log_backend_memory_contexts(pid) FROM durable.workers() WHERE kind = 'executor'});
ok($node->wait_for_log(qr/Grand total/, $log), 'its memory is in the log');
my @levels = substr(slurp_file($node->logfile), $log) =~ /(SPI Proc|SPI Exec)/g;
is(scalar(@levels), 0, 'with nothing of the steps that were cancelled');

$node->stop;
done_testing();
