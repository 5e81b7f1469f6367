"""Connects ssh to a node through the executor's broker, an HTTP proxy on a Unix socket.

ssh runs it as its ProxyCommand with ProxyUseFdpass: it passes the connected socket to ssh and exits.
"""

import array
import socket
import sys

# The broker's answers are far shorter.
HEAD_BYTES_MAX = 4096


def read_head(connection):
    """Reads an answer up to its empty line, and nothing of what follows, which is for ssh."""
    head = b""
    while not head.endswith(b"\r\n\r\n") and len(head) < HEAD_BYTES_MAX:
        byte = connection.recv(1)
        if not byte:
            break
        head += byte
    return head.decode("latin-1")


def main(broker, host, port):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(broker)
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    connection.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
    status = read_head(connection).split("\r\n")[0].split(" ", 2)
    if status[1:2] != ["200"]:
        sys.exit("the executor's broker did not connect: " + (status[2] if len(status) > 2 else "no answer"))
    ssh = socket.socket(fileno=sys.stdout.fileno())
    ssh.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection.fileno()]))])
    ssh.detach()


main(*sys.argv[1:4])
