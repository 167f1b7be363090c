# Cairn's house: `make run` shows it at work, `make test` judges it. Each installs what it needs and the machine lacks.

CARGO ?= cargo
export RUST_BACKTRACE ?= 1
# Where rustup puts cargo when scripts/install-deps had to bring it.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

PROGRAM = $(or $(CARGO_TARGET_DIR),target)/release/cairn

# Lints and tests are built at the same time, so each has its own directory.
LINTS = $(or $(CARGO_TARGET_DIR),target)/lints
# What failing tests have printed: shown at the end of a run.
FAILURES = $(abspath $(or $(CARGO_TARGET_DIR),target))/failures

.PHONY: help deps build run install library install-library header names wheel package test tests tests-that-wait tests-beside lints deep fmt clippy spelling doc book dist dist-test bench fuzz \
	fuzz-minimise clean

help:
	@echo 'make run     build, make an image, mount, copy, kill the daemon, recover, check, measure'
	@echo 'make install the program (built before, or now), the helper of mount(8), manual pages, completions'
	@echo 'make library the C library; make install-library, with header and pkg-config; make wheel, the Python package'
	@echo 'make test    formatting, lints, spelling, all tests, documentation'
	@echo 'make deep    the long versions of the judges (pjdfstest, fsx, crash states, kills, SQLite, PostgreSQL, stress)'
	@echo 'make fuzz    coverage-guided fuzzing of all targets, TIME=60 seconds each (or TARGET=open): docs/fuzzing.md'
	@echo 'make book    the book, target/book/html (mdBook)'
	@echo 'make dist    what a release has, target/dist: static programs for two processors, packages, sources; dist-test judges it'
	@echo 'make bench   the speed table: Cairn, fuse2fs and the kernel, medians of 5'

deps:
	@scripts/install-deps

build:
	@scripts/install-deps build
	$(CARGO) build --release --workspace --bins

run:
	@scripts/install-deps run
	$(CARGO) build --release --workspace --bins
	scripts/demo

# PREFIX (/usr/local), SBINDIR (/sbin, for mount(8)'s helper) and DESTDIR as usual. A program that has been built is installed as it is:
# as root, where there may be no cargo, and without a network.
install:
	@test -x $(PROGRAM) || $(MAKE) build
	@scripts/install $(PROGRAM)

# The C library, and its installation below PREFIX (docs/library.md). The header is made of the sources.
library:
	@scripts/install-deps build
	$(CARGO) build --release -p cairn-c

install-library:
	@test -f $(dir $(PROGRAM))libcairn_c.so || $(MAKE) library
	@scripts/install-library $(dir $(PROGRAM))

header:
	scripts/header

# The list of the facade's public names, after a change of them that is meant.
names:
	CAIRN_NAMES=write $(CARGO) test -p cairn-testkit --test module_edges public_names

# The Python package, for Python 3.10 and later, into target/wheels.
wheel:
	@scripts/install-deps wheel
	scripts/notices "$$(rustc -vV | sed -n 's/^host: //p')" cairn-python >crates/cairn-python/NOTICES
	cd crates/cairn-python && '$(abspath $(or $(CARGO_TARGET_DIR),target))/tools/maturin/bin/maturin' build --release

# What a registry of crates would take: each crate packs, and builds from what was packed. The library also builds small.
package:
	CARGO='$(CARGO)' scripts/features
	$(CARGO) package --workspace --locked

# Builds and tests leave processors idle where they wait for each other, for daemons, disks and clocks. Lints use that time.
test: deps fmt spelling
	rm -rf '$(FAILURES)'
	CAIRN_TEST_FAILURES='$(FAILURES)' $(MAKE) -j2 tests lints || { cat '$(FAILURES)'/* 2>/dev/null; exit 1; }

# Many tests wait: four at a time keep two processors busy. cargo has its own number of jobs, not make's.
# Those of mounts and of virtual machines wait most, so they run beside all others. A test program that hangs is ended, and says where it waits. One
# run shows all tests that fail.
WAITING = mounted exchange
TEST = MAKEFLAGS= RUST_TEST_THREADS=$${RUST_TEST_THREADS:-4} $(CARGO) test --workspace --config 'target."cfg(unix)".runner = "scripts/test-limit"'

tests:
	$(TEST) --no-run
	$(MAKE) -j2 tests-that-wait tests-beside

tests-that-wait:
	$(TEST) --no-fail-fast $(WAITING:%=--test %)

tests-beside:
	CAIRN_TEST_SKIP='$(WAITING)' $(TEST) --no-fail-fast

lints:
	CARGO_TARGET_DIR='$(LINTS)' nice -n 19 $(MAKE) clippy doc

# The same tests with more seeds, states and minutes (CAIRN_DEEP); one at a time, they load the machine.
# Those that need what the repository does not hold (e2fsprogs' broken images) are run as well. Experiments last, near the sizes of
# the proposals: gc-victim alone takes an hour and a half.
deep: build
	@scripts/install-deps deep
	scripts/e2fsprogs-images
	CAIRN_DEEP=1 $(CARGO) test --workspace -- --test-threads=1 --include-ignored
	CAIRN_TRANSPORT=ring $(CARGO) test -p cairn-cli --test mounted -- --test-threads=2
	$(CARGO) test -p cairn-objects --features remote --test s3
	$(CARGO) test -p cairn-cli --features remote --test program object_volumes::
	scripts/xfstests --kernel
	scripts/xfstests
	scripts/xfstests --format f2fs
	scripts/postgresql-kills
	target/release/cairn lab checkpoint-merge --scale full
	target/release/cairn lab gc-victim --scale full

fmt:
	$(CARGO) fmt --all --check

clippy:
	MAKEFLAGS= $(CARGO) clippy --workspace --all-targets -- -D warnings

spelling:
	scripts/spelling

doc:
	MAKEFLAGS= RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps

book:
	scripts/book

dist:
	scripts/dist

# Root, mmdebstrap's mirror, half an hour.
dist-test: dist
	scripts/dist-test

bench:
	@scripts/install-deps run
	$(CARGO) build --release --workspace --bins
	bench/compare

# What it finds beyond the corpus is kept in target/fuzz-corpus. fuzz-minimise takes into the repository what reaches more code.
TIME ?= 60
fuzz:
	@scripts/install-deps fuzz
	scripts/fuzz run $(TIME) $(TARGET)

fuzz-minimise:
	@scripts/install-deps fuzz
	scripts/fuzz minimise $(TARGET)

clean:
	$(CARGO) clean
