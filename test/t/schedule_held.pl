# A transaction that stays open counts runs under the key of a schedule. The scheduler does
# not wait for it: other schedules fire meanwhile, and this one does once it is known
# whether there is room. So it is after a crash.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $node = durable_node('scheduleheld', { background => 1 });
$node->safe_psql('postgres', q{
	CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT i';
	SELECT durable.register_workflow('w', 'body');
});

sub fires { return $node->safe_psql('postgres', "SELECT fires FROM durable.schedule WHERE schedule_id = '$_[0]'"); }
sub skips { return $node->safe_psql('postgres', "SELECT skips FROM durable.schedule WHERE schedule_id = '$_[0]'"); }

sub goes_on
{
	my ($id, $more, $when) = @_;
	my $before = fires($id);
	return ok(wait_for(sub { fires($id) >= $before + $more }, "$id to fire"), $when);
}

# the key is held before there is a window, and the run that holds it never ends
my $holder = DurableTest::Session->new($node, name => 'holder');
$holder->query('BEGIN');
$holder->query(q{SELECT durable.start('w', run_id => 'mine', start_at => now() + interval '1 day', concurrency_key => 'k', concurrency_limit => 1)});
$node->safe_psql('postgres', q{
	SELECT durable.create_schedule('counted', 'w', every => '200 ms', concurrency_key => 'k', concurrency_limit => 1),
		durable.create_schedule('other', 'w', every => '200 ms')});
goes_on('other', 5, 'held: other schedules fire');
is(fires('counted') . skips('counted'), '00', 'the one whose key is held neither fires nor skips');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'}), 0, 'nobody waits for it');
$holder->query('ROLLBACK');
goes_on('counted', 3, 'rolled back: it fires');

# there is no room after the commit: it skips, until the run has ended
$holder->query('BEGIN');
$holder->query(q{SELECT durable.start('w', run_id => 'mine', start_at => now() + interval '1 day', concurrency_key => 'k', concurrency_limit => 100)});
goes_on('other', 5, 'held again: other schedules fire');
$holder->query('COMMIT');
ok(wait_for(sub { skips('counted') > 2 }, 'windows to be skipped'), 'committed: its windows are skipped');
like($node->safe_psql('postgres', q{SELECT last_error FROM durable.schedules WHERE schedule_id = 'counted'}), qr/may not start another run under concurrency key "k"/, 'with the reason');
crash($node);
$holder->quit;
$node->start;
goes_on('other', 5, 'after a crash other schedules fire');
my $skipped = skips('counted');
ok(wait_for(sub { skips('counted') > $skipped }, 'windows to be skipped'), 'and its windows are skipped');
$node->safe_psql('postgres', q{SELECT durable.cancel('mine')});
goes_on('counted', 3, 'when the run has ended it fires');
ok(wait_for(sub { $node->safe_psql('postgres', q{SELECT last_error IS NULL FROM durable.schedule WHERE schedule_id = 'counted'}) eq 't' }, 'last_error to go'), 'and nothing is wrong any more');
is($node->safe_psql('postgres', q{SELECT count(*) FROM durable.scan_hints() WHERE rescued <> 0}), 0, 'no row was found behind a hint');
is(damage($node), '', 'no table or index is damaged');

$node->stop;
done_testing();
