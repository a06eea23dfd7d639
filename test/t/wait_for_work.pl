# CALL durable.wait_for_work, with preload (woken at commit) and without (polls):
# the same results, no snapshot while it sleeps, and it ends when it is told to.

use strict;
use warnings;

use Test::More;

use DurableTest;

# Polling so rarely that a test which passes has been woken.
my $NEVER = 'SET durable.poll_interval = 60000';

my $node;
my $watch;    # a session that looks

sub waiter
{
	my ($queue, @settings) = @_;
	my $session = DurableTest::Session->new($node, name => "waiter $queue");
	$session->query($_) for @settings;
	$session->send("CALL durable.wait_for_work('{$queue}', '1 h')");
	asleep($session);
	return $session;
}

# The transaction that a session is in; a waiter begins a new one each time it wakes.
sub transaction
{
	my ($session) = @_;
	return $node->safe_psql('postgres',
		"SELECT virtualtransaction FROM pg_locks WHERE locktype = 'virtualxid' AND pid = " . $session->pid);
}

sub asleep
{
	my ($session) = @_;
	$watch //= DurableTest::Session->new($node, name => 'watch');
	return $watch->poll("SELECT count(*) = 1 FROM pg_stat_activity"
		. " WHERE wait_event IN ('Extension', 'DurableWaitForWork') AND pid = " . $session->pid);
}

sub is_ready
{
	my ($session, $what) = @_;
	is($session->answer, 't', $what);
	is($session->error, '', "$what: without an error");
	$session->quit;
	return;
}

