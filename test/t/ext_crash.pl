# The server is killed again and again while sessions take turns of external workflows,
# decide them, settle their steps and signal. Claims are short, so that turns are taken over
# while their holders are still at it. At the end every run has completed with its whole
# history, and what was written together with a record or an end is there once.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(usleep);

use DurableTest;

my $RUNS = 200;
my $CRASHES = 4;
my $SESSIONS = 5;

my $node = durable_node('extcrash', {}, 'durable.max_reclaims = 1000000', 'statement_timeout = 60s');
$node->safe_psql('postgres', q{
	CREATE TABLE ledger (run text, what text);
	CREATE TABLE refused (at timestamptz DEFAULT now());

	-- what a worker would decide, by how much of the history there is
	CREATE FUNCTION decision(run text, workflow text, history_end int, history jsonb) RETURNS jsonb LANGUAGE sql AS $$
		SELECT CASE
			WHEN workflow = 'child' THEN '{"status": "completed", "output": "child"}'
			WHEN history_end = 1 THEN '{"status": "continue", "commands": [
				{"type": "record_step", "seq": 0, "name": "book"}, {"type": "call", "seq": 1, "name": "s"}]}'
			WHEN history_end = 2 THEN jsonb_build_object('status', 'continue', 'commands', jsonb_build_array(
				'{"type": "call", "seq": 1, "name": "s"}'::jsonb,
				jsonb_build_object('type', 'wait_signal', 'seq', 2, 'signal', 'go:' || run)))
			WHEN history_end = 3 THEN jsonb_build_object('status', 'continue', 'commands', jsonb_build_array(
				jsonb_build_object('type', 'wait_signal', 'seq', 2, 'signal', 'go:' || run),
				'{"type": "start_child", "seq": 3, "workflow": "child"}'::jsonb, '{"type": "sleep", "seq": 4, "ms": 5}'::jsonb))
			ELSE jsonb_build_object('status', 'continue', 'commands', (
				SELECT jsonb_agg(CASE h ->> 'kind'
						WHEN 'step' THEN '{"type": "call", "seq": 1, "name": "s"}'
						WHEN 'signal' THEN jsonb_build_object('type', 'wait_signal', 'seq', 2, 'signal', 'go:' || run)
						WHEN 'child' THEN '{"type": "start_child", "seq": 3, "workflow": "child"}'
						ELSE '{"type": "sleep", "seq": 4, "ms": 5}' END)
				  FROM jsonb_array_elements(history) h WHERE h ->> 'status' = 'pending'))
		END
	$$;
	CREATE FUNCTION finished(history jsonb) RETURNS boolean LANGUAGE sql AS $$
		SELECT count(*) = 5 AND bool_and(h ->> 'status' = 'completed') FROM jsonb_array_elements(history) h
	$$;

	-- one turn, step or nothing; slow at times, so that others take over
	CREATE PROCEDURE advance(times int) LANGUAGE plpgsql AS $$
	DECLARE
		t record;
		ok boolean;
	BEGIN
		FOR i IN 1 .. times LOOP
			SELECT * INTO t FROM durable.claim('{w,child,s}', lease => '400 ms', history => CASE WHEN random() < 0.5 THEN 5 END);
			COMMIT;
			IF t.task_id IS NULL THEN
				PERFORM pg_sleep(0.005);
				CONTINUE;
			ELSIF random() < 0.01 THEN
				PERFORM pg_sleep(0.5);
			END IF;
			IF t.kind = 'step' THEN
				-- the signal, the ledger and the result are one
				PERFORM durable.signal('go:' || t.run_id, '1');
				INSERT INTO ledger VALUES (t.run_id, 'step');
				ok := durable.complete(t.task_id, t.token, '"s"');
			ELSIF t.name = 'w' AND (t.input ->> 'history_end')::int = 0 THEN
				INSERT INTO ledger VALUES (t.run_id, 'book');
				ok := durable.record_step(t.task_id, t.token, 0, 'book');
				IF ok THEN
					COMMIT;
					ok := durable.complete_turn(t.task_id, t.token, decision(t.run_id, t.name, 1, NULL));
				END IF;
			ELSIF t.name = 'w' AND finished(t.input -> 'history') THEN
				INSERT INTO ledger VALUES (t.run_id, 'end');
				ok := durable.complete_turn(t.task_id, t.token, '{"status": "completed", "output": "w"}');
			ELSE
				ok := durable.complete_turn(t.task_id, t.token, decision(t.run_id, t.name, (t.input ->> 'history_end')::int, t.input -> 'history'));
			END IF;
			IF ok AND random() < 0.98 THEN
				COMMIT;
			ELSE
				ROLLBACK;
				INSERT INTO refused SELECT WHERE NOT ok;
				COMMIT;
			END IF;
		END LOOP;
	END $$;
	SELECT durable.register_workflow('w'), durable.register_workflow('child');
});
$node->safe_psql('postgres', "SELECT durable.start_many('w', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, $RUNS) i),
	(SELECT array_agg('r' || i) FROM generate_series(1, $RUNS) i))");

sub left { return $node->safe_psql('postgres', 'SELECT count(*) FROM durable.run WHERE finished_at IS NULL'); }

for my $round (1 .. $CRASHES)
{
	my @sessions = map { DurableTest::Session->new($node, name => "worker $_") } 1 .. $SESSIONS;
	my $before = left();
	$_->send('CALL advance(100000)') for @sessions;
	# some of the work is done, and then the power goes
	ok(wait_for(sub { left() < $before - 20 || left() == 0 }, 'some runs to end'), "round $round: " . left() . ' runs are left');
	crash($node);
	$_->quit for @sessions;
	$node->start;
}

my @sessions = map { DurableTest::Session->new($node) } 1 .. $SESSIONS;
$_->send('CALL advance(100000)') for @sessions;
ok(wait_for(sub { left() == 0 }, 'all runs to end'), 'all runs end');
$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL advance%'});
$_->answer for @sessions;
$_->quit for @sessions;

is($node->safe_psql('postgres', 'SELECT workflow, status, output, count(*) FROM durable.run GROUP BY 1, 2, 3 ORDER BY 1'),
	"child|completed|\"child\"|$RUNS\nw|completed|\"w\"|$RUNS", 'every run and every child has completed');
is($node->safe_psql('postgres', 'SELECT what, count(*), count(DISTINCT run) FROM ledger GROUP BY 1 ORDER BY 1'),
	"book|$RUNS|$RUNS\nend|$RUNS|$RUNS\nstep|$RUNS|$RUNS", 'what was written with a record, a result or an end is there once');
is($node->safe_psql('postgres', q{SELECT count(*) FROM durable.run r WHERE workflow = 'w' AND (SELECT string_agg(concat_ws(' ', seq, kind, replace(name, run_id, 'R'), status, output), ', ' ORDER BY seq)
	FROM durable.checkpoint c WHERE c.run = r.id) = '0 local book completed, 1 step s completed "s", 2 signal go:R completed 1, 3 child child:R.child.3 completed "child", 4 sleep sleep completed'}),
	$RUNS, 'each with the right history');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM refused'), '>', 0, 'some were refused, because somebody else had taken over');
is($node->safe_psql('postgres', q{SELECT (SELECT count(*) FROM durable.task), (SELECT count(*) FROM durable.task_ready),
	(SELECT count(*) FROM durable.task_delayed), (SELECT count(*) FROM durable.waiter), (SELECT count(*) FROM durable.signal_buffer)}),
	'0|0|0|0|0', 'nothing is left over');
is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
is(damage($node), '', 'no table or index is damaged');

$node->stop;
done_testing();
