# What a node does at its first boot, as cloud-init would: its name, its logins, and the script of its user data.
#
#   first-boot.sh NAME ADDRESS LOGIN...
#
# No login has a password; each but root may become root.
set -eu
name=$1 address=$2
shift 2
printf '%s\n' "$name" >/etc/hostname
printf '127.0.0.1 localhost\n%s %s\n' "$address" "$name" >/etc/hosts
rm -f /etc/ssh/ssh_host_*
# Where programs look for the host keys that the server shows.
for kind in ed25519 ecdsa; do cp "/run/instance/host_$kind.pub" "/etc/ssh/ssh_host_${kind}_key.pub"; done
# The file of cloud-init, which jobs remove to revoke these rights.
rights=/etc/sudoers.d/90-cloud-init-users
: >"$rights"
chmod 440 "$rights"
for login; do
    id -u "$login" >/dev/null 2>&1 || useradd --create-home --user-group --shell /bin/bash "$login"
    # Neither a password nor a lock: a server without PAM refuses locked logins.
    usermod --password '*' "$login"
    [ "$login" = root ] && continue
    printf '%s ALL=(ALL) NOPASSWD: ALL\n' "$login" >>"$rights"
done
[ -e /run/instance/user-data ] || exit 0
timeout 300 /bin/sh /run/instance/user-data || echo "the script of the user data failed with status $?" >&2
