"""Contract under test: which build of Triton is proven, tried or not taken, by what its distribution and its package say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bitverdict.harness.emulator.releases import record_of
from bitverdict.harness.model.paths import ROOT
from bitverdict.harness.model.triton_release import InstalledTriton, read_package

PAGE = ROOT / "docs" / "forks.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| distribution", "| ---"))
]


def package(folder: Path, said: str, written: dict[str, str], backends: tuple[str, ...] = ("nvidia",)) -> Path:
    """A folder `triton` that says it is `said`, beside what pip keeps of the distributions `written`, a version each."""
    triton = folder / "triton"
    for backend in backends:
        (triton / "backends" / backend).mkdir(parents=True)
        (triton / "backends" / backend / "compiler.py").touch()
    (triton / "__init__.py").write_text(f"'''isort:skip_file'''\n__version__ = '{said}'\n")
    for name, version in written.items():
        told = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        told.mkdir()
        (told / "RECORD").write_text("../../bin/proton,,\ntriton/__init__.py,sha256=x,1661\n")
    return triton


def result_of(build: InstalledTriton) -> str:
    """As the page has it. One that is not taken has no record: a script's own `emulated` meets the sentence."""
    if build.problem:
        with pytest.raises(RuntimeError, match=re.escape(build.problem)):
            record_of(build)
        return "not taken: " + build.problem.partition(" is installed: ")[2].partition(",")[0].partition(";")[0]
    record = record_of(build)
    return f"{'proven' if record.proven else 'tried'} as {record.name}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[:3]))
def test_a_build_is_proven_tried_or_not_taken_as_the_page_says(row: list[str], tmp_path: Path) -> None:
    distribution, version, said, _, result = row
    build = read_package(package(tmp_path, said, {} if distribution == "none" else {distribution: version}))
    assert result_of(build) == result
    assert build.name.startswith("triton " if distribution == "none" else f"{distribution} ")
    assert bool(build.problem) == build.problem.endswith("install 'triton>=3.6'") == (f"{build.name} is installed" in build.problem)


def test_the_page_has_every_vendor() -> None:
    assert len(ROWS) >= 20 and len({row[3] for row in ROWS}) >= 10


@pytest.mark.parametrize(
    ("written", "said", "name"),
    [
        (
            {"triton": "3.5.0", "pytorch-triton": "3.6.0+git5261b273"},
            "3.6.0+git5261b273",
            "pytorch-triton and triton 3.6.0+git5261b273",
        ),
        ({"triton": "3.8.0", "flagtree": "0.7.0+ascend3.8"}, "3.8.0", "flagtree and triton 3.8.0"),
        ({"triton": "3.8.0"}, "3.9.0", "triton 3.9.0 of no distribution"),
    ],
)
def test_a_package_that_another_wrote_too_is_not_proven(written: dict[str, str], said: str, name: str, tmp_path: Path) -> None:
    build = read_package(package(tmp_path, said, written))
    assert build.name == name and not build.is_proven


@pytest.mark.parametrize(("backends", "problem"), [(("ascend",), True), (("ascend", "nvidia"), False), (("amd",), False)])
def test_a_build_without_an_emulated_vendor_is_not_taken(backends: tuple[str, ...], problem: bool, tmp_path: Path) -> None:
    build = read_package(package(tmp_path, "3.8.0", {"triton": "3.8.0"}, backends))
    assert (
        build.problem.endswith("backends ascend; must have amd or nvidia, which are emulated; install 'triton>=3.6'")
    ) == problem
    assert bool(build.problem) == problem
