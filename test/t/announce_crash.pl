# The server dies between the announcement of a worker and what it has to wake: blocked runs
# go on by themselves when it is back. Those that an announcement leaves to their timers,
# because they are too many or somebody holds them, are left to them after a crash, too.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $RUNS = 520;    # an announcement wakes 500
my $node = durable_node('announce', { background => 1, unanswered => 1 }, "durable.blocked_poll = '1h'", 'durable.workers = 2');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub announce { return "SELECT durable.announce_worker('$_[0]', '{render}', capabilities => '{$_[1]}', ttl => '1 h') ->> 'outcome'"; }

sub blocked { return sql(q{SELECT count(*) || ' ' || (SELECT count(*) FROM durable.run_blocked) FROM durable.run WHERE status = 'blocked'}); }
sub out { return sql(q{SELECT count(*) FROM durable.task WHERE kind = 'step'}); }

sub is_soon
{
	my ($code, $expected, $name) = @_;
	eval { wait_for(sub { $code->() eq $expected }, $name) };
	return is($code->(), $expected, $name);
}

sql(q{
	CREATE FUNCTION film(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.step('render', i, requires => '{gpu}'); END $$;
	SELECT durable.register_workflow('film', 'film');
});
sql(announce('cpu', 'x'));
sql("SELECT count(*) FROM durable.start_many('film', array_fill('1'::jsonb, '{$RUNS}'), (SELECT array_agg('f' || i) FROM generate_series(1, $RUNS) i))");
is_soon(\&blocked, "$RUNS $RUNS", 'nobody can render');

# not committed: nobody has been there
my $gpu = DurableTest::Session->new($node);
bring_to($node, 'open', $gpu, announce('gpu', 'gpu'));
die_by($node, 'immediate', $gpu);
is(blocked(), "$RUNS $RUNS", 'an announcement that has not committed: all are blocked still');
is(sql(q{SELECT string_agg(worker, ' ' ORDER BY worker) FROM durable.workers WHERE kind = 'external' AND live}), 'cpu', 'and only the other one is there');

# committed, and the server dies before it tells anybody, and those who were to be woken
my $holder = DurableTest::Session->new($node);
$holder->query(q{BEGIN; SELECT durable.cancel('f7')});
$gpu = DurableTest::Session->new($node);
bring_to($node, 'unanswered', $gpu, announce('gpu', 'gpu'));
die_by($node, 'power', $gpu, $holder);
is(sql(q{SELECT string_agg(worker, ' ' ORDER BY worker) FROM durable.workers WHERE kind = 'external' AND live}), 'cpu gpu', 'an announcement that has committed: the worker is there');
is_soon(\&out, 499, 'and 500 runs go on by themselves, but for the one that was held');
is_soon(\&blocked, '21 21', 'the others are left to their timers');
is(sql(q{SELECT status FROM durable.run WHERE run_id = 'f7'}), 'blocked', 'so is the one that was held, whose cancel is undone');
$node->append_conf('postgresql.conf', "durable.clock_offset = '61min'");
crash($node);
$node->start;
sql(announce('gpu', 'gpu'));
is_soon(\&out, $RUNS, 'which bring them on, also after another crash');
is_soon(\&blocked, '0 0', 'nothing is blocked any more');
is(sql(q{SELECT count(*), count(DISTINCT run_id) FROM durable.task WHERE kind = 'step'}), "$RUNS|$RUNS", 'each has one step out');

# gone, with nobody told
sql(announce('cpu', 'x'));
bring_to($node, 'open', $gpu = DurableTest::Session->new($node), q{SELECT durable.withdraw_worker('gpu')});
die_by($node, 'backend', $gpu);
sql(q{SELECT durable.start('film', '2', 'there')});
is_soon(\&out, $RUNS + 1, 'one that has not withdrawn for good is there');
bring_to($node, 'unanswered', $gpu = DurableTest::Session->new($node), q{SELECT durable.withdraw_worker('gpu')});
die_by($node, 'backend', $gpu);
sql(q{SELECT durable.start('film', '3', 'gone')});
is_soon(\&blocked, '1 1', 'one that has is not');
is(sql(announce('gpu', 'gpu')), 'degraded', 'it comes again');
is_soon(\&out, $RUNS + 2, 'and what was blocked goes on');
is(damage($node), '', 'no table or index is damaged');
$node->stop;
done_testing();
