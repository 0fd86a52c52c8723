"""Contract under test: whoever is killed, no confined process outlives the run, the jail or the one that asked for it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitverdict.harness.model.paths import IMPORTED_FROM, ROOT
from bitverdict.harness.sealed.jail.jail import Jail
from bitverdict.harness.sealed.jail.protections import ALWAYS, BUBBLEWRAP, Protections, protections
from tests.sealed.jail.test_confined_processes import FUNCTIONS, started, told

RUN = """
import socket, sys, time
from bitverdict.harness.sealed.jail.jail import Jail, start_process
from bitverdict.harness.sealed.jail.protections import ALWAYS, Protections
jail = Jail([sys.argv[1]], machine_protections=Protections(ALWAYS, {}) if sys.argv[2] == "bare" else None)
channel = socket.socket(fileno=int(sys.argv[3]))
process = start_process(jail.address, sys.argv[4], [channel])
channel.close()
print(jail._process.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(params=["jailed", "bare"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[subprocess.Popen, int, socket.socket]]:
    """A run with one process in a jail: the run, the number of the jail, and our end of the process's channel."""
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    program = [sys.executable, "-c", RUN, str(ROOT / "tests"), request.param, str(theirs.fileno()), f"{FUNCTIONS}:wait"]
    path = os.environ | {"PYTHONPATH": str(IMPORTED_FROM), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(program, stdout=subprocess.PIPE, pass_fds=[theirs.fileno()], env=path) as run, ours:
        theirs.close()
        assert run.stdout is not None
        yield run, int(run.stdout.readline()), ours
        run.kill()


def test_a_process_ends_with_the_run_that_was_killed(run: tuple[subprocess.Popen, int, socket.socket]) -> None:
    process, jail, channel = run
    assert told(channel)
    process.kill()
    assert channel.recv(1) == b""  # nobody holds the other end: the process is gone, and what it started
    deadline = time.monotonic() + 300
    while lives(jail):
        assert time.monotonic() < deadline, "the jail outlives its run"
        time.sleep(0.02)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_ends_with_the_jail_that_was_killed(run: tuple[subprocess.Popen, int, socket.socket]) -> None:
    _, jail, channel = run
    assert told(channel)
    zygote = jail
    while Path(f"/proc/{zygote}/exe").readlink().name == "bwrap":
        zygote = int(Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()[0])
    os.kill(zygote, signal.SIGKILL)
    assert channel.recv(1) == b""


def test_a_process_ends_when_nobody_holds_it_any_more() -> None:
    jail = Jail([str(ROOT / "tests")], machine_protections=Protections(ALWAYS, {}))
    process, channel = started(jail, "wait")
    assert told(channel)
    process._connection.close()
    assert channel.recv(1) == b""
    jail.end()


def test_a_process_cannot_reach_the_jail_that_it_was_forked_from() -> None:
    """Its own zygote has the same user and, with bubblewrap, the same processes in sight."""
    if not (protections().has(BUBBLEWRAP) and protections().has("seccomp")):
        pytest.skip("bubblewrap or seccomp is lacking here")
    jail = Jail([str(ROOT / "tests")])
    process, channel = started(jail, "kill_the_parent")
    assert told(channel)["why"] and process.end_sentence(300) and jail.alive()
    jail.end()
