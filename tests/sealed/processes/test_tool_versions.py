"""Contract under test: a zygote has asked Triton's assemblers for their versions, so that no process of it starts one."""

from __future__ import annotations

import pytest

from bitverdict.harness.sealed.processes.tool_versions import remember_versions


def test_a_missing_assembler_costs_no_other_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where an installation was made small: the assembler of sm_80 and sm_86 is not there, and sm_90 has its own."""
    from triton.backends.nvidia import compiler

    def ptxas(capability: int) -> str:
        if capability < 90:
            raise RuntimeError("Cannot find ptxas")
        return "ptxas-blackwell"

    remembered: list[int] = []
    monkeypatch.setattr(compiler, "get_ptxas", ptxas)
    monkeypatch.setattr(compiler, "get_ptxas_version", remembered.append)
    remember_versions([80, 86, 90, 100])
    assert remembered == [90, 100]


def test_the_versions_of_all_architectures_are_remembered() -> None:
    from triton.backends.nvidia import compiler

    before = compiler.get_ptxas_version.cache_info().misses
    for capability in (80, 86, 89, 90, 100, 120):
        compiler.get_ptxas_version(capability)
    assert compiler.get_ptxas_version.cache_info().misses == before
