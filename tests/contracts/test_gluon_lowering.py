"""Contract under test: the plan of each Gluon kernel is what its compiled program does: family, formats, and one chain that is
never cut.

Read off the program that the emulated GPU was given: its matrix instructions, and how each takes the accumulator.
"""

from __future__ import annotations

import pytest

from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.judge.devices import device_of
from bitverdict.harness.judge.guarded_buffers import Guard, Poison
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target

FAMILIES = {
    "ampere_gemm": ("sm_80", "mma.sync"),
    "hopper_matmul": ("sm_90", "wgmma"),
    "small_mma": ("sm_100", "tcgen05"),
    "blocked_matmul": ("sm_100", "tcgen05"),
    "blocked_matmul_pipelined": ("sm_100", "tcgen05"),
    "fused_gather_scatter_matmul": ("sm_100", "tcgen05"),
}


def program(contract, case: Case, arch: str):
    """The launch of `case`: compiled, not executed."""
    guard = Guard(Poison.of_seed(0))
    machine = Target(f"emulated:{arch}", arch)
    with emulated(arch, options=LaunchOptions(dry=True)) as device:
        contract.launch(case, {o.name: guard.upload(o, device_of(machine)) for o in contract.operands(case)}, None)
    return device.launches[-1]


def one_of_each_type(stem: str, arch: str) -> list[Case]:
    contract = resolve(stem)
    machine = Target(f"emulated:{arch}", arch)
    legal = [case for case in contract.required(machine) if contract.expected_outcome(case, machine).result]
    return list({case.problem.dtype: case for case in legal}.values())


@pytest.mark.share(3)
@pytest.mark.parametrize("stem", FAMILIES)
def test_every_product_is_of_the_family_and_the_formats_of_the_plan(stem: str) -> None:
    arch, family = FAMILIES[stem]
    contract = resolve(stem)
    assert getattr(contract, "family", family) == family
    for case in one_of_each_type(stem, arch):
        launch = program(contract, case, arch)
        kinds = {key[:4] for key in launch.products}
        assert kinds == {(family, case.problem.dtype, case.problem.dtype, "fp32")}, case


def test_a_plan_of_another_family_is_noticed() -> None:
    contract = resolve("ampere_gemm")
    launch = program(contract, one_of_each_type("ampere_gemm", "sm_80")[0], "sm_80")
    assert launch.instructions != {"wgmma"}
