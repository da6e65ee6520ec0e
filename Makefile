# The verbs of the project. `make` alone lists them.

CARGO   ?= cargo
TOOLS   := $(HOME)/.cache/plimsoll/tools
VENV    := target/venv
# One selection everywhere: another one resolves other features and compiles RocksDB again (docs/adr/0001).
ALL     := --release --locked --workspace
# Packages that do not link RocksDB have benches of their own.
CRITERION := $(addprefix -p plimsoll-,engine policy pool serve volume)

export PATH := $(TOOLS)/bin:$(PATH)

.PHONY: help setup build demo test check bench install clean

help: ## List these verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Look for what the build needs and install it, or print the line that does
	@dev/setup

build: setup ## Build everything, RocksDB included
	$(CARGO) build $(ALL)

demo: build ## Plain RocksDB beside Plimsoll at the line, then serve it (ARGS=--once ends by itself)
	@$$(dev/target-dir)/release/plimsoll demo $(ARGS)

test: setup $(VENV)/.ready ## Every test, with real clients
	$(CARGO) test $(ALL)
	PLIMSOLL=$$(dev/target-dir)/release/plimsoll $(VENV)/bin/python -m pytest -q tests/clients

check: setup lint test ## What CI looks at: formatting, lints, documentation, licences, tests

.PHONY: lint
lint: $(TOOLS)/bin/cargo-deny
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
	$$(dev/target-dir)/release/plimsoll bench series --profile short
	$$(dev/target-dir)/release/plimsoll bench ingest --profile short
	$(CARGO) bench $(CRITERION)

install: build ## Put `plimsoll` on the PATH ($(HOME)/.cargo/bin)
	install -D $$(dev/target-dir)/release/plimsoll $(HOME)/.cargo/bin/plimsoll

clean: ## Remove what was built (RocksDB too)
	$(CARGO) clean

$(VENV)/.ready: tests/clients/requirements.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --requirement $<
	touch $@

$(TOOLS)/bin/cargo-deny:
	$(CARGO) install --locked --root $(TOOLS) --version 0.20.2 cargo-deny
