#!/bin/sh
# Installs the tools that a build needs in addition to Rust: a C compiler, and CMake for the cryptography library. Does
# nothing if they are installed. Needs root or sudo otherwise.
set -eu

missing=
command -v cc >/dev/null || missing="$missing gcc libc6-dev"
command -v cmake >/dev/null || missing="$missing cmake"
command -v make >/dev/null || missing="$missing make"
[ -z "$missing" ] && exit 0

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "build-tools.sh: '$*' needs root: run this as root, or install sudo" >&2
        exit 1
    fi
}

echo "build-tools.sh: installing$missing"
as_root apt-get -qq -o DPkg::Lock::Timeout=300 update
# shellcheck disable=SC2086 # A list of names.
as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends $missing >/dev/null
