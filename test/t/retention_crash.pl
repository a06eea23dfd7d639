# Retention under kill -9: sessions sweep and call archive functions while the server
# dies. Each run is there with its history, or gone; each that is gone was archived once.
# Then by background workers: the archive function runs as its owner, and what fails in
# retention is not the end of the scheduler.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DurableTest;

my $node = durable_node('main');
$node->safe_psql('postgres', q{
	CREATE ROLE keeper LOGIN;
	SELECT durable.grant_usage('keeper', privileges => '{start,work,read,manage}');
	CREATE TABLE kept (run_id text PRIMARY KEY, steps int, children int, who text);
	GRANT INSERT ON kept TO keeper;
	GRANT CREATE ON SCHEMA public TO keeper;
	-- what was started, written with the start
	CREATE TABLE started (run_id text PRIMARY KEY);
	SET ROLE keeper;
	CREATE FUNCTION keep(doc jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.kept VALUES (doc #>> '{run,run_id}', jsonb_array_length(doc -> 'history'), jsonb_array_length(doc -> 'children'), session_user);
		RETURN NULL;
	END $$;
	CREATE FUNCTION step(i jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT i';
	CREATE FUNCTION plain(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.local_step('step', i);
		RETURN durable.local_step('step', i);
	END $$;
	CREATE FUNCTION family(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.child('plain', i, 'child of ' || durable.run_id()); END $$;
	SELECT durable.register_workflow('plain', 'plain'), durable.register_workflow('family', 'family'), durable.register_workflow('unkept', 'family');
	SELECT durable.set_retention('{completed}', max_age => '0', workflow => 'plain', archive => 'keep(jsonb)'),
		durable.set_retention('{completed}', max_age => '0', workflow => 'family', archive => 'keep(jsonb)'),
		durable.set_retention('{completed}', max_count => 5, workflow => 'unkept');
	RESET ROLE;
	CREATE PROCEDURE sweep_on() LANGUAGE plpgsql AS $$ BEGIN LOOP PERFORM durable.sweep(); COMMIT; END LOOP; END $$;
	CREATE PROCEDURE start_on(mark text) LANGUAGE plpgsql AS $$
	BEGIN
		FOR n IN 1 .. 100000 LOOP
			INSERT INTO started SELECT durable.start(w, to_jsonb(n), concat_ws('-', mark, w, n)) FROM unnest('{plain,family,unkept}'::text[]) w;
			COMMIT;
			-- no more than the others can do
			WHILE (SELECT count(*) FROM durable.run) > 200 LOOP
				COMMIT;
				PERFORM pg_sleep(0.01);
			END LOOP;
		END LOOP;
	END $$;
	-- what is wrong with what is there
	CREATE VIEW wrong AS
	SELECT 'lost' AS what, s.run_id FROM started s WHERE s.run_id !~ 'unkept'
	   AND NOT EXISTS (SELECT FROM durable.run r WHERE r.run_id = s.run_id) AND NOT EXISTS (SELECT FROM kept k WHERE k.run_id = s.run_id)
	UNION ALL SELECT 'archived and there', r.run_id FROM durable.run r JOIN kept k USING (run_id)
	UNION ALL SELECT 'archived, never started', k.run_id FROM kept k WHERE NOT EXISTS (SELECT FROM started s WHERE s.run_id = k.run_id)
	UNION ALL SELECT 'archived in part', k.run_id FROM kept k WHERE (k.steps, k.children) <> (CASE WHEN k.run_id ~ 'family' THEN 1 ELSE 2 END, CASE WHEN k.run_id ~ 'family' THEN 1 ELSE 0 END)
	UNION ALL SELECT 'not by its owner', k.run_id FROM kept k WHERE k.who <> 'keeper'
	UNION ALL SELECT 'deleted in part', r.run_id FROM durable.run r WHERE r.status = 'completed' AND r.workflow = 'plain' AND (SELECT count(*) FROM durable.checkpoint c WHERE c.run = r.id) <> 2
	UNION ALL SELECT 'without its child', r.run_id FROM durable.run r WHERE r.status = 'completed' AND r.workflow <> 'plain' AND NOT EXISTS (SELECT FROM durable.run c WHERE c.parent = r.id)
	UNION ALL SELECT 'without its parent', r.run_id FROM durable.run r WHERE r.parent IS NOT NULL AND NOT EXISTS (SELECT FROM durable.run p WHERE p.id = r.parent)
	UNION ALL SELECT 'checkpoint without a run', c.run::text FROM durable.checkpoint c WHERE NOT EXISTS (SELECT FROM durable.run r WHERE r.id = c.run)
	UNION ALL SELECT 'never looked at again', r.run_id FROM durable.run r WHERE r.finished_at IS NOT NULL AND r.parent IS NULL
	   AND NOT EXISTS (SELECT FROM durable.retention_due d WHERE d.run = r.id) AND NOT EXISTS (SELECT FROM durable.retention_member m WHERE m.run = r.id)
	   AND NOT EXISTS (SELECT FROM durable.retention_archive a WHERE a.run = r.id)
	   AND NOT EXISTS (SELECT FROM durable.retention_state s WHERE s.scanned < s.scan_to);
});

my $rounds = 5;
for my $round (1 .. $rounds)
{
	my $count = 'SELECT count(*) FROM kept';
	my $before = $node->safe_psql('postgres', $count);
	my @sessions = map { DurableTest::Session->new($node) } 1 .. 3;
	my @workers = map { DurableTest::Session->new($node, user => 'keeper') } 1 .. 2;
	$sessions[0]->send("CALL start_on('$round')");
	$_->send('CALL sweep_on()') for @sessions[ 1, 2 ];
	$_->send(q{CALL durable.work(duration => '1 h')}) for @workers;
	wait_for(sub { $node->safe_psql('postgres', $count) > $before + 50 }, 'runs to be archived');
	crash($node);
	$node->start;
	$_->quit for @sessions, @workers;
	is($node->safe_psql('postgres', 'SELECT what, count(*), min(run_id) FROM wrong GROUP BY what'), '', "crash $round: every run is there or was archived once, whole");
}
is(damage($node), '', 'tables and indexes are in order');

# what was left goes; what was being archived in a crash is tried again after a while
$node->append_conf('postgresql.conf', "durable.clock_offset = '1 h'");
$node->reload;
my $worker = DurableTest::Session->new($node, user => 'keeper');
wait_for(
	sub {
		$node->safe_psql('postgres', 'SELECT durable.sweep() FROM generate_series(1, 5)');
		$worker->query(q{CALL durable.work(duration => '0')});
		$node->safe_psql('postgres', q{SELECT (SELECT count(*) FROM durable.run WHERE workflow <> 'unkept' AND parent IS NULL) = 0
			AND (SELECT count(*) FROM durable.run WHERE workflow = 'unkept') = 5}) eq 't';
	},
	'everything to be archived');
is($node->safe_psql('postgres', 'SELECT what, count(*) FROM wrong GROUP BY what'), '', 'nothing was lost');
is($node->safe_psql('postgres', q{SELECT count(*) FROM started s WHERE s.run_id !~ 'unkept' AND NOT EXISTS (SELECT FROM kept k WHERE k.run_id = s.run_id)}),
	0, 'each run that was started has been archived');
is($node->safe_psql('postgres', q{SELECT sum(waiting) || ' ' || sum(failing) FROM durable.retention}), '0 0', 'none waits any more');
$worker->quit;

# by background workers; a foreign key of somebody's makes a deletion fail
$node->safe_psql('postgres', q{
	SELECT durable.drop_retention(id) FROM durable.retention;
	SELECT durable.sweep() FROM generate_series(1, 20);
	SET ROLE keeper;
	SELECT durable.set_retention('{completed}', max_age => '0', archive => 'keep(jsonb)');
	SELECT count(durable.start('plain', run_id => 'b' || n)) FROM generate_series(1, 20) n;
	CALL durable.work(duration => '0');
	RESET ROLE;
});
$node->append_conf('postgresql.conf', 'durable.background = on');
$node->reload;
wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM kept WHERE run_id ~ '^b'}) == 20 }, 'the background workers to archive');
pass('background workers archive and delete');
is($node->safe_psql('postgres', q{SELECT count(*) FROM durable.run WHERE run_id ~ '^b'}), 0, 'the runs are gone');
$node->append_conf('postgresql.conf', 'durable.background = off');
$node->reload;
wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^durable (scheduler|executor)'}) == 0 }, 'the workers to leave');
$node->safe_psql('postgres', q{
	SELECT durable.drop_retention(id) FROM durable.retention;
	SELECT durable.sweep() FROM generate_series(1, 20);
	SET ROLE keeper;
	SELECT durable.set_retention('{completed}', max_age => '0');
	SELECT durable.start('plain', run_id => 'held');
	CALL durable.work(duration => '0');
	RESET ROLE;
	CREATE TABLE holds (run bigint REFERENCES durable.run);
	INSERT INTO holds SELECT id FROM durable.run WHERE run_id = 'held';
	SET ROLE keeper;
	SELECT durable.start('plain', run_id => 'timed', start_at => clock_timestamp() + interval '1 s');
});
my $log = -s $node->logfile;
$node->append_conf('postgresql.conf', 'durable.background = on');
$node->reload;
wait_for(sub { slurp_file($node->logfile, $log) =~ /part of its work: retention.*?foreign key/s }, 'the failure to be logged');
pass('the failure is logged');
my ($scheduler) = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'durable scheduler'});
wait_for(sub { $node->safe_psql('postgres', q{SELECT status FROM durable.run WHERE run_id = 'timed'}) eq 'completed' }, 'the delayed run to end');
is($node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'durable scheduler'}), $scheduler, 'the same scheduler goes on');
is($node->safe_psql('postgres', q{SELECT count(*) FROM durable.run WHERE run_id = 'held'}), 1, 'the run is kept');

$node->stop;
done_testing();
