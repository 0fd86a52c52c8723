"""Contract under test: what a release of Triton is like stands in its record and nowhere else; the record of the one that is
installed is what its compiler does; the compiler's own barriers are in the tile program, whoever puts them there; and a release
without a record is tried, and named."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs
from triton.backends.amd.compiler import HIPBackend
from triton.backends.nvidia import compiler as nvidia_compiler
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from bitverdict.harness.emulator import EmulatedFault, compiler_digest, emulated, releases
from bitverdict.harness.emulator.frontend import inserted_barriers, stop_compiler
from bitverdict.harness.emulator.releases import (
    RELEASES,
    installed_release,
    lacking_name,
    missing_from,
    notice,
    parts_of,
    record_of,
)
from bitverdict.harness.emulator.releases.records import CompilerFault
from bitverdict.harness.judge.classify import outcome_of
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.triton_release import PROVEN_RELEASES, InstalledTriton, has_exact_scales, numbers_of
from bitverdict.harness.model.verdict import Decision, Outcome
from bitverdict.kernels import softmax

CHECKOUT = Path(__file__).resolve().parents[2]
BEFORE_BARRIERS = tl.constexpr(hasattr(gl, "barrier"))  # whether `gl.thread_barrier` is of an older release


def called_passes(function: object) -> list[str]:
    """Passes that `function`, a stage of a backend, adds in every compilation, in its order: names in libtriton."""
    body = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0].body  # type: ignore[arg-type,attr-defined]
    calls = (each.value for each in body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call))
    return [name for name in (ast.unparse(call.func) for call in calls) if re.search(r"passes\.\w+\.add_", name)]


def names(passes: tuple[str, ...]) -> list[str]:
    return [parts_of(each)[0] for each in passes]


def test_the_record_of_nvidia_is_what_the_compiler_calls() -> None:
    """All of its passes, in its order; that which adds debug information is under a condition."""
    record = installed_release()
    listed = names((*record.tile_program_passes["cuda"], *record.conversion, *record.to_llvm))
    called = called_passes(nvidia_compiler.CUDABackend.make_llir)
    assert sorted({*listed} - {*called}) == ["passes.llvmir.add_di_scope"]
    ordered = [each for each in listed if each != "passes.llvmir.add_di_scope"]
    moved = "passes.ttgpuir.add_allocate_global_scratch_memory"  # between what is laid out and what is converted
    assert [each for each in ordered if each != moved] == [each for each in called if each != moved]


def test_the_record_of_amd_is_how_the_compiler_begins() -> None:
    listed = names(installed_release().tile_program_passes["hip"])
    called = called_passes(HIPBackend.make_llir)
    assert [each for each in called if each in listed] == listed
    beside = {"amd.passes.ttgpuir.add_update_async_wait_count", "amd.passes.ttgpuir.add_optimize_lds_usage"}
    assert {*called[: called.index(listed[-1])]} - {*listed} <= {*beside, "passes.convert.add_index_to_llvmir"}


def test_llvm_gets_the_flags_of_the_backend() -> None:
    flags = getattr(nvidia_compiler, "get_llvm_flags", list)
    assert list(installed_release().llvm_flags) == flags()
    assert ("set_short_ptr" in inspect.getsource(nvidia_compiler.CUDABackend.make_llir)) == (not installed_release().llvm_flags)


def test_a_pass_that_the_compiler_lacks_is_named() -> None:
    assert missing_from(installed_release()) == ()
    assert missing_from(replace(installed_release(), to_llvm=("llvm.add_no_such",))) == ("llvm.add_no_such",)


def test_each_proven_release_has_a_record() -> None:
    assert [numbers_of(name) for name in PROVEN_RELEASES] == [each.numbers for each in RELEASES]
    assert installed_release().proven


@pytest.mark.parametrize(
    ("version", "numbers", "proven"),
    [
        ("3.9.4", (3, 9), True),
        ("3.9.0.post1", (3, 9), False),
        ("3.10.0.dev20261101", (3, 9), False),
        ("3.7.2", (3, 7, 1), False),
        ("3.10.0", (3, 9), False),
        ("3.9.0rc1", (3, 9), False),
        ("3.8.0.dev20260701+git1234", (3, 8), False),
        ("4.0", (3, 9), False),
    ],
)
def test_a_version_has_its_record_or_the_nearest_older(version: str, numbers: tuple[int, ...], proven: bool) -> None:
    """Builds that are there: docs/forks.md."""
    record = record_of(InstalledTriton(version))
    assert (record.numbers, record.proven) == (numbers, proven)


def written_names() -> set[str]:
    """What a kernel can write on the Triton that is installed, as a record has it."""
    modules = [importlib.import_module(f"triton.{name}") for name in ("experimental.gluon", "language")]
    for root in tuple(modules):
        for each in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            if not re.search(r"\._|\.extra\.|gfx1250|cdna5|rubin", each.name):
                modules.append(importlib.import_module(each.name))
    owners = [(module.__name__.rpartition(".")[2], module) for module in modules]
    owners += [(name, each) for module in modules for name, each in vars(module).items() if inspect.isclass(each)]
    names: set[str] = set()
    for owner, holder in owners:
        fields = getattr(holder, "__dataclass_fields__", {})
        for name in (*dir(holder), *fields):
            names.add(f"{owner}.{name}")
            value = getattr(holder, name, None)
            names.update(written_arguments(getattr(value, "fn", value)))
    return names


def written_arguments(function: object) -> Iterator[str]:
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return
    name = getattr(function, "__qualname__", "")
    for each in parameters:
        yield f"{name}({each.name}=)"
        if each.default is not each.empty:
            yield f"{name}() without {each.name}"


def test_a_record_has_the_names_that_its_release_brought_and_removed() -> None:
    """What newer releases brought is not there; what older ones brought is, unless it was removed since."""
    there, here = written_names(), installed_release().numbers
    for release in RELEASES:
        if release.numbers > here:
            assert [name for name in release.new_names if name in there] == []
        else:
            since = {name for other in RELEASES if release.numbers < other.numbers <= here for name in other.removed_names}
            assert [name for name in release.new_names if name not in there and name not in since] == []
            assert [name for name in release.removed_names if name in there] == []


@pytest.mark.parametrize(
    ("numbers", "message", "sentence"),
    [
        ((3, 6, 0), "module 'triton.experimental.gluon.language.nvidia.ampere.async_copy' has no attribute 'async_load'",
         "lacks async_copy.async_load, which 3.8.x brought"),
        ((3, 7, 1), "AttributeError(\"'tensor_memory_descriptor' object has no attribute 'get_reg_layout'\")",
         "lacks tensor_memory_descriptor.get_reg_layout, which 3.8.x brought"),
        ((3, 6, 0), "cannot import name 'tcgen05_mma_barrier_count' from 'triton.experimental.gluon.language.nvidia.blackwell' (x)",
         "lacks blackwell.tcgen05_mma_barrier_count, which 3.7.0 brought"),
        ((3, 7, 1), "tensor_memory_descriptor.load() missing 1 required positional argument: 'layout'",
         "lacks tensor_memory_descriptor.load() without layout, which 3.8.x brought"),
        ((3, 8), "topk() got an unexpected keyword argument 'descending'", ""),
        ((3, 7, 1), "topk() got an unexpected keyword argument 'descending'", "lacks topk(descending=), which 3.8.x brought"),
        ((3, 9), "Block pointers have been removed in favor of the tensor descriptor API",
         "lacks language.advance, which 3.9.x removed"),
        ((3, 9), "module 'triton.experimental.gluon.language' has no attribute 'thread_barrier'",
         "lacks language.thread_barrier, which 3.7.0 removed"),
        ((3, 6, 0), "module 'triton.language' has no attribute 'laod'", ""),
        ((3, 6, 0), "module 'numpy.language' has no attribute 'squeeze'", ""),
    ],
)  # fmt: skip
def test_a_missing_name_is_the_releases_where_another_has_it(
    numbers: tuple[int, ...], message: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "installed_release", lambda: next(each for each in RELEASES if each.numbers == numbers))
    assert lacking_name(message).partition(" lacks ")[2] == sentence.removeprefix("lacks ")


@gluon.jit
def of_another_release(x):
    gl.thread_barrier() if BEFORE_BARRIERS else gl.barrier()


@gluon.jit
def of_no_release(x):
    gl.bariers()


@pytest.mark.parametrize(("kernel", "outcome"), [(of_another_release, Outcome.NOT_RUN), (of_no_release, Outcome.REFUSED)])
def test_a_kernel_is_not_run_for_a_name_of_another_release_alone(kernel: Callable, outcome: Outcome) -> None:
    with emulated("sm_90"), pytest.raises(Exception) as caught:
        kernel[(1,)](torch.zeros(1))
    result = outcome_of(caught.value)
    assert result.outcome is outcome and ("which 3.7" in result.message) == (outcome is Outcome.NOT_RUN), result


def test_what_the_compiler_fails_at_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the record's sentence, on the architectures that it names alone."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    fault = CompilerFault(r'"tt.reduce"', ("sm_90",), "a reduction", "it ends by an assertion")
    record = replace(installed_release(), compiler_faults=(fault,))
    for module in (releases, stop_compiler):
        monkeypatch.setattr(module, "installed_release", lambda: record)
    case = Case(contract="softmax", problem=softmax.Problem(rows=3, columns=5), config=softmax.Config())
    assert judge(case, target("emulated:sm_80")).decision is Decision.PASS
    verdict = judge(case, target("emulated:sm_90"))
    assert verdict.decision is Decision.NOT_RUN
    assert verdict.message == f"triton {triton.__version__} lacks a reduction for sm_90: it ends by an assertion"


@triton.jit
def moved(x, out, N: tl.constexpr):
    """Rows in, columns out: through shared memory, and back through global memory after a sum."""
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    value = tl.load(x + rows * N + columns)
    tl.store(out + columns * N + rows, tl.trans(tl.trans(value) + tl.sum(value)))


@pytest.fixture
def unproven(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Triton of tomorrow, with the passes of today but for one."""
    lost = names(installed_release().to_llvm)[-1]
    monkeypatch.setattr(releases, "RELEASES", (installed_release(),))
    monkeypatch.setattr(releases, "installed_triton", lambda: InstalledTriton("3.99.0"))
    there = releases.is_there
    monkeypatch.setattr(releases, "is_there", lambda name: name != lost and there(name))
    installed_release.cache_clear()
    yield
    installed_release.cache_clear()


