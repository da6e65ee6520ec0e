# The verbs of the project. `make` alone lists them, with their times on two cores.

CARGO   ?= cargo
TOOLS   := $(HOME)/.cache/plimsoll/tools
VENV    := target/venv
# Of the program that clients and `make uml` run.
PROFILE ?= release
# One selection everywhere: another one resolves other features and compiles shared dependencies again.
ALL     := --locked --workspace
# Packages that do not link RocksDB have benches of their own.
CRITERION := $(addprefix -p plimsoll-,engine policy pool serve volume)
export PATH := $(TOOLS)/bin:$(PATH)
# Tests wait more than they compute: for timers, devices and child processes.
export RUST_TEST_THREADS ?= $(shell expr 2 '*' $$(nproc))

.PHONY: help setup rocksdb build demo test check uml bench install clean

help: ## List these verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Look for what the build needs and install it, or print the line that does
	@dev/setup

rocksdb: setup ## Compile RocksDB once for this machine; all clones and profiles share it (6 min, once)
	@dev/rocksdb

build: rocksdb ## Build the program as it ships (16 min the first time, RocksDB included)
	$(CARGO) build --release $(ALL) --bin plimsoll

demo: build ## Plain RocksDB beside Plimsoll at the line, then serve it (ARGS=--once ends by itself)
	@$$(dev/target-dir)/release/plimsoll demo $(ARGS)

test: setup-uml rocksdb $(VENV)/.ready ## Every test, with real clients (22 min the first time; TESTARGS=--no-fail-fast)
	@# First all compilation, of which clients need the program.
	$(CARGO) test $(ALL) --no-run
	@$(MAKE) --no-print-directory both PROFILE=debug

check: setup setup-uml lint build $(VENV)/.ready ## What CI runs: layers, formatting, lints, documentation, licences, tests; clients of the program as it ships
	$(CARGO) test $(ALL) --no-run
	@$(MAKE) --no-print-directory both PROFILE=release

# The tests of the workspace, and beside them clients and block devices, whose output follows at the end.
.PHONY: both
both:
	@log=$$(mktemp); $(MAKE) --no-print-directory clients uml >$$log 2>&1 & beside=$$!; \
	trap 'kill $$beside 2>/dev/null; rm -f $$log' EXIT INT TERM; \
	$(CARGO) test $(ALL) $(TESTARGS); tests=$$?; \
	wait $$beside; clients=$$?; cat $$log; test $$tests -eq 0 && exit $$clients

.PHONY: clients
clients: $(VENV)/.ready
	PLIMSOLL=$$(dev/target-dir)/$(PROFILE)/plimsoll $(VENV)/bin/python -m pytest -q tests/clients

uml: setup-uml ## Block devices in a real kernel, User-Mode Linux, on a program that is built (7 min; PROFILE=debug)
	dev/uml -m 3G -t 300 tests/uml/restart --plimsoll $$(dev/target-dir)/$(PROFILE)/plimsoll
	dev/uml -m 4G -t 300 tests/uml/filesystems --plimsoll $$(dev/target-dir)/$(PROFILE)/plimsoll
	dev/uml -m 4G -t 300 tests/uml/volumes --plimsoll $$(dev/target-dir)/$(PROFILE)/plimsoll
	dev/uml -m 3G -t 300 tests/uml/frozen --plimsoll $$(dev/target-dir)/$(PROFILE)/plimsoll
	dev/uml -m 3G -t 300 tests/uml/bad-sectors --plimsoll $$(dev/target-dir)/$(PROFILE)/plimsoll
	dev/uml -m 3G -t 300 tests/uml/two-hosts --plimsoll $$(dev/target-dir)/$(PROFILE)/plimsoll
	dev/uml -m 4G -t 300 tests/uml/quota --plimsoll $$(dev/target-dir)/$(PROFILE)/plimsoll
	dev/uml -m 4G -t 300 tests/uml/quota --store series --plimsoll $$(dev/target-dir)/$(PROFILE)/plimsoll
	dev/uml -m 4G -t 300 tests/uml/lost-power --plimsoll $$(dev/target-dir)/$(PROFILE)/plimsoll
	dev/uml -m 4G -t 300 tests/uml/tiered --part through --plimsoll $$(dev/target-dir)/$(PROFILE)/plimsoll

.PHONY: setup-uml
setup-uml:
	@dev/setup uml

.PHONY: lint
lint: rocksdb $(TOOLS)/bin/cargo-deny
	dev/layers --self-test
	dev/layers
	dev/mutants --check
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy $(ALL) --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(ALL) --no-deps
	$(CARGO) fetch --locked --quiet # of other platforms too: they are in the lock file
	$(CARGO) deny --offline check bans licenses sources
	@if $(CARGO) deny --log-level off fetch db; then $(CARGO) deny check advisories; \
	else echo "advisories: not checked, their database cannot be reached from here"; fi

bench: build ## The benches, profile short (ARGS="--json FILE --html FILE")
	@dev/setup bench
	$$(dev/target-dir)/release/plimsoll bench provider --profile short $(ARGS)
	$$(dev/target-dir)/release/plimsoll bench path --profile short
	$$(dev/target-dir)/release/plimsoll bench kv --profile short
	$$(dev/target-dir)/release/plimsoll bench contract --profile short
	$$(dev/target-dir)/release/plimsoll bench spread --profile short
	$$(dev/target-dir)/release/plimsoll bench coded --profile short
	$$(dev/target-dir)/release/plimsoll bench parity --profile short
	$$(dev/target-dir)/release/plimsoll bench tier --profile short
	$$(dev/target-dir)/release/plimsoll bench series --profile short
	$$(dev/target-dir)/release/plimsoll bench background --profile short
	$$(dev/target-dir)/release/plimsoll bench ingest --profile short
	$(CARGO) bench $(CRITERION)

install: build ## Put `plimsoll` on the PATH ($(HOME)/.cargo/bin)
	install -D $$(dev/target-dir)/release/plimsoll $(HOME)/.cargo/bin/plimsoll

clean: ## Remove what cargo built; RocksDB stays in ~/.cache/plimsoll/rocksdb
	$(CARGO) clean

$(VENV)/.ready: tests/clients/requirements.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --requirement $<
	touch $@

# It runs for seconds: compiling it without optimization is the shorter wait.
$(TOOLS)/bin/cargo-deny:
	$(CARGO) install --debug --locked --root $(TOOLS) --version 0.20.2 cargo-deny
