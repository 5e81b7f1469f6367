#!/bin/sh
# Installs what an executor needs on Debian 12: git, OpenSSH, bubblewrap, rsync, and a Python environment with the
# ansible-core that requirements.txt pins. Running it again changes nothing and is quick. The image's Dockerfile, the
# make targets and the tests all call this script.
#
#   install.sh [--check] [--prefix DIRECTORY]
#
#   --check     change nothing; print what is missing, one thing a line, and exit 1 if there is any
#   --prefix    where the Python environment goes (default: $SLUICE_ANSIBLE_PREFIX, else /opt/sluice/ansible)
#
# Needs root or sudo for packages, and for a prefix that the caller may not write to. Quiet unless something fails or
# takes long.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
prefix=${SLUICE_ANSIBLE_PREFIX:-/opt/sluice/ansible}
check=no
while [ $# -gt 0 ]; do
    case $1 in
        --check) check=yes ;;
        --prefix) prefix=${2:?install.sh: --prefix needs a directory}; shift ;;
        --prefix=*) prefix=${1#--prefix=} ;;
        *) echo "install.sh: unknown argument $1 (see the head of $0)" >&2; exit 2 ;;
    esac
    shift
done
case $prefix in
    /*) ;;
    *) prefix=$(pwd)/$prefix ;;
esac
PATH=$PATH:/usr/sbin:/sbin
stamp=$prefix/installed-requirements.txt

# The system's own Python: one from a version manager may vanish, and lies where a sandbox does not see it.
python=/usr/bin/python3

missing_packages() {
    command -v git >/dev/null || echo git
    command -v ssh >/dev/null && command -v ssh-agent >/dev/null && command -v ssh-add >/dev/null || echo openssh-client
    [ -x /usr/sbin/sshd ] || echo openssh-server
    command -v bwrap >/dev/null || echo bubblewrap
    command -v rsync >/dev/null || echo rsync
    [ -x "$python" ] || echo python3
    # Debian splits what makes environments off Python itself.
    environment_is_there || ls /usr/lib/python3.*/ensurepip/__init__.py >/dev/null 2>&1 || echo python3-venv
    [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
}

# Right when it was finished for exactly this list. The interpreter is tried, since an upgrade of the system may have
# taken it away.
environment_is_there() {
    cmp -s "$stamp" "$here/requirements.txt" && "$prefix/bin/python" -I -S -c pass 2>/dev/null
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "install.sh: '$*' needs root: run this as root, or install sudo" >&2
        exit 1
    fi
}

packages=$(missing_packages)
if [ "$check" = yes ]; then
    status=0
    for package in $packages; do
        echo "package $package"
        status=1
    done
    if ! environment_is_there; then
        echo "python environment $prefix with $(grep '^ansible-core' "$here/requirements.txt")"
        status=1
    fi
    exit $status
fi

if [ -n "$packages" ]; then
    echo "install.sh: installing" $packages
    as_root apt-get -qq -o DPkg::Lock::Timeout=300 update
    # shellcheck disable=SC2086 # A list of names.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends $packages >/dev/null
fi
# sshd refuses to start without it where no service manager has made it.
[ -d /run/sshd ] || as_root mkdir -p -m 755 /run/sshd

environment_is_there && exit 0

echo "install.sh: making the Python environment $prefix"
parent=$(dirname "$prefix")
run=
mkdir -p "$prefix" 2>/dev/null && [ -w "$prefix" ] || run=as_root
$run mkdir -p "$parent"
# Two callers at once (tests, make) would trip over each other: the second waits and finds the work done.
lock=/tmp/sluice-install-$(id -u).lock
exec 9>"$lock"
flock 9
environment_is_there && exit 0
$run "$python" -m venv --clear "$prefix"
$run "$prefix/bin/python" -m pip --quiet --disable-pip-version-check install --no-compile -r "$here/requirements.txt"
# Bytecode now, since the sandbox's view of this directory is read-only and could not keep it. It is checked by hash
# never again: the files do not change, and each start would look at thousands of them.
$run "$prefix/bin/python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$prefix/lib" >/dev/null
$run install -m 644 "$here/requirements.txt" "$stamp"