def test_a_release_without_a_record_is_tried_and_named(unproven: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, with what it lacks; each verdict says so where its basis stands."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert re.fullmatch(
        r"triton 3\.99\.0 is no release with a record and is tried as 3\.\d.*unproven compiler; it lacks \S+add_di_scope", notice()
    )
    case = Case(contract="softmax", problem=softmax.Problem(rows=3, columns=5), config=softmax.Config())
    verdict = judge(case, target("emulated:sm_90"))
    assert verdict.decision is Decision.PASS and verdict.basis.startswith("words, judged on an unproven compiler")


def test_a_proven_release_is_not_named() -> None:
    case = Case(contract="softmax", problem=softmax.Problem(rows=3, columns=5), config=softmax.Config())
    assert notice() == "" and "unproven" not in judge(case, target("emulated:sm_90")).basis


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_the_tile_program_has_the_compilers_own_barriers(arch: str) -> None:
    """One between the threads that store to shared memory and those that load there; with the bytes that each operation takes."""
    x, out = torch.arange(4096.0).reshape(64, 64), torch.zeros(64, 64)
    with emulated(arch) as device:
        moved[(1,)](x, out, 64)
    program = device.launches[0].program
    assert re.search(r'"ttg\.(local_)?barrier"\(\)', program)
    scratch = re.findall(r"allocation\.offset = \d+ : i32(, allocation\.size = \d+ : i32)?", program)
    assert scratch and all(scratch)
    assert torch.equal(out, x.T + x.sum())


