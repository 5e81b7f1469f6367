# Ends what other SSH sessions than this one have started on this machine, also where the connection has ended since:
# the executor that opened them is lost, and may only have been paused. A process belongs to a session if its
# environment has the session's SSH_CONNECTION, or if it is in a process session with such a process. Sessions at
# another address or port of this machine are left alone.
#
# Run by sh over the connection that is to stay. Ends with exit status 0 once two looks in a row found nothing left.
set -u
[ -n "${SSH_CONNECTION:-}" ] || { echo "this is no SSH session" >&2; exit 1; }
server=${SSH_CONNECTION#* * }
as_root=
[ "$(id -u)" = 0 ] || { sudo -n true 2>/dev/null && as_root="sudo -n"; }

# Prints parent and process session of a process.
parent_and_session() {
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
    # The name may contain spaces and parentheses.
    set -- ${stat##*) }
    echo "$2 $4"
}

is_sshd() {
    read -r name 2>/dev/null <"/proc/$1/comm" && case $name in sshd*) true ;; *) false ;; esac
}

# This process and its ancestors stay. The first sshd above them all that is no session listens for connections.
own=" "
listener=
process=$$
while [ "$process" -gt 1 ] && found=$(parent_and_session "$process"); do
    own="$own$process "
    if is_sshd "$process"; then listener=$process; fi
    process=${found% *}
done
own_session=$(parent_and_session $$) && own_session=${own_session#* }

# Prints each process with its parent, its process session, and whether it is an sshd, this session's own, and known by
# its environment to be of another session.
processes() {
    for directory in /proc/[0-9]*; do
        process=${directory#/proc/}
        found=$(parent_and_session "$process") || continue
        sshd=0 stays=0 other=0
        is_sshd "$process" && sshd=1
        case $own in *" $process "*) stays=1 ;; esac
        connection=$($as_root cat "$directory/environ" 2>/dev/null | tr '\0' '\n' | grep '^SSH_CONNECTION=' | head -n 1)
        connection=${connection#SSH_CONNECTION=}
        if [ -n "$connection" ] && [ "$connection" != "$SSH_CONNECTION" ] && [ "${connection#* * }" = "$server" ]; then
            other=1
        fi
        echo "$process $found $sshd $stays $other"
    done
}

# Prints the processes to end: other connections, what has another session's environment, and of both the process
# sessions and descendants.
others() {
    processes | awk -v listener="$listener" -v own_session="$own_session" '
        { parent[$1] = $2; session[$1] = $3; sshd[$1] = $4; stays[$1] = $5; other[$1] = $6 }
        END {
            for (p in parent) if (sshd[p] && listener != "" && parent[p] == listener) other[p] = 1
            do {
                changed = 0
                for (p in parent) if (other[p] && !stays[p] && session[p] != own_session && !sshd[p]) ends[session[p]] = 1
                for (p in parent) if (!other[p] && !stays[p] && (session[p] in ends || other[parent[p]] && !stays[parent[p]])) {
                    other[p] = 1
                    changed = 1
                }
            } while (changed)
            for (p in parent) if (other[p] && !stays[p]) print p
        }'
}

quiet=0
round=0
while [ "$quiet" -lt 2 ]; do
    round=$((round + 1))
    if [ "$round" -gt 20 ]; then
        echo "these processes of other sessions do not end: $left" >&2
        exit 1
    fi
    left=$(others | tr '\n' ' ')
    if [ -z "$left" ]; then
        quiet=$((quiet + 1))
    else
        quiet=0
        $as_root kill -KILL $left 2>/dev/null
    fi
    sleep 0.2
done
