"""The process that confined ones are forked from: it has imported what they need, and never imports what is not trusted.

It waits at a socket. A connection asks for one process: a record in JSON, with the file descriptors of its log and its channels.
The process is forked, confined, and calls a function of the harness with the channels. The connection then stands for the process:
its end is told over it, and when the other side closes it, or dies, the process is killed with all that it started. The lifeline is
a pipe that only the run can write: when it closes, the zygote ends, and every process with it.

    asked   {"ready": true}; told {"ready": true} once all is imported
    asked   {"function": "package.module:name", "arguments": {}, "variables": {}} and descriptors: log, channel, channel ...
    told    {"pid": 7, "seconds": 0.01} or {"failed": "..."}
    asked   {"again": true}: the next case; or {"end": true}
    told    {"ended": status of waitpid, "why": "...", "printed": bytes, "kept": bytes}
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from bitverdict.harness.sealed.jail.confine import THREADS, SystemCalls, adopts_orphans, confine, dies_with_parent, rehearse
from bitverdict.harness.sealed.jail.log import BoundedLog
from bitverdict.harness.sealed.jail.places import Places
from bitverdict.harness.sealed.jail.policy import Policy

MESSAGE = 1 << 16  # bytes of one record
CHANNELS = 8  # descriptors of one request, the log's among them
LOOKED_AT = 0.1  # seconds between two looks at what no limit of the kernel holds
CACHES = ("cache", "triton")  # folders of the scratch directory that the processes of one candidate share
ENDED_WITHIN = 5.0  # seconds in which a killed process is gone


@dataclass(frozen=True)
class Setting:
    """What a zygote's processes have in common. Goes through JSON.

    `preload` are modules that it imports once. `scratch` is the directory in which the processes may write. `seccomp` and
    `landlock` say whether this machine has them; `bounded_scratch` whether the scratch directory is a file system with a size of
    its own. `environment` replaces what the zygote has, where it is not empty. `confines_itself`: the function confines the process
    itself, with the `Confinement` that it gets as the argument ``confinement``.
    """

    policy: Policy
    scratch: str = ""
    preload: tuple[str, ...] = ()
    places: Places = field(default_factory=Places)
    seccomp: bool = True
    landlock: bool = True
    bounded_scratch: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    confines_itself: bool = False

    def to_json(self) -> dict:
        return asdict(self)

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Setting:
        said = record["policy"]
        policy = Policy(**dict(said, devices=tuple(said["devices"]), files=tuple(said["files"])))
        places = Places(**{name: tuple(paths) for name, paths in record["places"].items()})
        return Setting(**dict(record, preload=tuple(record["preload"]), policy=policy, places=places))


class Confinement:
    """How a process of a zygote confines itself: once, for good."""

    def __init__(self, setting: Setting, calls: SystemCalls | None) -> None:
        self._setting, self._calls = setting, calls

    def take_hold(self, policy: Policy | None = None, may_signal: Sequence[int] = ()) -> None:
        """With another policy than the zygote's where one is given, as the compiler of the executor has.

        `may_signal` are processes that this one started before, and may end.
        """
        setting = self._setting
        calls = self._calls if policy is None or self._calls is None else SystemCalls(policy)
        confine(policy or setting.policy, setting.places, calls, landlock=setting.landlock, may_signal=may_signal)


@dataclass
class _ConfinedChild:
    """One process, as its zygote knows it. `greeting_pipe` is where it says that it is confined."""

    connection: socket.socket
    pid: int
    log: BoundedLog
    greeting_pipe: int
    start_time: float
    home: str
    why: str = ""
    is_ready: bool = False
    start_failure: str = field(default="")


class Zygote:
    """The loop: requests in, processes out. One thread, so that a fork has all of it."""

    def __init__(self, listener: socket.socket, lifeline: int, setting: Setting) -> None:
        self._listening, self._lifeline, self._setting = listener, lifeline, setting
        self._confined: dict[int, _ConfinedChild] = {}
        self._calls = SystemCalls(setting.policy) if setting.seccomp else None
        rehearse(setting.policy, setting.places)
        self._resident = _resident("self")
        self._ready = selectors.DefaultSelector()
        self._wake, self._waking = socket.socketpair()
        self._wake.setblocking(False)
        self._waking.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *of_the_signal: None)
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)
        for source, what in ((listener, self._accept), (self._wake, self._woken), (lifeline, self._leave)):
            self._ready.register(source, selectors.EVENT_READ, what)

    def serve(self) -> NoReturn:
        """Until the lifeline closes."""
        look_time = time.monotonic()
        while True:
            waiting = self._ready.select(LOOKED_AT if self._confined else None)
            logs = {one.log.reading for one in self._confined.values()}
            for key, _ in sorted(waiting, key=lambda event: event[0].fd in logs):  # "another case" before what it prints
                if self._ready.get_map().get(key.fd) is key:  # one before it may have ended what this was of
                    key.data()
            self._reap()
            if time.monotonic() - look_time > LOOKED_AT:
                self._look()
                look_time = time.monotonic()

    def _accept(self) -> None:
        connection, _ = self._listening.accept()
        if _user_of(connection) != os.getuid():  # the name of the socket is no secret
            connection.close()
            return
        self._ready.register(connection, selectors.EVENT_READ, lambda: self._read_request(connection))

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)

    def _leave(self) -> NoReturn:
        for one in list(self._confined.values()):
            self._kill(one, "the run ended")
        if self._setting.scratch and not self._setting.bounded_scratch:  # a run that was killed cannot remove it
            shutil.rmtree(self._setting.scratch, ignore_errors=True)
        os._exit(0)

    def _read_request(self, connection: socket.socket) -> None:
        child = next((child for child in self._confined.values() if child.connection is connection), None)
        try:
            text, descriptors, _, _ = socket.recv_fds(connection, MESSAGE, CHANNELS)
            record = json.loads(text) if text else None
        except (OSError, ValueError):
            record, descriptors = None, []
        if child is None and record and descriptors:
            self._start(connection, record, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        if child is None and record:
            connection.send(b'{"ready": true}', socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        elif child is None:
            self._forget(connection)
        elif record is None:
            self._kill(child, "no process waits for it any more")
        elif record.get("again"):
            child.log.renew_limit()
        else:
            self._kill(child, "it was asked to end")

    def _start(self, connection: socket.socket, record: dict, descriptors: list[int]) -> None:
        start_time = time.perf_counter()
        log = BoundedLog(descriptors[0], self._setting.policy.log)
        home = tempfile.mkdtemp(prefix="of-", dir=self._setting.scratch) if self._setting.scratch else ""
        greeting_pipe, greets = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if not pid:
            self._become_process(record, descriptors[1:], log.writing, greets, home)
        os.close(greets)
        os.close(log.writing)
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        one = self._confined[pid] = _ConfinedChild(connection, pid, log, greeting_pipe, start_time, home)
        self._ready.register(greeting_pipe, selectors.EVENT_READ, lambda: self._read_greeting(one))
        self._ready.register(log.reading, selectors.EVENT_READ, lambda: self._read_log(one))

    def _read_log(self, one: _ConfinedChild) -> None:
        if not one.log.drain():
            self._ready.unregister(one.log.reading)

    def _read_greeting(self, child: _ConfinedChild) -> None:
        greeting_text = os.read(child.greeting_pipe, MESSAGE // 2).decode(errors="replace")
        self._ready.unregister(child.greeting_pipe)
        os.close(child.greeting_pipe)
        child.greeting_pipe = -1
        if greeting_text == "confined":
            child.is_ready = True
            self._tell(child, pid=child.pid, seconds=time.perf_counter() - child.start_time)
        else:
            child.start_failure = greeting_text or "it ended before it was confined"
            self._kill(child, child.start_failure)

    def _tell(self, one: _ConfinedChild, **record: object) -> None:
        with contextlib.suppress(OSError):
            one.connection.send(json.dumps(record).encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def _forget(self, connection: socket.socket) -> None:
        with contextlib.suppress(KeyError):
            self._ready.unregister(connection)
        connection.close()

    def _kill(self, one: _ConfinedChild, why: str) -> None:
        """The process and its group, which no process of it can leave: at once, whatever it forks meanwhile."""
        one.why = one.why or why
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                kill(one.pid, signal.SIGKILL)
        self._end_strays()

    def _reap(self) -> None:
        while self._confined or self._setting.policy.processes:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if one := self._confined.get(pid):
                self._report_end(one, status)

    def _report_end(self, child: _ConfinedChild, status: int) -> None:
        """Reaped: what it started is killed, and what it printed is read to the end, before its end is told."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        if child.greeting_pipe >= 0:
            self._read_greeting(child)
        del self._confined[child.pid]
        self._end_strays()
        with contextlib.suppress(KeyError):
            self._ready.unregister(child.log.reading)
        child.log.drain()
        if child.is_ready:
            self._tell(child, ended=status, why=child.why, printed=child.log.printed, kept=child.log.kept)
        else:
            self._tell(child, failed=child.start_failure)
        child.log.close()
        self._forget(child.connection)
        self._tidy()

    def _tidy(self) -> None:
        """Of the scratch directory stay the folders of those that live, and the caches while they are small."""
        scratch = self._setting.scratch
        if not scratch:
            return
        stay = {os.path.basename(one.home) for one in self._confined.values()}
        caches = {name for name in CACHES if os.path.isdir(f"{scratch}/{name}")}
        if sum(_size(f"{scratch}/{name}") for name in caches) <= self._setting.policy.scratch // 2:
            stay |= caches
        for name in set(os.listdir(scratch)) - stay:
            with contextlib.suppress(OSError):
                shutil.rmtree(f"{scratch}/{name}") if os.path.isdir(f"{scratch}/{name}") else os.unlink(f"{scratch}/{name}")

    def _end_strays(self) -> None:
        """Kill what left the group of a process and was adopted by this one: only where seccomp does not refuse to leave."""
        if self._calls is not None:
            return
        until = time.monotonic() + ENDED_WITHIN
        while strays := [pid for pid in _children() if pid not in self._confined]:
            for pid in strays:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
            if time.monotonic() > until:
                return

    def _look(self) -> None:
        """What no limit of the kernel holds: threads of root's processes, and a scratch directory on the disk of the machine."""
        groups = _groups() if self._confined and (self._setting.policy.processes or self._calls is None) else {}
        limit = self._setting.policy.memory
        for child in list(self._confined.values()):
            if self._setting.policy.may_lift_bounds and _resident(child.pid) > self._resident + limit:
                self._kill(child, f"it holds more than {limit >> 20} MiB of memory")
            processes, threads = groups.get(child.pid) or (1, _threads(child.pid))
            if threads > THREADS:
                self._kill(child, f"it has more than {THREADS} threads")
            may_start = self._setting.policy.processes
            if processes > 1 + may_start + self._setting.policy.earlier_processes:
                self._kill(child, f"it has started more than {may_start} processes" if may_start else "it has started a process")
        if self._confined and self._setting.scratch and not self._setting.bounded_scratch:
            limit = self._setting.policy.scratch
            if _size(self._setting.scratch) > limit:
                for child in list(self._confined.values()):
                    self._kill(child, f"its scratch directory holds more than {limit >> 20} MiB")
        self._end_strays()

    def _become_process(self, record: dict, channels: list[int], log: int, greets: int, home: str) -> NoReturn:
        """In the fork: take the place of a confined process, and call the function."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            dies_with_parent()
            os.setsid()
            sockets = _only(channels, log, greets)
            arguments, confinement = dict(record.get("arguments", {})), Confinement(self._setting, self._calls)
            if self._setting.environment:
                os.environ.clear()
                os.environ.update(self._setting.environment)
            os.environ.update(record.get("variables", {}))
            if home:
                os.environ.update(HOME=home, TMPDIR=home)
                tempfile.tempdir = None
                os.chdir(home)
            if self._setting.confines_itself:
                arguments["confinement"] = confinement
            else:
                confinement.take_hold()
            os.write(_GREETS, b"confined")
            os.close(_GREETS)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(_GREETS, f"{type(error).__name__}: {error}"[:1000].encode())
            os._exit(1)
        status = 1
        try:
            place, _, name = record["function"].partition(":")
            getattr(importlib.import_module(place), name)(*sockets, **arguments)
            status = 0
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        except BaseException:
            traceback.print_exc()
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 0xFF)


_GREETS = 3


def _only(channels: list[int], log: int, greets: int) -> list[socket.socket]:
    """Keep nothing but input from nowhere (0), the log (1, 2), the greeting (3), and the channels from 4 on."""
    wanted = [os.open(os.devnull, os.O_RDONLY), log, log, greets, *channels]
    above = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 2 * CHANNELS) for descriptor in wanted]
    for target, descriptor in enumerate(above):
        os.dup2(descriptor, target, inheritable=target < _GREETS)
    os.closerange(len(wanted), os.sysconf("SC_OPEN_MAX"))
    return [socket.socket(fileno=target) for target in range(_GREETS + 1, len(wanted))]


def _user_of(connection: socket.socket) -> int:
    """The number of the user at the other end, as it is called here."""
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]


def _children() -> list[int]:
    """The processes whose parent is this one."""
    me = str(os.getpid())
    return [int(name) for name in filter(str.isdigit, os.listdir("/proc")) if _stat(name)[1:2] == [me]]


def _stat(pid: int | str) -> list[str]:
    """What stands in ``/proc/PID/stat`` after the name: the state, the parent, the group ...; nothing where it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()
    except OSError:
        return []


