"""Contract under test: every parameter list of the seeds' own tests is among the cases that every run judges.

`tests/tutorial_parameters.json` is the transcription. A combination that no required case stands for fails. Sizes that the emulator
cannot afford are stood for by smaller ones with the same residues modulo the tile: everything but the number of whole tiles stays.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target

PARAMETERS = json.loads((Path(__file__).parents[1] / "tutorial_parameters.json").read_text())
ARCHITECTURES = {"ampere_gemm": "sm_80"}
AFFORDED = 1 << 24  # products: up to here a size stands for itself only
TILED = {"m": "block_m", "rows": "block_m", "n": "block_n", "k": "block_k"}


def combinations(stem: str) -> list[dict[str, Any]]:
    """One record a combination, names of one tuple taken apart."""
    names, values = zip(*PARAMETERS[stem].items(), strict=True)
    return [flat(dict(zip(names, chosen, strict=True))) for chosen in product(*values)]


def flat(chosen: dict[str, Any]) -> dict[str, Any]:
    apart: dict[str, Any] = {}
    for name, value in chosen.items():
        parts = name.split(", ")
        apart |= dict(zip(parts, value, strict=True)) if len(parts) > 1 else {name: value}
    return apart


def stands_for(case: Case, asked: dict[str, Any], stem: str) -> bool:
    """Whether `case` is this combination, its sizes cut to what is afforded."""
    asked = dict(asked)
    had = vars(case.problem) | vars(case.config)
    if stem == "small_mma":
        asked |= {
            "left": "tensor memory" if asked.pop("lhs_in_tmem") else "shared",
            "completion": "commit" if asked.pop("use_commit") else "barrier",
        }
    if "table" in asked:
        asked["table_rows"], asked["table_columns"] = asked.pop("table")
    if "m" in asked and "rows" in had:
        asked["rows"] = asked.pop("m")
    sizes = {name: asked.pop(name) for name in TILED if name in asked}
    return all(had[name] == value for name, value in asked.items()) and same_sizes(had, sizes, stem)


def same_sizes(had: dict[str, Any], sizes: dict[str, int], stem: str) -> bool:
    work = 1
    for size in sizes.values():
        work *= size
    if stem in ("small_mma", "tmem_copy") or work <= AFFORDED // 16:
        return all(had[name] == size for name, size in sizes.items())
    return all(had[name] <= size and (had[name] - size) % had[TILED[name]] == 0 for name, size in sizes.items())


@pytest.mark.parametrize("stem", sorted(PARAMETERS))
def test_each_combination_of_the_seeds_parameters_is_a_required_case(stem: str) -> None:
    arch = ARCHITECTURES.get(stem, "sm_100")
    required = resolve(stem).required(Target(f"emulated:{arch}", arch))
    missing = [asked for asked in combinations(stem) if not any(stands_for(case, asked, stem) for case in required)]
    assert not missing


def test_a_combination_that_no_case_stands_for_is_noticed() -> None:
    required = resolve("tma_gather").required(Target("emulated:sm_100", "sm_100"))
    asked = combinations("tma_gather")[0]
    assert any(stands_for(case, asked, "tma_gather") for case in required)
    assert not any(stands_for(case, asked | {"column_offset": 8}, "tma_gather") for case in required)


def test_a_smaller_size_with_another_residue_does_not_stand_for_it() -> None:
    tile = {"block_m": 128, "block_n": 128, "block_k": 128}
    asked = {"m": 2000, "n": 2000, "k": 2000}
    assert same_sizes(tile | {"m": 80, "n": 208, "k": 80}, asked, "blocked_matmul")
    assert not same_sizes(tile | {"m": 81, "n": 208, "k": 80}, asked, "blocked_matmul")
