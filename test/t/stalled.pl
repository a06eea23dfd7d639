# The scheduler tells of stalled runs in the server's log: once per episode, only with the
# setting, and again after a restart.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $node = durable_node('stalled', { preload => 1, background => 1 });

sub lines
{
	my ($pattern) = @_;
	open my $in, '<', $node->logfile or die;
	my $n = grep { /$pattern/ } <$in>;
	close $in;
	return $n;
}

# A new scheduler looks at once; this one has looked when it has done work that is due then.
sub restart_and_look
{
	my ($offset, @conf) = @_;
	$node->append_conf('postgresql.conf', join "\n", "durable.clock_offset = $offset", @conf, '');
	$node->restart;
	$node->safe_psql('postgres', q{SELECT durable.start('nap', NULL, 'nap ' || durable.engine_now())});
	wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM durable.run WHERE workflow = 'nap' AND status <> 'completed'}) == 0 }, 'the scheduler to have looked');
	return;
}

$node->safe_psql('postgres', q{
	CREATE FUNCTION asks(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.wait_for_signal('answer'); END $$;
	CREATE FUNCTION steps(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.step('nobody'); END $$;
	CREATE FUNCTION nap(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM durable.sleep('1 ms'); RETURN i; END $$;
	SELECT durable.register_workflow(w, w) FROM unnest('{asks,steps,nap}'::text[]) w;
	SELECT durable.start('asks', NULL, 'asks'), durable.start('steps', NULL, 'steps');
});
wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM durable.run WHERE turn_state = 'parked'}) == 2 }, 'both runs to wait');

restart_and_look(1200);
is(lines('has stalled'), 0, 'nothing without the setting');

restart_and_look(1200, 'durable.stalled_after = 30min');
is(lines('has stalled'), 0, 'nothing before its time');

restart_and_look(1200, 'durable.stalled_after = 15min');
is(lines('run "asks" of workflow "asks" has stalled'), 1, 'a run that waits for a signal');
is(lines('It has been waiting for the signal "answer", at position 0, for 00:2'), 1, '... and for which');
is(lines('run "steps" of workflow "steps" has stalled'), 1, 'a run whose step nobody does');
is(lines('Nothing has been heard of its step "nobody", at position 0, attempt 1, for 00:2'), 1, '... and which step');

# so many passes later
for my $i (1 .. 3)
{
	$node->safe_psql('postgres', qq{SELECT durable.start('nap', NULL, 'again $i')});
	wait_for(sub { $node->safe_psql('postgres', qq{SELECT status FROM durable.get_run('again $i')}) eq 'completed' }, 'another pass');
}
is(lines('has stalled'), 2, 'once');

$node->safe_psql('postgres', q{SELECT durable.signal('answer', '1')});
wait_for(sub { $node->safe_psql('postgres', q{SELECT status FROM durable.get_run('asks')}) eq 'completed' }, 'the run to go on');
restart_and_look(1300);
is(lines('run "asks" of workflow "asks" has stalled'), 1, 'what went on is told of no more');
is(lines('run "steps" of workflow "steps" has stalled'), 2, 'what is still stalled is, by a new scheduler');

# the look fails: nothing else is kept by that, and it is told
sub scheduler { return $node->safe_psql('postgres', q{SELECT pid FROM durable.workers() WHERE kind = 'scheduler' AND state <> 'starting'}); }
sub failures { return $node->safe_psql('postgres', q{SELECT level, detail -> 'stalled runs' ->> 'code' FROM durable.health() WHERE name = 'sweep_failures'}); }
$node->safe_psql('postgres', 'ALTER FUNCTION durable.stalled_runs(interval, int) RENAME TO gone');
restart_and_look(1300);
wait_for(sub { failures() eq 'warn|42883' }, 'the failure to be noted');
my $pid = scheduler();
$node->safe_psql('postgres', q{SELECT durable.start('nap', NULL, 'meanwhile')});
wait_for(sub { $node->safe_psql('postgres', q{SELECT status FROM durable.get_run('meanwhile')}) eq 'completed' }, 'other work to go on');
is(scheduler(), $pid, 'the scheduler lives');
is(lines('WARNING:.*a part of its work: stalled runs'), 1, 'it has said so once');
$node->safe_psql('postgres', 'ALTER FUNCTION durable.gone(interval, int) RENAME TO stalled_runs');
restart_and_look(1300);
wait_for(sub { failures() eq 'ok|' }, 'the failure to be forgotten');
is(lines('run "steps" of workflow "steps" has stalled'), 3, 'and it tells again');
# one that is left when the setting is taken away
$node->safe_psql('postgres', q{INSERT INTO durable.sweep_failure SELECT 'stalled runs', now(), now(), 1, '42883', 'gone'});
restart_and_look(1300, 'durable.stalled_after = 0');
wait_for(sub { failures() eq 'ok|' }, 'what is not looked for has not failed');
is(damage($node), '', 'no table or index is damaged');
$node->stop;
done_testing();