# What must hold with polling as well as with wake-ups.
sub check_results
{
	my ($mode, @settings) = @_;
	my $other = DurableTest::Session->new($node, name => 'other');

	my $session = waiter('a', @settings);
	is( $node->safe_psql('postgres', 'SELECT state, backend_xid IS NULL, backend_xmin IS NULL FROM pg_stat_activity WHERE pid = '
				. $session->pid),
		'active|t|t', "$mode: asleep, it holds neither a transaction id nor a snapshot");
	is( $node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND pid = " . $session->pid),
		0, "$mode: nor a lock on a table");
	$other->query("BEGIN; SELECT durable.dispatch('a')");
	$other->query('ROLLBACK');
	ok(!$session->answered, "$mode: a dispatch that is rolled back does not end the wait");
	$other->query("BEGIN; SELECT durable.dispatch('a')");
	ok(!$session->answered, "$mode: nor does one before its commit");
	$other->query('COMMIT');
	is_ready($session, "$mode: the commit does");
	is($node->safe_psql('postgres', "CALL durable.wait_for_work('{a}', '1 h')"), 't',
		"$mode: with a task there is nothing to wait for");
	is($node->safe_psql('postgres', "SELECT count(*) FROM durable.claim('{a}')"), 1, "$mode: waiting has not taken the task");
	is($node->safe_psql('postgres', "CALL durable.wait_for_work('{a}', '0')"), 'f', "$mode: a wait of no time says no");
	is($node->safe_psql('postgres', "CALL durable.wait_for_work('{a}', '10 ms')"), 'f', "$mode: and one that ends in vain too");

	$session = waiter('x,b', @settings);
	$other->query("SELECT durable.dispatch('b', namespace => 'elsewhere')");
	ok(!$session->answered, "$mode: another namespace does not end the wait");
	$other->query("SELECT durable.dispatch('b')");
	is_ready($session, "$mode: a wait for several queues");

	$session = waiter('c', @settings);
	$other->query("SELECT durable.dispatch('c', run_at => durable.engine_now() + '1 s')");
	is_ready($session, "$mode: a delayed task ends the wait when it is due");
	is($node->safe_psql('postgres', "SELECT count(*) FROM durable.claim('{c}')"), 1, "$mode: and can be claimed");

	$session = waiter('d', @settings);
	$other->query("SELECT durable.dispatch('d', run_at => durable.engine_now() + '30 days')");
	$other->query('SET durable.clock_offset = 2678400; SELECT durable.sweep(); RESET durable.clock_offset');
	is_ready($session, "$mode: a sweep that promotes a task ends the wait");

	$other->query("SELECT durable.dispatch('e')");
	$other->query("SELECT count(*) FROM durable.claim('{e}', 1, '1 s')");
	$session = waiter('e', @settings);
	is_ready($session, "$mode: a claim that lapses ends the wait");
	is($node->safe_psql('postgres', "SELECT reclaims FROM durable.claim('{e}')"), 1, "$mode: it has been counted");

	$other->query("SELECT durable.dispatch('f')");
	my $token = $other->query("SELECT token FROM durable.claim('{f}', 1, '1 h')");
	$session = waiter('f', @settings);
	$other->query("SELECT durable.release('$token')");
	is_ready($session, "$mode: a release ends the wait");

	$other->query("SELECT durable.dispatch('g', max_attempts => 2)");
	my ($id, $round) = split /\|/, $other->query("SELECT task_id, token FROM durable.claim('{g}', 1, '1 h')");
	$session = waiter('g', @settings);
	$other->query("SELECT durable.fail('$id', '$round', '{\"message\": \"x\"}')");
	is_ready($session, "$mode: a failure that is to be retried ends the wait");

	# A paused queue has nothing to offer.
	$other->query("SELECT durable.pause_queue('h'); SELECT durable.dispatch('h')");
	$session = waiter('h');
	$other->query("SELECT durable.resume_queue('h')");
	is_ready($session, "$mode: resuming the queue ends the wait");

	# wait_and_claim: one of several gets the task, and the others sleep on.
	my $waiting = "CALL durable.wait_and_claim('{wc}', 2, '1 h', '1 h')";
	my @claimers = map { DurableTest::Session->new($node, name => "claimer $_") } 1 .. 3;
	for my $claimer (@claimers)
	{
		$claimer->query($_) for @settings;
		$claimer->send($waiting);
		asleep($claimer);
	}
	is( $node->safe_psql('postgres', 'SELECT count(*) FILTER (WHERE backend_xid IS NULL AND backend_xmin IS NULL) FROM pg_stat_activity WHERE pid IN ('
				. join(',', map { $_->pid } @claimers) . ')'),
		3, "$mode: wait_and_claim holds nothing while it sleeps");
	for my $left (reverse 0 .. 2)
	{
		my $task = $other->query("SELECT durable.dispatch('wc', '{\"left\": $left}')");
		my $lucky = wait_for(sub { (grep { $_->answered } @claimers)[0] }, 'a claimer');
		@claimers = grep { $_ != $lucky } @claimers;
		my $tasks = $lucky->answer;
		is($other->query("SELECT x ->> 'task_id', x -> 'input' ->> 'left', jsonb_array_length('$tasks') FROM jsonb_array_elements('$tasks') x"),
			"$task|$left|1", "$mode: one of those in wait_and_claim has the task");
		is($other->query("SELECT durable.complete('$task', ('$tasks'::jsonb -> 0 ->> 'token')::uuid)"), 't', "$mode: and its token");
		asleep($_) for @claimers;
		is(scalar(grep { $_->answered } @claimers), 0, "$mode: the others sleep on");
		$lucky->quit;
	}
	is($other->query("CALL durable.wait_and_claim('{wc}', 2, '1 h', '10 ms')"), '', "$mode: at the timeout there is nothing");
	$session = DurableTest::Session->new($node);
	$session->send($waiting);
	asleep($session);
	$other->query('SELECT pg_terminate_backend(' . $session->pid . ', 60000)');
	$session->answer;
	is($session->sqlstate, '57P01', "$mode: wait_and_claim can be terminated");
	$session->quit;
	$other->query("SELECT durable.dispatch('wc', task_id => 'after')");
	is($other->query("SELECT task_id FROM durable.claim('{wc}')"), 'after', "$mode: and has claimed nothing");

	# Cancelled, timed out, terminated.
	$session = waiter('none');
	$other->query('SELECT pg_cancel_backend(' . $session->pid . ')');
	$session->answer;
	is($session->sqlstate, '57014', "$mode: a wait can be cancelled");
	is($session->query("CALL durable.wait_for_work('{none}', '0')"), 'f', "$mode: and the session goes on");
	$session->try("SET statement_timeout = '200ms'; CALL durable.wait_for_work('{none}', '1 h')");
	is($session->sqlstate, '57014', "$mode: statement_timeout ends it");
	$session->query('RESET statement_timeout');
	$session->send("CALL durable.wait_for_work('{none}', '1 h')");
	asleep($session);
	$other->query('SELECT pg_terminate_backend(' . $session->pid . ', 60000)');
	$session->answer;
	is($session->sqlstate, '57P01', "$mode: a waiter can be terminated");
	$session->quit;

	# Inside a transaction block.
	$session = DurableTest::Session->new($node);
	$session->query('BEGIN; SELECT 1');
	$session->send("CALL durable.wait_for_work('{i}', '1 h')");
	asleep($session);
	$other->query("SELECT durable.dispatch('i')");
	is($session->answer, 't', "$mode: in a transaction block, a dispatch ends the wait");
	is($session->query("SELECT count(*) FROM durable.claim('{i}')"), 1, "$mode: and the same transaction can claim");
	$session->query('ROLLBACK');
	for my $level ('REPEATABLE READ', 'SERIALIZABLE')
	{
		$session->query("BEGIN ISOLATION LEVEL $level; SELECT 1");
		$session->try("CALL durable.wait_for_work('{i}', '1 h')");
		is($session->sqlstate, '25001', "$mode: refused at $level");
		$session->query('ROLLBACK');
	}
	$session->quit;
	$other->quit;
	return;
}

