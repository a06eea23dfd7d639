# External workflows beside background workers: nobody but a client takes their turns,
# and what becomes due for them is looked after with no client there.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $node = durable_node('ext_background', { background => 1 }, 'max_worker_processes = 20');

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub poll { return $node->poll_query_until('postgres', $_[0]); }

sql(q{
	CREATE ROLE outside LOGIN;
	CREATE ROLE inside LOGIN;
	SELECT durable.grant_usage('outside', privileges => '{start,work,read}'), durable.grant_usage('inside', privileges => '{start,work,read}');
	CREATE SCHEMA app;
	GRANT USAGE, CREATE ON SCHEMA app TO inside;
	-- one turn of the queue w; the position of a command is in it
	CREATE FUNCTION turn(decision jsonb) RETURNS SETOF text LANGUAGE sql AS $$
		SELECT run_id || ' ' || durable.complete_turn(task_id, token, decision) FROM durable.claim('{w}')
	$$;
	SET SESSION AUTHORIZATION outside;
	SELECT durable.register_workflow('w');
	SET SESSION AUTHORIZATION inside;
	CREATE FUNCTION app.serve(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(session_user) $$;
	CREATE FUNCTION app.body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.step('serve'); END $$;
	SELECT durable.register_handler('serve', 'app.serve'), durable.register_workflow('sql', 'app.body')});

# a turn is for clients; its step is executed by the handler's owner
sql(q{SELECT durable.start('w', NULL, 'r1')});
sql(q{SELECT durable.start('sql', NULL, 'sql1')});
ok(poll(q{SELECT status = 'completed' FROM durable.get_run('sql1')}), 'what runs in the database is executed');
is(sql(q{SELECT status, turn_state FROM durable.run WHERE run_id = 'r1'}), 'pending|ready', 'the external run waits for its worker');
is(sql(q{SELECT turn('{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "serve"}]}')}), 'r1 true', 'a client has the turn');
ok(poll(q{SELECT turn_state = 'ready' FROM durable.run WHERE run_id = 'r1'}), 'its step is executed');
is(sql(q{SELECT output FROM durable.history('r1')}), '"inside"', 'by the owner of the handler');
is(sql(q{SELECT string_agg(DISTINCT role::text, ',') FROM durable.workers() WHERE kind = 'executor'}), 'inside',
	'a role that has external workflows only has no executor');

# timers
is(sql(q{SELECT turn('{"status": "continue", "commands": [{"type": "sleep", "seq": 1, "ms": 50}]}')}), 'r1 true', 'it sleeps');
ok(poll(q{SELECT count(*) = 1 FROM durable.task_ready WHERE queue = 'w'}), 'and its turn is ready in time, though nobody asks for it');

# a time limit that is over
is(sql(q{SELECT turn('{"status": "continue", "commands": [{"type": "call", "seq": 2, "name": "nobody", "pickup_timeout_ms": 50}]}')}),
	'r1 true', 'it asks for a step that nobody serves');
ok(poll(q{SELECT count(*) = 1 FROM durable.task_ready WHERE queue = 'w'}), 'and is told that nobody took it');
is(sql(q{SELECT error ->> 'code' FROM durable.history('r1') WHERE seq = 2}), 'WF008', 'by the time limit');

# a worker that dies
my $claim = q{SELECT task_id || ' ' || token FROM durable.claim('{w}', lease => '50 ms')};
my ($task, $token) = split / /, sql($claim);
ok(poll(q{SELECT recovery_attempts = 1 FROM durable.run WHERE run_id = 'r1'}), 'a turn that lapses is taken over');
is(sql(qq{SELECT durable.complete_turn('$task', '$token', '{"status": "completed"}')}), 'f', 'the old claim is void');

# requeued, while another claim of it is out
($task, $token) = split / /, sql(q{SELECT task_id || ' ' || token FROM durable.claim('{w}')});
is(sql(q{SELECT durable.requeue('r1')}), 'pending', 'requeued');
is(sql(qq{SELECT durable.complete_turn('$task', '$token', '{"status": "completed"}')}), 'f', 'that claim is void, too');
is(sql(q{SELECT turn('{"status": "completed", "output": 1}')}), 'r1 true', 'there is another turn');
is(sql(q{SELECT durable.result('r1')}), '1', 'which ends it');
is(sql(q{SELECT count(*) FROM durable.task}), '0', 'nothing is left');

done_testing();
