#!/usr/bin/env perl
# scripts/lint-source.pl: the project's own rules, checked on its files.
#
#   scripts/lint-source.pl                 all rules on the whole checkout
#   scripts/lint-source.pl exports FILE    what a built durable.so exports
#
# Called by scripts/lint. Each rule is one sub of the table at the end; it calls
# finding() for what it dislikes. The rules are heuristics on text: they know C
# comments and string literals, and nothing of the preprocessor.

use strict;
use warnings;

my $rule;         # the rule that runs
my $findings = 0;

sub finding
{
	my ($file, $line, $message) = @_;
	print STDERR "$file:$line: $message [$rule]\n";
	$findings++;
	return;
}

sub slurp
{
	my ($file) = @_;
	open my $in, '<', $file or die "$file: $!\n";
	local $/ = undef;
	my $text = <$in>;
	close $in;
	return $text // '';
}

# The checkout's files, uncommitted ones included; or all, in a tarball.
sub project_files
{
	my @files = split /\0/, `git -c safe.directory='*' ls-files -z --cached --others --exclude-standard 2>/dev/null`;
	@files = split /\0/, `find . -name .git -prune -o -type f -printf '%P\\0'` unless @files;
	return sort grep { -f && !-l } @files;
}

my @files    = project_files();
my @c        = grep { m{^src/.*\.[ch]$} } @files;
my @sql      = grep { m{^sql/.*\.sql$} && !m{^sql/durable--} } @files;
my @text     = grep { !/\.(png|ico|gz|zip)$/ } @files;
my @unpadded = grep { !/\.(out|diff|patch)$/ } @text;

