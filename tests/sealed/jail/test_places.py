"""Contract under test: a confined process imports the packages of the run, by the run's tools, wherever they lie."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from importlib.machinery import PathFinder
from itertools import pairwise
from pathlib import Path

import pytest

from bitverdict.harness.model.paths import IMPORTED_FROM
from bitverdict.harness.sealed.jail import bubblewrap, confine
from bitverdict.harness.sealed.jail.jail import clean_environment
from bitverdict.harness.sealed.jail.places import places
from bitverdict.harness.sealed.jail.policy import CANDIDATE, CANDIDATE_ON_A_GPU
from bitverdict.harness.sealed.jail.protections import LANDLOCK, protections
from tests.sealed.jail.test_protections import in_a_fork


def test_packages_that_pythonpath_gives_are_those_of_the_jail_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages, other = tmp_path / "packages", tmp_path / "other"
    for folder in (packages / "landlockpy", other):
        folder.mkdir(parents=True)
    (packages / "landlockpy" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(IMPORTED_FROM), str(other), str(packages)]))
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setattr(sys, "meta_path", [PathFinder])  # where bitverdict was used in this process, installed packages come first
    monkeypatch.delitem(sys.modules, "landlockpy", raising=False)
    assert clean_environment("", {})["PYTHONPATH"] == os.pathsep.join([str(IMPORTED_FROM), str(packages)])
    assert str(packages) in places().readable and str(other) not in places().readable


def test_tools_that_triton_is_told_of_are_those_of_the_jail_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tool := tmp_path / "ptxas").touch()
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tool))
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", str(tmp_path / "no such folder"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    given = clean_environment("/scratch", {})
    assert (given["TRITON_PTXAS_PATH"], given["TRITON_CACHE_DIR"]) == (str(tool), "/scratch/triton")
    assert "TRITON_LIBCUDA_PATH" not in given
    assert str(tool) in places().readable and str(tmp_path) not in places().readable


def test_a_tool_that_is_reached_by_a_link_is_bound_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bubblewrap binds nothing through a link that leads out of its new root."""
    (folder := tmp_path / "tools-13").mkdir()
    (folder / "ptxas").touch()
    (tmp_path / "tools").symlink_to(folder)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "tools" / "ptxas"))
    line = bubblewrap.command("bwrap", CANDIDATE, places([str(tmp_path)]), {})
    bound = [path for flag, path in pairwise(line) if flag == "--ro-bind" and path.startswith(str(tmp_path))]
    assert bound == [str(tmp_path)]


def test_a_process_with_devices_may_name_its_threads(tmp_path: Path) -> None:
    if not protections().has(LANDLOCK):
        pytest.skip("landlock is lacking here")

    def asked(devices: tuple[str, ...]) -> object:
        try:
            confine.confine(replace(CANDIDATE_ON_A_GPU, devices=devices), places([], ""), None, landlock=True)
            Path(f"/proc/self/task/{os.getpid()}/comm").write_text("named")  # as the driver opens it: to be emptied
        except PermissionError:
            return "refused"
        return Path("/proc/self/comm").read_text().strip()

    assert [in_a_fork(partial(asked, devices)) for devices in (CANDIDATE_ON_A_GPU.devices, ())] == ["named", "refused"]


def test_a_kernel_without_filters_of_calls_is_known_by_its_answer() -> None:
    if confine.pyseccomp is None or not confine.kernel_filters():
        pytest.skip("needs seccomp, to answer as a kernel that has none")

    def asked() -> object:
        invalid, set_seccomp = 22, 22  # EINVAL, PR_SET_SECCOMP
        refusing = confine.pyseccomp.SyscallFilter(confine.pyseccomp.ALLOW)
        refusing.add_rule(confine.pyseccomp.ERRNO(invalid), "prctl", confine.pyseccomp.Arg(0, confine.pyseccomp.EQ, set_seccomp))
        refusing.load()
        return confine.kernel_filters()

    assert in_a_fork(asked) is False
