#!/bin/sh
# Builds the book of docs/ with its internal links checked. A broken link, or a page that the navigation omits, fails.
#
#   build.sh DIRECTORY    DIRECTORY/environment gets the pinned mkdocs, DIRECTORY/site the pages
set -eu

here=$(cd "$(dirname "$0")" && pwd)
directory=${1:?build.sh: name a directory for the pages}
environment=$directory/environment
if ! cmp -s "$here/requirements.txt" "$environment/installed.txt"; then
    /usr/bin/python3 -m venv --clear "$environment"
    "$environment/bin/pip" --quiet --disable-pip-version-check install -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$environment/installed.txt"
fi
"$environment/bin/mkdocs" build --strict --config-file "$here/mkdocs.yml" --site-dir "$directory/site"
