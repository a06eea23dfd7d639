# durable: built with PGXS. "scripts/check" runs everything; "scripts/demo" shows it.
EXTENSION = durable
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" durable.control)
MODULE_big = durable
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c)))
SQL_PARTS = $(sort $(wildcard sql/[0-9]*.sql))
DATA_built = sql/durable--$(EXTVERSION).sql
DATA = $(wildcard sql/updates/durable--*--*.sql)
EXTRA_CLEAN = sql/durable--*.sql

PG_CPPFLAGS = -I$(srcdir)/src
PG_CFLAGS = -Wextra -Wno-unused-parameter -Wno-sign-compare \
	-Wno-missing-field-initializers -Wno-cast-function-type -fvisibility=hidden
ifeq ($(WERROR),1)
PG_CFLAGS += -Werror
endif

# The suites run against a server that already has the extension's files
# (scripts/check starts a private one); one topic per file, in name order.
REGRESS = $(sort $(patsubst test/sql/%.sql,%,$(wildcard test/sql/*.sql)))
REGRESS_OPTS = --inputdir=test --outputdir=test
ISOLATION = $(sort $(patsubst test/isolation/specs/%.spec,%,$(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test/isolation --outputdir=test/isolation --load-extension=durable
TAP_TESTS = 1
PROVE_TESTS = test/t/*.pl

# No function here is small enough for the JIT to inline.
override with_llvm = no

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

ifneq ($(shell test $(shell $(PG_CONFIG) --version | sed 's/[^0-9]*\([0-9]*\).*/\1/') -ge 15 && echo ok),ok)
$(error durable needs PostgreSQL 15 or newer)
endif

sql/durable--$(EXTVERSION).sql: $(SQL_PARTS) durable.control
	cat $(SQL_PARTS) > $@

$(OBJS): $(wildcard src/*.h src/*/*.h)
