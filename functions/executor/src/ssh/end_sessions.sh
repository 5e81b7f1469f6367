# Ends what other SSH sessions than this one have started on this machine, also where the connection has ended since:
# the executor that opened them is lost, and may only have been paused. A process belongs to a session if its
# environment has the session's SSH_CONNECTION, or if it is in a process session with such a process. Sessions at
# another address or port of this machine are left alone.
#
# Run by sh over the connection that is to stay. Ends with exit status 0 once two looks in a row found nothing left. A
# look starts five programs, however many processes there are.
set -u
[ -n "${SSH_CONNECTION:-}" ] || { echo "this is no SSH session" >&2; exit 1; }
printf 'A=1\0SSH_CONNECTION=2\0' | grep -aqz '^SSH_CONNECTION=' || { echo "grep must know -z: install GNU grep" >&2; exit 1; }
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

# Prints the line `stat` of each process, and the path of the environment with SSH_CONNECTION of each that has one.
processes() {
    cat /proc/[0-9]*/stat 2>/dev/null
    $as_root grep -aHz -m 1 '^SSH_CONNECTION=' /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n'
}

# Prints the processes to end: other connections, what has another session's environment, and of both the process
# sessions and descendants.
others() {
    processes | awk -v listener="$listener" -v own="$own" -v own_session="$own_session" -v connection="$SSH_CONNECTION" '
        # Returns address and port of the server from "client port server port".
        function server(of) { sub(/^[^ ]* [^ ]* /, "", of); return of }
        /^\/proc\/[0-9]+\/environ:SSH_CONNECTION=/ {
            split($0, path, "/")
            of = $0
            sub(/^[^=]*=/, "", of)
            if (of != "" && of != connection && server(of) == server(connection)) other[path[3]] = 1
            next
        }
        /^[0-9]+ \(/ {
            # The name may contain spaces and parentheses.
            name = rest = $0
            sub(/^[0-9]+ \(/, "", name)
            sub(/^.*\) /, "", rest)
            split(rest, field, " ")
            parent[$1] = field[2]; session[$1] = field[4]
            if (name ~ /^sshd/) sshd[$1] = 1
            if (index(own, " " $1 " ")) stays[$1] = 1
        }
        END {
            for (p in parent) if ((p in sshd) && listener != "" && parent[p] == listener) other[p] = 1
            do {
                changed = 0
                for (p in parent) if ((p in other) && !(p in stays) && session[p] != own_session && !(p in sshd)) ends[session[p]] = 1
                for (p in parent) {
                    if ((p in other) || (p in stays)) continue
                    if ((session[p] in ends) || (parent[p] in other) && !(parent[p] in stays)) { other[p] = 1; changed = 1 }
                }
            } while (changed)
            for (p in parent) if ((p in other) && !(p in stays)) print p
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
