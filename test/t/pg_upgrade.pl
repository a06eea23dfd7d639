# pg_upgrade (here from a version to itself) carries everything along, claims in
# hand too. The new cluster has another system identifier: it is a copy, which hands
# out work after activate().

use strict;
use warnings;

use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;

use DurableTest;

my $old = durable_node('old');
$old->safe_psql('postgres', q{
	CREATE ROLE worker LOGIN;
	SELECT durable.grant_usage('worker');
	SELECT durable.dispatch('q', '{"n": 1}', task_id => 'ready', priority => 3);
	SELECT durable.dispatch('q', task_id => 'later', run_at => '2100-01-01');
	SELECT durable.dispatch('done', task_id => 'done');
	SELECT durable.complete(task_id, token, '{"ok": true}') FROM durable.claim('{done}');
	SELECT durable.dispatch('hand', '{"n": 2}', task_id => 'claimed');
	SET durable.async_claim = off;
	CREATE TABLE hand AS SELECT task_id, token FROM durable.claim('{hand}', 1, '1 h');
	SELECT count(durable.heartbeat(task_id, token, '{"percent": 50}')) FROM hand;
});
my $token = $old->safe_psql('postgres', 'SELECT token FROM hand');
$old->stop;

my $new = durable_node('new', { start => 0 });
my $dir = PostgreSQL::Test::Utils::tempdir();
my $bin = $new->config_data('--bindir');
{
	# pg_upgrade writes to the current folder
	my $here = POSIX::getcwd();
	chdir $dir or die $!;
	command_ok(
		[ 'pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $bin, '-B', $bin,
			'-s', $new->host, '-p', $old->port, '-P', $new->port ],
		'pg_upgrade');
	chdir $here or die $!;
}
$new->start;
is($new->safe_psql('postgres', "SELECT string_agg(t || ' ' || status, ', ') FROM unnest('{ready,later,done,claimed}'::text[]) t, durable.task_status(t)"),
	'ready ready, later delayed, done completed, claimed claimed', 'every task is where it was');
is($new->safe_psql('postgres', "SELECT progress FROM durable.task_status('claimed')"), '{"percent": 50}', 'with its progress');
is($new->safe_psql('postgres', 'SELECT token FROM durable.lease'), $token, 'and its lease');
is(sqlstate($new, "SELECT * FROM durable.claim('{q}')"), '55000', 'no work is handed out yet');
is($new->safe_psql('postgres', "SELECT durable.renew('$token')"), 1, 'the claim in hand holds');
is($new->safe_psql('postgres', "SELECT durable.complete('claimed', '$token', '1')"), 't', 'and can be settled');
is($new->safe_psql('postgres', 'SELECT durable.activate()'), 0, 'activate');
is($new->safe_psql('postgres', "SELECT task_id, input FROM durable.claim('{q,hand}', 10)", extra_params => [ '-U', 'worker' ]),
	'ready|{"n": 1}', 'then work is handed out, to who had the right');
is(substr($new->safe_psql('postgres', "SELECT durable.dispatch('q')"), 0, 1), '~', 'new tasks get new ids');

$new->stop;
done_testing();
