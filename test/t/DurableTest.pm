# What the TAP tests share: a server with the extension, a crash that spares no
# process, SQLSTATEs, and psql sessions that can be left hanging.

package DurableTest;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(durable_node crash crash_in_body kill9_backend bring_to die_by pgbench_scripts damage left_over is_undisturbed sqlstate
	pid_state wait_for server_is_back);

my @CONF = (
	'log_statement = none',
	'log_min_messages = info',
	'max_connections = 60',
	'max_prepared_transactions = 10',
	'autovacuum_naptime = 1',
	'restart_after_crash = on',
	"timezone = 'UTC'");

# durable_node(NAME, { preload => 0, start => 0, background => 1, unanswered => 1, init => {...} },
# CONF LINE...): a running server with the extension in the database postgres. Its
# background workers do nothing, unless asked for. unanswered: see bring_to().
sub durable_node
{
	my ($name, $options, @conf) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init($options->{unanswered} ? (allows_streaming => 1) : (), %{ $options->{init} // {} });
	unshift @conf, "synchronous_standby_names = 'nobody'", 'synchronous_commit = local' if $options->{unanswered};
	unshift @conf, "shared_preload_libraries = 'durable'" if $options->{preload} // 1;
	unshift @conf, 'durable.background = off' unless $options->{background};
	$node->append_conf('postgresql.conf', join("\n", @CONF, @conf));
	return $node unless $options->{start} // 1;
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION durable');
	return $node;
}

# The state letter of a process, or '' when it is gone.
sub pid_state
{
	my ($pid) = @_;
	open my $in, '<', "/proc/$pid/stat" or return '';
	my $line = <$in> // '';
	close $in;
	return $line =~ /^\d+ \(.*\) (\S)/s ? $1 : '';
}

sub children
{
	my ($parent) = @_;
	my @pids;
	for my $stat (glob '/proc/[0-9]*/stat')
	{
		open my $in, '<', $stat or next;
		my $line = <$in> // '';
		close $in;
		push @pids, $1 if $line =~ /^(\d+) \(.*\) \S (\d+)/s && $2 == $parent;
	}
	return @pids;
}

# wait_for(CODE, WHAT): poll until CODE returns true. The bound is only a net.
sub wait_for
{
	my ($code, $what) = @_;
	my $end = Time::HiRes::time() + $PostgreSQL::Test::Utils::timeout_default;
	while (Time::HiRes::time() < $end)
	{
		my $result = $code->();
		return $result if $result;
		usleep(10_000);
	}
	die "timed out waiting for $what";
}

# server_is_back(NODE): waits until it lets somebody in (again). One that is turned away is gone
# before it has read what it was to ask, which is no error here as it is in poll_query_until().
sub server_is_back
{
	my ($node) = @_;
	return wait_for(sub {
		my $result = eval { $node->psql('postgres', 'SELECT true', stdout => \my $out, stderr => \my $err) };
		return defined $result && $result == 0;
	}, 'the server to come back');
}

# crash(NODE): SIGKILL to the postmaster and all its processes, as if the
# machine had lost its power (except that what was written to files stays).
sub crash
{
	my ($node) = @_;
	my $pidfile = $node->data_dir . '/postmaster.pid';
	my ($postmaster) = split /\n/, slurp_file($pidfile);

	# Stopped first, so that it starts nobody who is not in the list.
	kill 'STOP', $postmaster;
	my @pids = children($postmaster);
	$node->kill9;
	kill 'KILL', @pids;
	for my $pid ($postmaster, @pids)
	{
		wait_for(sub { pid_state($pid) =~ /^Z?$/ }, "process $pid to die");
	}
	# To the next postmaster a zombie looks alive. If nobody reaps it at once, it is forgotten for it.
	for (1 .. 10)
	{
		return unless pid_state($postmaster);
		usleep(20_000);
	}
	my @lines = split /\n/, slurp_file($pidfile);
	system 'ipcrm', '-m', $1 if ($lines[6] // '') =~ /(\d+)\s*$/;
	unlink $pidfile, "$lines[4]/.s.PGSQL.$lines[3].lock";
	return;
}

# kill9_backend(NODE, SESSION): SIGKILL to the session's server process; the postmaster ends
# all the others and starts the server anew.
sub kill9_backend
{
	my ($node, $session) = @_;
	my $log = -s $node->logfile;
	kill 'KILL', $session->pid;
	wait_for(sub { pid_state($session->pid) =~ /^Z?$/ }, 'the backend to die');
	# A connection may succeed before the postmaster has noticed.
	$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log);
	server_is_back($node) or die 'the server does not come back';
	$session->quit;
	return;
}

# bring_to(NODE, MOMENT, SESSION, SQL): the session is left in the midst of the statements.
#   open        all is done, and the transaction has not committed;
#   halfway     a statement waits for a lock which somebody holds;
#   unanswered  it has committed, and the client does not know, because the commit waits for a
#               standby that is not there (durable_node with unanswered => 1).
sub bring_to
{
	my ($node, $moment, $session, $sql) = @_;
	if ($moment eq 'open')
	{
		$session->query("BEGIN;\n$sql");
		return;
	}
	my $waits = $moment eq 'halfway' ? q{wait_event_type = 'Lock'} : q{wait_event = 'SyncRep'};
	$session->query('SET synchronous_commit = on') if $moment eq 'unanswered';
	$session->send($sql);
	wait_for(sub {
			die "the session did not stop ($moment): " . $session->answer . $session->error if $session->answered;
			return $node->safe_psql('postgres', "SELECT $waits FROM pg_stat_activity WHERE pid = " . $session->pid) eq 't';
		}, "the session to be $moment");
	return;
}

# die_by(NODE, WAY, SESSION...): the server dies and starts again, the sessions are over. The ways:
# backend (SIGKILL to the first session's process), immediate (pg_ctl stop), power (crash()).
sub die_by
{
	my ($node, $way, @sessions) = @_;
	if ($way eq 'backend')
	{
		kill9_backend($node, $sessions[0]);
	}
	else
	{
		$way eq 'power' ? crash($node) : $node->stop('immediate');
		$node->start;
	}
	$_->quit for @sessions;
	return;
}

# crash_in_body(NODE, SETTING): CALL durable.work(), with an own setting if one is given, and
# a crash when it holds the advisory lock 7, which the body takes. false: there was nothing to do.
sub crash_in_body
{
	my ($node, $setting) = @_;
	my $worker = DurableTest::Session->new($node);
	$worker->query($setting) if defined $setting;
	$worker->send(q{CALL durable.work(duration => '0')});
	my $busy = 0;
	wait_for(sub {
			return 1 if $worker->answered;
			return $busy = $node->safe_psql('postgres', 'SELECT EXISTS (SELECT FROM pg_locks WHERE pid = ' . $worker->pid . q{
				AND locktype = 'advisory' AND objid = 7 AND objsubid = 1)}) eq 't';
		}, 'the work to begin or end');
	if ($busy)
	{
		crash($node);
		$node->start;
	}
	$worker->quit;
	return $busy;
}

# pgbench_scripts({ NAME => [WEIGHT, TEXT] }): the arguments that let pgbench run these.
sub pgbench_scripts
{
	my ($scripts) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my @files;
	for my $name (sort keys %$scripts)
	{
		my ($weight, $text) = @{ $scripts->{$name} };
		(my $file = "$dir/$name.sql") =~ s/[ ,]+/_/g;
		append_to_file($file, $text);
		push @files, '-f', "$file\@$weight";
	}
	return @files;
}

# is_undisturbed(OUT, NAME): a load that a crash has ended met nothing else. OUT is what
# its programs printed.
sub is_undisturbed
{
	my ($out, $name) = @_;
	my @lines = split /\n/, $out;
	my @met = grep { /ERROR|PANIC|aborted in/ && !/terminating|server closed|connection|backend died|command send failed/ } @lines;
	return is(join("\n", @met), '', $name)
		|| diag("The load printed:\n" . join "\n", @lines > 50 ? ('...', @lines[ -50 .. -1 ]) : @lines);
}

# What runs that have ended must not leave: tasks, entries of lists, waits, counts.
sub left_over
{
	my ($node) = @_;
	return $node->safe_psql('postgres', q{SELECT (SELECT count(*) FROM durable.task), (SELECT count(*) FROM durable.task_ready), (SELECT count(*) FROM durable.task_delayed),
		(SELECT count(*) FROM durable.waiter), (SELECT count(*) FROM durable.quota), (SELECT count(*) FROM durable.singleton)});
}

# damage(NODE): what amcheck has to say about the extension's tables and indexes,
# every index compared with its table. Nothing is right.
sub damage
{
	my ($node, $dbname) = @_;
	my ($status, $out, $err) = $node->psql($dbname // 'postgres', q{
		SET client_min_messages = warning;
		CREATE EXTENSION IF NOT EXISTS amcheck;
		SELECT c.oid::regclass, v.* FROM pg_class c, verify_heapam(c.oid) v
		 WHERE c.relnamespace = 'durable'::regnamespace AND c.relkind = 'r';
		SELECT count(bt_index_parent_check(i.indexrelid, true, true)) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
		 WHERE c.relnamespace = 'durable'::regnamespace HAVING count(*) = 0}, on_error_stop => 1);
	return $out . $err;
}