sub line_of
{
	my ($text, $offset) = @_;
	return 1 + (substr($text, 0, $offset) =~ tr/\n//);
}

# Blank out C comments; $strings says whether string contents go too. Lengths
# and line numbers stay.
sub bare_c
{
	my ($text, $strings) = @_;
	my $blank = sub { my $s = shift; $s =~ s/[^\n]/ /g; return $s; };
	$text =~ s{(/\*.*?\*/|//[^\n]*)|("(?:\\.|[^"\\\n])*")|('(?:\\.|[^'\\\n])+')}{
		defined $1 ? $blank->($1)
		: defined $2 ? ($strings ? '"' . $blank->(substr($2, 1, -1)) . '"' : $2)
		: $3
	}gsex;
	return $text;
}

my %code_of;      # file -> text without comments
my %bare_of;      # file -> text without comments and string contents
for my $file (@c)
{
	my $text = slurp($file);
	$code_of{$file} = bare_c($text, 0);
	$bare_of{$file} = bare_c($text, 1);
}

# The parenthesised text that starts at $offset, which is a '('.
sub parenthesised
{
	my ($bare, $offset) = @_;
	my $depth = 0;
	for my $i ($offset .. length($bare) - 1)
	{
		my $char = substr($bare, $i, 1);
		$depth++ if $char eq '(';
		$depth-- if $char eq ')';
		return $i - $offset + 1 if $depth == 0;
	}
	return length($bare) - $offset;
}

# Calls of the functions matching $name: [file, line, name, argument text].
sub calls
{
	my ($name) = @_;
	my @calls;
	for my $file (@c)
	{
		my $bare = $bare_of{$file};
		while ($bare =~ /\b($name)\s*\(/g)
		{
			my ($called, $open) = ($1, pos($bare) - 1);
			my $length = parenthesised($bare, $open);
			push @calls,
			  [ $file, line_of($bare, $open), $called, substr($code_of{$file}, $open + 1, $length - 2) ];
		}
	}
	return @calls;
}

# The value of the adjacent string literals that $text begins with; a macro
# between them, like INT64_FORMAT, becomes %lld.
sub literal
{
	my ($text) = @_;
	my $value = '';
	while ($text =~ /\G\s*(?:"((?:\\.|[^"\\])*)"|(U?INT64_FORMAT))/gc)
	{
		$value .= $1 // '%lld';
	}
	$value =~ s/\\n/\n/g;
	$value =~ s/\\(["\\])/$1/g;
	return $value;
}

# ------------------------------------------------------------------ C rules --

# Clients decide by SQLSTATE; without errcode() it is XX000, "internal error".
sub errcodes
{
	for my $call (calls('ereport'))
	{
		my ($file, $line, undef, $arguments) = @$call;
		next unless $arguments =~ /^\s*(ERROR|FATAL)\b/;
		my ($head) = $arguments =~ /^((?:[^\n]*\n?){1,4})/;
		finding($file, $line, 'ereport without errcode()') unless $head =~ /errcode\w*\s*\(/;
	}
	return;
}

# What a caller can provoke is not "can't happen".
sub elog_in_api
{
	for my $call (calls('elog'))
	{
		my ($file, $line, undef, $arguments) = @$call;
		finding($file, $line, 'elog(ERROR) in src/api; use ereport with an SQLSTATE')
		  if $file =~ m{^src/api/} && $arguments =~ /^\s*ERROR\b/;
	}
	return;
}

# The PostgreSQL error message style.
sub message_style
{
	for my $call (calls('errmsg|errdetail|errhint'))
	{
		my ($file, $line, $kind, $arguments) = @$call;
		my $text = literal($arguments);
		next if $text eq '';
		if ($kind eq 'errmsg')
		{
			finding($file, $line, 'a primary message starts in lower case') if $text =~ /^[A-Z][a-z]/;
			finding($file, $line, 'a primary message ends without a period') if $text =~ /\.$/;
		}
		elsif ($text !~ /%s$/ && $text !~ /[.?]$/)
		{
			finding($file, $line, "$kind is a full sentence, with a period");
		}
		finding($file, $line, 'no line break inside a message') if $kind eq 'errmsg' && $text =~ /\n/;
	}
	return;
}

# An Oid is unsigned; an int64 is long here and long long elsewhere.
sub formats
{
	for my $call (calls('errmsg\w*|errdetail\w*|errhint|errcontext|elog|psprintf|snprintf|appendStringInfo'))
	{
		my ($file, $line, $name, $arguments) = @$call;
		my $strings = join ' ', $arguments =~ /"((?:\\.|[^"\\])*)"/g;
		(my $values = $arguments) =~ s/"(?:\\.|[^"\\])*"/ /g;
		finding($file, $line, '%ld or %lu: use INT64_FORMAT, or %lld with a (long long) cast')
		  if $strings =~ /%[-0-9.*]*l[dux]/;
		finding($file, $line, '%lld needs a (long long) or (unsigned long long) cast')
		  if $strings =~ /%[-0-9.*]*ll[dux]/ && $values !~ /\blong long\b/;
		finding($file, $line, '%d for an Oid: use %u')
		  if $strings =~ /%d/ && $strings !~ /%u/ && $values =~ /\b(\w*oid|MyDatabaseId|GetUserId|\w*relid|\w*roleid)\b/i;
		finding($file, $line, '%d or %u for an int64')
		  if $strings =~ /%[du]/ && $strings !~ /%ll/ && $values =~ /\(u?int64\)/ && $values !~ /INT64_FORMAT/;
	}
	return;
}

# Unbounded, not interruptible, or not the server's own generator and clock.
sub banned
{
	my $banned = join '|', qw(sprintf vsprintf strcpy strcat strncat strtok gets gettimeofday sleep usleep
	  pg_usleep nanosleep rand srand random atoi atol alloca setlocale system popen);
	for my $call (calls($banned))
	{
		finding($call->[0], $call->[1], "$call->[2]() is not used here");
	}
	return;
}

sub version_checks
{
	for my $file (grep { $_ ne 'src/base/compat.h' } @c)
	{
		my $bare = $bare_of{$file};
		while ($bare =~ /\bPG_VERSION_NUM\b/g)
		{
			finding($file, line_of($bare, pos $bare), 'PG_VERSION_NUM belongs into src/base/compat.h');
		}
	}
	return;
}

