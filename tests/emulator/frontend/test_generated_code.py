"""Contract under test: a lowering calls the machine through functions that exist with arguments that they take, and takes operands
by names whose number is checked, so that what changed is an error at the translation and never another program."""

from __future__ import annotations

import gc
import linecache
import re
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.execution.async_ops import Schedule
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.cta_state import LaunchContext
from bitverdict.harness.emulator.execution.global_access import GlobalAccess
from bitverdict.harness.emulator.execution.mbarriers import Mbarriers
from bitverdict.harness.emulator.execution.onchip_access import OnChipMemory
from bitverdict.harness.emulator.execution.program_batches import Batch
from bitverdict.harness.emulator.execution.tma import Tma
from bitverdict.harness.emulator.frontend import generated_code
from bitverdict.harness.emulator.frontend.generated_code import UNIT_OF, Writer, bound, suspends
from bitverdict.harness.emulator.frontend.program_facts import ProgramFacts
from bitverdict.harness.emulator.frontend.translate import translate
from bitverdict.harness.emulator.frontend.translator import LOWERINGS
from bitverdict.harness.emulator.memory.global_memory import GlobalMemory
from bitverdict.harness.emulator.memory.real_access import RealAccess
from bitverdict.harness.emulator.mlir_reader import Operation, make_names_unique, parse_program
from bitverdict.kernels.ampere_gemm import ampere_gemm
from bitverdict.kernels.blocked_matmul import blocked_matmul
from tests.support import tile_kernels


@cache
def program(name: str) -> tuple[str, str]:
    """(tile program, architecture) of one launch that is not executed."""
    a, b = torch.zeros(64, 64, dtype=torch.float16), torch.zeros(64, 64, dtype=torch.float16)
    arch = {"tcgen05": "sm_100"}.get(name, "sm_80")
    with emulated(arch, options=LaunchOptions(dry=True)) as device:
        if name == "tcgen05":
            blocked_matmul(a, b, torch.zeros(64, 64, dtype=torch.float16), 64, 64, 64)
        elif name == "cp.async":
            ampere_gemm(a, b, stages=3)
        else:
            tile_kernels.copy[(1,)](torch.zeros(64), torch.zeros(64), 64, 60, BLOCK=64)
    return device.launches[-1].program, arch


def operation(text: str, name: str) -> Operation:
    return next(op for op in parse_program(text).operations() if op.name == name)


def edited(text: str, name: str, edit: Callable[[str], str]) -> str:
    """`text` with the line of the first operation `name` edited."""
    lines = text.splitlines()
    at = operation(text, name).line
    lines[at] = edit(lines[at])
    assert lines != text.splitlines()
    return "\n".join(lines)


# -- calls --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("given", "named"), [((), {}), ((1, 2, 3, 4), {}), ((1, 2), {"size": 3})], ids=str)
def test_a_call_with_other_arguments_fails_at_the_translation(
    monkeypatch: pytest.MonkeyPatch, given: tuple[int, ...], named: dict[str, int]
) -> None:
    text, arch = program("tcgen05")
    translate(text, arch=arch, fuses_sums=True)
    lowering: Any = lambda t, op: t.machine(op, Mbarriers.init, *given, **named)
    monkeypatch.setitem(LOWERINGS, "ttng.init_barrier", lowering)
    with pytest.raises(TypeError, match=r"a lowering calls Mbarriers\.init\(self, op.*argument"):
        translate(text, arch=arch, fuses_sums=True)


def test_a_function_that_gives_nothing_is_no_value_of_an_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    text, arch = program("tcgen05")
    lowering: Any = lambda t, op: t.machine(op, Cta.check, True)
    monkeypatch.setitem(LOWERINGS, "ttg.local_alloc", lowering)
    with pytest.raises(TypeError, match=r"Cta\.check gives nothing, and ttg\.local_alloc has results"):
        translate(text, arch=arch, fuses_sums=True)


class Unit:
    """A unit of a program, as a composed one would have."""

    def load(self, address: int, *, wide: bool = False) -> int:
        return address + wide


def test_a_method_of_a_unit_is_called_where_the_table_says_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match=r"cannot reach Unit\.load: its class is not in UNIT_OF"):
        Writer().calls(Unit.load, 1)
    monkeypatch.setitem(generated_code.UNIT_OF, Unit, "m.unit")
    assert Writer().calls(Unit.load, 1, wide=True) == "m.unit.load(1, wide=True)"


def test_each_unit_lies_where_the_table_says() -> None:
    memory = GlobalMemory()
    memory.begin(1, ProgramFacts(parse_program(program("loads")[0])), [0] * 8)
    launch = LaunchContext(
        memory=memory,
        grid=(1, 1, 1),
        schedule=Schedule("eager"),
        shared=0,
        tensor=0,
        runs=[0],
        step_limit=1,
        real_access=RealAccess(lambda *told: None),
    )
    for unit, path in UNIT_OF.items():
        assert isinstance(eval(path, {"m": Batch(launch) if unit is Batch else Cta(launch)}), unit)
    assert bound(Tma.load) == "m.tma.load" and bound(Cta.meet) == "m.meet"


def test_what_may_wait_is_waited_for_and_nothing_else_is() -> None:
    methods = {method for unit in UNIT_OF for method in vars(unit).values() if callable(method) and hasattr(method, "__code__")}
    generators = {method for method in methods if method.__code__.co_flags & 0x20}
    assert generators and all(suspends(method) for method in (*generators, Mbarriers.wait))
    assert not any(suspends(method) for method in (GlobalAccess.load, Mbarriers.arrive, OnChipMemory.read, Tma.load, Cta.meet))


