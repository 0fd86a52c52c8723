"""Contract under test: a confined process has its channel and its log and nothing else, and its end is told as a sentence."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bitverdict.harness.model.paths import ROOT
from bitverdict.harness.sealed.jail.jail import ConfinedProcess, Jail, JailDied, clean_environment, start_process, wait_ready
from bitverdict.harness.sealed.jail.protections import protections

FUNCTIONS = "tests.support.confined_functions"


@pytest.fixture(scope="module")
def jail() -> Iterator[Jail]:
    """With all that this machine has."""
    jail = Jail([str(ROOT / "tests")])
    yield jail
    jail.end()


def started(jail: Jail, function: str, log: Path | None = None, **arguments: Any) -> tuple[ConfinedProcess, socket.socket]:
    ours, theirs = socket.socketpair()
    with theirs:
        process = start_process(jail.address, f"{FUNCTIONS}:{function}", [theirs], arguments, log=log)
    ours.settimeout(20)
    return process, ours


def told(channel: socket.socket, log: Path | None = None) -> dict:
    with channel.makefile() as lines:
        line = lines.readline()
    assert line, log.read_text() if log else "the process ended before it answered"
    return json.loads(line)


def test_a_process_has_its_channel_its_log_and_a_clean_environment(jail: Jail, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process, channel = started(jail, "look_around", log)
    found = told(channel)
    assert process.end_sentence(300) == "the candidate's process ended with exit status 0"
    assert sorted(found["descriptors"]) == [0, 1, 2, found["number"]]
    assert not {"BITVERDICT_STATE", "PYTEST_CURRENT_TEST"} & set(found["variables"])
    assert found["variables"]["HOME"] == found["directory"]
    assert log.read_text() == "looked around\n" and (process.printed, process.kept) == (14, 14)


@pytest.mark.parametrize(
    ("function", "arguments", "sentence"),
    [
        ("leave", {"status": 0}, "ended with exit status 0"),
        ("leave", {"status": 7}, "ended with exit status 7"),
        ("kill_itself", {"number": signal.SIGKILL}, "was killed by SIGKILL"),
        ("kill_itself", {"number": signal.SIGSEGV}, "was killed by SIGSEGV"),
    ],
)
def test_the_end_of_a_process_is_told_as_a_sentence(jail: Jail, function: str, arguments: dict, sentence: str) -> None:
    process, channel = started(jail, function, **arguments)
    assert channel.recv(1) == b""  # which the other side of the channel sees at once
    assert process.end_sentence(300) == f"the candidate's process {sentence}"


@pytest.mark.parametrize("function", ["loop", "stop", "wait"])
def test_a_process_that_does_not_end_is_ended(jail: Jail, function: str) -> None:
    process, _ = started(jail, function)
    assert process.end_sentence(0.1) == ""
    begun = time.monotonic()
    assert process.end() == "the candidate's process was killed by SIGKILL: it was asked to end"
    assert time.monotonic() - begun < 60


def test_a_jail_that_ended_is_told_at_the_next_start() -> None:
    jail = Jail([str(ROOT / "tests")])
    wait_ready(jail.address)
    process, channel = started(jail, "wait")
    assert told(channel)
    jail.end()
    assert process.end_sentence(300) and channel.recv(1) == b"" and not jail.alive()
    with pytest.raises(JailDied, match="the jail did not answer"):
        started(jail, "wait")
    with pytest.raises(JailDied, match="the jail does not answer within"):
        wait_ready(jail.address)


def test_the_sentence_of_protections_names_what_holds_and_what_lacks() -> None:
    sentence = protections().sentence()
    assert sentence.startswith("sealed: ") and "resource limits" in sentence and "lacking" in sentence


def test_variables_that_decide_what_the_compiler_makes_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRITON_F32_DEFAULT", "TRITON_CACHE_DIR", "TRITON_REDIS_HOST", "BITVERDICT_POOL_SEED", "A_SECRET"):
        monkeypatch.setenv(name, "ieee")
    environment = clean_environment("/scratch", {"GIVEN": "by name"})
    assert (environment["TRITON_F32_DEFAULT"], environment["GIVEN"]) == ("ieee", "by name")
    assert environment["TRITON_CACHE_DIR"] == "/scratch/triton"
    assert not {"TRITON_REDIS_HOST", "BITVERDICT_POOL_SEED", "A_SECRET"} & set(environment)


FIRST_OPERATOR = """
import resource, sys
{preload}
import torch
resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print(torch.backends.cpu.get_cpu_capability(), end="")
"""


def test_torch_looks_at_the_processor_before_a_process_is_confined() -> None:
    """At the first operator of a process that may open no file torch takes a processor without vectors."""
    preloads = ("", "from bitverdict.harness.sealed.jail.zygote import import_preloaded; import_preloaded(['torch'])")
    confined, preloaded = (
        subprocess.run([sys.executable, "-c", FIRST_OPERATOR.format(preload=preload)], capture_output=True, text=True).stdout
        for preload in preloads
    )
    here = torch.backends.cpu.get_cpu_capability()
    assert preloaded == here and (confined != here or here == "DEFAULT")
