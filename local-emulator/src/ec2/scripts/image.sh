#!/bin/sh
# Writes the file system of a node image as a tar archive to standard output; progress goes to standard error.
#
#   image.sh SUITE    SUITE names a Debian release, for example bookworm
#
# Packages come from those of this machine's apt sources that are for the suite, else from mmdebstrap's own default.
# This machine's apt settings for proxies and checks, its signing keys for these sources and its own certificate
# authorities go into the image. Needs mmdebstrap.
set -eu

suite=${1:?image.sh: name a suite}
# What jobs and the emulator expect of a node: Ansible runs in Python, nodes are reached by SSH, repositories arrive by
# git and rsync.
packages=python3,python3-apt,openssh-server,sudo,git,rsync,ca-certificates,iproute2,procps

scratch=$(mktemp -d)
# Hooks run as root of a user namespace of mmdebstrap.
chmod 711 "$scratch"
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

# Writes the entries of an apt source file that are for the suite or one of its parts (bookworm, bookworm-updates).
entries_of_suite() {
    case $1 in
        *.sources)
            awk -v suite="$suite" 'BEGIN { RS = ""; ORS = "\n\n" }
                {
                    fits = 0
                    count = split($0, lines, "\n")
                    for (i = 1; i <= count; i++) {
                        if (tolower(lines[i]) ~ /^enabled:[ \t]*no/) { fits = 0; break }
                        if (tolower(lines[i]) !~ /^suites:/) continue
                        words = split(lines[i], word, /[ \t]+/)
                        for (j = 2; j <= words; j++) if (word[j] == suite || index(word[j], suite "-") == 1) fits = 1
                    }
                    if (fits) print
                }' "$1"
            ;;
        *)
            awk -v suite="$suite" '$1 == "deb" {
                    for (i = 2; i <= NF; i++) if ($i == suite || index($i, suite "-") == 1) { print; next }
                }' "$1"
            ;;
    esac
}

set --
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] || continue
    copy=$scratch/$(basename "$file")
    entries_of_suite "$file" >"$copy"
    [ ! -s "$copy" ] || set -- "$@" "$copy"
done

# A file, not arguments: the address of a proxy may have a password in it.
apt-config dump --format '%f "%v";%n' 2>/dev/null |
    grep -E '^Acquire::(http|https|ftp|Check-|AllowInsecure|AllowWeak|AllowDowngrade|Retries|ForceIPv|Languages)[^"]* "[^"]' \
        >"$scratch/apt.conf" || true
for scheme in http https; do
    name=${scheme}_proxy
    value=$(eval "printf %s \"\${$name:-}\"")
    [ -z "$value" ] || printf 'Acquire::%s::Proxy "%s";\n' "$scheme" "$value" >>"$scratch/apt.conf"
done

# Signing keys at places that the image does not have by itself.
mkdir "$scratch/keys"
for file; do
    sed -n -e 's/^[Ss]igned-[Bb]y:[ \t]*\(\/[^ \t]*\).*/\1/p' -e 's/^deb \[.*signed-by=\(\/[^] ]*\).*/\1/p' "$file"
done | sort -u | while IFS= read -r key; do
    mkdir -p "$scratch/keys$(dirname "$key")"
    cp "$key" "$scratch/keys$key"
done
# This machine's own certificate authorities, if it has any: making the list takes some seconds.
mkdir "$scratch/authorities"
cat >"$scratch/trust" <<'END'
cp "$scratch"/authorities/*.crt "$1/usr/local/share/ca-certificates/" 2>/dev/null || exit 0
chroot "$1" update-ca-certificates
END
cp /usr/local/share/ca-certificates/*.crt "$scratch/authorities" 2>/dev/null || true
export scratch

# Without a sync for each file: an image that was interrupted is made again from the start.
mmdebstrap --mode=unshare --variant=minbase --format=tar --include="$packages" \
    --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --aptopt="$scratch/apt.conf" \
    --customize-hook='cp -R "$scratch/keys/." "$1/"' \
    --customize-hook='sh "$scratch/trust" "$1"' \
    --customize-hook='rm -f "$1"/etc/ssh/ssh_host_* "$1/etc/hostname" "$1/etc/resolv.conf"' \
    "$suite" - "$@"