def _resident(pid: int | str) -> int:
    """Bytes of memory that it holds, what it shares with others too."""
    return int(found[21]) * resource.getpagesize() if (found := _stat(pid)) else 0


def _threads(pid: int) -> int:
    return int(found[17]) if (found := _stat(pid)) else 0


def _groups() -> dict[int, tuple[int, int]]:
    """(processes, threads) of each process group that is seen here."""
    groups: dict[int, tuple[int, int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        if found := _stat(name):
            processes, threads = groups.get(int(found[2]), (0, 0))
            groups[int(found[2])] = (processes + 1, threads + int(found[17]))
    return groups


def _size(directory: str) -> int:
    """Bytes on the disk below `directory`, as far as they can be seen while others write there."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += 512 * os.lstat(f"{folder}/{name}").st_blocks
    return total


def import_preloaded(names: Sequence[str]) -> None:
    """Import `names`. Where torch is among what they import, it looks at the processor now: it does so once, at its first operator,
    and in a confined process that look can fail. An operator then raises, or computes by other instructions than outside."""
    for name in names:
        importlib.import_module(name)
    if (torch := sys.modules.get("torch")) is not None:
        torch.backends.cpu.get_cpu_capability()


def serve(listener: socket.socket, lifeline: int, setting: Setting) -> NoReturn:
    """Be a zygote: import `setting.preload`, then serve until the lifeline closes."""
    adopts_orphans()
    gc.disable()
    import_preloaded(setting.preload)
    gc.enable()
    gc.freeze()
    Zygote(listener, lifeline, setting).serve()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), Setting.from_json(json.loads(sys.argv[3])))
# One file because the process that forks imports as little as it can, and all it runs can be read in one place.
