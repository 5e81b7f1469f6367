#!/bin/sh
# Installs what local nodes need on Debian 12, and gives the calling user ids for the users of nodes. Does nothing if
# all of it is there. Needs root or sudo otherwise.
#
# mmdebstrap makes the image of the nodes, newuidmap gives them users, ip and nft connect their networks. The ids are
# in /etc/subuid and /etc/subgid, where most users have some from the beginning and root has none.
set -eu

# How many ids a node needs, and where those begin that neither users of Debian nor other containers get by default.
IDS=65536
FIRST_ID=1879048192

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "node-tools.sh: '$*' needs root: run this as root, or install sudo" >&2
        exit 1
    fi
}

# Prints the end of the highest range that a file has, or what is before FIRST_ID.
last_id() {
    awk -F: -v last=$((FIRST_ID - 1)) '$2 + $3 - 1 > last { last = $2 + $3 - 1 } END { printf "%.0f\n", last }' "$1"
}

# add_range FILE OPTION: gives the user a range of ids unless it has one.
add_range() {
    if grep -qsE "^($user|$(id -u)):" "$1"; then return; fi
    as_root touch "$1"
    first=$(($(last_id "$1") + 1))
    echo "node-tools.sh: giving $user the ids from $first in $1"
    as_root usermod "$2" "$first-$((first + IDS - 1))" "$user"
}

PATH=$PATH:/usr/sbin:/sbin
missing=
command -v mmdebstrap >/dev/null || missing="$missing mmdebstrap"
command -v newuidmap >/dev/null || missing="$missing uidmap"
command -v ip >/dev/null || missing="$missing iproute2"
command -v nft >/dev/null || missing="$missing nftables"
if [ -n "$missing" ]; then
    echo "node-tools.sh: installing$missing"
    as_root apt-get -qq -o DPkg::Lock::Timeout=300 update
    # shellcheck disable=SC2086 # A list of names.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends $missing >/dev/null
fi

user=$(id -un)
add_range /etc/subuid --add-subuids
add_range /etc/subgid --add-subgids
