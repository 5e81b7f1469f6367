"""Gives a sandbox its way to the network, then becomes the program that runs in it.

    network_relay.py BROKER PORT PROGRAM [ARGUMENT...]

Listens on the sandbox's own loopback and connects each client to the executor's broker, an HTTP proxy on a Unix
socket, in a process of its own that ends with the sandbox. HTTP_PROXY names the port.
"""

import os
import socket
import sys
import threading

# The broker serves as many at once; further clients wait.
CONNECTIONS_MAX = 64


def copy(source, target):
    """Copies bytes until the source ends or one side breaks."""
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for side in (source, target):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # It is closed already.


def serve(client, broker, room):
    with room, client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as proxy:
        try:
            proxy.connect(broker)
        except OSError:
            return  # The build ends.
        back = threading.Thread(target=copy, args=(proxy, client), daemon=True)
        back.start()
        copy(client, proxy)
        back.join()


def relay(listener, broker):
    room = threading.Semaphore(CONNECTIONS_MAX)
    while True:
        with room:
            client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, broker, room), daemon=True).start()


def detach():
    """Returns in a new process that is no child of this one, and holds none of its pipes."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return False
    if os.fork():
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    return True


def main(broker, port, program):
    try:
        listener = socket.create_server(("127.0.0.1", int(port)), backlog=CONNECTIONS_MAX)
        if detach():
            relay(listener, broker)
            os._exit(0)
        listener.close()
    except OSError as error:
        # The playbook runs without a network.
        print(f"The sandbox has no way to the network: {error}", file=sys.stderr, flush=True)
    os.execv(program[0], program)


main(sys.argv[1], sys.argv[2], sys.argv[3:])
