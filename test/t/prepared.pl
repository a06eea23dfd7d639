# Prepared transactions: what was dispatched, claimed or settled in one counts
# from COMMIT PREPARED on, also across a crash, and wakes or blocks nobody before.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $node = durable_node('prepared');
my $a = DurableTest::Session->new($node, name => 'a');
my $b = DurableTest::Session->new($node, name => 'b');

sub claimed
{
	my ($queue, $n) = @_;
	$n //= 1;
	return $b->query("SELECT string_agg(task_id, ',' ORDER BY task_id) FROM durable.claim('{$queue}', $n, '1 h')");
}

sub prepare
{
	my ($gid, @statements) = @_;
	$a->query('BEGIN');
	my @answers = map { $a->query($_) } @statements;
	$a->query("PREPARE TRANSACTION '$gid'");
	return $answers[-1];
}

# Dispatch.
is(prepare('d1', "SELECT durable.dispatch('q', task_id => 'one')"), 'one', 'dispatched and prepared');
is(prepare('d2', "SELECT durable.dispatch('q', task_id => 'two')"), 'two', 'and another');
is($b->query("SELECT durable.dispatch('q', task_id => 'three')"), 'three', 'a third committed');
is(claimed('q', 10), 'three', 'only what is committed is claimed');
is(claimed('q', 10), '', 'and nothing else, again and again') for 1 .. 3;
$b->query("COMMIT PREPARED 'd1'");
is(claimed('q', 10), 'one', 'COMMIT PREPARED makes the task claimable, behind the others');
$b->query("ROLLBACK PREPARED 'd2'");
is(claimed('q', 10), '', 'ROLLBACK PREPARED leaves nothing');
is($b->query("SELECT status FROM durable.task_status('two')"), '', 'not even its id');
is($b->query("SELECT durable.dispatch('q', task_id => 'two')"), 'two', 'which is free again');
is(claimed('q', 10), 'two', 'and works');

# Several priorities, none of them hidden by the others.
prepare('p' . $_, "SELECT durable.dispatch('prio', task_id => 'p$_', priority => $_)") for 1 .. 3;
$b->query("SELECT durable.dispatch('prio', task_id => 'low'), durable.dispatch('prio', task_id => 'high', priority => 9)");
is(claimed('prio'), 'high', 'priority first');
is(claimed('prio'), 'low', 'then what else is committed');
$b->query("COMMIT PREPARED 'p$_'") for 2, 1, 3;
is(claimed('prio'), "p$_", "then the prepared ones, priority $_ first") for 3, 2, 1;

# A waiter finds it (nobody wakes it: COMMIT PREPARED runs no callback).
prepare('w', "SELECT durable.dispatch('wait', task_id => 'w')");
$a->send("CALL durable.wait_for_work('{wait}', '1 h')");
$b->poll("SELECT wait_event IN ('Extension', 'DurableWaitForWork') FROM pg_stat_activity WHERE pid = " . $a->pid);
ok(!$a->answered, 'a prepared dispatch does not end a wait');
$b->query("COMMIT PREPARED 'w'");
is($a->answer, 't', 'COMMIT PREPARED does');
is(claimed('wait'), 'w', 'and the task is there');

# Claim.
$b->query("SELECT durable.dispatch('c', task_id => 'c' || n) FROM generate_series(1, 4) n");
my $token = prepare('c', "SELECT token FROM durable.claim('{c}', 1, '1 h') WHERE task_id = 'c1'");
is(claimed('c'), 'c2', 'what a prepared claim holds is skipped, not waited for');
is($b->query("SELECT durable.complete('c1', '$token')"), 'f', 'its token does not work yet');
$b->query("ROLLBACK PREPARED 'c'");
is(claimed('c'), 'c1', 'after ROLLBACK PREPARED the task is the first again');
$token = prepare('c', "SELECT token FROM durable.claim('{c}', 1, '1 h') WHERE task_id = 'c3'");
$b->query("COMMIT PREPARED 'c'");
is($b->query("SELECT durable.complete('c3', '$token')"), 't', 'after COMMIT PREPARED its token settles the task');
is(claimed('c', 10), 'c4', 'the rest is still there');

# Settle and cancel.
$b->query('CREATE TABLE ledger (task_id text)');
$b->query("SELECT durable.dispatch('s', task_id => 's' || n) FROM generate_series(1, 2) n");
$token = $b->query("SELECT DISTINCT token FROM durable.claim('{s}', 2, '1 h')");
is(prepare('s1', "INSERT INTO ledger VALUES ('s1')", "SELECT durable.complete('s1', '$token')"), 't', 'settled and prepared');
is($b->query("SELECT status FROM durable.task_status('s1')"), 'claimed', 'does not count yet');
is(prepare('s2', "INSERT INTO ledger VALUES ('s2')", "SELECT durable.complete('s2', '$token')"), 't', 'another one');
$b->query("SET durable.clock_offset = 7200");
is(claimed('s', 10), '', 'a lapsed claim whose settle is prepared is not taken over');
$b->query("ROLLBACK PREPARED 's2'");
is(claimed('s', 10), 's2', 'once that is rolled back, it is');
$b->query("COMMIT PREPARED 's1'");
is($b->query("SELECT status FROM durable.task_status('s1')"), 'completed', 'the other one is settled');
is($b->query('SELECT * FROM ledger'), 's1', 'with the row of its worker');
$b->query('RESET durable.clock_offset');
$b->query("SELECT durable.dispatch('k', task_id => 'k')");
is(prepare('k', "SELECT durable.cancel_task('k')"), 't', 'cancelled and prepared');
is(claimed('k'), '', 'is not handed out meanwhile');
$b->query("ROLLBACK PREPARED 'k'");
is(claimed('k'), 'k', 'but again when that is rolled back');

# Across a crash.
prepare('x1', "SELECT durable.dispatch('x', task_id => 'x1')");
prepare('x2', "SELECT durable.dispatch('x', task_id => 'x2')");
$b->query("SELECT durable.dispatch('x', task_id => 'x3', priority => 1)");
prepare('x3', "SELECT task_id FROM durable.claim('{x}')");
crash($node);
$_->quit for $a, $b;
$node->start;
$b = DurableTest::Session->new($node, name => 'b');
is(claimed('x', 10), '', 'after a crash, what was prepared still is');
$b->query("COMMIT PREPARED 'x1'");
is(claimed('x', 10), 'x1', 'and can be committed');
$b->query("ROLLBACK PREPARED 'x2'");
$b->query("ROLLBACK PREPARED 'x3'");
is(claimed('x', 10), 'x3', 'and rolled back');

is($b->query('SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
$b->quit;
$node->stop;
done_testing();