# -- operands -----------------------------------------------------------------------------------------------------------
GROUPED = [
    ("tcgen05", "ttng.tc_gen5_mma"),
    ("tcgen05", "ttng.tc_gen5_commit"),
    ("tcgen05", "ttng.wait_barrier"),
    ("tcgen05", "ttng.async_tma_copy_global_to_local"),
    ("tcgen05", "cf.cond_br"),
    ("cp.async", "ttg.async_copy_global_to_local"),
    ("loads", "tt.load"),
]
UNGROUPED = [
    ("tcgen05", "ttng.barrier_expect"),
    ("tcgen05", "ttng.init_barrier"),
    ("tcgen05", "ttg.local_store"),
    ("tcgen05", "ttng.tmem_load"),
    ("cp.async", "ttg.memdesc_index"),
    ("loads", "tt.store"),
]


@pytest.mark.parametrize(("name", "op"), GROUPED)
def test_an_operation_with_one_group_of_operands_more_is_refused_by_name(name: str, op: str) -> None:
    text, arch = program(name)
    sizes = operation(text, op).integers("operandSegmentSizes")
    for place in range(len(sizes) + 1):
        wider = [*sizes[:place], 0, *sizes[place:]]
        changed = edited(
            text, op, lambda line: re.sub(r"(operandSegmentSizes = array<i32: )[\d, ]*", rf"\g<1>{str(wider)[1:-1]}", line)
        )
        with pytest.raises(EmulatedFault, match=rf"{re.escape(op)}: with operand groups .*, where it is known with \w+") as raised:
            translate(changed, arch=arch, fuses_sums=True)
        assert raised.value.outcome == "not modelled"


@pytest.mark.parametrize(("name", "op"), UNGROUPED)
def test_an_operation_with_two_operands_more_is_refused_by_name(name: str, op: str) -> None:
    """One more may be the optional one."""
    text, arch = program(name)
    first, kind = operation(text, op).operands[0], operation(text, op).operand_types[0]

    def widened(line: str) -> str:
        return line.replace(f"({first}", f"({first}, {first}, {first}", 1).replace(f" : ({kind}", f" : ({kind}, {kind}, {kind}", 1)

    changed = edited(text, op, widened)
    with pytest.raises(EmulatedFault, match=rf"{re.escape(op)}: with operands .*, where it is known with \w+") as raised:
        translate(changed, arch=arch, fuses_sums=True)
    assert raised.value.outcome == "not modelled"


# -- what is read -------------------------------------------------------------------------------------------------------
def test_a_variable_has_the_name_of_its_value_and_each_operation_its_line() -> None:
    text, arch = program("loads")
    made = translate(text, arch=arch, fuses_sums=True)
    lines = made.source.splitlines()
    assert lines[0].startswith("def copy(m, source, destination, ")
    (load,) = [line for line in lines if "global_access.load(" in line]
    location = operation(text, "tt.load").location.rpartition("/")[2]
    assert re.fullmatch(rf" +\w+ = m\.global_access\.load\(op\d+, .*\)  # tt\.load  {re.escape(location)}", load)
    assert len(made.numbers) == len(lines)
    for number, line in enumerate(lines, 1):
        if found := re.search(r"  # ([\w.]+)", line):
            at = made.operation_at(number)
            assert at is not None and at.name == found[1]
    assert made.operation_at(0) is None and made.operation_at(len(lines) + 1) is None


def test_a_traceback_shows_the_line_of_generated_code() -> None:
    """By linecache, as debuggers do; not any longer than the code lives."""
    source = torch.zeros(64)
    with emulated("sm_80") as device, pytest.raises(EmulatedFault) as raised:
        tile_kernels.copy[(1,)](source, torch.zeros(8), 64, 64, BLOCK=64)
    shown = "".join(traceback.format_exception(raised.value))
    assert re.search(r'File "<tile program copy \d+>", line \d+, in copy\n +m\.global_access\.store\(', shown), shown
    assert "m.global_access.store(" in device.launches[-1].python


def test_the_lines_of_code_that_is_gone_are_forgotten() -> None:
    text, arch = program("loads")
    name = translate(text, arch=arch, fuses_sums=True).entry.__code__.co_filename
    gc.collect()
    assert name not in linecache.cache


def test_values_of_regions_side_by_side_have_names_of_their_own() -> None:
    """As MLIR prints two `ttg.warp_specialize`: the second region says %p again, and an inner one what is visible."""
    body = """
    "ttg.warp_specialize"() ({{
      %p = "arith.mulf"(%x, %{factor}) : (f32, f32) -> f32 loc(#loc)
      %s = "arith.addf"(%p, %x) : (f32, f32) -> f32 loc(#loc)
      "ttg.warp_yield"() : () -> () loc(#loc)
    }}) : () -> () loc(#loc)"""
    text = f"""#loc = loc("kernel.py":1:1)
"builtin.module"() ({{
  "tt.func"() <{{function_type = (f32, f32) -> (), sym_name = "kernel"}}> ({{
  ^bb0(%x: f32 loc(#loc), %y: f32 loc(#loc)):{body.format(factor="x")}{body.format(factor="y")}
    "tt.return"() : () -> () loc(#loc)
  }}) : () -> () loc(#loc)
}}) : () -> () loc(#loc)
"""
    program = parse_program(text)
    assert [op.results for op in program.operations() if op.results] == [["%p"], ["%s"], ["%p"], ["%s"]]
    for _ in range(2):  # a second call changes nothing
        make_names_unique(program)
        named = [(op.results, op.operands) for op in program.operations() if op.results]
        assert named == [(["%p"], ["%x", "%x"]), (["%s"], ["%p", "%x"]), (["%p.1"], ["%x", "%y"]), (["%s.1"], ["%p.1", "%x"])]
