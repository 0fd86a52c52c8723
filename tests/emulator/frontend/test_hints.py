"""Contract under test: what the compiler was told is held against what is so. A kernel whose promise is kept passes; the same
kernel whose promise is broken fails by name where an access relies on it, and is advised of it where none does. How much moves at
once is the compiler's own word: the same as in the PTX."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton.backends.nvidia.compiler import get_ptx_version_from_options
from triton.experimental.gluon import language as gl

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.frontend.access_widths import accesses
from bitverdict.harness.emulator.frontend.assembly import ptx
from bitverdict.harness.emulator.frontend.hints import Hint
from bitverdict.harness.emulator.mlir_reader import parse_program
from bitverdict.harness.judge.offline_driver import capture_compilations
from tests.support import hinted_kernels as kernels
from tests.support.emulated_launches import guarded

SIZE = 512
ROWS, COLUMNS = 32, 32
ROWS_OF_8, ROWS_OF_16 = (gl.BlockedLayout([1, n], [n, 32 // n], [4, 1], [1, 0]) for n in (8, 16))
SHARED = gl.SwizzledSharedLayout(8, 1, 8, [1, 0])


def numbers(count: int) -> torch.Tensor:
    return guarded((torch.arange(count) % 997).half())


def run(kernel: Any, value: int, count: int | None = None) -> None:
    """Launch `kernel` with the argument that keeps or breaks its promise, and hold what comes to plain indexing. `count`: elements
    or rows that its mask leaves."""
    x, y = numbers(4096), guarded(torch.zeros(4096, dtype=torch.float16))
    place = torch.arange(SIZE)
    due = y.clone()
    name = kernel.fn.__name__
    if name in ("rows_apart", "columns_apart", "copied", "moved"):
        tile = x.as_strided((ROWS, COLUMNS), (value, 1))
        due[: ROWS * COLUMNS] = tile.reshape(-1)
        due[COLUMNS * (ROWS if count is None else count) :] = 0
        layouts = {"copied": {"LAYOUT": ROWS_OF_8, "SHARED": SHARED}, "moved": {"LAYOUT": ROWS_OF_16, "PROMISED": 32}}
        rows = [ROWS if count is None else count] if name == "rows_apart" else []
        kernel[(1,)](x, y, value, *rows, ROWS=ROWS, COLUMNS=COLUMNS, **layouts.get(name, {}))
    elif name == "product":
        a, b, c = (numbers(4096) % 5, numbers(2048) % 5, torch.zeros(32, 32))
        kernel[(1,)](a, b, c, value, 2, SIZE=32, STAGES=3)
        assert torch.equal(c, a.as_strided((32, 64), (value, 1)).float() @ b.view(64, 32).float())
        return
    elif name == "wrapping":
        n = 500 if count is None else count
        due[:n] = x[place[:n] % value]
        kernel[(1,)](x, y, n, value, BLOCK=SIZE)
    else:
        kernel[(1,)](x, y, value, BLOCK=SIZE)
        if name in ("constant_mask", "assuming"):
            due[:value] = x[:value]
        elif name.startswith("stepping"):
            due = x[place * value] if name == "stepping" else due.index_put((place * value,), x[:SIZE])
        elif name in ("shifted_store", "shifted_atomic"):
            due[value : value + SIZE] = x[:SIZE]
        else:
            due[:SIZE] = x[value : value + SIZE]
    assert torch.equal(y[: len(due)], due)


# kernel, an argument that keeps its promise, one that breaks it, what that is called, the promise
PAIRS = [
    (kernels.shifted_offset, 24, 3, "misaligned address", "tl.multiple_of [8]"),
    (kernels.shifted_address, 8, 3, "misaligned address", "tl.multiple_of [16]"),
    (kernels.shifted_store, 24, 3, "misaligned address", "tl.multiple_of [8]"),
    (kernels.shifted_atomic, 24, 3, "misaligned address", "tl.multiple_of [8]"),
    (kernels.stepping, 1, 2, "false hint", "tl.max_contiguous [8]"),
    (kernels.stepping_store, 1, 2, "false hint", "tl.max_contiguous [8]"),
    (kernels.wrapping, 64, 62, "false hint", "tl.max_contiguous [8]"),
    (kernels.constant_mask, 64, 62, "false hint", "tl.max_constancy [8]"),
    (kernels.rows_apart, 72, 65, "misaligned address", "tl.multiple_of [1, 16]"),
    (kernels.columns_apart, 72, 65, "misaligned address", "tl.multiple_of [16, 1]"),
    (kernels.product, 72, 65, "misaligned address", "tl.multiple_of [1, 16]"),
    (kernels.copied, 72, 65, "misaligned address", "tl.multiple_of [1, 16]"),
    (kernels.assuming, 64, 62, "false hint", "tl.assume"),
]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize(("kernel", "kept", "broken", "outcome", "promise"), PAIRS, ids=[pair[0].fn.__name__ for pair in PAIRS])
def test_a_promise_that_is_kept_passes_and_a_broken_one_fails(arch, kernel, kept, broken, outcome, promise) -> None:
    with emulated(arch) as device:
        run(kernel, kept)
    assert not device.findings and not any("not true" in said for said in device.advice)
    if loads_apart(device.launches[-1].program, arch):
        with emulated(arch) as device:
            run(kernel, broken)
        assert any(f"{promise} is not true" in said and "no access of this launch relies on it" in said for said in device.advice)
        return
    with emulated(arch), pytest.raises(EmulatedFault) as caught:
        run(kernel, broken)
    fault = caught.value
    assert fault.outcome == outcome
    assert re.match(r".*hinted_kernels\.py:\d+$", fault.location) and fault.details["rule"]
    said = fault.message if promise == "tl.assume" else " ".join(fault.details["hints"])
    assert f"{promise} is not true" in said


def loads_apart(program: str, arch: str) -> bool:
    """Whether by the PTX each element is loaded from an address of its own, so that no load relies on where its neighbours lie."""
    loads = re.findall(
        r"ld\.global\.b16 \{ %rs\d+ \}, \[ (%rd\d+) \+", ptx(program, int(arch.removeprefix("sm_")), fuses_sums=True)
    )
    return 1 < len(loads) == len(set(loads))


def test_a_promise_on_which_no_access_relies_is_an_advice() -> None:
    """Groups of 4 are moved at once: a row of 60 ends with a whole group, though groups of 8 were promised."""
    with emulated("sm_90") as device:
        run(kernels.wrapping, 60)
    (advice,) = [said for said in device.advice if "tl.max_contiguous [8] is not true: 0 follows 59" in said and "relies" in said]
    assert re.match(r"\S*hinted_kernels\.py:\d+: ", advice), "its line first"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_elements_from_elsewhere_that_reach_nothing_are_an_advice(arch) -> None:
    """An element that is stored, summed, is an address or decides a branch is a failure, and so is one outside of every tensor."""
    x, y = numbers(512), guarded(torch.zeros(512, dtype=torch.float16))
    with emulated(arch) as device:
        kernels.clamped[(1,)](x, y, 498, 498, BLOCK=512, KIND="")
    assert not device.findings and torch.equal(y[:498], x[:498]) and not y[498:].any()
    assert any(
        "tl.max_contiguous [512] is not true: 0 follows 497; what" in said and "reaches no store" in said for said in device.advice
    )
    for kind, stored in (("", 499), ("sum", 498), ("address", 498), ("branch", 498)):
        with emulated(arch), pytest.raises(EmulatedFault, match="0 follows 497; it decides what") as caught:
            kernels.clamped[(1,)](x, y, 498, stored, BLOCK=512, KIND=kind)
        assert caught.value.outcome == "false hint"
    with emulated(arch), pytest.raises(EmulatedFault, match="false hint"):
        kernels.clamped[(1,)](x[:498].clone(), y, 498, 498, BLOCK=512, KIND="")


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_columns_that_a_product_clamps_in_spite_of_a_hint_reach_nothing(arch, stages) -> None:
    """Where one of them is stored, the hint of its own operand is quoted: that of the other is no truer."""
    a, b = (guarded((numbers(2048) % 5).view(shape)) for shape in ((32, 64), (64, 32)))
    c = torch.zeros(32, 32)
    with emulated(arch) as device:
        kernels.clamped_product[(1,)](a, b, c, 20, 28, 28, 2, SIZE=32, STAGES=stages)
    assert not device.findings and torch.equal(c[:20, :28], (a.float() @ b.float())[:20, :28])
    assert any("0 follows 27; what an access" in said for said in device.advice)
    assert any("0 follows 19; no access" in said for said in device.advice)
    with emulated(arch), pytest.raises(EmulatedFault, match=r"false hint.* 0 follows 27") as caught:
        kernels.clamped_product[(1,)](a, b, c, 20, 28, 30, 2, SIZE=32, STAGES=stages)
    assert not any("0 follows 19" in said for said in caught.value.details["hints"])


@pytest.mark.parametrize(("kernel", "broken", "left"), [(kernels.wrapping, 62, 60), (kernels.rows_apart, 65, 1)])
def test_elements_that_a_mask_leaves_out_may_lie_anywhere(kernel, broken, left) -> None:
    with emulated("sm_90") as device:
        run(kernel, broken, left)
    assert not device.findings
    with emulated("sm_90"), pytest.raises(EmulatedFault):
        run(kernel, broken, left + 4)


@pytest.mark.parametrize(("kernel", "place"), [(kernels.rows_apart, "[1, 0]"), (kernels.columns_apart, "[0, 1]")])
def test_the_element_is_named_by_its_place_in_the_tile(kernel, place) -> None:
    with emulated("sm_90"), pytest.raises(EmulatedFault, match=re.escape("byte 130 of x, at 0x")) as caught:
        run(kernel, 65)
    assert f"element {place} of the tile" in caught.value.message


def test_blackwell_moves_32_bytes_and_so_wants_a_larger_alignment() -> None:
    with emulated("sm_100") as device:
        run(kernels.moved, 48)
    moves_32 = "ld.global.v8.b32" in ptx(device.launches[-1].program, 100, fuses_sums=True)  # older compilers do not
    for arch in ("sm_80", "sm_90", *(["sm_100"] if not moves_32 else [])):
        with emulated(arch) as device:
            run(kernels.moved, 40)
        assert any("tl.multiple_of [1, 32] is not true" in said for said in device.advice)
    if not moves_32:
        return
    with emulated("sm_100"), pytest.raises(EmulatedFault, match=r"moves 32 bytes at once \(ld\.global\.v8\.b32\)") as caught:
        run(kernels.moved, 40)
    assert caught.value.outcome == "misaligned address"


def test_a_program_is_held_to_the_constant_it_was_compiled_with() -> None:
    x, y = numbers(4096), numbers(4096)
    with emulated("sm_90") as device:
        compiled = kernels.strided.warmup(x, y, 1, BLOCK=SIZE, grid=(1,))
        compiled[(1, 1, 1)](x, y, 1, 7)  # what is given for a tl.constexpr is no argument of a compiled kernel
        assert torch.equal(x[:SIZE], y[:SIZE])
        with pytest.raises(EmulatedFault, match="argument step was compiled in as 1, the launch gives 2") as caught:
            compiled[(1, 1, 1)](x, y, 2, SIZE)
    assert caught.value.outcome == "false hint" and device.findings == [caught.value]


def test_a_program_is_held_to_the_alignment_it_was_compiled_for() -> None:
    x, y = numbers(4096), numbers(4096)
    with emulated("sm_90") as device:
        compiled = kernels.strided.warmup(x, y, 1, BLOCK=SIZE, grid=(1,))
        compiled[(1, 1, 1)](x, y[4:], 1, SIZE)  # 8 bytes are moved at once
        assert torch.equal(x[:SIZE], y[4 : SIZE + 4])
        assert any("argument y was compiled for a multiple of 16" in said for said in device.advice)
        with pytest.raises(EmulatedFault, match="argument y was compiled for a multiple of 16") as caught:
            compiled[(1, 1, 1)](x, y[3:], 1, SIZE)
    assert caught.value.outcome == "misaligned address"


def test_another_alignment_is_another_program_when_the_kernel_is_launched() -> None:
    x, y = numbers(4096), numbers(4096)
    with emulated("sm_90") as device:
        for start, step in ((0, 1), (4, 1), (3, 1), (0, 2)):
            kernels.strided[(1,)](x, y[start:], step, BLOCK=SIZE)
            assert torch.equal(x[: SIZE * step : step], y[start : start + SIZE])
    assert not device.findings and not device.advice


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.share(4)
def test_the_width_of_each_access_is_that_of_its_instruction_in_ptx(arch: str) -> None:
    """What is read from the program that was converted is in the PTX of the same launch, and nothing there is wider."""
    launches = [(pair[0], pair[1]) for pair in PAIRS] + [(kernels.moved, 48)]
    with emulated(arch) as device:
        for kernel, value in launches:
            run(kernel, value)
    with capture_compilations(arch) as kept:
        for kernel, value in launches:
            with pytest.raises(AssertionError):  # nothing runs
                run(kernel, value)
    compared, capability = 0, int(arch.removeprefix("sm_"))
    version = get_ptx_version_from_options(SimpleNamespace(ptx_version=None), capability)
    for launch, made in zip(device.launches, kept, strict=True):
        read = {(a.instruction, a.width) for a in accesses(parse_program(launch.program), capability, version).values()}
        written = _of_ptx(made.assembly)
        assert read <= written and _widest(read).items() <= _widest(written).items()
        compared += len(read)
    assert compared >= len(launches)


def _widest(instructions: set[tuple[str, int]]) -> dict[str, int]:
    """By family of instruction: the most bytes that one of it moves."""
    found: dict[str, int] = {}
    for name, width in instructions:
        found[name.split(".")[0]] = max(found.get(name.split(".")[0], 0), width)
    return found


def _of_ptx(text: str) -> set[tuple[str, int]]:
    """(instruction, bytes) of each access to global memory in a PTX text."""
    found = {(name, int(width, 0)) for name, width in re.findall(r"(cp\.async\S*global) \[.*?\], \[.*?\], (0x[0-9a-f]+|\d+)", text)}
    for name in re.findall(r"\s((?:ld|st|atom|red)\.\S*global\S+)", text):
        kind = re.search(r"(?:\.v(\d))?\.[a-z]+(\d+)(x2)?$", name)
        found |= {(name, int(kind[1] or 1) * int(kind[2]) // 8 * (2 if kind[3] else 1))} if kind else set()
    return found


@pytest.mark.parametrize(
    ("name", "values", "size", "value", "said"),
    [
        ("tt.divisibility", (8,), 0, 24, ""),
        ("tt.divisibility", (8,), 0, 20, "20 is no multiple of 8"),
        ("tt.divisibility", (4,), 0, [8, 9, 10, 11, 4, 5], ""),  # the first of each contiguous group
        ("tt.divisibility", (4,), 0, [8, 9, 10, 11, 5, 6], "5 is no multiple of 4"),
        ("tt.divisibility", (16,), 2, [32, 34, 36], ""),
        ("tt.divisibility", (16,), 2, [32, 36], "0x24 is no multiple of 16"),
        ("tt.divisibility", (1, 4), 0, [[4, 5], [9, 10]], "9 is no multiple of 4"),
        ("tt.contiguity", (2,), 0, [4, 5, 9, 10], ""),
        ("tt.contiguity", (4,), 0, [4, 5, 9, 10], "9 follows 5"),
        ("tt.contiguity", (4,), 4, [16, 20, 24, 28], ""),
        ("tt.contiguity", (16,), 0, [1, 2], ""),  # no more than there are
        ("tt.constancy", (2,), 0, [7, 7, 3, 3], ""),
        ("tt.constancy", (2,), 0, [7, 7, 3, 4], "4 stands beside 3"),
    ],
)
def test_a_promise_means_what_tritons_documentation_says(name, values, size, value, said) -> None:
    assert Hint(name, values, size).untrue(torch.tensor(value).numpy()) == said
