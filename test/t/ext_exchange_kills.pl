# Workers outside that know nothing but exchange(), while the server is killed again and
# again, at any moment. A worker that has got no answer makes the same call once more, as it
# cannot know. At the end each run and each child has ended with its whole history, and
# what was written with a result or an end is there once.

use strict;
use warnings;

use JSON::PP;
use Test::More;
use Time::HiRes qw(usleep);

use DurableTest;

my $KILLS = $ENV{DURABLE_CRASHES} // 16;
my $WORKERS = 4;
my $RUNS = 12;    # for each kill
my $seed = $ENV{DURABLE_SEED} // time;
srand $seed;
note "DURABLE_SEED=$seed";

my $node = durable_node('kills', {}, 'durable.max_reclaims = 1000000');
my $json = JSON::PP->new->canonical;
my %seen;         # what has happened, by kind

sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(q{
	SELECT durable.register_workflow('w'),
		durable.register_workflow('kid', concurrency_key => '$.k', concurrency_limit => 1000000, singleton_key => '$.s', singleton_limit => 3);
	CREATE TABLE ledger (what text);
});

# What a run decides: a step, a local step and a child, which has a step, too.
sub decide
{
	my ($workflow, $run, @history) = @_;
	my @commands = ({ type => 'call', seq => 0, name => 's', input => $run });
	my $first = @history && $history[0]{status} eq 'completed';
	return { status => 'completed', output => $history[0]{output} } if $first && $workflow eq 'kid';
	push @commands, { type => 'record_step', seq => 1, name => 'l', output => $history[0]{output} },
		{ type => 'start_child', seq => 2, workflow => 'kid', input => { k => int(rand 3), s => int(rand 5) } } if $first;
	return { status => 'completed', output => $history[2]{output} } if @history > 2 && $history[2]{status} eq 'completed';
	# what is recorded is not recorded again, and what has ended is not waited for
	return { status => 'continue', commands => [ grep { !$history[ $_->{seq} ] || $history[ $_->{seq} ]{status} eq 'pending' } @commands ] };
}

