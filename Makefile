# Cairn's house: `make run` shows it at work, `make test` judges it. Both install what is missing.

CARGO ?= cargo
export RUST_BACKTRACE ?= 1
# Where rustup puts cargo when scripts/install-deps had to bring it.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

.PHONY: help deps build run install test deep fmt clippy doc bench clean

help:
	@echo 'make run     build, make an image, mount, copy, kill the daemon, recover, check, measure'
	@echo 'make install the program, the helper of mount(8), manual pages, completions'
	@echo 'make test    formatting, lints, all tests, documentation'
	@echo 'make deep    the long versions of the judges (pjdfstest, fsx, crash states, kills, stress)'
	@echo 'make bench   the speed table: Cairn, fuse2fs and the kernel, medians of 5'

deps:
	@scripts/install-deps

build: deps
	$(CARGO) build --release --workspace --bins

run: build
	scripts/demo

# PREFIX (/usr/local), SBINDIR (/sbin, for mount(8)'s helper) and DESTDIR as usual.
install: build
	@scripts/install target/release/cairn

test: deps fmt clippy
	$(CARGO) test --workspace
	$(MAKE) doc

# The same tests with more seeds, states and minutes (CAIRN_DEEP); one at a time, they load the machine.
# Those that need what the repository does not hold (e2fsprogs' broken images) are run as well. Experiments last, near the sizes of
# the proposals: gc-victim alone takes an hour and a half.
deep: build
	scripts/e2fsprogs-images
	CAIRN_DEEP=1 $(CARGO) test --workspace -- --test-threads=1 --include-ignored
	target/release/cairn lab checkpoint-merge --scale full
	target/release/cairn lab gc-victim --scale full

fmt:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps

bench: build
	bench/compare

clean:
	$(CARGO) clean