PROGRAM = """"builtin.module"() ({
  "tt.func"() <{sym_name = "kernel"}> ({
    %0 = "tt.load"(%a) : (i32) -> i32 loc(#loc1)
    %1 = "tt.reduce"(%0) ({
      "tt.reduce.return"(%0) : (i32) -> () loc(#loc2)
    }) : (i32) -> i32 loc(#loc3)
    "tt.return"() : () -> () loc(#loc4)
  }) : () -> () loc(#loc)
}) : () -> () loc(#loc)
#loc = loc(unknown)"""
CONVERTED = """"builtin.module"() ({
  "llvm.func"() ({
    %9 = "builtin.unrealized_conversion_cast"(%8) : (i64) -> i32 loc(#loc7)
    %0 = "tt.load"(%9) : (i32) -> i32 loc(#loc8)
    "ttg.barrier"() : () -> () loc(#loc9)
    %1 = "tt.reduce"(%0) ({
      "tt.reduce.return"(%0) : (i32) -> () loc(#loc10)
    }) : (i32) -> i32 loc(#loc9)
    "tt.return"() : () -> () loc(#loc11)
  }) : () -> () loc(#loc)
}) : () -> () loc(#loc)"""


def test_a_barrier_goes_where_the_conversion_has_it() -> None:
    """In front of the same operation, with the place of that."""
    line = PROGRAM.index('    %1 = "tt.reduce"')
    due = PROGRAM[:line] + '    "ttg.barrier"() : () -> () loc(#loc3)\n' + PROGRAM[line:]
    assert inserted_barriers._insert(PROGRAM, CONVERTED) == due
    assert inserted_barriers._insert(due, CONVERTED) == due  # the author's own stays one
    assert inserted_barriers._insert(PROGRAM, CONVERTED.replace('"tt.return"', '"llvm.return"')) == due


@pytest.mark.parametrize("old", ['"tt.load"', '"tt.return"'])
def test_a_conversion_of_another_program_is_no_answer(old: str) -> None:
    with pytest.raises(RuntimeError, match="the conversion to LLVM has"):
        inserted_barriers._insert(PROGRAM, CONVERTED.replace(old, '"tt.other"'))


