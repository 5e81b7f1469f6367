#!/bin/sh
# Installs what an executor needs on Debian 12: git, OpenSSH, bubblewrap, rsync, and for each version of Ansible that a
# job may choose (`ansible-version`) a Python environment with the packages that requirements-VERSION.txt pins. Running
# it again changes nothing and is quick. The image's Dockerfile, the make targets and the tests all call this script.
#
#   install.sh [--check] [--prefix DIRECTORY]
#
#   --check     change nothing; print what is missing, one thing a line, and exit 1 if there is any
#   --prefix    where the Python environments go, each in a directory named after its version (default:
#               $SLUICE_ANSIBLE_PREFIX, else /opt/sluice/ansible)
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
versions="9 11"

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
    environments_are_there || ls /usr/lib/python3.*/ensurepip/__init__.py >/dev/null 2>&1 || echo python3-venv
    [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
}

# Prints every package of the environment of a version.
requirements() {
    cat "$here/requirements-$1.txt" "$here/requirements-libraries.txt"
}

# Right when it was finished for exactly these packages. The interpreter is tried, since an upgrade of the system may
# have taken it away.
environment_is_there() {
    requirements "$1" | cmp -s - "$prefix/$1/installed-requirements.txt" && "$prefix/$1/bin/python" -I -S -c pass 2>/dev/null
}

environments_are_there() {
    for version in $versions; do
        environment_is_there "$version" || return 1
    done
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
    for version in $versions; do
        environment_is_there "$version" && continue
        echo "python environment $prefix/$version with $(grep -o '^ansible==[^ ]*' "$here/requirements-$version.txt")"
        status=1
    done
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

environments_are_there && exit 0

run=
mkdir -p "$prefix" 2>/dev/null && [ -w "$prefix" ] || run=as_root
$run mkdir -p "$prefix"
# Two callers at once (tests, make) would trip over each other: the second waits and finds the work done.
lock=/tmp/sluice-install-$(id -u).lock
exec 9>"$lock"
flock 9
for version in $versions; do
    environment_is_there "$version" && continue
    environment=$prefix/$version
    echo "install.sh: making the Python environment $environment"
    $run "$python" -m venv --clear "$environment"
    # The files name every package, also those that others depend on, so there is nothing to resolve.
    $run "$environment/bin/python" -m pip --quiet --disable-pip-version-check install --no-compile --no-deps -r "$here/requirements-$version.txt"
    $run "$environment/bin/python" -m pip --quiet --disable-pip-version-check check
    # Bytecode now, since the sandbox's view of this directory is read-only and could not keep it. It is checked by hash
    # never again: the files do not change, and each start would look at thousands of them. Not of collections, which
    # are most of the files: Ansible compiles their plugins itself and their modules run on the node.
    $run "$environment/bin/python" -m compileall -q -j 0 --invalidation-mode unchecked-hash -x /ansible_collections/ "$environment/lib" >/dev/null
    requirements "$version" | $run tee "$environment/installed-requirements.txt" >/dev/null
done
