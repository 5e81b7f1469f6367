# What people do with this checkout. `make help` lists it. Everything that is missing is installed by the targets
# themselves; they need git, a Rust toolchain and Python 3, and root or sudo for packages.
#
#   CARGO_TARGET_DIR   where cargo builds (default: ./target); put it outside of a checkout that is watched or copied
#   SEEDS              which sites the simulator plays: make sim SEEDS=1..500 (default: a thousand new ones)
#   TMPDIR             where `make bench` keeps its files (default: /dev/shm where it has a gigabyte free, else /tmp)
#   ARGS               passed on to the program: make up ARGS="--listen 127.0.0.1:9100", make demo ARGS=--keep

CARGO ?= cargo
ARGS ?=
SEEDS ?=
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
TOOLS := $(abspath $(TARGET))/tools
PROGRAM := $(TARGET)/debug/sluice

.DEFAULT_GOAL := help
.PHONY: help setup build demo up test bench sim fuzz lint

help: ## Lists the targets.
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

# One script installs what executors need; the demo, the tests and the executor's image all call it.
setup: ## Installs what is missing: OpenSSH, bubblewrap, rsync, a Python environment with ansible-core, a C compiler.
	@echo "==> looking for what is missing"
	@infra/executor/install.sh
	@infra/build-tools.sh

build: setup ## Builds `sluice` and `bootstrap`.
	@echo "==> building (the first time takes some minutes)"
	@$(CARGO) build --locked --package sluice-cli --bins

demo: build ## Starts a system in a fresh directory and gates four changes, telling what happens and why.
	@$(PROGRAM) demo $(ARGS)

up: build ## Runs the whole system on this machine until Ctrl-C.
	@exec $(PROGRAM) up $(ARGS)

# Tests that read what lies beside the checkout fail where it does not; here what is not there is waived by its name, and the tests
# say at their end what they did not look at.
WAIVED := $(if $(SLUICE_SHARED)$(wildcard ../shared/seeds/.),,seeds) $(if $(SLUICE_TEST_DATA)$(wildcard ../shared/data/real-config/openstack/.),,openstack)

# The programs are built first: some tests start them.
test: build ## Passes every test.
	@infra/test-tools.sh $(TOOLS)/go
	@echo "==> testing"
	@PATH="$(TOOLS)/go/bin:$$PATH" SLUICE_WAIVE="$${SLUICE_WAIVE-$(strip $(WAIVED))}" $(CARGO) test --locked --workspace $(ARGS)

# Optimised, since they tell rates and times. The second holds the SDK, which takes minutes to build so. Repositories and directories
# of builds lie in memory where they can: whenever ext4 makes a file, it looks through those that were deleted of late, which would be
# most of what a build is measured to take.
# Containers often have 64 MB there, which is too little.
BENCH_TMPDIR = $(if $(TMPDIR),$(TMPDIR),$(shell [ -w /dev/shm ] && [ "$$(df -Pk /dev/shm | awk 'NR == 2 { print $$4 }')" -gt 1000000 ] && echo /dev/shm || echo /tmp))

bench: setup ## Measures calls, latency and throughput against the budget.
	@echo "==> measuring (an optimised build; the first one takes some minutes), with files in $(BENCH_TMPDIR)"
	@$(CARGO) build --locked --release --package sluice-bench
	@TMPDIR=$(BENCH_TMPDIR) $(CARGO) run --quiet --locked --release --package sluice-bench -- $(ARGS)
	@echo "==> measuring through the emulator"
	@$(CARGO) run --locked --release --package sluice-bench-emulated
	@echo "==> measuring configuration (optimised; builds some small crates)"
	@$(CARGO) run --locked --release --package sluice-bench-configuration

sim: setup ## Plays whole sites by new seeds (SEEDS=1..500: by these), random tests, and the story stopped at every port call.
	@echo "==> simulating"
	@$(CARGO) run --locked --package sluice-simulation -- $(SEEDS)
	@PROPTEST_RNG_SEED=$$(od -An -N6 -tu8 /dev/urandom | tr -d " ") PROPTEST_CASES=10000 \
		$(CARGO) test --locked --package sluice-gate --package sluice-pool $(ARGS)
	@SLUICE_STORY_EVERY=1 $(CARGO) test --locked --package sluice-scenarios $(ARGS)

fuzz: ## Damages configuration for some minutes, at random and guided by what it reaches: no panic, no memory without end.
	@echo "==> damaging configuration"
	@PROPTEST_RNG_SEED=$$(od -An -N6 -tu8 /dev/urandom | tr -d " ") PROPTEST_CASES=30000 \
		$(CARGO) test --locked --package sluice-config --test fuzz --test layout $(ARGS)
	@tests/fuzz/run 120

lint: setup ## Checks formatting, lints and the template.
	@echo "==> formatting"
	@$(CARGO) fmt --all --check
	@echo "==> lints"
	@$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@echo "==> template"
	@infra/check-template.sh $(TOOLS)
