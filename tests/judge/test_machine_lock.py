"""Contract under test: locks lie in a folder that is this user's alone, and no library that is loaded is built in a shared one."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bitverdict.harness.judge.machine_lock import exclusive
from bitverdict.harness.lab.hardware_words import function_words, record
from bitverdict.harness.model.usage import UsageError

LEASES = f"bitverdict-leases-{os.getuid()}"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_of_locks_is_made_for_this_user_alone(temporary: Path) -> None:
    with exclusive("a", wait=0.0) as mine:
        assert mine
    assert stat.S_IMODE((temporary / LEASES).stat().st_mode) == 0o700


def _of_another_user(place: Path) -> None:
    place.mkdir()
    os.chown(place, os.getuid() + 1, -1)


def _link_to_a_folder(place: Path) -> None:
    (place.parent / "elsewhere").mkdir()
    place.symlink_to(place.parent / "elsewhere")


@pytest.mark.parametrize("planted", [_of_another_user, _link_to_a_folder])
def test_a_folder_of_locks_that_another_has_planted_is_refused(temporary: Path, planted: Callable[[Path], None]) -> None:
    if planted is _of_another_user and os.getuid() != 0:
        pytest.skip("only root gives a folder to another user")
    planted(temporary / LEASES)
    with pytest.raises(UsageError, match="must be a folder of this user's"), exclusive("a", wait=0.0):
        pass


@pytest.mark.parametrize("recorder", ["record", "function_words"])
def test_a_library_that_is_loaded_is_built_in_the_state_folder(
    recorder: str, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The temporary folder is everybody's, and a name in it can be planted before."""
    folders: list[Path] = []

    def build(into: Path, *arch: str) -> Path:
        folders.append(into)
        raise record.CannotRecord("enough")

    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    if recorder == "record":
        monkeypatch.setattr(record, "present_arch", lambda: "sm_90")
        monkeypatch.setattr(record, "build", build)
        with pytest.raises(record.CannotRecord):
            record._machine(None)
    else:
        monkeypatch.setattr(function_words, "build", build)
        assert function_words.main(["--out", str(tmp_path / "words")]) == 2
    assert folders == [tmp_path / "state" / "recording"]
