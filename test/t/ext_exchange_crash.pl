# exchange() and the death of the server: before the commit, in the midst of the call, and
# after the commit, before the client has the answer. The client then makes the same call
# again. Whatever is in it (decisions, children that are counted, results with the decision
# after them, failures) is done once, with what the client writes in the same transaction.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $node = durable_node('exchange', { unanswered => 1 });
my $offset = 0;

sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(q{
	SELECT durable.register_workflow('w'), durable.register_workflow('kid', concurrency_key => '$.k', concurrency_limit => 1000),
		durable.register_workflow('lone', concurrency_key => '$.k', concurrency_limit => 1000), durable.register_workflow('solo', singleton_key => '$.k'), durable.register_workflow('mend'),
		durable.register_workflow('frail', on_error => '[{"workflow": "mend"}]');

	-- what a worker has in hand, by round and name, and what it has done
	CREATE TABLE held (at bigserial, round text, name text, task_id text, token uuid);
	CREATE TABLE ledger (round text, name text);
	CREATE FUNCTION keep(r text, tasks jsonb) RETURNS text LANGUAGE sql AS $$
		WITH h AS (
			INSERT INTO held (round, name, task_id, token) SELECT r, regexp_replace(concat_ws(' ', coalesce(t ->> 'run_id', t ->> 'task_id'), t ->> 'kind'), r || '-', ''), t ->> 'task_id', (t ->> 'token')::uuid
			  FROM jsonb_array_elements(tasks) t RETURNING name)
		SELECT coalesce(string_agg(name, ', ' ORDER BY name), '-') FROM h
	$$;
	CREATE FUNCTION go_on(VARIADIC commands jsonb[]) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('status', 'continue', 'commands', to_jsonb(commands)) $$;
	CREATE FUNCTION call(seq int, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('type', 'call', 'seq', seq, 'name', 's') || more $$;
	CREATE FUNCTION child(seq int, workflow text, k text) RETURNS jsonb LANGUAGE sql AS $$
		SELECT jsonb_build_object('type', 'start_child', 'seq', seq, 'workflow', workflow, 'input', jsonb_build_object('k', k)) $$;

	-- what is handed in for each, and what comes before it
	CREATE TABLE script (name text PRIMARY KEY, workflow text NOT NULL DEFAULT 'w', first jsonb, last jsonb NOT NULL, turn jsonb, history_end int);
	INSERT INTO script (name, last) VALUES
		('ask turn', jsonb_build_object('decision', go_on(call(0), '{"type": "wait_signal", "seq": 1, "signal": "go"}', '{"type": "set_event", "seq": 2, "key": "e", "value": 1}'))),
		('kid turn', jsonb_build_object('decision', go_on(child(0, 'kid', 'all')))),
		('solo turn', jsonb_build_object('decision', go_on(child(0, 'solo', 'all'), child(1, 'solo', 'all')))),
		('end turn', '{"decision": {"status": "completed", "output": "over"}}'),
		('fail turn', '{"decision": {"status": "failed", "error": "broken"}}'),
		('tell.child.0 turn', '{"decision": {"status": "completed", "output": "told"}}'),
		('one turn', jsonb_build_object('decision', go_on(child(0, 'lone', 'one'))));
	INSERT INTO script (name, first, last) VALUES
		('plain step', go_on(call(0)), '{"output": 1}'),
		('retry step', go_on(call(0, '{"retries": 3, "backoff_ms": 3600000}')), '{"error": {"message": "again"}}'),
		('bad step', go_on(call(0)), '{"error": {"message": "no", "retryable": false}}');
	INSERT INTO script (name, first, last, turn, history_end) VALUES
		('after step', go_on(call(0)), '{"output": 2}', '{"status": "completed", "output": "after"}', 1),
		('bear step', go_on(call(0)), '{"output": 3}', go_on('{"type": "record_step", "seq": 1, "name": "l", "output": 4}', child(2, 'kid', 'all')), 1),
		('again step', go_on(call(0)), '{"output": 5}', go_on(call(1)), 1),
		('off step', go_on('{"type": "call_all", "seq": 0, "name": "s", "inputs": [1, 2]}'), '{"output": 6}',
			'{"status": "completed", "commands": [{"type": "call_off", "seq": 1, "name": "s", "count": 1}]}', 2);
	UPDATE script SET workflow = 'frail' WHERE name = 'fail turn';

	CREATE FUNCTION item(r text, n text) RETURNS jsonb LANGUAGE sql AS $$
		SELECT jsonb_build_object('task_id', h.task_id, 'token', h.token) || CASE n WHEN 'job task' THEN '{"output": "job"}' ELSE s.last END
			|| CASE WHEN s.turn IS NULL THEN '{}' ELSE jsonb_build_object('turn', jsonb_build_object('token', t.token, 'history_end', s.history_end, 'decision', s.turn)) END
		  FROM held h LEFT JOIN script s USING (name) LEFT JOIN held t ON t.round = r AND t.name = replace(n, ' step', ' turn')
		 WHERE h.round = r AND h.name = n ORDER BY h.at LIMIT 1
	$$;
	-- the call, and what the client writes with it
	CREATE FUNCTION hand_in(r text, names text[], queues text[]) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		done record;
	BEGIN
		SELECT * INTO done FROM durable.exchange((SELECT jsonb_agg(item(r, n) ORDER BY i) FROM unnest(names) WITH ORDINALITY u(n, i)), queues, 100, lease => '1 h', worker => 'me');
		INSERT INTO ledger SELECT r, n FROM unnest(names, done.results) u(n, result) WHERE result > 0;
		RETURN array_to_string(done.results, '') || ', takes ' || keep(r, done.tasks);
	END $$;
	CREATE FUNCTION batch(r text) RETURNS text LANGUAGE sql AS $$
		SELECT hand_in(r, array_agg(name ORDER BY md5(name)), '{s,w,kid,solo,mend}') FROM (SELECT name FROM script WHERE name <> 'one turn' UNION SELECT 'job task') s
	$$;
	CREATE FUNCTION single(r text) RETURNS text LANGUAGE sql AS $$ SELECT hand_in(r, '{one turn}', '{none}') $$;

	-- a round: everything in hand
	CREATE PROCEDURE prepare(r text) LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.start(workflow, NULL, r || '-' || split_part(name, ' ', 1)) FROM script WHERE name NOT LIKE 'tell%' ORDER BY name;
		PERFORM durable.start('w', NULL, r || '-tell'), durable.dispatch('job', '1', r || '-job');
		COMMIT;
		PERFORM keep(r, tasks) FROM durable.exchange(NULL, '{w,frail,job}', 100, lease => '1 h', worker => 'me');
		COMMIT;
		PERFORM durable.complete_turn(h.task_id, h.token, coalesce(s.first, go_on('{"type": "start_child", "seq": 0, "workflow": "w"}')))
		   FROM held h LEFT JOIN script s ON s.name = replace(h.name, ' turn', ' step') WHERE h.round = r AND (s.first IS NOT NULL OR h.name = 'tell turn');
		COMMIT;
		PERFORM keep(r, tasks) FROM durable.exchange(NULL, '{s}', 100, lease => '1 h', worker => 'me');
		PERFORM keep(r, tasks) FROM durable.exchange(NULL, '{w}', 100, lease => '1 h', worker => 'me');
	END $$;

	-- all that there is of a round
	CREATE FUNCTION state(r text) RETURNS text LANGUAGE sql AS $$
		SELECT string_agg(l.line, E'\n' ORDER BY l.line) FROM (SELECT replace(x.line, r || '-', '') FROM (
			SELECT concat_ws(' ', run_id, workflow, status, turn_state, output, error ->> 'message', recovery_attempts, coalesce('[' || (
				SELECT string_agg(concat_ws(' ', c.seq, c.kind, c.name, c.status, c.attempts, c.output, c.error ->> 'message'), ', ' ORDER BY c.seq)
				  FROM durable.checkpoint c WHERE c.run = x.id) || ']', ''), (SELECT s.state FROM durable.singleton s WHERE s.run = x.id), (SELECT 'counted' FROM durable.quota q WHERE q.run = x.id),
				(SELECT string_agg(w.token, ', ') FROM durable.waiter w WHERE w.run = x.id))
			  FROM durable.run x WHERE x.run_id LIKE r || '-%' OR x.run_id LIKE 'onerror:' || r || '-%'
			UNION ALL SELECT concat_ws(' ', '~', coalesce(run_id, task_id), kind, s.status, s.attempt, s.reclaims, s.output) FROM durable.task t, durable.task_status(coalesce(t.task_id, '~' || t.id)) s WHERE coalesce(run_id, task_id) LIKE '%' || r || '-%'
			UNION ALL SELECT concat_ws(' ', '~', task_id, status, output) FROM durable.task_result WHERE task_id LIKE r || '-%'
			UNION ALL SELECT concat_ws(' ', '~~', count(*), 'x', name) FROM ledger WHERE round = r GROUP BY name) x (line)) l (line)
	$$;

	-- whoever comes later ends everything
	CREATE PROCEDURE finish() LANGUAGE plpgsql AS $$
	DECLARE
		t record;
		found boolean;
		ok boolean;
	BEGIN
		PERFORM durable.signal('go');
		LOOP
			found := false;
			FOR t IN SELECT * FROM durable.claim('{w,frail,kid,lone,solo,mend,s}', 100, '1 h') LOOP
				found := true;
				ok := CASE t.kind WHEN 'turn' THEN durable.complete_turn(t.task_id, t.token, '{"status": "completed"}') ELSE durable.complete(t.task_id, t.token) END;
				IF NOT ok THEN
					RAISE EXCEPTION '% of % was not to be settled', t.kind, t.run_id;
				END IF;
			END LOOP;
			EXIT WHEN NOT found;
			COMMIT;
		END LOOP;
	END $$;
});

sub prepared
{
	my ($round) = @_;
	sql("CALL prepare('$round')");
	return sql("SELECT state('$round')");
}

# One round in peace tells what is to come of it.
my $before = prepared('peace');
my $results = sql(q{SELECT batch('peace')});
my $single = sql(q{SELECT single('peace')});
my $after = sql(q{SELECT state('peace')});
is($results, '21111111121221, takes again step, ask step, bad turn, bear.child.2 turn, kid.child.0 turn, onerror:fail:1 turn, plain turn, solo.child.0 turn, tell turn', 'everything is settled, four with the decision after the step, and the next tasks are taken');
is($single, '1, takes -', 'and the one');
my @done = ('after step', 'again step', 'ask turn', 'bad step', 'bear step', 'end turn', 'fail turn', 'job task', 'kid turn', 'off step', 'one turn',
	'plain step', 'retry step', 'solo turn', 'tell.child.0 turn');
is(join("\n", grep { /^~~/ } split /\n/, $after), join("\n", map { "~~ 1 x $_" } @done), 'with what the client has written');
is(() = $after =~ / counted$/gm, 3, 'three children are counted');

sub finish
{
	my ($name) = @_;
	# what was handed out in an answer that nobody has seen lapses
	$offset += 7200;
	sql("ALTER DATABASE postgres SET durable.clock_offset = $offset");
	sql('CALL finish()');
	return is(sql(q{SELECT run_id, status FROM durable.run WHERE finished_at IS NULL}), '', "$name: every run comes to its end");
}
finish('peace');

# What the client does once the server is back: the same again, with the answer that it gets.
sub again
{
	my ($round, $name, $batch, $single) = @_;
	is(sql("SELECT batch('$round')"), $batch, "$name: the same call again");
	is(sql("SELECT single('$round')"), $single, "$name: and the one");
	is(sql("SELECT state('$round')"), $after, "$name: all of it is done, once");
	return;
}

my $round = 'a';
for my $moment ('open', 'waiting for a run', 'waiting to count a start', 'unanswered')
{
	for my $way ('backend', 'immediate', 'power')
	{
		my $name = "$moment, $way";
		$round++;
		is(prepared($round), $before, "$name: all is in hand");
		my ($holder, $batch, $one) = map { DurableTest::Session->new($node) } 1 .. 3;
		$holder->query("BEGIN; SELECT durable.cancel('$round-tell.child.0')") if $moment eq 'waiting for a run';
		$holder->query("BEGIN; SELECT durable.start('kid', '{\"k\": \"all\"}', '$round-rival')") if $moment eq 'waiting to count a start';
		bring_to($node, $moment eq 'unanswered' ? 'unanswered' : 'open', $one, "SELECT single('$round')");
		bring_to($node, $moment =~ /^waiting/ ? 'halfway' : $moment, $batch, "SELECT batch('$round')");
		die_by($node, $way, $batch, $one, $holder);
		if ($moment eq 'unanswered')
		{
			is(sql("SELECT state('$round')"), $after, "$name: what was committed is there");
		}
		else
		{
			is(sql("SELECT state('$round')"), $before, "$name: nothing has happened");
			again($round, $name, $results, $single);
		}
		again($round, $name, '00000000000000, takes -', '0, takes -');
		finish($name);
	}
}
is(sql(q{SELECT name, count(*), count(DISTINCT round) FROM ledger GROUP BY 1 ORDER BY 1}), join("\n", map { "$_|13|13" } @done), 'what the client has written is there once for each round');
is(sql(q{SELECT status, count(*) FROM durable.run GROUP BY 1}), 'completed|' . 13 * 21, 'all runs have completed');
is(left_over($node), '0|0|0|0|0|0', 'nothing is left over');
is(sql('SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
is(damage($node), '', 'no table or index is damaged');
$node->stop;
done_testing();
