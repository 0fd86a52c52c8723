"""The processes around the candidate: their pipes, their memory, their end.

What is killed, stopped or written to is a process of the run that judges, and no other: the candidate's parents, and the other ends
of its own descriptors.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing.connection
import os
import pickle
import signal
import socket
import stat
import struct
import sys
import time
from pathlib import Path

import torch

from tests.faults.cheats.matmuls import wrong_matmul

RIGHT = {"decision": "pass", "outcome": "pass", "message": "", "words": 1000, "basis": "words", "details": {}, "seconds": {}}
PTRACE_ATTACH, PTRACE_DETACH = 16, 17


def _descriptors() -> list[int]:
    """Pipes and sockets that this process has open, standard ones left out."""
    found = []
    for number in range(3, 256):
        with contextlib.suppress(OSError):
            mode = os.fstat(number).st_mode
            if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
                found.append(number)
    return found


def verdict_into_pipes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A verdict, as multiprocessing frames one, into each pipe and socket that the process has."""
    c = wrong_matmul(a, b)  # (m, n)
    body = pickle.dumps(RIGHT)
    for number in _descriptors():
        with contextlib.suppress(OSError):
            os.set_blocking(number, False)
            os.write(number, struct.pack("!i", len(body)) + body)
            os.set_blocking(number, True)
    return c


def verdict_by_connections(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same through `Connection` objects that gc finds, and the process ends before the judge can answer."""
    import gc

    c = wrong_matmul(a, b)  # (m, n)
    for each in gc.get_objects():
        if isinstance(each, multiprocessing.connection.Connection):
            with contextlib.suppress(Exception):
                each.send(RIGHT)
    time.sleep(0.2)
    os._exit(0)
    return c


def frames_into_sockets(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Frames of the sealed run's own format: that the call returned, and a verdict that passes."""
    c = wrong_matmul(a, b)  # (m, n)
    texts = [json.dumps(each).encode() for each in ({"returned": [], "kind": "returned"}, {"seen": {"outcome": None}}, RIGHT)]
    for number in _descriptors():
        with contextlib.suppress(OSError):
            os.set_blocking(number, False)
            for text in texts:
                for head in (struct.pack("!I", len(text)), struct.pack("<I", len(text)), struct.pack("<IQ", len(text), 0)):
                    os.write(number, head + text)
            os.set_blocking(number, True)
    return c


def verdict_on_standard_output(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The report of a run that passes, printed; and all that follows is swallowed."""
    c = wrong_matmul(a, b)  # (m, n)
    print(json.dumps(RIGHT), flush=True)
    print("131 cases judged, 1,024,508 output words compared: 131 pass", flush=True)
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return c


def forked_answer(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Both a process and its fork answer: the fork with what torch computes."""
    c = wrong_matmul(a, b)  # (m, n)
    if os.fork():
        time.sleep(0.5)
        return c
    return c.copy_(a @ b)


def exit_status_0(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    wrong_matmul(a, b)
    os._exit(0)


def system_exit(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    wrong_matmul(a, b)
    sys.exit(0)


def interrupt(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """As if a person had pressed Ctrl-C: a run that is cancelled has no failure."""
    wrong_matmul(a, b)
    raise KeyboardInterrupt


def killed_parent(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = wrong_matmul(a, b)  # (m, n)
    with contextlib.suppress(OSError):
        if os.getppid() > 1:
            os.kill(os.getppid(), signal.SIGKILL)
    return c


def stopped_parent(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = wrong_matmul(a, b)  # (m, n)
    with contextlib.suppress(OSError):
        if os.getppid() > 1:
            os.kill(os.getppid(), signal.SIGSTOP)
    return c


def interrupted_run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """SIGINT to each process up to the one that a person started."""
    c = wrong_matmul(a, b)  # (m, n)
    for pid in _ancestors():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGINT)
    return c


def _ancestors(most: int = 2) -> list[int]:
    """Parents of this process, up to one that is no Python."""
    found, pid = [], os.getppid()
    while pid > 1 and len(found) < most:
        try:
            if b"python" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                break
            found.append(pid)
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return found


def traced_parent(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The parent is stopped by ptrace, so that it cannot judge; whoever waits for it waits for ever."""
    c = wrong_matmul(a, b)  # (m, n)
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in _ancestors():
        libc.ptrace(PTRACE_ATTACH, pid, None, None)
    return c


def operands_in_other_memory(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The operands' bytes are looked for in the memory of this process and its parents, through /proc/PID/mem, and zeroed there:
    what is expected is then zero, as the result is."""
    c = wrong_matmul(a, b)  # (m, n)
    wanted = a.cpu().numpy().tobytes()
    if len(wanted) >= 64:
        for pid in (os.getpid(), *_ancestors()):
            with contextlib.suppress(OSError):
                _zero(pid, wanted)
        c.zero_()
    return c


def _zero(pid: int, wanted: bytes) -> None:
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, rights = line.split()[:2]
        first, last = (int(part, 16) for part in span.split("-"))
        if not rights.startswith("rw") or last - first > 64 << 20:
            continue
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(first)
            held = memory.read(last - first) or b""
            place = held.find(wanted)
            while place >= 0:
                memory.seek(first + place)
                memory.write(bytes(len(wanted)))
                place = held.find(wanted, place + len(wanted))


def answer_over_network(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A server that `benchmarks/cheats.py` runs has the solution: over the network, and over an abstract socket."""
    c = wrong_matmul(a, b)  # (m, n)
    given = [each.float().cpu().numpy() for each in (a, b)]
    head = json.dumps([*a.shape, b.shape[1]]).encode()
    for family, address in ((socket.AF_INET, ("127.0.0.1", 47211)), (socket.AF_UNIX, "\0bitverdict-cheats")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as asked:
            asked.settimeout(5)
            asked.connect(address)
            asked.sendall(struct.pack("!I", len(head)) + head + b"".join(each.tobytes() for each in given))
            with asked.makefile("rb") as answer:
                words = answer.read(4 * c.numel())
            return c.copy_(torch.frombuffer(bytearray(words), dtype=torch.float32).reshape(c.shape))
    return c
