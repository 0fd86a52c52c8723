"""A sealed launch without processes: the executor is a thread of this one, and calls the candidate's function itself."""

from __future__ import annotations

import importlib.util
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bitverdict.harness.emulator import emulated
from bitverdict.harness.model import sealing
from bitverdict.harness.sealed.candidate import executor, judge_side, on_a_gpu
from bitverdict.harness.sealed.candidate.arrays import channel_of
from bitverdict.harness.sealed.candidate.candidate import LoadedCandidate
from bitverdict.harness.sealed.remote.channel import Channel


class _InAModule(LoadedCandidate):
    """The candidate's function in this process, from a module of its own, though its file is sealed here."""

    def load(self, address: str, afresh: bool, folders: Sequence[str]) -> Callable:
        place, _, name = address.rpartition(":")
        spec = importlib.util.spec_from_file_location(f"candidate_{id(self)}", Path(place))
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, name)


class _Called:
    """Asks nobody: calls the function itself."""

    def launcher(self, address: str, *, folders: Sequence[str] = (), arch: str = "") -> Callable:
        return _InAModule().load(address, False, folders)


class Here:
    """The executor of a test, and threads with a stand-in for a real GPU: an emulated one.

    `started`: the candidate's processes that were, by number; `ends`: how those of a number ended."""

    def __init__(self, asks: Callable[[socket.socket], executor.CandidateClient], end: judge_side.End) -> None:
        self.how, self.started, self.over = end, dict[int, socket.socket](), list[int]()
        self._running: dict[bool, int] = {}
        ours, theirs = socket.socketpair()
        self._handing, handed = socket.socketpair()
        self.channel: Channel = channel_of(ours)
        self.thread = threading.Thread(target=executor.serve, args=(theirs, handed, asks), daemon=True)
        self.thread.start()

    def candidate(self, address: str, *, fresh_process: bool, gpu: bool) -> int:
        if not fresh_process and self._running.get(gpu) is not None:
            return self._running[gpu]
        number = len(self.started)
        self.started[number], other = socket.socketpair()
        socket.send_fds(self._handing, [executor.ON_A_GPU if gpu else executor.WITHOUT_A_GPU], [other.fileno()])
        other.close()
        if gpu:
            there = (self.started[number], "cpu", lambda device: emulated("sm_90"), _InAModule())
            threading.Thread(target=on_a_gpu.serve, args=there, daemon=True).start()
        if not fresh_process:
            self._running[gpu] = number
        return number

    def drop(self, candidate: int, *, died: bool = False) -> judge_side.End:
        self._running = {gpu: number for gpu, number in self._running.items() if number != candidate}
        self.over.append(candidate)
        self.started[candidate].close()
        return self.how

    def wait_end(self) -> judge_side.End:
        return self.how

    def end(self) -> None:
        """A thread lives on."""


@contextmanager
def sealed_here(
    asks: Callable[[socket.socket], executor.CandidateClient] | None = None, end: judge_side.End | None = None
) -> Iterator[Here]:
    """Inside, sealed cases of this process are launched by a thread. `asks`: how a candidate's process is asked, `end`:
    how it ended."""
    here, earlier = Here(asks or (lambda connected: _Called()), end or judge_side.End(0)), judge_side.executor
    judge_side.executor = lambda contract: here
    try:
        yield here
    finally:
        judge_side.executor = earlier
        here.channel.close()
        here.thread.join(5)
        sealing._sealed_files.clear(), sealing._stand_ins.clear()
