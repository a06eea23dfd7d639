# 64 sessions race one key, and the winner rolls back: exactly one survives, and
# nobody's request is lost. For the place in a bounded queue, for a quota, and for the
# slot itself; the last also when the winner is prepared and the server is killed.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use DurableTest;

my $SESSIONS = 64;

my $node = durable_node('race', {}, 'max_connections = 100');
$node->safe_psql('postgres', q{
	SELECT durable.register_workflow('bounded', singleton_key => '$.k', singleton_max_queued => 0),
		durable.register_workflow('quota', concurrency_key => '$.k', concurrency_limit => 1),
		durable.register_workflow('w', singleton_key => '$.k')});
my @sessions = map { DurableTest::Session->new($node, name => "racer $_") } 1 .. $SESSIONS;
my $observer = DurableTest::Session->new($node, name => 'observer');

# Whoever comes second waits for the first to decide.
for my $what ([ 'bounded', 'WF010' ], [ 'quota', 'WF011' ])
{
	my ($workflow, $code) = @$what;
	my ($winner, @others) = @sessions;
	is($winner->query(qq{BEGIN; SELECT durable.start('$workflow', '{"k": 1}', '$workflow 0')}), "$workflow 0", "$workflow: the first is not refused");
	my $n = 0;
	$_->send(sprintf q{SELECT durable.start('%s', '{"k": 1}', '%s %d')}, $workflow, $workflow, ++$n) for @others;
	$observer->poll(sprintf q{SELECT count(*) = %d FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE 'racer %%'}, scalar @others);
	$winner->query('ROLLBACK');
	my (@started, @refused);
	for my $session (@others)
	{
		my $id = $session->answer;
		push @{ $id ne '' ? \@started : \@refused }, $id || $session->sqlstate;
	}
	is(scalar @started, 1, "$workflow: the winner is gone, one other is started");
	is_deeply([ grep { $_ ne $code } @refused ], [], "$workflow: all others are told why");
	is($observer->query("SELECT string_agg(run_id, ' ') FROM durable.run WHERE workflow = '$workflow'"), $started[0], "$workflow: it is the one that exists");
	is($observer->query("SELECT durable.cancel('$started[0]')"), 'cancelled', "$workflow: it is ended");
	is($sessions[5]->query(qq{SELECT durable.start('$workflow', '{"k": 1}', '$workflow again')}), "$workflow again", "$workflow: and its place is free");
}

# claims(SESSION...): all claim at once, in transactions that stay open; who got what.
sub claims
{
	my %got;
	$_->send(q{BEGIN; SELECT task_id, token, run_id FROM durable.claim('{w}', 1, '1 h')}) for @_;
	for my $session (@_)
	{
		my $row = $session->answer;
		is($session->error, '', 'no error') if $session->error;
		$got{$row} = $session if $row ne '';
	}
	return %got;
}

sub commit { $_->query('COMMIT') for @_; return; }

$observer->query(qq{SELECT durable.start('w', '{"k": 1}', 'r' || n) FROM generate_series(1, $SESSIONS) n});
my %got = claims(@sessions);
is(scalar keys %got, 1, 'of 64 claims one gets the slot');
like((keys %got)[0], qr/\|r1$/, 'for the oldest run');
my ($winner) = values %got;
$winner->query('ROLLBACK');
commit(grep { $_ != $winner } @sessions);

my @order;
# What somebody else's transaction kept them from comes again soon.
sub next_claims
{
	my %now;
	wait_for(sub { %now = claims(@sessions); commit(@sessions) unless %now; return %now ? 1 : 0 }, 'the next claim');
	return %now;
}
for my $turn (1 .. 3)
{
	%got = next_claims();
	is(scalar keys %got, 1, "round $turn: one gets the slot") or diag(join ' ', sort keys %got);
	commit(@sessions);
	my ($task, $token, $run) = split /\|/, (keys %got)[0];
	push @order, $run;
	is($sessions[$turn]->query(qq{SELECT durable.complete_turn('$task', '$token', '{"status": "completed"}')}), 't', "round $turn: it ends");
}
is("@order", 'r1 r2 r3', 'the oldest first');

# A winner that is prepared keeps the slot over a crash, and gives it back with its rollback.
wait_for(sub {
	my $taken = $observer->query(q{BEGIN; SELECT run_id FROM durable.claim('{w}', 1, '1 h')});
	$observer->query($taken ? "PREPARE TRANSACTION 'winner'" : 'COMMIT');
	return $taken;
}, 'a claim to prepare');
$_->quit for @sessions, $observer;
crash($node);
$node->start;
@sessions = map { DurableTest::Session->new($node, name => "racer $_") } 1 .. 8;
%got = claims(@sessions);
commit(@sessions);
is(scalar keys %got, 0, 'nobody else gets what is prepared');
$sessions[0]->query("ROLLBACK PREPARED 'winner'");

# The rest, one after the other.
@order = ();
for my $turn (4 .. $SESSIONS)
{
	%got = next_claims();
	commit(@sessions);
	my ($task, $token, $run) = split /\|/, (keys %got)[0];
	push @order, $run;
	$sessions[ $turn % 8 ]->query(qq{SELECT durable.complete_turn('$task', '$token', '{"status": "completed"}')});
}
is("@order", join(' ', map { "r$_" } 4 .. $SESSIONS), 'each of them has its turn, in the order of creation');
is($node->safe_psql('postgres', q{SELECT (SELECT count(*) FROM durable.singleton WHERE workflow = 'w'), (SELECT count(*) FROM durable.task WHERE name = 'w')}),
	'0|0', 'nothing is left');

$_->quit for @sessions;
$node->stop;
done_testing();
