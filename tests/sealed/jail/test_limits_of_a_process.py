"""Contract under test: a process that takes all it can takes what its policy allows, is told to have, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.model.paths import ROOT
from bitverdict.harness.sealed.jail.confine import THREADS
from bitverdict.harness.sealed.jail.jail import Jail
from bitverdict.harness.sealed.jail.policy import CANDIDATE, MIB
from bitverdict.harness.sealed.jail.protections import ALWAYS, BUBBLEWRAP, SECCOMP, Protections, protections
from tests.sealed.jail.test_confined_processes import started, told

SMALL = replace(CANDIDATE, memory=64 * MIB, scratch=4 * MIB, file=2 * MIB, log=64 << 10)
SEVERAL = replace(SMALL, processes=8)
NOTHING = Protections(ALWAYS, {})


@pytest.fixture(scope="module", params=["with all protections", "with none of the kernel's"])
def jail(request: pytest.FixtureRequest) -> Iterator[Jail]:
    yield from made(SMALL, None if "all" in request.param else NOTHING)


@pytest.fixture(scope="module", params=["with all protections", "with none of the kernel's"])
def roomy(request: pytest.FixtureRequest) -> Iterator[Jail]:
    """Its processes may start others, as on a real GPU."""
    yield from made(SEVERAL, None if "all" in request.param else NOTHING)


def made(policy: object, found: Protections | None) -> Iterator[Jail]:
    jail = Jail([str(ROOT / "tests")], policy=policy, machine_protections=found)  # type: ignore[arg-type]
    yield jail
    jail.end()


def test_no_capability_is_left_and_none_can_be_gained(jail: Jail) -> None:
    process, channel = started(jail, "look_around")
    assert told(channel)["rights"] == ["0" * 16, "0" * 16, "1"]
    assert process.end_sentence(300)


@pytest.mark.parametrize("function", ["take_memory", "share_memory"])
def test_memory_is_bounded(jail: Jail, function: str) -> None:
    process, channel = started(jail, function, most=100)
    assert 20 < told(channel)["had"] < 64
    assert process.end_sentence(300) == "the candidate's process ended with exit status 0"


def test_a_file_is_bounded(jail: Jail) -> None:
    process, channel = started(jail, "write_a_large_file", size=3 * MIB)
    assert told(channel)["why"] == "File too large"
    assert process.end_sentence(300)  # a process that ends has the scratch directory tidied, also what another writes there


def test_the_scratch_directory_is_bounded(jail: Jail) -> None:
    process, channel = started(jail, "fill_the_disk", most=6)
    if jail.protections.has("bubblewrap"):
        found = told(channel)
        assert found["written"] <= 4 and found["why"] == "No space left on device"
        assert process.end().endswith("it was asked to end")
        again, channel = started(jail, "fill_the_disk", most=1)  # what the first left is gone
        assert told(channel)["written"] == 1
        again.end()
    else:
        assert (
            process.end_sentence(60) == "the candidate's process was killed by SIGKILL: its scratch directory holds more than 4 MiB"
        )


def test_what_is_printed_is_kept_to_a_limit_and_counted(jail: Jail, tmp_path: Path) -> None:
    process, channel = started(jail, "print_much", tmp_path / "log", size=8 * MIB)
    assert told(channel)["printed"] == 8 * MIB
    assert process.end_sentence(300).endswith("exit status 0; it printed 8,388,608 bytes, of which 8,323,072 were not kept")
    assert (tmp_path / "log").stat().st_size == 64 << 10


def test_each_case_has_a_log_of_the_full_limit(jail: Jail, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process, channel = started(jail, "print_twice", log, size=MIB)
    assert told(channel)
    process.new_case()
    channel.send(b"xx")
    process.end_sentence(10)
    assert log.stat().st_size == 2 * (64 << 10)


def test_a_closed_channel_is_seen_and_the_process_ended(jail: Jail) -> None:
    process, channel = started(jail, "close_the_channel")
    assert channel.recv(1) == b"" and process.end_sentence() == ""
    assert process.end() == "the candidate's process was killed by SIGKILL: it was asked to end"


def test_threads_are_bounded(jail: Jail) -> None:
    process, channel = started(jail, "make_threads", most=4 * THREADS)
    line = channel.makefile().readline()  # nothing where it was killed before it could tell
    if line and json.loads(line)["threads"] <= THREADS:  # the kernel's limit of a user that is not root
        assert not process.end_sentence() and process.end()
    else:
        assert process.end_sentence(300) == f"the candidate's process was killed by SIGKILL: it has more than {THREADS} threads"


def test_processes_that_left_their_parent_end_with_it(roomy: Jail) -> None:
    may_leave = not roomy.protections.has(SECCOMP)
    process, channel = started(roomy, "leave_processes", number=4, leave_the_group=may_leave)
    assert told(channel)["left"] == 4
    process.end()
    assert channel.recv(1) == b""  # the end of the channel: nobody holds the other side any more


def test_processes_that_a_policy_has_beside_it_are_no_excess() -> None:
    """The executor forks its compiler before it confines itself."""
    for beside, seconds, end in ((4, 0.5, ""), (3, 20, "the candidate's process was killed by SIGKILL: it has started a process")):
        jail = Jail([str(ROOT / "tests")], policy=replace(SMALL, earlier_processes=beside), machine_protections=NOTHING)
        process, channel = started(jail, "start_processes", number=4)
        assert told(channel)["started"] == 4
        assert process.end_sentence(seconds) == end
        jail.end()


def test_processes_without_end_are_ended(roomy: Jail) -> None:
    if os.getuid() == 0 and not roomy.protections.has(BUBBLEWRAP):
        pytest.skip("without bubblewrap nothing ends the processes of root at once: not tried on a machine that others use")
    process, channel = started(roomy, "make_processes_without_end")
    begun = time.monotonic()
    assert process.end_sentence(100) or process.end()
    assert time.monotonic() - begun < 100
    assert channel.recv(1) == b""


def test_a_process_that_may_start_none_starts_none(jail: Jail) -> None:
    if not protections().has(SECCOMP):
        pytest.skip("seccomp is lacking here: " + protections().remedies[SECCOMP])
    if jail.protections.has(SECCOMP):
        process, channel = started(jail, "leave_processes", number=1, leave_the_group=False)
        assert channel.recv(1) == b"" and process.end_sentence(300) == "the candidate's process ended with exit status 1"
