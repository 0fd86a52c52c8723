"""Contract under test: a run says which protections hold and what gives the others, also where no user namespace can be made."""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.model.paths import ROOT
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.sealed import isolation
from bitverdict.harness.sealed.jail import bubblewrap, confine, places
from bitverdict.harness.sealed.jail.executors import Executors
from bitverdict.harness.sealed.jail.jail import Jail, start_process
from bitverdict.harness.sealed.jail.policy import CANDIDATE, CANDIDATE_ON_A_GPU
from bitverdict.harness.sealed.jail.protections import (
    ALWAYS,
    BUBBLEWRAP,
    LANDLOCK,
    SECCOMP,
    SIGNALS,
    Protections,
    bubblewrap_fails,
    protections,
    require,
)
from bitverdict.harness.sealed.processes import jails, trio
from tests.sealed.jail.test_confined_processes import FUNCTIONS, started, told

NEW_USER, GET_DUMPABLE = 0x10000000, 3  # CLONE_NEWUSER, PR_GET_DUMPABLE


def in_a_fork(asked: Callable[[], object]) -> object:
    """What `asked` gives, in a process of its own, through JSON."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        os.close(reading)
        os.write(writing, json.dumps(asked()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def test_without_user_namespaces_the_run_goes_on_and_says_so() -> None:
    if confine.pyseccomp is None or not protections().has(BUBBLEWRAP):
        pytest.skip("needs bubblewrap, and seccomp to refuse user namespaces to it")

    def asked() -> object:
        filter = confine.pyseccomp.SyscallFilter(confine.pyseccomp.ALLOW)
        for name in ("clone", "unshare"):
            filter.add_rule(
                confine.pyseccomp.ERRNO(1), name, confine.pyseccomp.Arg(0, confine.pyseccomp.MASKED_EQ, NEW_USER, NEW_USER)
            )
        filter.add_rule(confine.pyseccomp.ERRNO(38), "clone3")
        filter.load()
        found = protections.__wrapped__()
        jail = Jail([str(ROOT / "tests")], machine_protections=found)
        process, channel = started(jail, "look_around")
        answer = [found.sentence(), told(channel)["directory"], process.end_sentence(300)]
        jail.end()
        return answer

    sentence, directory, end = in_a_fork(asked)  # type: ignore[misc]
    assert "user namespace," not in sentence and "landlock" in sentence.partition("lacking")[0]
    assert "lacking: bubblewrap (bwrap: " in sentence and "allow user namespaces" in sentence
    assert directory.startswith("/tmp/bitverdict-scratch-") and end == "the candidate's process ended with exit status 0"


def test_without_bubblewrap_the_sentence_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert bubblewrap_fails() == "install Debian's package bubblewrap"


def test_without_the_libraries_the_sentence_names_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "pyseccomp", None)
    monkeypatch.setattr(confine, "landlockpy", None)
    found = protections.__wrapped__()
    assert (
        found.remedies[SECCOMP]
        == "pip install '.[sealed]' in a checkout of bitverdict (pyseccomp), and Debian's package libseccomp2"
    )
    assert found.remedies[LANDLOCK] == "pip install '.[sealed]' in a checkout of bitverdict (landlockpy)"
    assert not found.has(SECCOMP) and "seccomp (pip install" in found.sentence()


def test_a_required_jail_refuses_a_machine_that_lacks_a_protection() -> None:
    lacking = Protections((SECCOMP, LANDLOCK, *ALWAYS), {BUBBLEWRAP: "install Debian's package bubblewrap"})
    with pytest.raises(UsageError, match=r"this machine lacks bubblewrap.*install Debian's package bubblewrap.*leave out"):
        require(lacking)
    require(Protections((BUBBLEWRAP, SECCOMP, LANDLOCK, *ALWAYS), {SIGNALS: "needs Linux 6.12 or later"}))


def test_a_process_whose_protection_does_not_hold_never_runs(tmp_path: Path) -> None:
    """Landlock is said to be there and is not: the function is not called."""
    jail = Jail(
        [str(ROOT / "tests")], machine_protections=Protections((LANDLOCK, *ALWAYS), {}), policy=replace(CANDIDATE, open_files=3)
    )
    from bitverdict.harness.sealed.jail.jail import JailDied

    with pytest.raises(JailDied, match="could not be started"):
        started(jail, "look_around", tmp_path / "log")
    assert (tmp_path / "log").read_text() == ""
    jail.end()


@pytest.fixture
def unprotected() -> Iterator[Jail]:
    jail = Jail([str(ROOT / "tests")], machine_protections=Protections(ALWAYS, {}))
    yield jail
    jail.end()


def test_memory_of_a_trusted_process_cannot_be_opened_by_its_user(unprotected: Jail) -> None:
    ordinary, first = started(unprotected, "wait")
    trusted, second = started(unprotected, "be_unreadable")
    assert told(first) and told(second)
    _, channel = started(unprotected, "open_the_memory", of=[ordinary.pid, trusted.pid])
    assert told(channel)["found"] == ["", "Permission denied"]


def test_a_worker_of_sealed_cases_makes_itself_unreadable(unprotected: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a candidate that nothing else confines, its memory would lie open."""
    for name in (isolation.JAIL, isolation.EXECUTORS):
        monkeypatch.setenv(name, jails._encode_address(unprotected.address))
    monkeypatch.setattr(trio.Trio, "start", lambda self: None)

    def asked() -> object:
        trio.install(target("emulated:sm_90"), Path(os.devnull))
        return ctypes.CDLL(None).prctl(GET_DUMPABLE, 0, 0, 0, 0)

    assert in_a_fork(asked) == 0