# What a worker hands in for a task, and what it writes with it, by the result.
sub work_off
{
	my ($worker, $task) = @_;
	my %item = (task_id => $task->{task_id}, token => $task->{token});
	my $run = $task->{run_id};
	my ($done, $decided) = ("$run step", '');
	my $decision;
	if ($task->{kind} eq 'turn')
	{
		my @history = @{ $task->{input}{history} };
		$decision = $item{decision} = decide($task->{name}, $run, @history);
		$worker->{turns}{$run} = { token => $task->{token}, workflow => $task->{name}, history => \@history, end => scalar @history };
		$worker->{turns}{$run}{end}++ for grep { $_->{seq} >= @history } @{ $decision->{commands} // [] };
		$done = $decision->{status} eq 'completed' ? "$run end" : '';
	}
	else
	{
		$item{output} = $task->{input};
		my $turn = $worker->{turns}{$run};
		if ($turn && $turn->{end} == 1)
		{
			$decision = decide($turn->{workflow}, $run, { status => 'completed', output => $task->{input} });
			$item{turn} = { token => $turn->{token}, history_end => 1, decision => $decision };
			$decided = "$run end" if $decision->{status} eq 'completed';
		}
	}
	return (\%item, $done, $decided);
}

# The next call of a worker. One that is not certain makes the last one again.
sub call
{
	my ($worker) = @_;
	return $worker->{call} if $worker->{call};
	my @parts = map { [ work_off($worker, $_) ] } splice @{ $worker->{hand} }, 0, 1 + int rand 3;
	my $items = $json->encode([ map { $_->[0] } @parts ]);
	my $writes = join ', ', map { "(ARRAY['$_->[1]', '$_->[2]'])" } @parts;
	# what was not handed in stays in hand, and nothing is taken before it is done
	my $max = @{ $worker->{hand} } ? 0 : 1 + int rand 4;
	$worker->{call} = "WITH e AS MATERIALIZED (SELECT * FROM durable.exchange('$items', '{w,kid,s}', $max, lease => '700 ms', worker => '$worker->{name}'))"
		. (@parts ? ", v AS (SELECT row_number() OVER () AS n, what FROM (VALUES $writes) x (what)), l AS (INSERT INTO ledger
			SELECT w FROM e CROSS JOIN unnest(e.results) WITH ORDINALITY r (result, n) JOIN v USING (n) CROSS JOIN unnest(v.what[:r.result]) w WHERE w <> '' AND r.result > 0)" : '')
		. ' SELECT e.* FROM e';
	return $worker->{call};
}

# Some take their time to commit, or think better of it and do it once more.
sub send_call
{
	my ($worker) = @_;
	my $call = call($worker);
	$worker->{session} //= DurableTest::Session->new($node, name => $worker->{name});
	$worker->{undo} = rand() < 0.1;
	$worker->{session}->send($worker->{undo} ? "BEGIN;\n$call;\nROLLBACK" : rand() < 0.3 ? "BEGIN;\n$call;\nDO 'BEGIN PERFORM pg_sleep(random() * 0.02); END';\nCOMMIT" : $call);
	$worker->{out} = 1;
	return;
}

sub read_answer
{
	my ($worker) = @_;
	my $answer = $worker->{session}->answer;
	$worker->{out} = 0;
	if (my $state = $worker->{session}->sqlstate)
	{
		$seen{$state}++;
		return;
	}
	return if $worker->{undo};
	my ($results, $tasks) = $answer =~ /^\{([\d,]*)\}\|(.*)$/s or die "what is this? $answer " . $worker->{session}->error;
	$seen{"result $_"}++ for split /,/, $results;
	$worker->{call} = undef;
	push @{ $worker->{hand} }, @{ $json->decode($tasks) } if $tasks ne '';
	$worker->{idle} = $tasks eq '' && !@{ $worker->{hand} };
	return;
}

my @workers = map { { name => "worker $_", hand => [], turns => {}, out => 0 } } 1 .. $WORKERS;
my $answers = 0;

sub round
{
	for my $worker (@workers)
	{
		if ($worker->{out} && $worker->{session}->answered)
		{
			read_answer($worker);
			$answers++;
		}
		send_call($worker) unless $worker->{out};
	}
	usleep((grep { !$_->{idle} } @workers) ? 500 : 20_000);
	return;
}

sub left { return sql('SELECT count(*) FROM durable.run WHERE finished_at IS NULL'); }

my %ways = (backend => 0, immediate => 0, power => 0);
for my $kill (1 .. $KILLS)
{
	sql("SELECT count(*) FROM durable.start_many('w', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, $RUNS) i), (SELECT array_agg('$kill-' || i) FROM generate_series(1, $RUNS) i))");
	my $goal = $answers + 10 + int rand 40;
	round() while $answers < $goal;
	send_call($_) for grep { !$_->{out} } @workers;
	usleep(int rand 2_000);
	my $way = (sort keys %ways)[ $kill % 3 ];
	$ways{$way}++;
	# the one who dies is anyone
	my @order = sort { $a->{die} <=> $b->{die} } map { $_->{die} = rand; $_ } @workers;
	$seen{unanswered} += grep { !$_->{session}->answered } @workers;
	die_by($node, $way, map { $_->{session} } @order);
	# what they have been answered is lost: they have not read it
	@$_{qw(session out)} = () for @workers;
	is(sql('SELECT what, count(*) FROM ledger GROUP BY 1 HAVING count(*) > 1'), '', "kill $kill ($way): nothing is done twice");
}
note join ', ', map { "$_: $seen{$_}" } sort keys %seen;
wait_for(sub { round() for 1 .. 20; left() == 0 }, 'all runs to end');
while (grep { $_->{out} } @workers)
{
	for my $worker (grep { $_->{out} && $_->{session}->answered } @workers)
	{
		read_answer($worker);
	}
}
$_->{session}->quit for @workers;
# a note about a singleton's slot may still be there
wait_for(sub { sql(q{SELECT tasks IS NULL FROM durable.exchange(NULL, '{w,kid,s}')}); sql('SELECT count(*) FROM durable.task') == 0 }, 'the last task to go');
note join ', ', map { "$_: $seen{$_}" } sort keys %seen;

my $all = $KILLS * $RUNS;
is(sql(q{SELECT workflow, status, count(*) FROM durable.run GROUP BY 1, 2 ORDER BY 1}), "kid|completed|$all\nw|completed|$all", 'every run and every child has completed');
is(sql(q{SELECT count(*) FROM durable.run r WHERE workflow = 'w' AND (output #>> '{}' IS DISTINCT FROM run_id || '.child.2' OR (SELECT string_agg(concat_ws(' ', seq, kind, name, status, attempts, output #>> '{}'), ', ' ORDER BY seq)
	FROM durable.checkpoint c WHERE c.run = r.id) IS DISTINCT FROM replace('0 step s completed 1 R, 1 local l completed 1 R, 2 child child:R.child.2 completed 1 R.child.2', 'R', run_id))}),
	0, 'each with the right history');
is(sql(q{SELECT split_part(what, ' ', 2), count(*), count(DISTINCT what) FROM ledger GROUP BY 1 ORDER BY 1}), join("\n", map { "$_|" . 2 * $all . '|' . 2 * $all } 'end', 'step'), 'what was written with a result or an end is there once');
cmp_ok($seen{$_} // 0, '>', 0, "there was: $_") for 'result 0', 'result 1', 'result 2', 'unanswered';
is(join(' ', grep { !/^(result|unanswered|40P01|57P|08)/ } keys %seen), '', 'no error but those of a server that dies');
is(left_over($node), '0|0|0|0|0|0', 'nothing is left over');
is(sql('SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
is(damage($node), '', 'no table or index is damaged');
$node->stop;
done_testing();
