# shellcheck shell=bash
# scripts/common.sh: what every script here shares. Source it; do not run it.
#
#   source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
#   need_packages make gcc        # install what is missing, say so
#   scratch_begin                 # $SCRATCH, owned by $RUNAS, removed on exit
#   private_tree                  # $PG_CONFIG, $PGBIN: a private copy of PostgreSQL
#   build_install                 # build this checkout, install it into that copy
#   server_init main "shared_preload_libraries = 'durable'"
#   server_start main
#   q "SELECT 1"
#
# Nothing here touches /usr, /etc (except through apt-get) or a server of the
# system. Everything that is started lives in $SCRATCH and ends with the script,
# also when it fails or is interrupted. Several scripts may run at once.
#
# Settings (environment):
#   PG_MAJOR=15   which installed PostgreSQL to use (default: the newest of 15 to 18)
#   KEEP=1        keep $SCRATCH for a look afterwards (servers are stopped anyway)
#   TMPDIR        where $SCRATCH is made (default /tmp)
#   QUIET=1       no progress lines

set -euo pipefail

export LC_ALL=C.UTF-8
unset PGHOST PGPORT PGUSER PGDATABASE PGPASSWORD PGSERVICE PGOPTIONS PGAPPNAME PGDATA

# The checkout this file belongs to.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

SCRATCH=${SCRATCH:-}        # set by scratch_begin; inherited by scripts a script calls
RUNAS=${RUNAS:-}
PGBIN=${PGBIN:-}
PG_CONFIG=${PG_CONFIG:-}
SCRATCH_OWNER=              # pid of the shell whose exit removes $SCRATCH

