#!/bin/sh
# Checks the dependencies by deny.toml with a pinned cargo-deny, which is built on first use.
#
#   check-dependencies.sh DIRECTORY CHECK...    DIRECTORY is where cargo-deny is installed; CHECK is `licenses`,
#                                               `bans`, `sources` or `advisories`
#
# SLUICE_ADVISORIES names the git repository with known vulnerabilities, for example a mirror. `advisories` prints that
# it was skipped if the repository cannot be reached.
set -eu

cd "$(dirname "$0")/.."
tools=${1:?check-dependencies.sh: name a directory for cargo-deny}
shift
# Pinned: a new version finds new problems, and that is a change of its own.
CARGO_DENY=0.20.2
ADVISORIES=https://github.com/RustSec/advisory-db

# Unoptimised: it runs for seconds, and builds in half the time.
if [ "$("$tools/bin/cargo-deny" --version 2>/dev/null)" != "cargo-deny $CARGO_DENY" ]; then
    CARGO_TARGET_DIR=$tools/build CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
        cargo install --quiet --locked --force --profile dev --root "$tools" "cargo-deny@$CARGO_DENY"
    rm -rf "$tools/build"
fi

rules=deny.toml
if [ "$*" = advisories ]; then
    database=${SLUICE_ADVISORIES:-$ADVISORIES}
    if ! GIT_TERMINAL_PROMPT=0 timeout 30 git ls-remote --exit-code "$database" HEAD >/dev/null 2>&1; then
        echo "SKIPPED: advisories, the database cannot be reached"
        exit 0
    fi
    if [ "$database" != "$ADVISORIES" ]; then
        # cargo-deny reads the address only from its configuration.
        rules=$tools/deny.toml
        database=$database awk '{ print }
            $0 == "[advisories]" { printf "db-urls = [\"%s\"]\n", ENVIRON["database"] }' deny.toml >"$rules"
    fi
fi
"$tools/bin/cargo-deny" --locked --config "$rules" check --hide-inclusion-graph "$@"
