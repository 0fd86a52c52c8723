"""What a confined process of the tests does: an attack each, whose result goes up the channel as JSON."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable

from bitverdict.harness.sealed.jail.policy import COMPILER
from bitverdict.harness.sealed.jail.zygote import Confinement


def _tell(channel: socket.socket, **found: object) -> None:
    channel.sendall(json.dumps(found).encode() + b"\n")


def look_around(channel: socket.socket) -> None:
    """Which descriptors, variables and directory the process has."""
    print("looked around")
    descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    open_ones = [number for number in descriptors if os.path.exists(f"/proc/self/fd/{number}") or _is_socket(number)]
    with open("/proc/self/status") as file:
        status = dict(line.strip().split(":", 1) for line in file)
    rights = [status[name].strip() for name in ("CapPrm", "CapEff", "NoNewPrivs")]
    _tell(channel, rights=rights, descriptors=open_ones, number=channel.fileno(), variables=dict(os.environ), directory=os.getcwd())


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


def take_memory(channel: socket.socket, most: int) -> None:
    """MiB that it could have, of `most`."""
    held: list[bytearray] = []
    with contextlib.suppress(MemoryError):
        while len(held) < most:
            held.append(bytearray(1 << 20))
    _tell(channel, had=len(held))


def share_memory(channel: socket.socket, most: int) -> None:
    """The same in memory that belongs to no process alone."""
    held: list[mmap.mmap] = []
    with contextlib.suppress(OSError):
        while len(held) < most:
            held.append(mmap.mmap(-1, 1 << 20))
            held[-1][:] = bytes(1 << 20)
    _tell(channel, had=len(held))


def fill_the_disk(channel: socket.socket, most: int) -> None:
    """MiB that it could write, and what stopped it; then it waits, for the case that nothing did at once."""
    written, why = 0, ""
    try:
        for number in range(most):
            with open(f"../full-{os.getpid()}-{number}", "wb") as file:  # beside its own folder: what it leaves is counted too
                file.write(bytes(1 << 20))
            written += 1
    except OSError as error:
        why = str(error.strerror)
    _tell(channel, written=written, why=why)
    channel.recv(1)


def write_a_large_file(channel: socket.socket, size: int) -> None:
    why = ""
    try:
        with open("large", "wb") as file:
            file.write(bytes(size))
    except OSError as error:
        why = str(error.strerror)
    _tell(channel, why=why)


def print_much(channel: socket.socket, size: int) -> None:
    for _ in range(size >> 16):
        os.write(1, b"x" * (1 << 16))
    _tell(channel, printed=size)


def close_the_channel(channel: socket.socket) -> None:
    channel.close()
    time.sleep(60)


def leave_processes(channel: socket.socket, number: int, leave_the_group: bool) -> None:
    """Processes that hold the channel and outlive the one that made them, each made by one that ended."""
    for _ in range(number):
        if not (pid := os.fork()):
            if leave_the_group:
                os.setsid()
            if os.fork():
                os._exit(0)
            time.sleep(60)
            os._exit(0)
        os.waitpid(pid, 0)
    _tell(channel, left=number)
    time.sleep(60)


def start_processes(channel: socket.socket, number: int) -> None:
    """Processes that live as long as the one that started them: nothing but a limit on their number ends them."""
    for _ in range(number):
        if not os.fork():
            time.sleep(60)
            os._exit(0)
    _tell(channel, started=number)
    time.sleep(60)


def make_processes_without_end(channel: socket.socket) -> None:
    while True:
        with contextlib.suppress(OSError):
            os.fork()


def make_threads(channel: socket.socket, most: int) -> None:
    threading.stack_size(1 << 16)
    with contextlib.suppress(RuntimeError):
        for _ in range(most):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    _tell(channel, threads=threading.active_count())
    time.sleep(60)


def print_twice(channel: socket.socket, size: int) -> None:
    for number in range(2):
        os.write(1, b"x" * size)
        _tell(channel, printed=number)
        channel.recv(1)
        if number:
            return


def kill_the_parent(channel: socket.socket) -> None:
    why = ""
    try:
        os.kill(os.getppid(), signal.SIGKILL)
    except OSError as error:
        why = str(error)
    _tell(channel, why=why)


def open_the_memory(channel: socket.socket, of: list[int]) -> None:
    """What stops it from opening the memory of each process, empty where nothing does."""
    found = []
    for pid in of:
        try:
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
            found.append("")
        except OSError as error:
            found.append(str(error.strerror))
    _tell(channel, found=found)


def be_unreadable(channel: socket.socket) -> None:
    from bitverdict.harness.sealed.jail.confine import unreadable

    unreadable()
    wait(channel)


def execute(channel: socket.socket, confinement: Confinement) -> None:
    """An executor: a compiler that it forks, which may write and start programs; then itself, which may not."""
    ours, theirs = socket.socketpair()
    if not (compiler := os.fork()):
        confinement.take_hold(COMPILER)
        with open("assembled", "w") as file:
            file.write(subprocess.run(["/bin/echo", "assembled"], capture_output=True, text=True).stdout)
        theirs.send(b"x")
        time.sleep(60)
    confinement.take_hold(may_signal=(compiler,))
    ours.recv(1)
    why = []
    for tried in (
        lambda: os.kill(compiler, 9),
        lambda: os.kill(os.getppid(), 0),
        lambda: os.waitpid(compiler, 0),
        lambda: open("left", "w"),
        os.fork,
        socket.socket,
    ):
        try:
            tried()
            why.append("")
        except OSError as error:
            why.append(str(error.strerror))
    with open("assembled") as file:
        _tell(channel, read=file.read(), why=why, variables=sorted(os.environ))


def read_files(channel: socket.socket, files: list[str]) -> None:
    found = []
    for name in files:
        try:
            with open(name) as file:
                found.append(file.read())
        except OSError:
            found.append("")
    _tell(channel, found=found)


def connect_to_a_network(channel: socket.socket) -> None:
    """A trial of `gpu_protections`: it needs a call that seccomp refuses and nothing else does."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
    except OSError as error:
        channel.sendall(f"OSError: {error}".encode())
    else:
        channel.sendall(b"launched")


def sockets(channel: socket.socket, path: str) -> None:
    """What a driver that listens does, and what reaches a socket of the machine, at `path`; "" for what succeeds."""
    kinds = {"packets": (socket.AF_UNIX, socket.SOCK_SEQPACKET), "stream": (socket.AF_UNIX, socket.SOCK_STREAM)}
    kinds |= {"datagrams": (socket.AF_UNIX, socket.SOCK_DGRAM), "network": (socket.AF_INET, socket.SOCK_SEQPACKET)}
    found = {}
    for name, (family, kind) in kinds.items():
        found[name] = _error(lambda family=family, kind=kind: socket.socket(family, kind).close())

    def listens() -> None:
        with socket.socket(*kinds["packets"]) as own:
            own.bind("\0bitverdict")
            own.listen()

    def reaches() -> None:
        with socket.socket(*kinds["packets"]) as own:
            own.connect(path)

    _tell(channel, **found, listens=_error(listens), reaches=_error(reaches))


def _error(tried: Callable[[], None]) -> str:
    try:
        tried()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return ""
