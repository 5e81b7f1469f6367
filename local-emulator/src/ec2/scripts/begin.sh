# Makes the file system of a node from its image and runs a program in it, as the first process of the node's own
# namespaces. The working directory is the node's, in which:
#
#   image        its image, mounted
#   upper, work  what it changed, with an overlay
#   root         where its file system is put together; without an overlay, all of its files
#   instance     what the emulator gives to it, seen at /run/instance
#   resolv.conf  its name servers
#
#   begin.sh NAME FILES ADDRESS GATEWAY PROGRAM...
#
# FILES is `overlay` or `copy`. ADDRESS, with the length of its prefix, is empty for a node in the network of this
# machine. A line on standard input says that the network is attached.
#
# Paths are relative, since root of the node cannot pass through the directories above its own.
set -eu
read -r attached
exec </dev/null
PATH=$PATH:/usr/sbin:/sbin
name=$1 files=$2 address=$3 gateway=$4
shift 4
resolver=$(cat resolv.conf)
if [ "$files" = overlay ]; then
    mount -c -t overlay overlay -o lowerdir=image,upperdir=upper,workdir=work,userxattr root
else
    mount -c --bind root root
fi
cd -P root
# An image may hold anything: no link of it must decide where something is mounted.
for place in proc sys dev run; do
    [ ! -L $place ] || rm $place
    mkdir -p $place
done
mount -c -t proc proc proc
# Only the owner of a network has a view of it.
if [ -n "$address" ]; then
    mount -c -t sysfs sysfs sys
else
    # In parts, since control groups, also below /sys, may belong to the user that is root of the node.
    mount -c -t tmpfs -o mode=755,nosuid,nodev,noexec tmpfs sys
    for part in block bus class dev devices module; do
        [ -d /sys/$part ] || continue
        mkdir sys/$part
        mount -c --bind /sys/$part sys/$part
    done
fi
mount -c -t tmpfs -o mode=755,nosuid tmpfs dev
for device in null zero full random urandom tty; do
    : >dev/$device
    mount -c --bind /dev/$device dev/$device
done
mkdir dev/pts dev/shm
mount -c -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -c -t tmpfs -o mode=1777,nosuid,nodev tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for number in 0 1 2; do
    case $number in 0) stream=stdin ;; 1) stream=stdout ;; *) stream=stderr ;; esac
    ln -s "/proc/self/fd/$number" "dev/$stream"
done
mount -c -t tmpfs -o mode=755,nosuid,nodev tmpfs run
mkdir -m 755 run/sshd run/instance
mkdir -m 1777 run/lock
mount -c --rbind ../instance run/instance
hostname "$name"
if [ -n "$address" ]; then
    ip link set lo up
    ip address add "$address" dev eth0
    ip link set eth0 up
    ip route add default via "$gateway"
fi
# After pivot_root, what was root is over the node's, and reachable until it is unmounted: no program of the node may
# run meanwhile. So a program of this machine unmounts it, which has begun in another mount namespace before.
mkfifo dev/begun dev/pivoted
exec 3<>dev/begun 4<>dev/pivoted
rm dev/begun dev/pivoted
{
    unshare --mount -- /bin/sh -c \
        'echo yes >&3 && read -r pivoted <&4 && exec umount --namespace proc/1/ns/mnt -c -n -l /' || {
        echo no >&3
        false
    }
} &
read -r begun <&3
[ "$begun" = yes ]
pivot_root . .
echo yes >&4
wait $!
exec 3>&- 4>&-
cd /
unset OLDPWD
# From here on programs are the node's.
rm -f /etc/resolv.conf
printf '%s\n' "$resolver" >/etc/resolv.conf
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
