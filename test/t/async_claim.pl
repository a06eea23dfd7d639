# A claim that is alone in its transaction does not wait for the disk, and
# nothing else gets away with that. What a crash can do to such a claim.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $ROUNDS = 12;
my @conf = (
	'wal_writer_delay = 10s', 'autovacuum = off', 'checkpoint_timeout = 1h', 'bgwriter_lru_maxpages = 0');

my $node = durable_node('async', {}, @conf);

# flushed(SESSION, STATEMENT...): in how many of ROUNDS transactions the WAL that
# the statements wrote was on disk as soon as the transaction had committed. The
# WAL writer may flush too, but not every time. Each transaction has to have
# written something, or its commit proves nothing.
sub flushed
{
	my ($session, @statements) = @_;
	my $count = 0;
	for (1 .. $ROUNDS)
	{
		$session->query('BEGIN');
		$session->query($_) for @statements;
		die "nothing was written: @statements" if $session->query('SELECT pg_current_xact_id_if_assigned()') eq '';
		my $written = $session->query('SELECT pg_current_wal_insert_lsn()');
		$session->query('COMMIT');
		$count++ if $session->query("SELECT pg_current_wal_flush_lsn() >= '$written'") eq 't';
	}
	return $count;
}

sub is_asynchronous
{
	my ($what, $session, @statements) = @_;
	cmp_ok(flushed($session, @statements), '<=', $ROUNDS / 2, "$what: does not wait for the disk");
	return;
}

sub is_synchronous
{
	my ($what, $session, @statements) = @_;
	is(flushed($session, @statements), $ROUNDS, "$what: waits for the disk");
	return;
}

sub session
{
	my ($server, @settings) = @_;
	my $session = DurableTest::Session->new($server);
	$session->query($_) for @settings;
	return $session;
}

# Tasks to claim, and claims to settle: the table hand. (The argument that depends on
# the row makes each row a claim of its own.)
sub fill
{
	my ($server) = @_;
	$server->safe_psql('postgres', q{
		CREATE TABLE IF NOT EXISTS ledger (what text);
		CREATE SEQUENCE IF NOT EXISTS numbers;
		CREATE TABLE IF NOT EXISTS hand (task_id text, token uuid);
		SELECT count(durable.dispatch('q')) FROM generate_series(1, 500);
		INSERT INTO hand SELECT c.task_id, c.token
		  FROM generate_series(1, 100) n, LATERAL durable.claim('{q}', least(n, 1), '1 h') c;
	});
	return;
}

my $claim = "SELECT count(*) FROM durable.claim('{q}', 1, '1 h')";
my $with_hand = 'WITH h AS (DELETE FROM hand WHERE ctid = (SELECT min(ctid) FROM hand) RETURNING task_id, token) SELECT count(%s) FROM h';

fill($node);
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT task_id), count(DISTINCT token) FROM hand'),
	'100|100|100', 'there are claims to settle');
my $session = session($node);
is_asynchronous('a claim', $session, $claim);
is_asynchronous('two claims', $session, $claim, $claim);
is_asynchronous('a claim of many', $session, "SELECT count(*) FROM durable.claim('{q}', 3, '1 h')");
is_asynchronous('a claim in a subtransaction', $session, 'SAVEPOINT s', $claim, 'RELEASE s');
is_asynchronous('a claim by settle_and_claim', $session,
	"SELECT count(*) FROM durable.settle_and_claim(NULL, NULL, NULL, '{q}', 1, '1 h')");
is_asynchronous('a claim by wait_and_claim', $session, "CALL durable.wait_and_claim('{q}', 1, '1 h')");
is($session->query('SHOW synchronous_commit'), 'on', 'the session is as before');
is_synchronous('settle_and_claim', $session, sprintf($with_hand, '*')
		. ", durable.settle_and_claim(h.task_id, h.token, NULL, '{q}', 1, '1 h') c");
is_synchronous('a write of the session itself', $session, "INSERT INTO ledger VALUES ('alone')");

is_synchronous('a claim after another write', $session, "INSERT INTO ledger VALUES ('before')", $claim);
is_synchronous('a claim before another write', $session, $claim, "INSERT INTO ledger VALUES ('after')");
is_synchronous('a claim around another write', $session, $claim, "INSERT INTO ledger VALUES ('between')", $claim);
is_synchronous('a claim and a sequence', $session, $claim, "SELECT setval('numbers', 1)");
is_synchronous('a claim and a row lock', $session, $claim, 'SELECT count(*) FROM (SELECT FROM ledger LIMIT 1 FOR UPDATE) l');
is_synchronous('a claim and a WAL message', $session, $claim, "SELECT pg_logical_emit_message(true, 'x', 'y')");
is_synchronous('a claim and a dispatch', $session, $claim, "SELECT durable.dispatch('other')");
is_synchronous('a claim and a table', $session, $claim, 'CREATE TABLE t (x int)', 'DROP TABLE t');
is_synchronous('a claim settled at once', $session,
	"SELECT count(durable.complete(task_id, token)) FROM durable.claim('{q}', 1, '1 h')");
