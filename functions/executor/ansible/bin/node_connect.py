"""Gives ssh a connection to a node through the executor's gateway.

ssh calls it as its ProxyCommand with ProxyUseFdpass: the connected socket is handed over and this process ends, so
nothing stands between ssh and the gateway afterwards.
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
