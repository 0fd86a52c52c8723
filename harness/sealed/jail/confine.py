"""What a process does to itself before it touches anything that is not trusted. None of it can be taken back.

Landlock is called through `landlockpy`, seccomp through `pyseccomp` over the C library libseccomp. Where one of them is missing,
the rest still holds, and `bitverdict.harness.sealed.jail.protections` says so. What has no binding is called in the C library:
prctl(2) and capset(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
from collections.abc import Iterable, Sequence
from typing import Any

from bitverdict.harness.sealed.jail import syscalls
from bitverdict.harness.sealed.jail.places import Places
from bitverdict.harness.sealed.jail.policy import Policy

try:
    import landlockpy
except ImportError:
    landlockpy = None  # type: ignore[assignment]
try:
    import pyseccomp
except (ImportError, RuntimeError, OSError):  # RuntimeError: no libseccomp
    pyseccomp = None

_libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_CAPABILITIES = 0x20080522  # _LINUX_CAPABILITY_VERSION_3 of capset(2)
THREADS = 512
"""Threads of one process. The limit of the kernel counts those of the whole user, and does not hold for root."""


class CannotConfine(Exception):
    """A protection that the kernel says to have did not take hold. Nothing untrusted may run."""


def _call_libc(name: str, *arguments: object) -> None:
    ctypes.set_errno(0)
    if getattr(_libc, name)(*arguments):
        raise CannotConfine(f"{name}{arguments}: {os.strerror(ctypes.get_errno())}")


def dies_with_parent(signal_number: int = 9) -> None:
    """The kernel sends this process the signal when the thread that started it ends."""
    _call_libc("prctl", PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


def adopts_orphans() -> None:
    """A descendant whose parent ends becomes a child of this process, and of no process beyond it."""
    _call_libc("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def unreadable() -> None:
    """Another process of the same user can neither trace this one nor open its memory; root with all capabilities still can.

    For every trusted process beside one that is not: the executor, the judging worker, the session. It leaves no core dump either.
    """
    _call_libc("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def kernel_filters() -> bool:
    """Whether the kernel has filters of system calls: it then looks for the one that is not given, by prctl(2)."""
    ctypes.set_errno(0)
    refused = _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, None, 0, 0)
    return bool(refused) and ctypes.get_errno() == errno.EFAULT


class SystemCalls:
    """The filter of `policy`, made once in the process that forks the confined ones: making it takes longer than a fork."""

    def __init__(self, policy: Policy) -> None:
        self._filter = pyseccomp.SyscallFilter(pyseccomp.ERRNO(38))  # ENOSYS
        self._filter.set_attr(8, 2)  # SCMP_FLTATR_CTL_OPTIMIZE: a binary tree, not one comparison a call
        names: list[str] = [*syscalls.ALWAYS]
        where: list[tuple] = [*syscalls.WHERE]
        if policy.processes:
            names += syscalls.OF_A_PROCESS
            where += syscalls.WHERE_IT_STARTS_OTHERS
        if policy.devices:
            names += syscalls.WHERE_IT_HAS_DEVICES
            where = [row for row in where if row[0] not in names]
            where += syscalls.WHERE_A_DRIVER_LISTENS
        for name in names:
            self._allow(name)
        for name, *conditions in where:
            self._allow(name, *conditions)

    def _allow(self, name: str, *conditions: tuple[int, int, int]) -> None:
        number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
        if number < 0:  # of another architecture, or newer than the library: refused like all that is not named
            return
        arguments = [pyseccomp.Arg(at, pyseccomp.MASKED_EQ, mask, value) for at, mask, value in conditions]
        self._filter.add_rule(pyseccomp.ALLOW, number, *arguments)

    def take_hold(self, may_signal: Sequence[int] = ()) -> None:
        """From here on this process, and all that it starts, make these calls only, with signals to itself and to `may_signal`."""
        for name in syscalls.TO_ITSELF:
            for pid in (os.getpid(), *may_signal):
                self._allow(name, (0, syscalls.WORD, pid))
        try:
            self._filter.load()
        except OSError as error:
            raise CannotConfine(f"seccomp: {error}") from None


def confine(policy: Policy, places: Places, calls: SystemCalls | None, *, landlock: bool, may_signal: Sequence[int] = ()) -> None:
    """Confine this process, which has one thread. CannotConfine where something does not take hold that should.

    `calls` None and `landlock` False leave that out: on a kernel that has none, which the run says. `may_signal` are processes that
    it started before and may still end; a process that runs nothing untrusted itself has some.
    """
    _call_libc("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _limit(policy)
    _give_up_capabilities()
    if not policy.writes:  # it holds what the candidate must not read
        unreadable()
    if landlock:
        _restrict_files(policy, places, signals=bool(may_signal))
    if calls is not None:
        calls.take_hold(may_signal)


def _limit(policy: Policy) -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000" if policy.writes else "500")  # who goes first where the machine's memory ends: the candidate
    used = _address_space_bytes()
    memory = (resource.RLIMIT_DATA, policy.memory) if policy.reserves else (resource.RLIMIT_AS, used + policy.memory)
    limits = {
        resource.RLIMIT_CORE: 0,
        memory[0]: memory[1],
        resource.RLIMIT_FSIZE: policy.file if policy.writes else 0,
        resource.RLIMIT_NOFILE: policy.open_files,
        resource.RLIMIT_NPROC: _tasks_of_this_user() + policy.processes + THREADS,
        resource.RLIMIT_CPU: policy.cpu,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for limit, most in limits.items():
        _, hard = resource.getrlimit(limit)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (most, hard if policy.may_lift_bounds and limit == memory[0] else most))


def _address_space_bytes() -> int:
    """Bytes of this process's address space."""
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[0]) * resource.getpagesize()


