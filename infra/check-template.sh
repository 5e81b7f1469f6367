#!/bin/sh
# Checks template.yaml in this directory with a pinned cfn-lint, which is installed on first use. `make lint` and .ci/run call it.
#
#   check-template.sh DIRECTORY    where cfn-lint goes (DIRECTORY/cfn-lint-VERSION)
set -eu

directory=${1:?check-template.sh: name a directory for cfn-lint}
# Pinned: a new version finds new things, and that is a change of its own.
CFN_LINT=1.51.0

environment=$directory/cfn-lint-$CFN_LINT
if [ ! -e "$environment/installed" ]; then
    echo "check-template.sh: installing cfn-lint $CFN_LINT into $environment"
    rm -rf "$environment"
    python3 -m venv "$environment"
    "$environment/bin/pip" --quiet --disable-pip-version-check install "cfn-lint==$CFN_LINT"
    touch "$environment/installed"
fi
"$environment/bin/cfn-lint" "$(dirname "$0")/template.yaml"
echo "infra/template.yaml: nothing to say"