# A file includes from its own floor and from the floors below.
sub floors
{
	my %floor = (base => 0, store => 1, engine => 2, api => 3, worker => 4);
	my %is_ours = map { m{^src/(.*?([^/]+\.h))$} ? ($2 => $1) : () } grep { m{^src/\w+/} } @c;
	for my $file (@c)
	{
		my ($own) = $file =~ m{^src/(\w+)/};
		my $code = $code_of{$file};
		while ($code =~ /^\s*#\s*include\s+"([^"]+)"/mg)
		{
			my ($header, $line) = ($1, line_of($code, $-[1]));
			my ($floor) = $header =~ m{^(\w+)/};
			if (!defined $floor)
			{
				finding($file, $line, "write \"$is_ours{$header}\" with its floor") if $is_ours{$header};
				next;
			}
			next unless defined $own && exists $floor{$floor} && -f "src/$header";
			finding($file, $line, "src/$own must not include \"$header\", which is above it")
			  if exists $floor{$own} && $floor{$floor} > $floor{$own};
		}
		finding($file, 1, 'C code lives in src/base, store, engine, api or worker')
		  if defined $own && !exists $floor{$own};
	}
	return;
}

sub function_length
{
	my $max = 60;
	my @sources = grep { /\.c$/ } @c;
	return unless @sources;
	open my $tags, '-|', 'ctags', '--languages=C', '--kinds-C=f', '--fields=+ne', '-f', '-', @sources
	  or die "ctags: $!\n";
	while (<$tags>)
	{
		next if /^!/;
		my ($name, $file) = split /\t/;
		my ($start) = /\tline:(\d+)/ or next;
		my ($end)   = /\tend:(\d+)/  or next;
		my $length = $end - $start + 1;
		finding($file, $start, "$name() has $length lines; $max is the limit") if $length > $max;
	}
	close $tags or die "ctags failed\n";
	return;
}

# The statement that a C string literal holds. Operators are looked up by
# search_path, which a caller may own: they are written OPERATOR(pg_catalog.=).
# "SET column = " is no operator, and neither is "name => value".
sub operator_complaint
{
	my ($sql) = @_;
	$sql =~ s/--[^\n]*//g;
	$sql =~ s/'(?:''|[^'])*'/''/g;
	$sql =~ s/\bOPERATOR\s*\(\s*pg_catalog\.[^)\s]+\s*\)/ /gi;
	$sql =~ s/=>/ /g;
	$sql =~ s{\bSET\b((?:(?!\b(?:WHERE|FROM|RETURNING)\b).)*)}{
		(my $clause = $1) =~ s/(^|,)\s*(?:\w+|\([^)]*\))\s*=\s/$1 /g;
		"SET $clause"
	}gsex;
	return "operator $1" if $sql =~ /\s(=|<>|!=|<=|>=|<|>|\|\||\+|-|~|->>?|\@>|<\@|&&)\s/;
	return $1 if $sql =~ /\b(NOT IN|IN\s*(?=\()|NULLIF|IS (?:NOT )?DISTINCT FROM|BETWEEN|LIKE|CASE \w+ WHEN)\b/;
	return $1 if $sql =~ /\b(IN)\s*\(/;
	return;
}

sub operators
{
	for my $file (@c)
	{
		my $code = $code_of{$file};
		while ($code =~ /("(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*)/g)
		{
			my ($strings, $offset) = ($1, $-[1]);
			my $sql = literal($strings);
			next unless $sql =~ /^\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|MERGE INTO|WITH \w+ AS)\b/;
			my $complaint = operator_complaint($sql);
			finding($file, line_of($code, $offset), "unqualified $complaint in SQL text")
			  if defined $complaint;
		}
	}
	return;
}

# ---------------------------------------------------------------- SQL rules --

# The CREATE FUNCTION / PROCEDURE statements of sql/:
# {file, line, name, text without comments}.
sub sql_functions
{
	my @functions;
	for my $file (@sql)
	{
		my $text = slurp($file);
		$text =~ s/(--[^\n]*)/' ' x length $1/ge;
		while ($text =~ /\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PROCEDURE)\s+durable\.(\w+)\s*\(/gi)
		{
			my ($name, $start) = ($1, $-[0]);
			my $rest = substr $text, $start;
			# to the semicolon, which a $$ body or BEGIN ATOMIC block may hold too
			my ($statement) = $rest =~ /^((?:\$(\w*)\$.*?\$\2\$|BEGIN ATOMIC.*?\bEND\b|'(?:''|[^'])*'|[^;])*;)/s;
			push @functions, { file => $file, line => line_of($text, $start), name => $name, text => $statement // $rest };
		}
	}
	return @functions;
}

# A raised identity must not run under a caller's search_path, and code that
# PostgreSQL parses when it is called must not either.
sub search_paths
{
	for my $function (sql_functions())
	{
		my ($file, $line, $text) = @$function{qw(file line text)};
		next if $text =~ /\bSET\s+search_path\b/i;
		finding($file, $line, "$function->{name}: SECURITY DEFINER without SET search_path")
		  if $text =~ /\bSECURITY\s+DEFINER\b/i;
		next unless $text =~ /\bLANGUAGE\s+(sql|plpgsql)\b/i && $text =~ /\bAS\s+(\$\w*\$)(.*)\1/s;
		my $complaint = operator_complaint($2);
		finding($file, $line, "$function->{name}: no SET search_path and an unqualified $complaint")
		  if defined $complaint;
	}
	for my $file (@c)
	{
		finding($file, 1, 'SECURITY DEFINER in C without SET search_path')
		  if $code_of{$file} =~ /SECURITY DEFINER/ && $code_of{$file} !~ /SECURITY DEFINER[^;]*SET search_path/;
	}
	return;
}

# Every function has its comment and, unless that begins with "internal", its
# entry in docs/sql-api.md or docs/sql-api-workflows.md. A trigger's function nobody
# calls.
sub documented
{
	my $comments = join '', map { slurp($_) } @sql;
	my %text = map { $_ => slurp($_) } grep { -f } qw(docs/sql-api.md docs/sql-api-workflows.md);
	my $docs = join "\n", values %text;
	my %seen;
	for my $function (sql_functions())
	{
		my ($file, $line, $name, $text) = @$function{qw(file line name text)};
		next if $seen{$name}++;
		my ($comment) = $comments =~
		  /\bCOMMENT\s+ON\s+(?:FUNCTION|PROCEDURE|ROUTINE)\s+durable\.\Q$name\E\b[^']*?\bIS\s+'([^']*)/i;
		finding($file, $line, "durable.$name has no COMMENT ON") unless defined $comment;
		next if $text =~ /\bRETURNS\s+(?:event_)?trigger\b/i || ($comment // '') =~ /^internal\b/i;
		finding($file, $line, "neither docs/sql-api.md nor docs/sql-api-workflows.md has an entry '### $name('")
		  unless $docs =~ /^### `?(?:CALL )?(?:durable\.)?\Q$name\E\(/m;
	}
	# and the other way round: nothing is documented that does not exist
	for my $file (sort keys %text)
	{
		while ($text{$file} =~ /^### `?(?:CALL )?(?:durable\.)?(\w+)\(/mg)
		{
			finding($file, line_of($text{$file}, $-[1]), "there is no function durable.$1") unless $seen{$1};
		}
	}
	return;
}

# --------------------------------------------------------------- file rules --

sub leftovers
{
	for my $file (@text)
	{
		my $n = 0;
		for my $line (split /\n/, slurp($file))
		{
			$n++;
			finding($file, $n, "$1 left") if $line =~ /\b(TO[D]O|FIX[M]E|XX[X])\b/;
			finding($file, $n, "a path of somebody's machine: $1")
			  if $line =~ m{(?<![\w.\$\}])(/wor[k]/|/Use[r]s/|/hom[e]/\w+/)};
			finding($file, $n, 'a merge conflict') if $line =~ /^(<{7}|>{7}) /;
		}
	}
	return;
}

sub whitespace
{
	for my $file (@unpadded)
	{
		my $text = slurp($file);
		next if $text eq '';
		my $n = 0;
		for my $line (split /\n/, $text)
		{
			$n++;
			finding($file, $n, 'trailing whitespace') if $line =~ /[ \t\r]$/;
		}
		finding($file, $n, 'no newline at the end') unless $text =~ /\n\z/;
	}
	return;
}

# durable.control says it; who repeats it agrees.
sub versions
{
	my ($version) = slurp('durable.control') =~ /^default_version\s*=\s*'([^']+)'/m
	  or return finding('durable.control', 1, 'no default_version');
	require JSON::PP;
	my $meta = eval { JSON::PP::decode_json(slurp('META.json')) };
	return finding('META.json', 1, 'is not JSON') unless $meta;
	for my $key (qw(name abstract version maintainer license provides meta-spec))
	{
		finding('META.json', 1, "lacks '$key'") unless $meta->{$key};
	}
	finding('META.json', 1, "version is not $version")
	  if $meta->{version} ne $version || $meta->{provides}{durable}{version} ne $version;
	if (!-f 'CHANGELOG.md')
	{
		return finding('CHANGELOG.md', 1, 'is missing');
	}
	my ($top) = slurp('CHANGELOG.md') =~ /^#+ \[?v?(\d+\.\d+\.\d+)/m;
	finding('CHANGELOG.md', 1, "its top entry is not $version") if ($top // '') ne $version;
	return;
}

# A test without its expected output would be skipped by nobody noticing, and
# an expected output without its test is never compared.
sub test_pairs
{
	for my $pair ([ 'test/sql', 'sql', 'expected' ], [ 'test/isolation/specs', 'spec', 'test/isolation/expected' ])
	{
		my ($dir, $ext, $expected) = @$pair;
		my %tests   = map { m{^\Q$dir\E/(.+)\.$ext$}              ? ($1 => $_) : () } @files;
		my %outputs = map { m{^\Q$expected\E/(.+?)(?:_\d)?\.out$} ? ($1 => $_) : () } @files;
		my %exact   = map { m{^\Q$expected\E/(.+)\.out$}          ? ($1 => $_) : () } @files;
		for my $name (sort keys %tests)
		{
			finding($tests{$name}, 1, "no $expected/$name.out") unless $exact{$name};
		}
		for my $name (sort keys %exact)
		{
			(my $base = $name) =~ s/_\d$//;
			finding($exact{$name}, 1, "no $dir/$name.$ext") unless $tests{$name} || $tests{$base};
		}
	}
	return;
}

sub executables
{
	for my $file (@files)
	{
		my $is_command = $file =~ m{^(scripts/[^.]+|\.ci/run|test/clients/[^/]+/run|test/docs/run|examples/[^/]+/run)$};
		finding($file, 1, 'is not executable (chmod +x)') if $is_command && !-x $file;
		finding($file, 1, 'has no #! line') if $is_command && slurp($file) !~ /^#!/;
	}
	return;
}

# ----------------------------------------------------------------- exports --

# Whatever else the library exported could clash with another extension.
sub exports
{
	my ($library) = @_;
	my $n = 0;
	for (`nm -D --defined-only '$library'`)
	{
		my ($symbol) = /^\S+ [A-Z] (\w+)$/ or next;
		$n++;
		finding($library, 1, "exports $symbol")
		  unless $symbol =~ /^(durable_\w+|pg_finfo_durable_\w+|_PG_init|Pg_magic_func|_init|_fini)$/;
	}
	finding($library, 1, 'exports nothing') unless $n;
	return;
}

my @rules = (
	[ 'errcode',     \&errcodes ],
	[ 'elog',        \&elog_in_api ],
	[ 'message',     \&message_style ],
	[ 'format',      \&formats ],
	[ 'banned',      \&banned ],
	[ 'compat',      \&version_checks ],
	[ 'floors',      \&floors ],
	[ 'length',      \&function_length ],
	[ 'operators',   \&operators ],
	[ 'search_path', \&search_paths ],
	[ 'documented',  \&documented ],
	[ 'leftover',    \&leftovers ],
	[ 'whitespace',  \&whitespace ],
	[ 'version',     \&versions ],
	[ 'test-pairs',  \&test_pairs ],
	[ 'executable',  \&executables ],
);

if (@ARGV == 2 && $ARGV[0] eq 'exports')
{
	$rule = 'exports';
	exports($ARGV[1]);
}
else
{
	for my $entry (@rules)
	{
		($rule, my $check) = @$entry;
		$check->();
	}
}
exit($findings ? 1 : 0);
