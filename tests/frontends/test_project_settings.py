"""Contract under test: pyproject.toml counts where the command line says nothing; older names are read with a notice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from bitverdict.harness.frontends import cli_run, project_settings, pytest_options, pytest_targets
from bitverdict.harness.frontends.main import main, parser
from bitverdict.harness.model import paths
from bitverdict.harness.workers.journal import Journal


def test_a_variable_by_its_older_name_is_read_with_one_notice() -> None:
    script = "import bitverdict, os, subprocess, sys; print(os.environ['BITVERDICT_STATE'], flush=True)"
    inner = f"{script}; subprocess.run([sys.executable, '-c', {script!r}])"
    for newer, counts, notices in (({}, "old", 1), ({"BITVERDICT_STATE": "new"}, "new", 0)):
        others = {name: value for name, value in os.environ.items() if not name.endswith("_STATE")}
        environment = others | {"HARNESS_STATE": "old", "HARNESS_OF_OTHERS": "kept"} | newer
        done = subprocess.run([sys.executable, "-c", inner], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [counts] * 2
        assert done.stderr.count("note: HARNESS_STATE is read as BITVERDICT_STATE") == notices and "OF_OTHERS" not in done.stderr


def test_a_state_directory_by_its_older_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BITVERDICT_STATE", raising=False)
    monkeypatch.setattr("bitverdict.harness.model.paths.HOME", tmp_path)
    (tmp_path / ".harness" / "pipelines").mkdir(parents=True)  # of another tool
    assert paths.state_directory() == tmp_path / ".bitverdict" and not paths.notice_of_older_state()
    (tmp_path / ".harness" / "journal").mkdir()
    assert paths.state_directory() == tmp_path / ".harness" and "rename it to .bitverdict" in paths.notice_of_older_state()
    (tmp_path / ".bitverdict").mkdir()
    assert paths.state_directory() == tmp_path / ".bitverdict"


def test_git_ignores_what_a_run_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / ".bitverdict"))
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    Journal().note("begin")
    told = subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert (tmp_path / ".bitverdict" / "journal").is_dir() and not told


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Write the table of a pyproject.toml, and call from a folder below it."""
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")

    def write(table: str) -> None:
        (tmp_path / "pyproject.toml").write_text(f"[tool.bitverdict]\n{table}\n")
        project_settings._settings_of.cache_clear()

    return write


def test_pyproject_says_what_a_run_takes_where_the_command_line_does_not(project: Callable[[str], None]) -> None:
    project('targets = ["sm_90", "sm_100"]\nprofile = "ci"\ntimeout = 60')
    asked = parser(["run"]).parse_args(["run"])
    assert (asked.profile, asked.timeout) == ("ci", 60)
    assert [machine.name for machine in cli_run._machines(asked)] == ["emulated:sm_90", "emulated:sm_100"]
    asked = parser(["run"]).parse_args(["run", "--target", "sm_80", "--profile", "quick"])
    assert asked.profile == "quick" and [machine.name for machine in cli_run._machines(asked)] == ["emulated:sm_80"]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('target = ["sm_90"]', "[tool.bitverdict] target: must be one of targets, profile, timeout (did you mean 'targets'?)"),
        ('targets = "sm_90"', "targets: is 'sm_90': must be a list of texts"),
        ("timeout = true", "timeout: is True: must be seconds"),
    ],
)
def test_a_wrong_table_of_pyproject_says_what_it_must_be(
    table: str, said: str, project: Callable[[str], None], capsys: pytest.CaptureFixture
) -> None:
    project(table)
    assert main(["run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and said in line


def test_options_by_their_older_names_are_told_once_each(capsys: pytest.CaptureFixture) -> None:
    asked = SimpleNamespace(known_args_namespace=SimpleNamespace(emulate=[], bitverdict=False), getini=lambda name: False)
    asked.pluginmanager = SimpleNamespace(rewrite_hook=None)
    words = ["--harness-target=sm_90", "--harness-target", "sm_80", "--bv-profile", "ci"]
    pytest_options.pytest_load_initial_conftests(asked, words)  # type: ignore[arg-type]
    assert capsys.readouterr().err == "note: --harness-target is read as --bv-target, its newer name\n"


def test_options_have_their_older_names_and_the_targets_of_pyproject(
    pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pytestconfig.getoption("--harness-profile") == pytestconfig.getoption("--bv-profile")
    (tmp_path / "pyproject.toml").write_text('[tool.bitverdict]\ntargets = ["sm_90"]\n')
    monkeypatch.chdir(tmp_path)
    given: dict[str, list[str]] = {"--bv-target": []}
    asked = SimpleNamespace(getoption=given.get)
    assert pytest_targets.target_names(asked) == ["sm_90"]  # type: ignore[arg-type]
    given["--bv-target"] = ["sm_80"]
    assert pytest_targets.target_names(asked) == ["sm_80"]  # type: ignore[arg-type]
