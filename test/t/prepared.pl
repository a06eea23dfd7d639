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

# Exchange: a turn's decision, a step's result with the decision after it, a child that is
# counted, and the next claims, all from COMMIT PREPARED on.
$b->query(q{
	SELECT durable.register_workflow('w'), durable.register_workflow('kid', concurrency_key => '$.k', concurrency_limit => 2);
	CREATE TABLE hand (name text, task_id text, token uuid);
	CREATE FUNCTION keep(tasks jsonb) RETURNS text LANGUAGE sql AS $$
		WITH h AS (INSERT INTO hand SELECT concat_ws(' ', t ->> 'run_id', t ->> 'kind'), t ->> 'task_id', (t ->> 'token')::uuid FROM jsonb_array_elements(tasks) t RETURNING name)
		SELECT string_agg(name, ',' ORDER BY name) FROM h $$;
	CREATE FUNCTION hand_in(n text, more jsonb) RETURNS text LANGUAGE sql AS $$
		SELECT concat_ws(' ', results[1], keep(tasks))
		  FROM (SELECT * FROM hand WHERE name = n ORDER BY token DESC LIMIT 1) h, durable.exchange(jsonb_build_array(jsonb_build_object('task_id', task_id, 'token', token) || more), '{w,kid,s}', 5, lease => '1 h') $$;
	CREATE FUNCTION step_done(n text) RETURNS text LANGUAGE sql AS $$
		SELECT hand_in(n || ' step', jsonb_build_object('output', 1, 'turn', jsonb_build_object('token', t.token, 'history_end', 1, 'decision',
			'{"status": "continue", "commands": [{"type": "start_child", "seq": 1, "workflow": "kid", "input": {"k": 1}}]}'::jsonb)))
		  FROM hand t WHERE t.name = n || ' turn' $$;
	CREATE FUNCTION state(r text) RETURNS text LANGUAGE sql AS $$
		SELECT concat_ws(' ', status, turn_state, (SELECT string_agg(concat_ws(' ', kind, c.status, c.output), ', ' ORDER BY seq) FROM durable.checkpoint c WHERE c.run = r.id),
			(SELECT count(*) FROM durable.quota)) FROM durable.run r WHERE run_id = $1 $$;
	SELECT durable.start('w', NULL, 'e1'), durable.start('w', NULL, 'e2')});
my $call = q{'{"decision": {"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "s"}]}}'};
is($b->query(q{SELECT keep(tasks) FROM durable.exchange(NULL, '{w}', 5, lease => '1 h')}), 'e1 turn,e2 turn', 'two turns are in hand');
is(prepare('e1', "SELECT hand_in('e1 turn', $call)"), '1 e1 step', 'a decision, prepared: its step is claimed with it');
is($b->query("SELECT state('e1')"), 'pending ready 0', 'nothing of it counts');
is($b->query("SELECT hand_in('e2 turn', $call)"), '1 e2 step', 'another turn is decided meanwhile, and its step claimed, with nobody to wait for');
is($b->query("SELECT token IS NULL FROM hand WHERE name = 'e1 step'"), '', 'what was claimed is not in hand');
$b->query("ROLLBACK PREPARED 'e1'");
is(prepare('e1', "SELECT hand_in('e1 turn', $call)"), '1 e1 step', 'rolled back, the same call is as good as before');
$b->query("COMMIT PREPARED 'e1'");
is($b->query("SELECT hand_in('e1 turn', $call)"), '0', 'committed, it is not');
is($b->query("SELECT state('e1')"), 'suspended parked step pending 0', 'the run waits for its step');
is(prepare('e1', q{SELECT step_done('e1')}), '2 e1.child.1 turn', 'a result and the decision after it, prepared: the child is claimed with it');
is($b->query("SELECT state('e1')"), 'suspended parked step pending 0', 'nothing of it counts');
$b->send(q{SELECT durable.complete(task_id, token) FROM hand WHERE name = 'e1 step'});
$a->poll("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = " . $b->pid);
pass('who settles the step waits');
crash($node);
$_->quit for $a, $b;
$node->start;
($a, $b) = map { DurableTest::Session->new($node, name => $_) } 'a', 'b';
is($b->query("SELECT state('e1')"), 'suspended parked step pending 0', 'after a crash, still nothing');
is($b->query(q{SELECT keep(tasks) FROM durable.exchange(NULL, '{w,kid,s}', 5)}), '', 'and nothing to claim');
$b->send(q{SELECT step_done('e1')});
$a->poll("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = " . $b->pid);
$a->query("COMMIT PREPARED 'e1'");
is($b->answer, '0', 'the same call again waits for COMMIT PREPARED, and comes to nothing');
is($b->query("SELECT state('e1')"), 'suspended parked step completed 1, child pending 1', 'all of it is there, once');
is($b->query(q{SELECT hand_in('e1.child.1 turn', '{"decision": {"status": "completed", "output": 2}}')}), '1 e1 turn', 'the child that was claimed can be decided, and wakes its parent');
is(prepare('e2', q{SELECT step_done('e2')}), '2 e2.child.1 turn', 'the other one');
$b->query("ROLLBACK PREPARED 'e2'");
is($b->query(q{SELECT step_done('e2')}), '2 e2.child.1 turn', 'rolled back, the same again');
is($b->query(q{SELECT count(*) FROM durable.quota}), 1, 'and counted once');

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
