"""Contract under test: the version of Triton is read from its distribution or that of a fork; one that is not taken is told."""

from __future__ import annotations

from importlib import metadata

import pytest

from bitverdict.harness.model.triton_release import installed_version, problem_of_release


@pytest.mark.parametrize("name", ["triton", "triton-windows", "pytorch-triton", "pytorch-triton-rocm"])
@pytest.mark.parametrize(("version", "problem"), [("3.8.0.post29", ""), ("3.5.1+git12", "must be 3.6"), ("main", "no number")])
def test_a_forks_version_is_taken_or_said(name: str, version: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {name: version}
    monkeypatch.setattr(metadata, "version", lambda asked: installed.get(asked) or metadata.distribution("no-such-distribution"))
    assert installed_version() == version and problem in problem_of_release() and bool(problem) == bool(problem_of_release())