def test_what_is_stopped_is_kept_apart_from_what_a_gpu_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release whose key has no stages in it would give a GPU the text of a tile program."""
    monkeypatch.setattr(compiler_digest, "digest", lambda: "key")
    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", None)
    assert compiler_digest._digest_with_stages() == "key"
    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", lambda: ("stopped", "stopped"))
    assert compiler_digest._digest_with_stages() == "keystopped"
    source = inspect.getsource(triton.compiler.compiler.compile)
    assert installed_release().keys_stages == ("add_stages_inspection_hook" in source)


@triton.jit
def scaled(a, scales, b, c, N: tl.constexpr):
    """c (N, N) = a (N, N) under `scales` (N, N / 32) @ b (N, N), e4m3."""
    rows, columns, blocks = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :], tl.arange(0, N // 32)[None, :]
    left, right = tl.load(a + rows * N + columns), tl.load(b + rows * N + columns)
    scale = tl.load(scales + rows * (N // 32) + blocks)
    tl.store(c + rows * N + columns, tl.dot_scaled(left, scale, "e4m3", right, None, "e4m3"))


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_a_scale_of_code_zero_becomes_what_the_release_makes_of_it(arch: str) -> None:
    ones, scales = torch.full((64, 64), 0x38, dtype=torch.uint8), torch.full((64, 2), 127, dtype=torch.uint8)
    scales[0], scales[1], c = 0, 255, torch.empty(64, 64)
    if arch == "gfx942" and installed_release().compiler_faults:  # a release that widens one operand by an operation of its own
        with emulated(arch), pytest.raises(EmulatedFault, match=r"not modelled: amdg\.upcast_mxfp"):
            scaled[(1,)](ones, scales, ones, c, 64)
        return
    with emulated(arch):
        scaled[(1,)](ones, scales, ones, c, 64)
    assert c[0, 0] == (64 * 2.0**-127 if has_exact_scales() else 0)
    assert c[1].isnan().all() and (c[2:] == 64).all()
    assert has_exact_scales("3.9.0") and not has_exact_scales("3.8.1")


def constants(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module's code, with their lines: no docstrings."""
    tree = ast.parse(path.read_text())
    prose = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for each in ast.walk(tree):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in prose:
            yield each.lineno, each.value


NUMBER = re.compile(r"3\.(?:[6-9]|\d\d)(?:\.\d*)?")
RECORDS = ("harness/emulator/releases/records.py", "harness/model/triton_release.py")


def decides_by_release(path: Path) -> list[str]:
    """Lines of a module that ask for a release: its number as a text of its own, or the version compared."""
    found = [f"{path}:{line} {text}" for line, text in constants(path) if NUMBER.fullmatch(text)]
    for each in ast.walk(ast.parse(path.read_text())):
        asks = isinstance(each, ast.Compare) or (isinstance(each, ast.Call) and ast.unparse(each.func).endswith("startswith"))
        if asks and "triton.__version__" in ast.unparse(each):
            found.append(f"{path}:{each.lineno} {ast.unparse(each)}")
    return found


def sources(*rooms: str) -> Iterator[Path]:
    for room in rooms:
        yield from sorted((CHECKOUT / room).rglob("*.py"))


@pytest.mark.share(4)
def test_no_release_is_asked_for_anywhere_else(tmp_path: Path) -> None:
    product = [path for path in sources("harness", "kernels", "reference") if str(path.relative_to(CHECKOUT)) not in RECORDS]
    assert [line for path in product for line in decides_by_release(path)] == []
    asking = tmp_path / "asking.py"
    asking.write_text(
        'import triton\nOLD = ("3.8.", "3.7.1")\nif triton.__version__.startswith(OLD) or triton.__version__ < "3.9": ...\n'
    )
    assert len(decides_by_release(asking)) == 5


def asks_for_a_vendor(path: Path) -> list[str]:
    """Lines of a module that ask which vendor's the target is."""
    question = re.compile(r"\bis_amd\(|startswith\(.gfx|\.backend (?:==|!=) |\bt\.amd\b")
    return [f"{path}:{number} {line}" for number, line in enumerate(path.read_text().splitlines(), 1) if question.search(line)]


def test_no_vendor_is_asked_for_beside_its_backend(tmp_path: Path) -> None:
    assert [line for path in sources("harness/emulator") for line in asks_for_a_vendor(path)] == []
    asking = tmp_path / "asking.py"
    asking.write_text('if is_amd(arch): ...\nif arch.startswith("gfx"): ...\nif chip.backend == "hip": ...\n')
    assert len(asks_for_a_vendor(asking)) == 3
