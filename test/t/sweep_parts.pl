# A part of the scheduler's work fails, by an error or because it cannot have its lock. The
# others go on in the same process, the failure is logged once and shown by health(), and
# what was left is done when it is over.

use strict;
use warnings;

use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;

use DurableTest;

my $node = durable_node('parts', { background => 1 });
$node->safe_psql('postgres', q{
	CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT i';
	SELECT durable.register_workflow('w', 'body')});

sub scheduler { return $node->safe_psql('postgres', q{SELECT pid FROM durable.workers() WHERE kind = 'scheduler' AND state <> 'starting'}); }
sub health { return $node->safe_psql('postgres', "SELECT level, detail FROM durable.health() WHERE name = '$_[0]'"); }
sub fires { return $node->safe_psql('postgres', q{SELECT COALESCE(sum(fires), 0) FROM durable.schedule}); }
sub warnings { my $n = () = slurp_file($node->logfile) =~ /WARNING:.*a part of its work: $_[0]/g; return $n; }
sub goes_on
{
	my ($when) = @_;
	my $before = fires();
	return ok($node->poll_query_until('postgres', "SELECT sum(fires) > $before + 2 FROM durable.schedule"), $when);
}

ok($node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM durable.workers() WHERE kind = 'scheduler' AND state <> 'starting')}), 'the scheduler is there');
my $pid = scheduler();
$node->safe_psql('postgres', q{SELECT durable.create_schedule('often', 'w', every => '100 ms')});
goes_on('schedules fire');
like(health('sweep_failures'), qr/^ok\|/, 'nothing fails');

# an index of an administrator refuses the second of two delayed tasks
$node->safe_psql('postgres', q{
	CREATE UNIQUE INDEX only_one ON durable.task_ready (priority) WHERE priority = 99;
	SELECT durable.dispatch('d', task_id => 'd' || n, priority => 99, run_at => now() + interval '200 ms') FROM generate_series(1, 2) n});
ok($node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM durable.sweep_failure WHERE part = 'delayed tasks' AND failures >= 2}), 'delayed tasks cannot be moved, again and again');
goes_on('schedules fire all the same');
is(scheduler(), $pid, 'in the same process');
like(health('sweep_failures'), qr/^(warn|critical)\|.*delayed tasks.*23505/, 'health() tells');
is(warnings('delayed tasks'), 1, 'it was logged once');
is($node->safe_psql('postgres', 'SELECT count(*) FROM durable.task_ready WHERE priority = 99'), 0, 'nothing of the failed part is left');

# what sessions sweep fails in the same part only
my ($status, $out, $err) = $node->psql('postgres', q{SELECT s -> 'failed', s -> 'promoted' FROM durable.sweep() s});
is($out, '1|0', 'sweep() counts it');
like($err, qr/WARNING:  a part of the sweep failed: delayed tasks\nDETAIL:  duplicate key/, 'and says what');

$node->safe_psql('postgres', 'DROP INDEX durable.only_one');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 2 FROM durable.task_ready WHERE priority = 99}), 'when the cause is gone they are moved');
ok($node->poll_query_until('postgres', q{SELECT level = 'ok' FROM durable.health() WHERE name = 'sweep_failures'}), 'and it is forgotten');

# somebody holds a whole table
my $holder = DurableTest::Session->new($node);
$holder->query('BEGIN');
$holder->query('LOCK TABLE durable.task_deadline IN ACCESS EXCLUSIVE MODE');
ok($node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM durable.sweep_failure WHERE part = 'timeouts' AND code = '55P03'}), 'timeouts cannot be looked at');
goes_on('schedules fire all the same');
is($node->safe_psql('postgres', q{SELECT s -> 'failed' FROM durable.sweep() s}), 1, 'sweep() does not wait for the lock for ever');
$holder->query('COMMIT');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM durable.sweep_failure}), 'when the table is free, it goes on');
is(scheduler(), $pid, 'in the same process');
is(warnings('timeouts'), 1, 'it was logged once');

# a prepared transaction that has noted a failure keeps nobody who sweeps
$node->safe_psql('postgres', q{
	CREATE UNIQUE INDEX only_one ON durable.task_ready (priority) WHERE priority = 98;
	ALTER SYSTEM SET durable.background = off;
	SELECT pg_reload_conf()});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM durable.workers()}), 'without a scheduler');
$node->safe_psql('postgres', q{SELECT durable.dispatch('e', priority => 98, run_at => clock_timestamp() + interval '1 ms') FROM generate_series(1, 2) n});
$node->safe_psql('postgres', q{SELECT pg_sleep(0.01); BEGIN; SELECT durable.sweep(); PREPARE TRANSACTION 'noted'});
is($node->safe_psql('postgres', q{SELECT s -> 'failed' FROM durable.sweep() s}), 1, 'a sweep that cannot note its failure does not wait');
$node->safe_psql('postgres', q{COMMIT PREPARED 'noted'; DROP INDEX durable.only_one});
is($node->safe_psql('postgres', q{SELECT s -> 'failed', s -> 'promoted' FROM durable.sweep() s}), '0|2', 'and all is well again');
is($node->safe_psql('postgres', 'SELECT count(*) FROM durable.sweep_failure'), 0, 'nothing is left of it');

$node->stop;
done_testing();
