# With wal_level = logical and a publication of all tables, every write of the
# extension still works, and logical decoding can read what it wrote.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $node = durable_node('publisher', { init => { allows_streaming => 'logical' } }, 'max_connections = 20');
$node->safe_psql('postgres', q{
	CREATE ROLE worker LOGIN;
	CREATE PUBLICATION everything FOR ALL TABLES;
	SELECT pg_create_logical_replication_slot('slot', 'pgoutput');
});

# How many inserts, updates and deletes of a table have been decoded.
my %decoded;

sub decode
{
	my @rows = split /\n/, $node->safe_psql('postgres', q{
		SELECT encode(substr(data, 1, 5), 'hex')
		  FROM pg_logical_slot_get_binary_changes('slot', NULL, NULL,
			   'proto_version', '1', 'publication_names', 'everything')});
	my %names = map { split /\|/ } split /\n/, $node->safe_psql('postgres',
		q{SELECT oid::int, relname FROM pg_class WHERE relnamespace = 'durable'::regnamespace});
	for my $row (@rows)
	{
		my ($type, $oid) = (chr hex substr($row, 0, 2), hex substr($row, 2));
		$decoded{"$type $names{$oid}"}++ if $type =~ /[IUD]/ && $names{$oid};
	}
	return scalar @rows;
}

my %steps = (
	'01 dispatch' => [ "SELECT durable.dispatch('q', task_id => 'a')", 'a' ],
	'02 dispatch again' => [ "SELECT durable.dispatch('q', task_id => 'a')", 'a' ],
	'03 dispatch_many' => [ "SELECT count(*) FROM durable.dispatch_many('q', array_fill('1'::jsonb, '{20}'))", 20 ],
	'04 dispatch for later' => [ "SELECT durable.dispatch('q', task_id => 'later', run_at => durable.engine_now() + '1 day')", 'later' ],
	'05 a dispatch and a complete that are rolled back' => [
		"BEGIN; SELECT durable.dispatch('q', task_id => 'none'); SELECT count(durable.complete(task_id, token)) FROM durable.claim('{q}', 2); ROLLBACK",
		"none\n2" ],
	'06 claim' => [ "CREATE TABLE hand AS SELECT task_id, token FROM durable.claim('{q}', 10, '1 h'); SELECT count(*) FROM hand", 10 ],
	'07 complete' => [ "SELECT durable.complete('a', token) FROM hand WHERE task_id = 'a'", 't' ],
	'08 heartbeat' => [ "SELECT count(durable.heartbeat(task_id, token, '1')) FROM (SELECT * FROM hand LIMIT 2 OFFSET 1) h", 2 ],
	'09 heartbeat again' => [ "SET durable.heartbeat_interval = 0; SELECT count(durable.heartbeat(task_id, token, '2')) FROM (SELECT * FROM hand LIMIT 2 OFFSET 1) h", 2 ],
	'10 renew' => [ "SELECT durable.renew(token) FROM hand LIMIT 1", 9 ],
	'11 fail' => [ "SELECT durable.fail(task_id, token, '{\"message\": \"x\"}') FROM hand OFFSET 1 LIMIT 1", 't' ],
	'12 release' => [ "SELECT durable.release(token, ARRAY[task_id]) FROM hand OFFSET 2 LIMIT 1", 1 ],
	'13 complete_many' => [ "SELECT count(*) FROM durable.complete_many((SELECT token FROM hand LIMIT 1), ARRAY(SELECT task_id FROM hand OFFSET 3 LIMIT 3))", 3 ],
	'14 settle_and_claim' => [ "SELECT count(*) FROM (SELECT task_id, token FROM hand OFFSET 6 LIMIT 1) h, durable.settle_and_claim(h.task_id, h.token, NULL, '{q}')", 1 ],
	'15 cancel' => [ "SELECT count(*) FROM hand h, durable.cancel_task(h.task_id) c WHERE c", 4 ],
	'16 release all' => [ "SELECT durable.release(token) FROM hand LIMIT 1", 0 ],
	'17 a day later, sweep' => [ "SET durable.clock_offset = 90000; SELECT durable.sweep() ->> 'promoted'", 1 ],
	'18 takeover' => [ "SET durable.clock_offset = 90000; SELECT count(*) FROM durable.claim('{q}', 100)", 12 ],
	'19 pause' => [ "SELECT durable.pause_queue('q')", 't' ],
	'20 resume' => [ "SELECT durable.resume_queue('q')", 't' ],
	'21 grant' => [ "SELECT durable.grant_usage('worker'); SELECT durable.grant_usage('worker', privileges => '{manage}')", "\n" ],
	'22 revoke' => [ "SELECT durable.revoke_usage('worker', privileges => '{read}'); SELECT durable.revoke_usage('worker')", "\n" ],
	'23 claim_results' => [ "CREATE TABLE results AS SELECT token, task_id FROM durable.claim_results('{q}', 5); SELECT count(*) FROM results", 5 ],
	'24 ack_results' => [ "SELECT durable.ack_results(token, ARRAY[task_id]) FROM results LIMIT 1", 1 ],
	'25 ack the rest' => [ "SELECT durable.ack_results(token) FROM results LIMIT 1", 4 ],
	'26 claim the other results' => [ "SELECT count(*) FROM durable.claim_results('{q}', 5, '1 s')", 5 ],
	'27 expiry' => [ "SET durable.clock_offset = 31536000; SELECT durable.sweep() ->> 'results_expired' > '0'", 't' ],
	'28 activate' => [ "UPDATE durable.identity SET system_identifier = 1; SELECT durable.activate() >= 0", 't' ]);
for my $step (sort keys %steps)
{
	my ($status, $out, $err) = $node->psql('postgres', $steps{$step}->[0], on_error_stop => 1);
	is($err, '', "$step: no error");
	is($out, $steps{$step}->[1], "$step: the result");
	ok(defined decode(), "$step: decoded");
}
note "$_: $decoded{$_}" for sort keys %decoded;

# 22 tasks stored, and what was rolled back is not seen. Each comes and goes.
is($decoded{'I task'}, 22, 'the insert of every task is decoded');
cmp_ok($decoded{'D task'}, '>', 0, 'deletes of tasks are decoded');
cmp_ok($decoded{'U task'}, '>', 0, 'updates of tasks are decoded');
cmp_ok($decoded{'D task_ready'}, '>=', 22, 'deletes of ready rows are decoded');
is($decoded{'D task_delayed'}, 1, 'so is the promotion of a delayed task');
cmp_ok($decoded{'U lease'}, '>', 0, 'updates of leases are decoded');
cmp_ok($decoded{'D lease'}, '>', 0, 'deletes of leases are decoded');

$node->stop;
done_testing();
