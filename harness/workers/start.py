"""How a worker is started where it is not as any other: with variables of its own, or as a program under a tool that watches it.

Most workers are forks of the server (`bitverdict.harness.workers.forkserver`). compute-sanitizer watches a program that it starts
itself. Such a worker connects back over a socket, and is asked to leave when its work is done: the tool sums up at its end.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bitverdict.harness.model.paths import IMPORTED_FROM
from bitverdict.harness.model.trusted_imports import environment_of_a_child
from bitverdict.harness.workers.one_thread import VARIABLES


@dataclass(frozen=True)
class Start:
    """`name` tells the slots of this start from others of their place; empty: a worker as any other.

    `variables` are set in the worker. `prepare` is the address of a function that is called with the target before the worker warms
    up. `around` is the command line of a tool, which the interpreter's is appended to: the worker is then a program of its own.
    `cases`: how many cases one worker judges before another takes over; None: as many as any worker.
    """

    name: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    prepare: str = ""
    around: tuple[str, ...] = ()
    cases: int | None = None


PLAIN_START = Start()


class Program:
    """A worker under a tool: the process as `Worker` asks for it, and in `connection` our end of its pipe.

    `arguments` are those of the worker's loop. The program and the tool have a process group of their own, number `pid`.
    """

    def __init__(self, around: tuple[str, ...], arguments: tuple, log: Path) -> None:
        folder = tempfile.TemporaryDirectory(prefix="bitverdict-")  # a path of a socket is short, and nobody else's
        listener = socket.socket(socket.AF_UNIX)
        address = f"{folder.name}/s"
        listener.bind(address)
        listener.listen(1)
        # what the libraries read when they are loaded is set here: before a line of ours runs in the program
        environment = environment_of_a_child() | dict.fromkeys(VARIABLES, "1") | arguments[2]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*around, sys.executable, "-m", "bitverdict.harness.workers.program", address],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=IMPORTED_FROM,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.connection = _AwaitedConnection(listener, self, folder, arguments)

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def join(self, seconds: float) -> bool:
        """Whether the program is gone, waiting at most `seconds`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is not None


class _AwaitedConnection:
    """Our end of the pipe of a program, which may not have connected yet."""

    def __init__(self, listening: socket.socket, program: Program, folder: tempfile.TemporaryDirectory, arguments: tuple) -> None:
        self._listening, self._program, self._folder, self._arguments = listening, program, folder, arguments
        self._made: Connection | None = None

    def poll(self, timeout: float = 0.0) -> bool:
        """Whether there is something to receive, or the program ended before it connected, which `recv` then says."""
        if self._made is None:
            self._listening.settimeout(max(timeout, 1e-3))
            try:
                accepted, _ = self._listening.accept()
            except TimeoutError:
                return self._program.exitcode is not None
            self._made = Connection(accepted.detach())
            self._made.send(self._arguments)
        return self._made.poll(timeout)

    def recv(self) -> Any:
        if self._made is None:
            raise EOFError
        return self._made.recv()

    def send(self, what: object) -> None:
        if self._made is None:
            raise BrokenPipeError
        self._made.send(what)

    def close(self) -> None:
        self._listening.close()
        self._folder.cleanup()
        if self._made is not None:
            self._made.close()


def connect_program(address: str) -> Connection:
    """In a program: its end of the pipe. From here on the program's process group ends with the process that started it."""
    made = socket.socket(socket.AF_UNIX)
    made.connect(address)
    connection = Connection(made.detach())

    def watch() -> None:
        closed = select.poll()
        closed.register(connection.fileno(), select.POLLRDHUP)
        while not closed.poll():
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    return connection
