"""What a confined process of the tests does: an attack each, whose result goes up the channel as JSON."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import time


def _tell(channel: socket.socket, **found: object) -> None:
    channel.sendall(json.dumps(found).encode() + b"\n")


def look_around(channel: socket.socket) -> None:
    """Which descriptors, variables and directory the process has."""
    print("looked around")
    descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    open_ones = [number for number in descriptors if os.path.exists(f"/proc/self/fd/{number}") or _is_socket(number)]
    _tell(channel, descriptors=open_ones, number=channel.fileno(), variables=dict(os.environ), directory=os.getcwd())


def _is_socket(number: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
    except OSError:
        return False


def leave(channel: socket.socket, status: int) -> None:
    os._exit(status)


def kill_itself(channel: socket.socket, number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def wait(channel: socket.socket) -> None:
    """Until the trusted side says something."""
    _tell(channel, pid=os.getpid())
    channel.recv(1)


def loop(channel: socket.socket) -> None:
    _tell(channel, pid=os.getpid())
    while True:
        pass


def stop(channel: socket.socket) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def be_attacked(channel: socket.socket, signalled: str) -> None:
    """A process of the same user with a word in its memory; a signal of a file is written to `signalled`."""
    descriptor = os.open(signalled, os.O_WRONLY)
    signal.signal(signal.SIGUSR1, lambda *of_the_signal: os.write(descriptor, b"signalled"))
    word = ctypes.create_string_buffer(b"a secret")
    _tell(channel, pid=os.getpid(), address=ctypes.addressof(word))
    while channel.recv(1):
        pass
