"""Contract under test: on a GPU a candidate has every protection under which the driver starts; a run names what it left out."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.frontends import sealing
from bitverdict.harness.model.paths import ROOT
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.sealed.jail.jail import Jail, start_process
from bitverdict.harness.sealed.jail.policy import CANDIDATE_ON_A_GPU
from bitverdict.harness.sealed.jail.protections import (
    ALWAYS,
    BUBBLEWRAP,
    LANDLOCK,
    NAMESPACES,
    SECCOMP,
    SIGNALS,
    Protections,
    require,
)
from bitverdict.harness.sealed.jail.protections import protections as machines
from bitverdict.harness.sealed.processes import gpu_protections
from bitverdict.harness.sealed.processes.gpu_protections import choose_protections, run_trial

ALL = Protections((BUBBLEWRAP, *NAMESPACES, SECCOMP, LANDLOCK, SIGNALS, *ALWAYS), {})


def refused_under(*names: str):
    """A driver that starts where all protections of `names` are left out."""
    asked: list[tuple[str, ...]] = []

    def trial(found: Protections) -> str:
        asked.append(tuple(name for name in (BUBBLEWRAP, SECCOMP, LANDLOCK) if found.has(name)))
        under = [name for name in names if found.has(name)]
        return f"error 304 under {under[0]}" if under else ""

    return trial, asked


def test_where_the_driver_starts_nothing_is_left_out() -> None:
    trial, asked = refused_under()
    assert choose_protections(ALL, trial) == ALL and len(asked) == 1


@pytest.mark.parametrize("names", [(LANDLOCK,), (SECCOMP,), (LANDLOCK, SECCOMP), (BUBBLEWRAP,)])
def test_the_fewest_protections_are_left_out_and_named(names: tuple[str, ...]) -> None:
    trial, _ = refused_under(*names)
    left = choose_protections(ALL, trial)
    assert {name for name in (BUBBLEWRAP, SECCOMP, LANDLOCK) if not left.has(name)} == set(names)
    assert left.has(SIGNALS) is (LANDLOCK not in names) and left.has(NAMESPACES[0]) is (BUBBLEWRAP not in names)
    assert set(ALWAYS) < set(left.names)
    for name in names:
        assert f"{name} (a kernel cannot be launched on the GPU under it: error 304" in left.sentence("sealed on a GPU")
        with pytest.raises(UsageError, match=f"lacks .*{name}"):
            require(left)


def test_a_driver_that_never_starts_leaves_the_jail_whole() -> None:
    assert choose_protections(ALL, lambda found: "no device") == ALL


def test_what_a_machine_lacks_is_not_left_out_a_second_time() -> None:
    trial, asked = refused_under(SECCOMP)
    bare = replace(ALL, names=(SECCOMP, *ALWAYS), remedies={BUBBLEWRAP: "install it", LANDLOCK: "old kernel"})
    assert choose_protections(bare, trial).names == ALWAYS and asked == [(SECCOMP,), ()]


def test_a_trial_is_a_process_of_its_jail_and_says_why() -> None:
    function = "tests.support.confined_functions:connect_to_a_network"
    if not machines().has(SECCOMP):
        pytest.skip("needs seccomp")
    found = (
        gpu_protections.omit_protections(machines(), (BUBBLEWRAP,), "left out here") if machines().has(BUBBLEWRAP) else machines()
    )
    assert "OSError" in run_trial(Jail([str(ROOT / "tests")], machine_protections=found), function)
    assert (
        run_trial(
            Jail([str(ROOT / "tests")], machine_protections=gpu_protections.omit_protections(found, (SECCOMP,), "it refuses")),
            function,
        )
        == ""
    )
    missing = run_trial(Jail([str(ROOT / "tests")], machine_protections=found), "tests.support.confined_functions:nothing_like_it")
    assert "ended with exit status 1" in missing


def test_a_run_on_a_gpu_says_what_its_candidates_have_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Source:
        is_sealed = True

        class target:
            emulated = False

    left = choose_protections(ALL, refused_under(LANDLOCK)[0])
    monkeypatch.setattr(gpu_protections, "gpu_protections", lambda: left)
    monkeypatch.setattr("bitverdict.harness.sealed.jail.protections.protections", lambda: ALL)
    first, second = sealing.protection([Source()], required=False).splitlines()
    assert first.startswith("sealed: ") and second.startswith("sealed on a GPU: ") and "landlock (a kernel cannot" in second
    with pytest.raises(UsageError, match="landlock"):
        sealing.protection([Source()], required=True)


def test_on_a_gpu_a_socket_is_one_of_packets_and_no_stream(tmp_path: Path) -> None:
    """CUDA's driver listens on one. A stream socket of the machine, which a container engine has, is not reached by it."""
    if not machines().has(SECCOMP):
        pytest.skip(f"{SECCOMP} is lacking here: {machines().remedies[SECCOMP]}")
    jail = Jail([str(ROOT / "tests"), str(tmp_path)], policy=CANDIDATE_ON_A_GPU)
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    log = tmp_path / "log"
    with socket.socket(socket.AF_UNIX) as machine:
        machine.bind(path := str(tmp_path / "engine"))
        machine.listen()
        with theirs:
            process = start_process(jail.address, "tests.support.confined_functions:sockets", [theirs], {"path": path}, log=log)
        with ours.makefile() as lines:
            line = lines.readline()
        assert line, log.read_text()
        found = json.loads(line)
        assert process.end_sentence(300)
    jail.end()
    refused = dict.fromkeys(("stream", "datagrams", "network"), "ENOSYS")
    assert found == {"packets": "", "listens": "", "reaches": found["reaches"]} | refused
    assert found["reaches"] in ("EPROTOTYPE", "EACCES", "ECONNREFUSED", "ENOENT", "EPERM")
