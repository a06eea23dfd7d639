# Workers that announce themselves, and die: the only one that can is killed, and what
# requires it is blocked once it is not alive any more. A new one makes it go on at once,
# also after a crash of the server. Timers are off, but for the last part.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $node = durable_node('extliveness', { background => 1 }, "durable.blocked_poll = '1h'");
$node->safe_psql('postgres', q{
	CREATE FUNCTION film(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RETURN durable.step('render', i, requires => '{gpu}');
	END $$;
	SELECT durable.register_workflow('film', 'film'), durable.register_workflow('train', requires => '{gpu}', turn_silence => '1min');
});

my $skipped = 0;

# Time passes for everybody: what a worker of this test does not announce again is over.
sub skip_seconds
{
	$skipped += $_[0];
	$node->safe_psql('postgres', "ALTER SYSTEM SET durable.clock_offset = $skipped");
	$node->reload;
	wait_for(sub { $node->safe_psql('postgres', 'SHOW durable.clock_offset') eq "${skipped}s" || $node->safe_psql('postgres', "SELECT setting FROM pg_settings WHERE name = 'durable.clock_offset'") eq $skipped },
		'the clock to be put on');
}

sub status { return $node->safe_psql('postgres', "SELECT status FROM durable.run WHERE run_id = '$_[0]'"); }
sub out { return $node->safe_psql('postgres', "SELECT count(*) FROM durable.task WHERE run_id = '$_[0]' AND kind = 'step'"); }

sub announce
{
	my ($session, $worker, $can, $protocol) = @_;
	return $session->query("SELECT durable.announce_worker('$worker', '{render,train}', '{train}', '{$can}', '" . ($protocol // '{1,1}') . "') ->> 'outcome'");
}

my $cpu = DurableTest::Session->new($node, name => 'cpu');
my $gpu = DurableTest::Session->new($node, name => 'gpu');
announce($cpu, 'cpu', 'x');
announce($gpu, 'gpu', 'gpu');

# both are there: a step and a turn go to the one who can
$node->safe_psql('postgres', q{SELECT durable.start('film', '1', 'f1'), durable.start('train', '1', 't1')});
wait_for(sub { out('f1') == 1 }, 'the step to be dispatched');
is($cpu->query(q{SELECT count(*) FROM durable.claim('{render,train}', 10, worker => 'cpu')}), 0, 'nothing is for a worker that cannot');
is($gpu->query(q{SELECT string_agg(run_id, ' ' ORDER BY run_id) FROM durable.claim('{render,train}', 10, '20 s', 'gpu')}), 'f1 t1', 'everything for the one that can');

# it is killed
$gpu->{run}->kill_kill;
my $pid = $gpu->pid;
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
skip_seconds(40);
announce($cpu, 'cpu', 'x');
is($node->safe_psql('postgres', q{SELECT worker, live FROM durable.workers WHERE kind = 'external' ORDER BY 1}), "cpu|t\ngpu|f", 'after its time it is not alive');
$node->safe_psql('postgres', q{SELECT durable.start('film', '2', 'f2')});
wait_for(sub { status('f2') eq 'blocked' }, 'a new run to be blocked');
is($node->safe_psql('postgres', q{SELECT error FROM durable.run WHERE run_id = 'f2'}),
	'{"code": "capability.unavailable", "queue": "render", "message": "blocked: no compatible worker (requires gpu)", "retryable": true}', 'and to say why');
is($cpu->query(q{SELECT count(*) FROM durable.claim('{render,train}', 10, worker => 'cpu')}), 0, 'what it had is not for the other');
wait_for(sub { $cpu->query(q{SELECT count(*) FROM durable.claim('{render,train}', 10, worker => 'cpu')}); status('t1') eq 'blocked' }, 'its turn to be taken over and blocked');
is($node->safe_psql('postgres', q{SELECT queue, alert FROM durable.queue_workers() WHERE live_workers = 0 ORDER BY 1}), '', 'somebody serves each queue');

# the server is killed as well, in the middle of the announcement of one who can. (A claim does
# not wait for the disk: what it has found out would be found out again.)
my $blocked = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
wait_for(sub { $node->safe_psql('postgres', "SELECT pg_current_wal_flush_lsn() >= '$blocked'") eq 't' }, 'it to be on disk');
my $late = DurableTest::Session->new($node, name => 'late');
$late->query('BEGIN');
announce($late, 'late', 'gpu');
crash($node);
$_->quit for $late, $cpu;
$node->start;
is(status('f2') . status('t1'), 'blockedblocked', 'after a crash they are still blocked');
is($node->safe_psql('postgres', q{SELECT worker, live FROM durable.workers WHERE kind = 'external' AND live}), 'cpu|t', 'and who was alive still is');

# one of another protocol is no help, and gets nothing
$cpu = DurableTest::Session->new($node, name => 'cpu');
my $newer = DurableTest::Session->new($node, name => 'newer');
is(announce($newer, 'newer', 'gpu', '{2,2}'), 'incompatible', 'one that speaks another protocol');
is($newer->query(q{SELECT count(*) FROM durable.claim('{render,train}', 10, worker => 'newer')}), 0, 'gets nothing');
is(status('f2') . status('t1'), 'blockedblocked', 'and wakes nobody');
# a new one who can, beside it
$gpu = DurableTest::Session->new($node, name => 'gpu');
announce($gpu, 'gpu 2', 'gpu');
is(status('t1'), 'suspended', 'one who can makes them go on at once');
wait_for(sub { out('f2') == 1 }, 'the step to be dispatched');
is($newer->query(q{SELECT count(*) FROM durable.claim('{render,train}', 10, worker => 'newer')}), 0, 'still nothing for the other protocol');
my $rows = $gpu->query(q{SELECT task_id, token, kind, run_id FROM durable.claim('{render,train}', 10, '1 h', 'gpu 2') ORDER BY run_id});
is(join(' ', map { (split /\|/)[3] } split /\n/, $rows), 'f1 f2 t1', 'all of it is for the new one');
my ($turn) = grep { /\|turn\|/ } split /\n/, $rows;
my ($task, $token) = split /\|/, $turn;
for (grep { /\|step\|/ } split /\n/, $rows)
{
	my ($id, $key) = split /\|/;
	$gpu->query("SELECT durable.complete('$id', '$key', '\"done\"')");
}
wait_for(sub { status('f1') . status('f2') eq 'completedcompleted' }, 'both runs to complete');

# alive, and silent: the scheduler gives the turn to somebody else
skip_seconds(30);
announce($gpu, 'gpu 2', 'gpu');
is($gpu->query("SELECT durable.heartbeat('$task', '$token')"), 't', 'a beat');
skip_seconds(45);
announce($gpu, 'gpu 2', 'gpu');
is($gpu->query("SELECT durable.heartbeat('$task', '$token')"), 't', 'moves the window');
skip_seconds(90);
announce($gpu, 'gpu 2', 'gpu');
$gpu->query("SELECT durable.renew('$token', '1 h')");
wait_for(sub { $node->safe_psql('postgres', q{SELECT recovery_attempts FROM durable.run WHERE run_id = 't1'}) == 2 }, 'the silent turn to be taken away');
is($gpu->query("SELECT durable.complete_turn('$task', '$token', '{\"status\": \"completed\"}')"), 'f', 'its decision is refused then');
($task, $token) = split /\|/, $gpu->query(q{SELECT task_id, token FROM durable.claim('{train}', worker => 'gpu 2')});
is($gpu->query("SELECT durable.complete_turn('$task', '$token', '{\"status\": \"completed\", \"output\": 1}')"), 't', 'that of the next one is not');

# the net: nobody announces himself, but the one who cannot is gone
$node->safe_psql('postgres', q{ALTER SYSTEM SET durable.blocked_poll = '200ms'});
$node->reload;
$gpu->query(q{SELECT durable.withdraw_worker('gpu 2')});
announce($cpu, 'cpu', 'x');
$node->safe_psql('postgres', q{SELECT durable.start('film', '3', 'f3')});
wait_for(sub { status('f3') eq 'blocked' }, 'a run to be blocked');
$cpu->query(q{SELECT durable.withdraw_worker('cpu')});
$newer->query(q{SELECT durable.withdraw_worker('newer')});
wait_for(sub { out('f3') == 1 }, 'the step to be dispatched when nothing is known of any worker');
is($node->safe_psql('postgres', 'SELECT count(*) FROM durable.run_blocked'), 0, 'nothing is left over');
is(damage($node), '', 'no table or index is damaged');

$_->quit for $cpu, $newer, $gpu;
$node->stop;
done_testing();