def test_an_executor_confines_itself_after_it_forked_its_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a fork of this process in the place of the forkserver, which takes seconds to import what is not needed here."""
    forks = contextlib.nullcontext(multiprocessing.get_context("fork"))
    monkeypatch.setattr("bitverdict.harness.sealed.jail.executors._forkserver", lambda: forks)
    monkeypatch.setattr("bitverdict.harness.sealed.jail.executors.GONE_WITHIN", 0.1)  # the fork holds both ends of the lifeline
    executors = Executors(folders=[str(ROOT / "tests")], variables={"PYTHONPATH": str(ROOT)})
    ours, theirs = socket.socketpair()
    try:
        process = start_process(executors.address, f"{FUNCTIONS}:execute", [theirs], name="the executor", log=tmp_path / "log")
        theirs.close()
        ours.settimeout(20)
        found = told(ours, tmp_path / "log")
        assert process.end_sentence(300) == "the executor ended with exit status 0"
    finally:
        executors.end()
    assert found["read"] == "assembled\n" and "BITVERDICT_STATE" not in found["variables"]
    if protections().has(SECCOMP) and protections().has(LANDLOCK):
        refused = "Function not implemented"
        assert found["why"] == ["", refused, "", "Permission denied", refused, refused]


def test_the_state_of_runs_is_hidden_in_a_folder_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "folder" / "state"))
    (tmp_path / "folder" / "beside").mkdir(parents=True)
    (tmp_path / "folder" / "candidate.py").touch()
    found = places.places([str(tmp_path / "folder")])
    assert str(tmp_path / "folder" / "state") in found.hidden
    read, listed = found.split()
    ours = [path for path in read if path.startswith(str(tmp_path))]
    assert sorted(ours) == [str(tmp_path / "folder" / "beside"), str(tmp_path / "folder" / "candidate.py")]
    assert str(tmp_path / "folder") in listed
    line = bubblewrap.command("bwrap", CANDIDATE, found, {})
    at = line.index(str(tmp_path / "folder" / "state"))
    assert line[at - 1] == "--tmpfs" and line.index(str(tmp_path / "folder")) < at


def test_keys_in_the_home_directory_are_hidden_from_a_file_that_lies_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "key").write_text("a secret")
    (tmp_path / ".netrc").write_text("a secret")
    (tmp_path / "candidate.py").write_text("right")
    (tmp_path / ".python" / "lib").mkdir(parents=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / ".python" / "lib"))
    hidden = places.places([str(tmp_path)]).hidden
    assert sorted(hidden) == [str(tmp_path / ".netrc"), str(tmp_path / ".ssh")]
    files = [str(tmp_path / ".ssh" / "key"), str(tmp_path / ".netrc"), str(tmp_path / "candidate.py")]
    for held in (LANDLOCK, BUBBLEWRAP):
        if protections().has(held):
            jail = Jail([str(ROOT / "tests"), str(tmp_path)], machine_protections=Protections((held, *ALWAYS), {}))
            _, channel = started(jail, "read_files", files=files)
            assert told(channel)["found"] == ["", "", "right"], held
            jail.end()


def test_a_process_on_a_real_gpu_has_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command line: no GPU was there when this was written."""
    monkeypatch.setattr(os, "listdir", lambda of: ["nvidia0", "nvidiactl", "sda", "null"])
    line = bubblewrap.command("bwrap", CANDIDATE_ON_A_GPU, places.Places(), {})
    bound = [line[at + 1] for at, word in enumerate(line) if word == "--dev-bind"]
    assert bound == ["/dev/nvidia0", "/dev/nvidiactl"]
    assert "--dev-bind" not in bubblewrap.command("bwrap", CANDIDATE, places.Places(), {})