is_synchronous('dispatch', $session, "SELECT durable.dispatch('other')");
is_synchronous('settling', $session, sprintf($with_hand, 'durable.complete(task_id, token)'));
is_synchronous('renewing', $session, 'SELECT durable.renew(token) FROM hand LIMIT 1');

$session->query('SET durable.async_claim = off');
is_synchronous('a claim with durable.async_claim = off', $session, $claim);
$session->query('RESET durable.async_claim; SET synchronous_commit = off');
is_asynchronous('a claim with synchronous_commit = off', $session, $claim);
is($session->query('SHOW synchronous_commit'), 'off', 'which stays as it was');
$session->query('RESET synchronous_commit');

# A trigger of the user's writes in the claiming transaction.
$node->safe_psql('postgres', q{
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.ledger VALUES ('deferred'); RETURN NULL; END $$;
	CREATE TABLE deferring (x int);
	CREATE CONSTRAINT TRIGGER note AFTER INSERT ON deferring DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION note();
});
is_synchronous('a claim and a deferred trigger', $session, $claim, 'INSERT INTO deferring VALUES (1)');
$session->quit;

# What the crash takes. The WAL writer may be faster once, not five times.
my $lost;
for (1 .. 5)
{
	$node->restart;
	my $id = $node->safe_psql('postgres', "SELECT durable.dispatch('lose')");
	my ($got, $token) = split /\|/, $node->safe_psql('postgres',
		"SELECT task_id, token FROM durable.claim('{lose}', 1, '1 h')");
	is($got, $id, 'claimed');
	crash($node);
	$node->start;
	my $status = $node->safe_psql('postgres', "SELECT status, attempt, reclaims FROM durable.task_status('$id')");
	$lost = ($status ne 'claimed|1|0');
	if (!$lost)
	{
		is($node->safe_psql('postgres', "SELECT durable.complete('$id', '$token')"), 't', 'not lost: the token holds');
		next;
	}
	is($status, 'ready|1|0', 'a claim that the crash took leaves its task ready and uncounted');
	is($node->safe_psql('postgres', "SELECT durable.complete('$id', '$token')"), 'f', 'its token is refused');
	is($node->safe_psql('postgres', "SELECT durable.heartbeat('$id', '$token')"), 'f', 'its heartbeat too');
	is($node->safe_psql('postgres', "SELECT durable.release('$token')"), 0, 'it has nothing to release');
	is($node->safe_psql('postgres', "SELECT task_id, attempt, reclaims FROM durable.claim('{lose}', 1, '1 h')"),
		"$id|1|0", 'another one claims it');
	last;
}
ok($lost, 'a crash took a claim');

# After an unclean start, for durable.careful_period, each claim is flushed.
$session = session($node);
is_synchronous('after a crash: a claim', $session, $claim);
$session->query('SET durable.careful_period = 0');
is_asynchronous('after a crash, past durable.careful_period: a claim', $session, $claim);
$session->quit;
$node->safe_psql('postgres', "SELECT durable.dispatch('keep')");
my ($id, $token) = split /\|/, $node->safe_psql('postgres', "SELECT task_id, token FROM durable.claim('{keep}', 1, '1 h')");
crash($node);
$node->start;
is($node->safe_psql('postgres', "SELECT durable.complete('$id', '$token')"), 't',
	'a claim made after a crash survives the next one');

$node->stop('immediate');
$node->start;
$session = session($node);
is_synchronous('after an immediate shutdown: a claim', $session, $claim);
my $log = -s $node->logfile;
kill 'KILL', $session->pid;
$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log);
$session->quit;
ok(server_is_back($node), 'the server restarts after a killed backend');
$session = session($node);
is_synchronous('after that: a claim', $session, $claim);
$session->quit;
$node->restart;
fill($node);
$session = session($node);
is_asynchronous('after a clean restart: a claim', $session, $claim);
$session->quit;
$node->stop;

# Without preload nobody knows how the server started.
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->start;
fill($node);
$session = session($node);
is_synchronous('without preload: a claim', $session, $claim);
$session->quit;

$node->stop;
done_testing();
