"""The trusted side: start a zygote, ask it for a process, and know how that process ended."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bitverdict.harness.model.paths import IMPORTED_FROM
from bitverdict.harness.sealed.jail import bubblewrap
from bitverdict.harness.sealed.jail.places import places, python_path_folders, tools
from bitverdict.harness.sealed.jail.policy import CANDIDATE, Policy
from bitverdict.harness.sealed.jail.protections import BUBBLEWRAP, LANDLOCK, SECCOMP, Protections, protections
from bitverdict.harness.sealed.jail.zygote import MESSAGE, Setting
from bitverdict.harness.workers.one_thread import VARIABLES

PASSED_VARIABLES = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "DISABLE_PTXAS_OPT", "PTXAS_OPTIONS", "USE_IR_LOC")
"""Variables of the run that a confined process has too, beside Triton's own (`compiler_variables`). It has no others, except those
that are given by name."""
_OF_PLACES = ("_DIR", "_HOME", "_PATH", "_MANAGER", "_BACKEND")

STARTED_WITHIN = 120.0  # seconds; a zygote imports torch, on a machine that may be busy
GONE_WITHIN = 10.0  # seconds in which a killed process is gone


def new_address() -> str:
    """The name of a socket that leaves nothing on the disk, whoever is killed."""
    return f"\0bitverdict-{secrets.token_hex(16)}"


def listening_at(address: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(address)
    listening.listen(128)
    return listening


class Watch:
    """Knows whether the zygote at an address lives, in this process and in its forks: it holds a connection that asks nothing."""

    def __init__(self, address: str) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(address)

    def alive(self) -> bool:
        if self._connection.fileno() < 0:
            return False
        looking = select.poll()
        looking.register(self._connection, select.POLLIN)
        return not looking.poll(0)

    def end(self) -> None:
        self._connection.close()


class JailDied(Exception):
    """The zygote is gone, or could not make the process. The text says why; nothing untrusted ran."""


class Jail:
    """A zygote for one candidate. Start it early: it imports `preload` while others do their part.

    `folders` are what the candidate may read besides Python and the packages: where its file lies. `variables` are added to the
    clean environment. `machine_protections` are those to use; None: all that this machine has. `address` names it to
    `start_process`, in this process and in any other of this user. Without bubblewrap the same zygote runs as it is, and its
    processes are confined by what they do to themselves.
    """

    def __init__(
        self,
        folders: Sequence[str] = (),
        *,
        policy: Policy = CANDIDATE,
        preload: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        machine_protections: Protections | None = None,
    ) -> None:
        machine_protections = machine_protections or protections()
        self.protections = machine_protections
        has_bubblewrap = machine_protections.has(BUBBLEWRAP)
        self._scratch = "" if has_bubblewrap else tempfile.mkdtemp(prefix="bitverdict-scratch-")
        scratch = bubblewrap.SCRATCH if has_bubblewrap else self._scratch
        visible_places = places([*folders, *policy.files], scratch)
        setting = Setting(
            policy=policy,
            scratch=scratch,
            preload=tuple(preload),
            places=visible_places,
            seccomp=machine_protections.has(SECCOMP),
            landlock=machine_protections.has(LANDLOCK),
            bounded_scratch=has_bubblewrap,
        )
        environment = clean_environment(scratch, variables or {})
        self.address = new_address()
        listener = listening_at(self.address)
        lifeline_end, self._lifeline = os.pipe2(os.O_CLOEXEC)
        program = [sys.executable, "-P", "-m", "bitverdict.harness.sealed.jail.zygote"]
        program += [str(listener.fileno()), str(lifeline_end), json.dumps(setting.to_json())]
        around = bubblewrap.command(shutil.which("bwrap") or "bwrap", policy, visible_places, environment) if has_bubblewrap else []
        self._said = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [*around, *program],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            env=environment,
            cwd="/",
            pass_fds=(listener.fileno(), lifeline_end),
            start_new_session=True,
        )
        self._watch = Watch(self.address)
        os.close(lifeline_end)
        listener.close()

    def alive(self) -> bool:
        return self._watch.alive()

    def last_lines(self) -> str:
        """The last lines that the zygote printed: why it could not start."""
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - 4096))
        return self._said.read().decode(errors="replace").strip()

    def end(self) -> None:
        """End the zygote and every process of it."""
        with contextlib.suppress(OSError):
            os.close(self._lifeline)
        self._lifeline = -1
        self._watch.end()
        try:
            self._process.wait(GONE_WITHIN)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._said.close()
        if self._scratch:  # where the zygote was killed
            shutil.rmtree(self._scratch, ignore_errors=True)


def clean_environment(scratch: str, variables: Mapping[str, str]) -> dict[str, str]:
    """What a confined process has: nothing of the run but `PASSED_VARIABLES`, one thread a library, own caches in the scratch."""
    user_site = {"PYTHONUSERBASE": site.getuserbase()} if site.ENABLE_USER_SITE else {}
    return {
        **{name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ},
        **compiler_variables(),
        **user_site,
        "PATH": "/usr/bin:/bin",
        "HOME": scratch,
        "USER": "sealed",
        "TMPDIR": scratch,
        "XDG_CACHE_HOME": f"{scratch}/cache",
        "TRITON_CACHE_DIR": f"{scratch}/triton",
        "PYTHONPATH": os.pathsep.join([str(IMPORTED_FROM), *python_path_folders()]),
        "PYTHONDONTWRITEBYTECODE": "1",
        **dict.fromkeys(VARIABLES, "1"),
        **variables,
    }


def compiler_variables() -> dict[str, str]:
    """Triton's variables of this process that decide what it compiles: all but those that name a place, and yet its tools."""
    ours = {name: value for name, value in os.environ.items() if name.startswith("TRITON_") and not name.startswith("TRITON_REDIS")}
    return {name: value for name, value in ours.items() if not name.endswith(_OF_PLACES)} | tools()