$node = durable_node('woken', {}, 'max_connections = 20', 'max_worker_processes = 0', 'autovacuum_max_workers = 1');
check_results('woken', $NEVER);

# Who is woken, and who sleeps on.
my $other = DurableTest::Session->new($node);
my %waiter = map { $_ => waiter($_, $NEVER) } qw(one two);
my %before = map { $_ => transaction($waiter{$_}) } keys %waiter;
$other->query("BEGIN; SELECT durable.dispatch('one'), durable.dispatch('two')");
$other->query('ROLLBACK');
$other->query("BEGIN; SAVEPOINT s; SELECT durable.dispatch('three'); RELEASE s");
$other->query('COMMIT');
is_deeply({ map { $_ => transaction($waiter{$_}) } keys %waiter }, \%before,
	'a rollback and another queue\'s task wake nobody');
$other->query("SELECT durable.dispatch('two')");
is_ready($waiter{two}, 'a task wakes who waits for its queue');
is(transaction($waiter{one}), $before{one}, 'and nobody else');
$other->query("BEGIN; SAVEPOINT s; SELECT durable.dispatch('one'); RELEASE s; SAVEPOINT s");
$other->query("SELECT durable.dispatch('two'); ROLLBACK TO s; COMMIT");
is_ready($waiter{one}, 'a task of a subtransaction wakes too');

# As many waiters as tasks; more queues than a waiter's slot or a transaction remembers.
my @crowd = map { waiter('crowd', $NEVER) } 1 .. 3;
$other->query("SELECT durable.dispatch_many('crowd', '{1,2,3}')");
is_ready($_, 'three tasks wake three waiters') for @crowd;
my $many = waiter(join(',', map { "many$_" } 1 .. 50), $NEVER);
$other->query("SELECT durable.dispatch('many50')");
is_ready($many, 'a waiter for fifty queues');
my $last = waiter('last40', $NEVER);
$other->query(q{SELECT count(durable.dispatch('last' || n)) FROM generate_series(1, 40) n});
is_ready($last, 'a task after 39 others in one transaction');

# Every slot is used several times over, however its waiter ended.
my $session = DurableTest::Session->new($node, name => 'cancelled');
for (1 .. 40)
{
	$session->send("CALL durable.wait_for_work('{none}', '1 h')");
	asleep($session);
	$other->query('SELECT pg_cancel_backend(' . $session->pid . ')');
	$session->answer;
	is($session->sqlstate, '57014', 'cancelled') if $_ % 20 == 0;
}
$session->quit;
for (1 .. 40)
{
	my $victim = waiter('none');
	$other->query('SELECT pg_terminate_backend(' . $victim->pid . ', 60000)');
	$victim->quit;
}
my $heir = waiter('heir', $NEVER);
$other->query("SELECT durable.dispatch('heir')");
is_ready($heir, 'after more terminated waiters than there are slots, one is still woken');

# A waiter that is killed takes the server down, and the slots with it.
my $victim = waiter('none');
my $log = -s $node->logfile;
kill 'KILL', $victim->pid;
$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log);
$_->quit for $victim, $other, $watch;
undef $watch;
server_is_back($node);
$heir = waiter('heir2', $NEVER);
$node->safe_psql('postgres', "SELECT durable.dispatch('heir2')");
is_ready($heir, 'after a crash waiters are woken as before');
is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
$watch->quit;
undef $watch;
$node->stop;

$node = durable_node('polling', { preload => 0 });
is($node->safe_psql('postgres', 'SELECT * FROM durable.scan_hints()'), 'f|0|0', 'without preload there are no hints');
check_results('polling');
my $sleeper = waiter('none');
$watch->quit;
$node->stop('fast');
$sleeper->answer;
is($sleeper->sqlstate, '57P01', 'a fast shutdown does not wait for waiters');
$sleeper->quit;

done_testing();
