# Each time one executor more is needed than there are idle ones. It is started at once, and
# not only when the scheduler looks anyway, which is every five seconds.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);

use DurableTest;

my $MOST = 9;

my $node = durable_node('fill', { background => 1 }, 'max_worker_processes = 24', "durable.workers = $MOST");
$node->safe_psql('postgres', q{
	CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock_shared(1);
		RETURN i;
	END $$;
	CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('act', i); END $$;
	SELECT durable.register_workflow('w', 'body')});

my $gate = DurableTest::Session->new($node);
my @took;
for my $n (1 .. $MOST)
{
	$gate->query('SELECT pg_advisory_lock(1)');
	my $begin = time;
	$node->safe_psql('postgres', "SELECT durable.start_many('w', array_fill('1'::jsonb, '{$n}'))");
	ok($node->poll_query_until('postgres', "SELECT count(*) = $n FROM durable.workers() WHERE kind = 'executor' AND state = 'busy'"), "$n are busy");
	push @took, time - $begin;
	$gate->query('SELECT pg_advisory_unlock(1)');
	ok($node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM durable.run WHERE finished_at IS NULL)
		AND NOT EXISTS (SELECT FROM durable.workers() WHERE kind = 'executor' AND state <> 'idle')}), 'and then idle');
}
# a machine that is very busy has its moments
my $late = grep { $_ > 4 } @took;
cmp_ok($late, '<=', 3, "the one that is missing is started at once, and not $late times of $MOST late")
  or diag join ' ', map { sprintf '%.1f s', $_ } @took;

$gate->quit;
$node->stop;
done_testing();