# sqlstate(NODE, SQL, { dbname, user }): the SQLSTATE of the first error, or ''.
sub sqlstate
{
	my ($node, $sql, $options) = @_;
	my ($status, $out, $err) = $node->psql(
		$options->{dbname} // 'postgres',
		"\\set VERBOSITY sqlstate\n$sql",
		on_error_stop => 1,
		extra_params  => [ $options->{user} ? ('-U', $options->{user}) : () ]);
	return $1 if $err =~ /(?:ERROR|FATAL|PANIC):\s+([0-9A-Z]{5})/;
	return $status == 0 ? '' : "psql: $err";
}

# A psql session. query() waits for the answer; send() does not, and answer()
# waits for it later. An error does not end the session.
package DurableTest::Session;

use strict;
use warnings;

use IPC::Run ();

sub new
{
	my ($class, $node, %options) = @_;
	my $self = bless { in => '', out => '', err => '', mark => 0, node => $node }, $class;
	local $ENV{PGAPPNAME} = $options{name} // 'session';
	my @command = (
		$node->installed_command('psql'), '-XAtq',
		'-v', 'VERBOSITY=verbose', '-d', $node->connstr($options{dbname} // 'postgres'),
		$options{user} ? ('-U', $options{user}) : (), '-f', '-');
	$self->{timer} = IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
	$self->{run} = IPC::Run::start(\@command, '<', \$self->{in}, '>', \$self->{out},
		'2>', \$self->{err}, $self->{timer});
	$self->{pid} = $self->query('SELECT pg_backend_pid()');
	return $self;
}

sub pid { return $_[0]->{pid}; }

sub send
{
	my ($self, $sql) = @_;
	my $mark = 'mark ' . ++$self->{mark};
	$self->{in} .= "$sql;\n\\echo $mark\n\\warn $mark\n";
	$self->{timer}->start($PostgreSQL::Test::Utils::timeout_default);
	$self->{run}->pump_nb;
	return;
}

# The rows that the last statements gave; error() holds what went wrong.
sub answer
{
	my ($self) = @_;
	my $mark = "mark $self->{mark}\n";
	while ($self->{run}->pumpable
		&& !(index($self->{out}, $mark) >= 0 && index($self->{err}, $mark) >= 0))
	{
		$self->{run}->pump;
	}
	my ($out, $err) = ($self->{out}, $self->{err});
	$self->{out} = $self->{err} = '';
	$out =~ s/(?:^|(?<=\n))mark \d+\n//g;
	$err =~ s/(?:^|(?<=\n))mark \d+\n//g;
	chomp $out;
	$self->{last_error} = $err;
	return $out;
}

# answered(): whether the answer to what was sent is there, without waiting.
sub answered
{
	my ($self) = @_;
	$self->{run}->pump_nb if $self->{run}->pumpable;
	return index($self->{out}, "mark $self->{mark}\n") >= 0 || !$self->{run}->pumpable;
}

sub error { return $_[0]->{last_error}; }

sub sqlstate
{
	my ($self) = @_;
	return $self->{last_error} =~ /(?:ERROR|FATAL):\s+([0-9A-Z]{5}):/ ? $1 : '';
}

sub try
{
	my ($self, $sql) = @_;
	$self->send($sql);
	return $self->answer;
}

sub query
{
	my ($self, $sql) = @_;
	my $out = $self->try($sql);
	die "$sql\n$self->{last_error}" if $self->{last_error} =~ /(?:ERROR|FATAL):/;
	return $out;
}

# Repeat a query until it returns t. The bound is only a net.
sub poll
{
	my ($self, $sql) = @_;
	return DurableTest::wait_for(sub { $self->query($sql) eq 't' }, $sql);
}

sub quit
{
	my ($self) = @_;
	return if $self->{over}++;
	$self->{in} .= "\\q\n";
	eval { $self->{run}->finish; 1 } or $self->{run}->kill_kill;
	return;
}

1;