say() { [[ ${QUIET:-} ]] || printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# ---------------------------------------------------------------- packages --

have_package() {
	[[ $(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null) == ?i* ]]
}

# Whether the package is installed or apt knows where to get it.
package_exists() {
	have_package "$1" || apt-cache policy "$1" 2>/dev/null | grep -q '^ *Candidate: [^(]'
}

# Run a command as root, or say what a person would have to do.
as_root() {
	if ((EUID == 0)); then
		"$@"
	elif sudo -n true 2>/dev/null; then
		sudo -n "$@"
	else
		die "this needs root (or sudo without a password): $*"
	fi
}

# need_packages PKG...: install the Debian packages that are missing.
# PostgreSQL's and pgbouncer's packages would start servers of the system; they
# must not, so for the time of the installation no cluster is created and no
# service is started.
need_packages() {
	local pkg missing=()
	for pkg in "$@"; do
		have_package "$pkg" || missing+=("$pkg")
	done
	((${#missing[@]})) || return 0
	command -v apt-get >/dev/null || die "missing packages, and no apt-get here: ${missing[*]}"
	say "installing Debian packages: ${missing[*]}"
	as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 bash -c "$(declare -f install_quietly apt_install); install_quietly \"\$@\"" \
		install_quietly "${missing[@]}" </dev/null >&2 || die "could not install: ${missing[*]}"
}

# Runs as root in a shell of its own (see need_packages), one at a time.
install_quietly() {
	set -euo pipefail
	exec 9>/run/lock/durable-packages.lock
	flock 9
	# Not local: the exit trap reads them.
	policy=/usr/sbin/policy-rc.d conf=/etc/postgresql-common/createcluster.conf
	made_policy='' saved=''
	log=$(mktemp)
	# shellcheck disable=SC2317  # called by the trap
	restore() {
		[[ -z $made_policy ]] || rm -f "$policy"
		[[ -z $saved ]] || mv -f "$saved" "$conf"
		rm -f "$log"
	}
	trap restore EXIT
	trap 'exit 130' INT TERM HUP

	if [[ ! -e $policy ]]; then
		made_policy=1
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
	fi
	if [[ " $* " == *" postgresql"* ]]; then
		# postgresql-common first: it brings the setting, but no server.
		apt_install postgresql-common
		saved=$conf.durable-saved
		cp -p "$conf" "$saved"
		printf '\ncreate_main_cluster = false\n' >>"$conf"
	fi
	apt_install "$@"
}

# apt-get install; if that fails, once more after apt-get update.
apt_install() {
	local opts=(-y -q --no-install-recommends -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0
		-o Dpkg::Options::=--force-confold)
	apt-get "${opts[@]}" install "$@" >"$log" 2>&1 && return
	apt-get -q -o DPkg::Lock::Timeout=300 update >"$log" 2>&1 || { tail -n 20 "$log"; return 1; }
	apt-get "${opts[@]}" install "$@" >"$log" 2>&1 || { tail -n 30 "$log"; return 1; }
}

# Print the PostgreSQL major to use: $PG_MAJOR, the newest one installed, or
# what the distribution would install.
pg_major() {
	local n
	if [[ ${PG_MAJOR:-} ]]; then
		echo "$PG_MAJOR"
		return
	fi
	for n in 18 17 16 15; do
		if [[ -x /usr/lib/postgresql/$n/bin/postgres ]]; then
			echo "$n"
			return
		fi
	done
	n=$(apt-cache depends postgresql 2>/dev/null | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p' | head -n 1)
	if [[ ! $n ]]; then # no package lists yet
		as_root apt-get -q update >&2 </dev/null || true
		n=$(apt-cache depends postgresql 2>/dev/null | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p' | head -n 1)
	fi
	[[ $n ]] || die "no PostgreSQL package found"
	((n >= 15 && n <= 18)) || die "this distribution has PostgreSQL $n; durable needs 15 to 18"
	echo "$n"
}

# The packages that building and running the extension takes.
need_postgres() {
	local n
	n=$(pg_major)
	need_packages make gcc libc6-dev "postgresql-$n" "postgresql-server-dev-$n" "$@"
}

# ----------------------------------------------------------------- scratch --

# scratch_begin: make $SCRATCH, a folder of $RUNAS, and promise its removal.
# PostgreSQL refuses to run as root, so as root everything runs as the user
# postgres, which the package brings; else as whoever called.
scratch_begin() {
	if ((EUID == 0)); then
		RUNAS=postgres
		id postgres >/dev/null 2>&1 || need_packages postgresql-common
	else
		RUNAS=$(id -un)
	fi
	SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/durable.XXXXXX")
	# A unix socket's path must stay under 108 bytes.
	if ((${#SCRATCH} > 70)); then
		rmdir "$SCRATCH"
		SCRATCH=$(mktemp -d /tmp/durable.XXXXXX)
	fi
	SCRATCH_OWNER=$BASHPID
	trap scratch_end EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	trap 'exit 129' HUP
	mkdir "$SCRATCH"/{home,tmp,sock,log,data}
	if ((EUID == 0)); then
		chown -R "$RUNAS": "$SCRATCH"
	fi
	export SCRATCH RUNAS
	# The user may be shut out of $TMPDIR's parents.
	as_user test -w "$SCRATCH" || die "user $RUNAS cannot reach $SCRATCH; set TMPDIR"
}

# Exit trap: end what was started, remove $SCRATCH.
scratch_end() {
	local status=$? dir pid
	trap '' INT TERM HUP
	trap - EXIT
	[[ $BASHPID == "$SCRATCH_OWNER" ]] || exit "$status"
	set +e
	# Children first (they might start a server again), then the servers, at
	# once, then whatever else lives in $SCRATCH.
	for pid in $(descendants $$); do
		kill -TERM "$pid" 2>/dev/null
	done
	for dir in $(data_dirs); do
		pid=$(head -n 1 "$dir/postmaster.pid" 2>/dev/null)
		in_scratch "$pid" && kill -QUIT "$pid" 2>/dev/null
	done
	wait_gone 50 || { scratch_pids | xargs -r kill -KILL 2>/dev/null; wait_gone 50; }
	release_shared_memory
	if [[ ${KEEP:-} ]]; then
		say "kept: $SCRATCH"
	else
		rm -rf "$SCRATCH"
	fi
	exit "$status"
}

# Every data directory below $SCRATCH that has, or had, a running server.
data_dirs() {
	find "$SCRATCH" -name postmaster.pid -printf '%h\n' 2>/dev/null
}

# All descendants of process $1, without the shell that asks.
descendants() {
	local stat rest pid
	declare -A children=()
	for stat in /proc/[0-9]*/stat; do
		{ read -r rest <"$stat"; } 2>/dev/null || continue
		pid=${rest%% *}
		rest=${rest##*) }
		rest=${rest#* }
		children[${rest%% *}]+=" $pid"
	done
	local queue=("$1") next
	while ((${#queue[@]})); do
		next=${queue[0]}
		queue=("${queue[@]:1}")
		for pid in ${children[$next]:-}; do
			[[ $pid == "$BASHPID" ]] && continue
			echo "$pid"
			queue+=("$pid")
		done
	done
}

# Does process $1 belong to this run: works in $SCRATCH or runs a program of it?
in_scratch() {
	[[ ${1:-} =~ ^[0-9]+$ ]] || return 1
	[[ $(readlink "/proc/$1/cwd" 2>/dev/null) == "$SCRATCH"* || $(readlink "/proc/$1/exe" 2>/dev/null) == "$SCRATCH"* ]]
}

# The processes that work in folder $1 or run a program of it. One find: a
# readlink per process would take seconds on a busy machine.
pids_in() {
	find /proc -mindepth 2 -maxdepth 2 -path '/proc/[0-9]*' \( -name cwd -o -name exe \) \
		\( -lname "$1" -o -lname "$1/*" \) -printf '%h\n' 2>/dev/null | sed 's|/proc/||' | sort -u | grep -vx -e "$$" -e "$BASHPID" || true
}

scratch_pids() { pids_in "$SCRATCH"; }

# Wait up to $1 tenths of a second until no process of this run is left.
wait_gone() {
	local i
	for ((i = 0; i < $1; i++)); do
		[[ $(scratch_pids) ]] || return 0
		sleep 0.1
	done
	return 1
}

# A server that ended by SIGKILL leaves its System V segment and its files in
# /dev/shm behind, until its next start; a last one would leave them for good.
# So note what the servers of $SCRATCH have while they run, and remove it at the
# end, when none of them runs any more.
note_shared_memory() {
	local dir pid
	for dir in $(data_dirs); do
		sed -n '7s/.* //p' "$dir/postmaster.pid" >>"$SCRATCH/shm-ids" 2>/dev/null || true
		for pid in $(pids_in "$dir"); do
			awk '$6 ~ "^/dev/shm/PostgreSQL" { print $6 }' "/proc/$pid/maps" >>"$SCRATCH/shm-files" 2>/dev/null || true
		done
	done
}

release_shared_memory() {
	local id
	note_shared_memory
	sort -u "$SCRATCH/shm-files" 2>/dev/null | xargs -r rm -f
	for id in $(sort -u "$SCRATCH/shm-ids" 2>/dev/null); do
		[[ $id =~ ^[0-9]+$ ]] && ipcrm -m "$id" 2>/dev/null
	done
	return 0
}

# as_user CMD...: run as $RUNAS, with the private PostgreSQL first in PATH. Works
# in the current folder when that is inside $SCRATCH, else in $SCRATCH.
as_user() { (exec_as_user "$@"); }

# The same, replacing the current (sub)shell: '(exec_as_user CMD) & pid=$!' gives
# the pid of CMD itself.
exec_as_user() {
	[[ $PWD == "$SCRATCH"* ]] || cd "$SCRATCH"
	export HOME=$SCRATCH/home TMPDIR=$SCRATCH/tmp PATH=${PGBIN:+$PGBIN:}$PATH
	if ((EUID == 0)); then
		exec setpriv --reuid="$RUNAS" --regid="$(id -g "$RUNAS")" --init-groups -- "$@"
	else
		exec "$@"
	fi
}

# A TCP port of the loopback interface that was free a moment ago.
free_port() {
	perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0) and bind(S, sockaddr_in(0, INADDR_LOOPBACK)) or die $!;
		print +(sockaddr_in(getsockname(S)))[0]'
}

# --------------------------------------------------------------- PostgreSQL --

# private_tree: copy the installed PostgreSQL to $SCRATCH/pg. The programs find
# their files relative to themselves, so the copy is complete, its pg_config
# answers with paths in $SCRATCH, and 'make install' stays in there.
private_tree() {
	local n prefix=$SCRATCH/pg/usr
	n=$(pg_major)
	[[ -x /usr/lib/postgresql/$n/bin/postgres ]] || die "PostgreSQL $n is not installed"
	[[ -e /usr/lib/postgresql/$n/lib/pgxs/src/makefiles/pgxs.mk ]] || die "postgresql-server-dev-$n is not installed"
	as_user mkdir -p "$prefix/lib/postgresql" "$prefix/share/postgresql" "$prefix/include"
	as_user cp -a "/usr/lib/postgresql/$n" "$prefix/lib/postgresql/"
	as_user cp -a "/usr/share/postgresql/$n" "$prefix/share/postgresql/"
	as_user cp -a /usr/include/postgresql "$prefix/include/"
	PGBIN=$prefix/lib/postgresql/$n/bin
	PG_CONFIG=$PGBIN/pg_config
	export PGBIN PG_CONFIG
	[[ $("$PG_CONFIG" --pkglibdir) == "$prefix"/* ]] || die "$PG_CONFIG still answers with the system's paths"
	say "PostgreSQL: $("$PG_CONFIG" --version | sed 's/^PostgreSQL //'), private copy in $SCRATCH/pg"
}

# The folder of pg_regress, pg_isolation_regress and the Perl modules.
pgxs_test_dir() {
	echo "$(dirname "$("$PG_CONFIG" --pgxs)")/../test"
}

# List the checkout's files, uncommitted ones included, ignored ones not.
source_files() {
	if git -c safe.directory='*' -C "$ROOT" rev-parse --is-inside-work-tree >/dev/null 2>&1; then
		git -c safe.directory='*' -C "$ROOT" ls-files -z --cached --others --exclude-standard
	else # a tarball
		(cd "$ROOT" && find . -name .git -prune -o \( -type f -o -type l \) -printf '%P\0')
	fi
}

# copy_sources: the checkout's files to $SCRATCH/src, owned by $RUNAS.
copy_sources() {
	as_user mkdir -p "$SCRATCH/src"
	(
		cd "$ROOT"
		# Deleted but still in the index: leave out.
		source_files | while IFS= read -r -d '' f; do
			if [[ -e $f || -L $f ]]; then printf '%s\0' "$f"; fi
		done | tar --null --no-recursion -T - -cf -
	) | as_user tar -C "$SCRATCH/src" --no-same-owner -xf -
}

# build_install [MAKE ARGUMENT...]: build a copy of the checkout as $RUNAS, with
# warnings as errors, and install it into the private tree. No LLVM bitcode: it
# would double the build time for nothing that is used here.
build_install() {
	local args=(--no-print-directory "PG_CONFIG=$PG_CONFIG" with_llvm=no "WERROR=${WERROR-1}" "$@") log=$SCRATCH/log/build.log
	copy_sources
	say "building"
	if ! as_user make -C "$SCRATCH/src" -j2 "${args[@]}" >"$log" 2>&1 ||
		! as_user make -C "$SCRATCH/src" "${args[@]}" install >>"$log" 2>&1; then
		grep -E -A4 'error:|warning:' "$log" | head -n 60 >&2 || tail -n 15 "$log" >&2
		die "the build failed"
	fi
}

# ----------------------------------------------------------------- servers --
# A server NAME has its data in $SCRATCH/data/NAME, its log in
# $SCRATCH/log/NAME.log and its socket in $SCRATCH/sock.

server_port() { cat "$SCRATCH/data/$1.port"; }
server_log() { echo "$SCRATCH/log/$1.log"; }

# server_use NAME: make it the one that q, psql and the tests talk to.
server_use() {
	PGHOST=$SCRATCH/sock
	PGPORT=$(server_port "$1")
	PGUSER=postgres
	PGDATABASE=${PGDATABASE:-postgres}
	export PGHOST PGPORT PGUSER PGDATABASE
}

# server_init NAME [CONFIGURATION LINE...]: a new cluster. Listens on its unix
# socket only, unless a line says otherwise; flushes to disk (fsync), unless a
# line says otherwise.
server_init() {
	local name=$1 dir=$SCRATCH/data/$1 port
	shift
	# initdb takes seconds; a copy of its first result does not.
	if [[ ! -d $SCRATCH/data/.template ]]; then
		as_user initdb -D "$SCRATCH/data/.template" -U postgres -A trust -E UTF8 --no-locale --no-sync \
			>"$SCRATCH/log/initdb.log" 2>&1 || { cat "$SCRATCH/log/initdb.log" >&2; die "initdb failed"; }
	fi
	as_user cp -a "$SCRATCH/data/.template" "$dir"
	port=$(free_port)
	echo "$port" | as_user tee "$SCRATCH/data/$name.port" >/dev/null
	as_user tee -a "$dir/postgresql.conf" >/dev/null <<-CONF
		port = $port
		listen_addresses = ''
		unix_socket_directories = '$SCRATCH/sock'
		max_connections = 100
		log_line_prefix = '%m [%p] %q%a %d '
		log_checkpoints = off
		lc_messages = 'C'
		timezone = 'UTC'
		$(printf '%s\n' "$@")
	CONF
}

server_start() {
	local dir=$SCRATCH/data/$1
	if ! as_user pg_ctl -D "$dir" -l "$(server_log "$1")" -w -t 120 -s start >"$dir.start" 2>&1; then
		cat "$dir.start" >&2
		tail -n 30 "$(server_log "$1")" >&2
		die "server $1 did not start"
	fi
	server_use "$1"
}

# server_stop NAME [smart|fast|immediate]
server_stop() {
	as_user pg_ctl -D "$SCRATCH/data/$1" -m "${2:-fast}" -w -t 120 -s stop >&2
}

# server_kill9 NAME: SIGKILL to the postmaster and then to all its processes, as
# if the machine had lost its power; returns when they are gone.
server_kill9() {
	local dir=$SCRATCH/data/$1 postmaster left
	postmaster=$(head -n 1 "$dir/postmaster.pid")
	in_scratch "$postmaster" || die "server $1 is not running"
	note_shared_memory
	kill -KILL "$postmaster"
	while left=$(pids_in "$dir") && [[ $left ]]; do
		xargs kill -KILL <<<"$left" 2>/dev/null || true
		sleep 0.02
	done
	# Dead, but perhaps not yet reaped by its parent: to a new postmaster, a zombie
	# looks alive, and an init may take its time: then forget it for it.
	wait_until 1 process_reaped "$postmaster" || rm -f "$dir/postmaster.pid" "$SCRATCH/sock/.s.PGSQL.$(server_port "$1").lock"
}

process_reaped() { [[ ! -e /proc/$1 ]]; }

# q SQL [psql option...]: run SQL, print bare values, fail on the first error.
q() {
	local sql=$1
	shift
	as_user psql -XAtq -v ON_ERROR_STOP=1 "$@" -c "$sql"
}

# wait_until SECONDS CMD...: poll until CMD succeeds.
wait_until() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		((SECONDS < end)) || return 1
		sleep 0.1
	done
}
