"""Connects ssh to a node through the executor's gateway.

ssh runs it as its ProxyCommand with ProxyUseFdpass: it passes the connected socket to ssh and exits.
"""

import array
import socket
import sys


def main(gateway, host, port):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(gateway)
    connection.sendall(f"{host} {port}\n".encode())
    ssh = socket.socket(fileno=sys.stdout.fileno())
    ssh.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection.fileno()]))])
    ssh.detach()


main(*sys.argv[1:4])
