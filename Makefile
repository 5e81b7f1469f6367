# Common tasks; `make help` lists them. The targets install what is missing. They need git, a Rust toolchain and
# Python 3, and root or sudo for packages.
#
#   CARGO_TARGET_DIR   where cargo builds (default: ./target)
#   SEEDS              the simulator's seeds: make sim SEEDS=1..500 (default: a thousand new ones)
#   TMPDIR             where `make test` and `make bench` keep their files (default: /dev/shm if it has a gigabyte free, else /tmp)
#   ARGS               arguments for the program: make up ARGS="--listen 127.0.0.1:9100", make demo ARGS=--keep

CARGO ?= cargo
ARGS ?=
SEEDS ?=
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
TOOLS := $(abspath $(TARGET))/tools
PROGRAM := $(TARGET)/debug/sluice
RANDOM_SEED = $$(od -An -N6 -tu8 /dev/urandom | tr -d " ")

.DEFAULT_GOAL := help
.PHONY: help setup build demo demo-ministack up test test-wide bench sim mutations fuzz fuzzers lint format template dependencies advisories docs

help: ## Lists the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## Installs what is missing: OpenSSH, bubblewrap, rsync, two versions of Ansible in Python environments, mmdebstrap, nftables, a C compiler.
	@infra/executor/install.sh
	@infra/node-tools.sh
	@infra/build-tools.sh

build: setup ## Builds the programs.
	@echo "==> building (the first time takes some minutes)"
	@$(CARGO) build --locked --workspace --bins

demo: build ## Starts a system in a fresh directory and gates four changes, with every decision and its reason.
	@$(PROGRAM) demo $(ARGS)

demo-ministack: build ## As demo, with the data services of ministack, an emulator of AWS that others wrote.
	@$(TARGET)/debug/on-ministack $(PROGRAM) demo --endpoint {} $(ARGS)

up: build ## Runs the whole system on this machine until Ctrl-C.
	@exec $(PROGRAM) up $(ARGS)

# Some tests read documents and data beside the checkout. Where they do not exist, SLUICE_WAIVE names them, and the tests print what
# they skipped.
WAIVED := $(if $(SLUICE_SHARED)$(wildcard ../shared/seeds/.),,seeds) $(if $(SLUICE_TEST_DATA)$(wildcard ../shared/data/real-config/openstack/.),,openstack)

# Files lie in memory where there is room: with ext4, creating and deleting directories takes a tenth of the time of the tests and
# dominates what a build costs. Containers often have a /dev/shm of 64 MB, which is too small.
FILES = $(if $(TMPDIR),$(TMPDIR),$(shell [ -w /dev/shm ] && [ "$$(df -Pk /dev/shm | awk 'NR == 2 { print $$4 }')" -gt 1000000 ] && echo /dev/shm || echo /tmp))

# Some tests start the programs, so they are built first.
test: build ## Runs every test.
	@infra/test-tools.sh $(TOOLS)
	@echo "==> testing, with files in $(FILES)"
	@TMPDIR=$(FILES) PATH="$(TOOLS)/go/bin:$(TOOLS)/node/bin:$$PATH" SLUICE_WAIVE="$${SLUICE_WAIVE-$(strip $(WAIVED))}" CARGO="$(CARGO)" PROGRAM="$(abspath $(PROGRAM))" tests/run $(ARGS)

test-wide: setup ## Runs what is too slow for every change: new seeds, every stop of the story, more random tests, mutants, fuzzing.
	@$(MAKE) sim
	@$(MAKE) mutations
	@$(MAKE) fuzz

bench: setup ## Measures calls, latency and throughput against the budget.
	@echo "==> measuring (an optimised build; the first one takes some minutes), with files in $(FILES)"
	@$(CARGO) build --locked --release --package sluice-bench
	@TMPDIR=$(FILES) $(CARGO) run --quiet --locked --release --package sluice-bench -- $(ARGS)
	@echo "==> measuring through the emulator"
	@$(CARGO) run --locked --release --package sluice-bench-emulated
	@echo "==> measuring configuration"
	@$(CARGO) run --locked --release --package sluice-bench-configuration
	@echo "==> measuring the executor: its own time, its memory, twenty builds at once, a flood of output"
	@TMPDIR=$(FILES) $(CARGO) bench --quiet --locked --package sluice-executor --bench figures
	@echo "==> measuring the delay of lines that a node prints"
	@TMPDIR=$(FILES) $(CARGO) test --quiet --locked --release --package sluice-executor --test ansible -- --nocapture a_line_is_in_the_log
	@echo "==> measuring the whole system (not optimised): the delay until readers have a line, recovery from a killed executor"
	@$(CARGO) build --quiet --locked --workspace --bins
	@$(PROGRAM) up --prepare-nodes
	@TMPDIR=$(FILES) $(CARGO) test --quiet --locked --package sluice-local-tests --test console --test killed -- --nocapture a_printed_line a_killed_executor_loses_no_build

sim: setup ## Simulates whole sites from new seeds (or SEEDS=1..500), runs more random tests, stops the story at every call.
	@echo "==> simulating"
	@$(CARGO) run --locked --package sluice-simulation -- $(SEEDS)
	@PROPTEST_RNG_SEED=$(RANDOM_SEED) PROPTEST_CASES=10000 $(CARGO) test --locked --package sluice-gate --package sluice-pool $(ARGS)
	@SLUICE_SIM_EVERY=1 $(CARGO) test --locked --package sluice-simulation $(ARGS)
	@SLUICE_STORY_EVERY=1 $(CARGO) test --locked --package sluice-scenarios $(ARGS)

mutations: setup ## Changes the pure crates in a hundred small ways and lists the changes that no test notices.
	@CARGO="$(CARGO)" tests/mutations/run $(ARGS)

fuzzers: setup ## Builds the fuzzers.
	@tests/fuzz/run 0

FUZZ_SECONDS ?= 120
fuzz: setup ## Damages configuration for some minutes: no panic, no unbounded memory.
	@PROPTEST_RNG_SEED=$(RANDOM_SEED) PROPTEST_CASES=30000 $(CARGO) test --locked --package sluice-config --test fuzz --test all $(ARGS)
	@tests/fuzz/run $(FUZZ_SECONDS)

format: ## Checks the formatting.
	@$(CARGO) fmt --all --check

lint: setup format ## Checks formatting and lints.
	@$(CARGO) clippy --quiet --locked --workspace --all-targets -- -D warnings

template: ## Checks the AWS template with a pinned cfn-lint.
	@infra/check-template.sh $(TOOLS)

dependencies: ## Checks licences, sources and duplicate versions of dependencies with a pinned cargo-deny.
	@infra/check-dependencies.sh $(TOOLS) licenses bans sources

advisories: ## Checks dependencies for known vulnerabilities, if the database can be reached.
	@infra/check-dependencies.sh $(TOOLS) advisories

docs: ## Builds the book of docs/ and checks its links.
	@infra/docs/build.sh $(abspath $(TARGET))/docs