class ConfinedProcess:
    """One process of a zygote. It ends with this object's `end`, and with the process that holds it."""

    def __init__(self, connection: socket.socket, policy_name: str, pid: int, seconds: float) -> None:
        self.name, self.pid, self.start_seconds = policy_name, pid, seconds
        self.status: int | None = None
        """What waitpid(2) told: known once `ended` says something; None where the zygote went too."""
        self.printed, self.kept = 0, 0  # bytes, known at its end
        self.lost = False  # its zygote ended first
        self._connection, self._why, self._sentence = connection, "", ""

    def fileno(self) -> int:
        """To wait for its end beside other things."""
        return self._connection.fileno()

    def end_sentence(self, seconds: float = 0.0) -> str:
        """How it ended, as a sentence without its period; empty where it lives after `seconds`."""
        if not self._sentence and select.select([self._connection], [], [], seconds)[0]:
            try:
                told = json.loads(self._connection.recv(MESSAGE))
                self.status, self._why = told["ended"], told["why"]
                self.printed, self.kept = told["printed"], told["kept"]
                self._sentence = f"{self.name} {how(self.status)}" + (f": {self._why}" if self._why else "") + self.excess()
            except (OSError, ValueError, KeyError):
                self._sentence, self.lost = f"{self.name} was killed together with its jail", True
        return self._sentence

    def excess(self) -> str:
        """What it printed beyond the limit of its log, told; empty where all was kept."""
        lost = self.printed - self.kept
        return f"; it printed {self.printed:,} bytes, of which {lost:,} were not kept" if lost else ""

    def new_case(self) -> None:
        """Another case begins: the limit of the log begins again."""
        with contextlib.suppress(OSError):
            self._connection.send(b'{"again": true}', socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def end(self) -> str:
        """Kill it with all that it started, wait until they are gone, and say how it ended."""
        with contextlib.suppress(OSError):
            self._connection.send(b'{"end": true}', socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        sentence = self.end_sentence(GONE_WITHIN) or f"{self.name} is not gone {GONE_WITHIN:g} s after it was killed"
        self._connection.close()
        return sentence


def how(status: int) -> str:
    """A status of waitpid(2) in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(number).name}"
        return f"was killed by signal {number}"
    return f"ended with exit status {os.waitstatus_to_exitcode(status)}"


def wait_ready(address: str, seconds: float = STARTED_WITHIN) -> None:
    """Wait until the zygote at `address` has imported all, which must not take the time of a case. JailDied where it does not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(address)
            connection.send(b'{"ready": true}')
            answer = connection.recv(MESSAGE)
        except OSError as error:
            raise JailDied(f"the jail does not answer within {seconds:g} s ({error})") from None
    if not answer:
        raise JailDied("the jail ended before it had imported all")


def start_process(
    address: str,
    function: str,
    channels: Sequence[socket.socket],
    arguments: Mapping[str, object] | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    log: Path | None = None,
    name: str = CANDIDATE.name,
) -> ConfinedProcess:
    """A confined process that calls ``function(*channels, **arguments)``; it is confined when this returns.

    `address` is that of a `Jail` or of `Executors`. `function` is ``package.module:name``; `arguments` and `variables` (of its
    environment) go through JSON. The process has copies of `channels`, which the caller may close. What it prints is appended to
    `log`. JailDied where there is no such process.
    """
    start_time = time.perf_counter()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(STARTED_WITHIN)
    record = {"function": function, "arguments": dict(arguments or {}), "variables": dict(variables or {})}
    out = os.open(log or os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(record).encode()], [out, *(channel.fileno() for channel in channels)])
        answer = json.loads(connection.recv(MESSAGE) or b"{}")
    except (OSError, ValueError) as error:
        connection.close()
        raise JailDied(f"{name} could not be started: the jail did not answer ({error})") from None
    finally:
        os.close(out)
    if "pid" not in answer:
        connection.close()
        raise JailDied(f"{name} could not be started: {answer.get('failed') or 'the jail ended while it started it'}")
    return ConfinedProcess(connection, name, answer["pid"], time.perf_counter() - start_time)
