"""Contract under test: what depends on an architecture stands in its record, and every other file reads it there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from bitverdict.harness.model.architectures import (
    ARCHITECTURES,
    BY_DEFAULT,
    EMULATED_ARCHITECTURES,
    FAMILIES,
    architecture,
    architectures,
    emulated_with,
)
from bitverdict.harness.model.targets import nearest_emulated, target, targets
from bitverdict.kernels.features import Feature, shared_memory_of
from bitverdict.reference.tensor_core.lookup import ALL_INSTRUCTIONS

CHECKOUT = Path(__file__).resolve().parents[2]
RECORDS = ("harness/model/architectures.py", "kernels/features.py")
ROWS_OF_THEIR_OWN = (
    "harness/lab/offline_compile/expectations.py",
    "harness/lab/hardware_words",
    "harness/emulator/releases/records.py",  # where the compiler of a release fails
)


def test_what_kernels_know_and_the_records_are_of_the_same_architectures() -> None:
    assert tuple(ARCHITECTURES) == architectures()
    assert all(each.name == name and shared_memory_of(name) == each.shared_memory for name, each in ARCHITECTURES.items())


def test_each_family_of_an_emulated_architecture_has_a_tensor_core_model() -> None:
    modelled = {(each.arch, each.family) for each in ALL_INSTRUCTIONS}
    assert all((name, family) in modelled for name in EMULATED_ARCHITECTURES for family in ARCHITECTURES[name].families)


def test_families_are_those_of_the_features() -> None:
    of = {"wgmma": Feature.WGMMA, "tcgen05": Feature.TCGEN05, "mma.sync": Feature.MMA_SYNC, "mfma": Feature.MFMA}
    for each in ARCHITECTURES.values():
        assert set(each.families) == {family for family, feature in of.items() if feature in each.features}, each.name


def test_every_chip_of_a_family_is_of_its_name() -> None:
    """Ada is a family of its own, though its capability begins with 8."""
    known = ["sm_80", "sm_86", "sm_87"], ["sm_89"], ["sm_90"], ["sm_100", "sm_103", "sm_110", "sm_120", "sm_121"]
    of = {family: [name for name, each in ARCHITECTURES.items() if each.family == family] for family in FAMILIES}
    assert [of[family] for family in ("ampere", "ada", "hopper", "blackwell")] == list(known)


def test_emulated_architectures_are_found_by_a_feature() -> None:
    assert emulated_with(Feature.TMA) == ("sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")
    assert emulated_with(Feature.WGMMA) == ("sm_90",)


def test_three_emulated_gpus_are_judged_unless_more_are_asked_for() -> None:
    assert BY_DEFAULT == ("sm_80", "sm_90", "sm_100")
    assert [each.arch for each in targets() if each.emulated] == list(BY_DEFAULT)
    assert [each.arch for each in targets(every=True) if each.emulated] == list(EMULATED_ARCHITECTURES)
    assert len(EMULATED_ARCHITECTURES) >= 10 and target("emulated:sm_120").arch == "sm_120"


def test_a_gpu_is_seen_on_the_nearest_emulated_one() -> None:
    asked = {"sm_75": "sm_80", "sm_87": "sm_87", "sm_88": "sm_87", "sm_89": "sm_89", "sm_121": "sm_121", "sm_130": "sm_121"}
    asked |= {"gfx90a": "gfx90a", "gfx942": "gfx942", "gfx941": "gfx90a", "gfx950": "gfx950", "gfx906": "gfx90a"}
    assert {arch: nearest_emulated(arch).arch for arch in asked} == asked


def test_an_unknown_architecture_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'sm_70': has no record; use one of .*gfx950, or add its record"):
        architecture("sm_70")


def listed(source: str) -> list[int]:
    """Lines where a tuple, list, set or dict names two architectures or more."""
    if source.count("sm_") < 2:  # nothing to find: parsing 600 files takes two seconds
        return []
    found = []
    for node in ast.walk(ast.parse(source)):
        parts = node.keys if isinstance(node, ast.Dict) else node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else []
        names = [part for part in parts if isinstance(part, ast.Constant) and str(part.value).removeprefix("sm_").isdigit()]
        if len([part for part in names if str(part.value).startswith("sm_")]) > 1:
            found.append(node.lineno)
    return found


def test_no_other_file_lists_architectures() -> None:
    wrong = [
        f"{path}:{line}"
        for top in ("harness", "kernels")
        for file in sorted((CHECKOUT / top).rglob("*.py"))
        if not (path := str(file.relative_to(CHECKOUT))).startswith((*RECORDS, *ROWS_OF_THEIR_OWN))
        for line in listed(file.read_text())
    ]
    assert not wrong, wrong


@pytest.mark.parametrize("text", ['X = ("sm_80", "sm_90")', 'X = {"sm_80": 1, "sm_100": 2}', 'f(arch in ["sm_90", "sm_100", y])'])
def test_a_list_of_architectures_is_seen(text: str) -> None:
    assert listed(text) == [1]