def _tasks_of_this_user() -> int:
    """Threads of the processes that are seen here and belong to this user."""
    tasks, me = 0, os.getuid()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == me:
                    tasks += os.stat(f"/proc/{name}/task").st_nlink - 2
    return tasks


def _give_up_capabilities() -> None:
    """Root without capabilities is a user who owns root's files: it can no longer mount, trace or signal others."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0)
    _call_libc("capset", header, (ctypes.c_uint32 * 6)())


def rehearse(policy: Policy, places: Places) -> None:
    """Take the steps of `confine` that can be taken back, once in a zygote: what Python makes at their first time takes 12 ms."""
    _tasks_of_this_user()
    if landlockpy is not None and landlockpy.supported():
        _rules(policy, places).close()


def _restrict_files(policy: Policy, places: Places, *, signals: bool) -> None:
    try:
        with _rules(policy, places, signals=signals) as rules:
            rules.restrict()
    except landlockpy.LandlockError as error:
        raise CannotConfine(f"landlock: {error}") from None


def _rules(policy: Policy, places: Places, *, signals: bool = False) -> Any:
    """What the process may read and write, and nothing of others: no abstract socket, no TCP, without `signals` no signal."""
    fs = landlockpy.AccessFS
    read = fs.READ_FILE | fs.READ_DIR | (fs.EXECUTE if policy.processes else fs.NONE)
    write = read | fs.WRITE_FILE | fs.TRUNCATE | fs.REMOVE_DIR | fs.REMOVE_FILE | fs.MAKE_DIR | fs.MAKE_REG
    write |= fs.MAKE_FIFO | fs.MAKE_SYM | fs.REFER
    scope = landlockpy.Scope
    rules = landlockpy.Ruleset(scoped=scope.ABSTRACT_UNIX_SOCKET | (scope.NONE if signals else scope.SIGNAL))
    readable, listed = places.split()
    _allow(rules, readable, read)
    _allow(rules, listed, fs.READ_DIR)
    _allow(rules, _OF_THE_SYSTEM, fs.READ_FILE | fs.READ_DIR)
    _allow(rules, _OF_ITSELF, fs.READ_FILE | fs.READ_DIR | (fs.WRITE_FILE | fs.TRUNCATE if policy.devices else fs.NONE))
    _allow(rules, _WITHOUT_CONTENTS, fs.READ_FILE | fs.WRITE_FILE)
    _allow(rules, _devices(policy.devices), fs.READ_FILE | fs.WRITE_FILE | fs.IOCTL_DEV)
    _allow(rules, places.writable, write if policy.writes else read)
    return rules


_OF_THE_SYSTEM = (
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/sys/vm/overcommit_memory",
    "/proc/sys/kernel/osrelease", "/sys/devices/system/cpu", "/sys/devices/system/node", "/dev/urandom", "/dev/random",
)  # fmt: skip
_OF_ITSELF = ("/proc/self",)
"""Taken as it is now: the folder of this process, and of no other. CUDA's driver writes the names of its threads there, ``comm``,
and fails where it cannot."""
_WITHOUT_CONTENTS = ("/dev/null", "/dev/zero", "/dev/full")


def _devices(beginnings: Sequence[str]) -> list[str]:
    return [f"/dev/{name}" for name in os.listdir("/dev") if name.startswith(tuple(beginnings))] if beginnings else []


def _allow(rules: Any, paths: Iterable[str], access: Any) -> None:
    """A file takes the rights of a file only; a path that is not there grants nothing."""
    fs = landlockpy.AccessFS
    of_a_file = fs.READ_FILE | fs.WRITE_FILE | fs.EXECUTE | fs.TRUNCATE | fs.IOCTL_DEV
    for path in paths:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            rules.allow_path(path, access if os.path.isdir(path) else access & of_a_file)
