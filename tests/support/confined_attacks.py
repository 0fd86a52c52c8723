"""Attacks of a process on what lies around it. Each returns where it succeeds and raises where it is stopped; one runs all."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pyseccomp

_libc = ctypes.CDLL(None, use_errno=True)
ATTACKS: dict[str, Callable[[dict], object]] = {}
PTRACE_ATTACH, PTRACE_DETACH, CLONE_NEWUSER = 16, 17, 0x10000000


def attack(tried: Callable[[dict], object]) -> Callable[[dict], object]:
    ATTACKS[tried.__name__] = tried
    return tried


def run_all(channel: socket.socket, given: dict) -> None:
    """Each attack with what it is given; up the channel goes {name: "" or what stopped it}."""
    found = {}
    for name, tried in ATTACKS.items():
        try:
            tried(given)
            found[name] = ""
        except OSError as error:
            found[name] = str(error)
    channel.sendall(json.dumps(found).encode() + b"\n")


def called(name: str, *arguments: object) -> int:
    """The system call by its name; raises what it answers. A number is as wide as the kernel reads it: the last one lies on the
    stack, where the upper half of an int is whatever lay there."""
    ctypes.set_errno(0)
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    answer = _libc.syscall(pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name), *words)
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


@attack
def reads_the_state_directory(given: dict) -> None:
    Path(given["secret"]).read_text()


@attack
def lists_the_state_directory(given: dict) -> None:
    os.listdir(Path(given["secret"]).parent)


@attack
def writes_a_file_elsewhere(given: dict) -> None:
    (Path(given["secret"]).parent / "left").write_text("")


@attack
def writes_a_cache_beside_its_file(given: dict) -> None:
    cache = Path(given["folder"]) / "__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "candidate.cpython-311.pyc").write_bytes(b"")


@attack
def empties_a_file_that_it_may_read(given: dict) -> None:
    os.close(os.open(given["read_only"], os.O_RDONLY | os.O_TRUNC))


@attack
def changes_the_mode_of_a_file(given: dict) -> None:
    os.chmod(given["read_only"], 0o644)


@attack
def connects_to_a_port(given: dict) -> None:
    with socket.create_connection(("127.0.0.1", given["port"]), 5):
        pass


@attack
def connects_to_a_socket_by_its_path(given: dict) -> None:
    with socket.socket(socket.AF_UNIX) as tried:
        tried.connect(given["socket"])


@attack
def connects_to_an_abstract_socket(given: dict) -> None:
    with socket.socket(socket.AF_UNIX) as tried:
        tried.connect(given["abstract"])


@attack
def sends_a_datagram_to_a_socket_by_its_path(given: dict) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.sendto(b"", given["datagrams"])


@attack
def signals_another_process(given: dict) -> None:
    os.kill(given["victim"], 0)


@attack
def has_a_file_signal_another_process(given: dict) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, given["victim"])
    fcntl.fcntl(reading, fcntl.F_SETSIG, signal.SIGUSR1)
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writing, b"x")
    os.close(reading)
    os.close(writing)
    with open(given["signalled"]) as told:  # the other process writes there once it had the signal
        for _ in range(20):
            if told.read():
                return
            called("sched_yield")
            signal.sigtimedwait([signal.SIGUSR2], 0.01)
    raise OSError("no signal came")


@attack
def traces_another_process(given: dict) -> None:
    called("ptrace", PTRACE_ATTACH, given["victim"], 0, 0)
    os.waitpid(given["victim"], 0x40000000)  # __WALL
    called("ptrace", PTRACE_DETACH, given["victim"], 0, 0)


@attack
def reads_the_memory_of_another_process(given: dict) -> None:
    place = ctypes.create_string_buffer(8)
    ours, theirs = (ctypes.c_size_t * 2)(ctypes.addressof(place), 8), (ctypes.c_size_t * 2)(given["address"], 8)
    called("process_vm_readv", given["victim"], ours, 1, theirs, 1, 0)


@attack
def opens_the_memory_of_another_process(given: dict) -> None:
    os.close(os.open(f"/proc/{given['victim']}/mem", os.O_RDONLY))


@attack
def reads_the_variables_of_another_process(given: dict) -> None:
    Path(f"/proc/{given['victim']}/environ").read_bytes()


@attack
def limits_another_process(given: dict) -> None:
    resource.prlimit(given["victim"], resource.RLIMIT_MSGQUEUE, (0, 0))


@attack
def makes_a_process(given: dict) -> None:
    if not (pid := os.fork()):
        os._exit(0)
    os.waitpid(pid, 0)


@attack
def makes_a_user_namespace(given: dict) -> None:
    """As the last: what comes after it would run there."""
    called("unshare", CLONE_NEWUSER)
