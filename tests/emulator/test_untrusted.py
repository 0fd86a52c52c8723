"""Contract under test: a tile program that nobody trusts is a result, a fault or a refusal. It executes no Python, reaches no
memory but that of its launch, and does not end its executor."""

from __future__ import annotations

import io
import marshal
import pickle
import re
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import EmulatedFault, disk_store, emulated
from bitverdict.harness.emulator.device import Device, _translations
from bitverdict.harness.emulator.execution.threads import bases
from bitverdict.harness.emulator.frontend import kept_translations, translate
from bitverdict.harness.emulator.frontend.lowerings import device_print
from bitverdict.harness.emulator.frontend.program_verifier import dominators, verify_program
from bitverdict.harness.emulator.frontend.shared_layouts import _bases
from bitverdict.harness.emulator.mlir_reader import parse_program
from bitverdict.harness.sealed.candidate.untrusted_programs import distrust_programs

N = 8
SWIZZLED = "#ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [1, 0]}>"
BLOCKED = "#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"


@triton.jit(noinline=True)
def doubled(x):
    return x * 2


@triton.jit
def kernel(a, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(a + at, mask=at < n, other=0)
    total = tl.sum(x, axis=0)
    for i in range(n):
        x += i
    tl.store(out + at, x + doubled(total), mask=at < n)


@cache
def launched() -> tuple[str, Any]:
    """(tile program, metadata) of a launch of `kernel`, that is executed."""
    found: list[Any] = []
    own = Device.run
    with pytest.MonkeyPatch.context() as patch, emulated("sm_80"):
        patch.setattr(Device, "run", lambda self, *given: (found.extend(given[:2]), own(self, *given)) and None)
        kernel[(1,)](torch.arange(N, dtype=torch.int32), torch.zeros(N, dtype=torch.int32), 5, BLOCK=N)
    return found[0].decode(), found[1]


def run(text: str, *, a: Any = None, out: Any = None, n: int = 5, grid: tuple[int, int, int] = (1, 1, 1)) -> list[int]:
    """What a launch of the program `text` gives; where it raises a fault, that is among the findings of its device."""
    a = torch.arange(N, dtype=torch.int32) if a is None else a
    out = torch.zeros(N, dtype=torch.int32) if out is None else out
    with emulated("sm_80") as device:
        try:
            device.run(text.encode("utf-8", "surrogateescape"), launched()[1], grid, ["a", "out", "n"], [a, out, n])
        except EmulatedFault as fault:
            assert fault in device.findings
            raise
    return out.tolist() if isinstance(out, torch.Tensor) else []


RIGHT = [30, 31, 32, 33, 34, 0, 0, 0]


@pytest.fixture
def executor() -> Iterator[None]:
    launched()
    with distrust_programs():
        yield


# -- edits of a valid program -------------------------------------------------------------------------------------------
def line_of(text: str, name: str) -> str:
    return next(line for line in text.split("\n") if f'"{name}"' in line)


def behind(text: str, name: str, *more: str) -> str:
    """`text` with lines behind the first operation `name`."""
    line = line_of(text, name)
    return text.replace(line, "\n".join([line, *more]), 1)


def recursive(text: str) -> str:
    """The private function calls itself, a byte further on in shared memory at each call."""
    (name,) = re.findall(r'sym_name = "([^"]*doubled[^"]*)"', text)
    head = text.index(f'sym_name = "{name}"')
    own = text[head:]
    value = re.search(r"\^bb0\((%\w+): i32", own)[1]  # type: ignore[index]
    at = own.index("\n", own.index("^bb0")) + 1
    call = f'    %again = "tt.call"({value}) <{{callee = @{name}}}> {{allocation.offset = 1 : i32}} : (i32) -> i32 loc(#loc)\n'
    return text[:head] + own[:at] + call + own[at:]


def nested(text: str) -> str:
    deep = "\n".join(['"tt.reduce"() ({', "^bb0:"] * 3000)
    return behind(text, "tt.make_range", deep)


def late(text: str) -> str:
    """The range is made behind its use."""
    line = line_of(text, "tt.make_range")
    return behind(text.replace(f"{line}\n", ""), "tt.load", line)


Edit = Callable[[str], str]
ATTACKS: dict[str, tuple[Edit, str, str]] = {
    # what it would have done: (edit, outcome, what is said)
    "aliases without end": (
        lambda t: re.sub(r"#blocked = .*", "#blocked = #other\n#other = #blocked", t, count=1), "refused", "aliases",
    ),
    "aliases that grow": (
        lambda t: re.sub(r"(#blocked = .*)", "\\1\n" + "\n".join(f"#b{i} = #b{i + 1} #b{i + 1}" for i in range(40)), t, count=1),
        "refused", "aliases",
    ),
    "a location that is its own part": (lambda t: re.sub(r"#loc1 = .*", "#loc1 = loc(#loc1)", t), "refused", "verifier"),
    "four billion results": (
        lambda t: t.replace('%at = "tt.make_range"', '%at:4000000000 = "tt.make_range"'), "refused", "4000000000 results",
    ),
    "regions without end": (nested, "refused", "regions in one another"),
    "a function that calls itself": (recursive, "refused", "calls itself"),
    "a tensor of the whole memory": (lambda t: t.replace("tensor<8xi32", "tensor<1048576x1048576xi32"), "refused", "elements"),
    "a tensor of nothing": (lambda t: t.replace("tensor<8xi32", "tensor<0xi32"), "refused", "elements"),
    "shared memory of a terabyte": (
        lambda t: re.sub(r"ttg.shared = \d+", "ttg.shared = 1099511627776", t), "out of resources", "sm_80 has",
    ),
    "tensor memory where there is none": (
        lambda t: re.sub(r"ttg.tensor_memory_size = \d+", "ttg.tensor_memory_size = 512", t), "refused", "sm_80 has",
    ),
    "no warps": (lambda t: re.sub(r'"ttg.num-warps" = \d+', '"ttg.num-warps" = 0', t), "refused", "num-warps is 0"),
    "less than no warps": (lambda t: re.sub(r'"ttg.num-warps" = \d+', '"ttg.num-warps" = -4', t), "refused", "num-warps is -4"),
    "a cluster of a thousand": (lambda t: t.replace('"ttg.num-ctas" = 1', '"ttg.num-ctas" = 1024'), "refused", "num-ctas is 1024"),
    "a hexadecimal attribute": (lambda t: t.replace('"ttg.num-ctas" = 1', '"ttg.num-ctas" = 0x1'), "refused", "no integer"),
    "another target": (lambda t: t.replace('"cuda:80"', '"cuda:100"'), "refused", "is for"),
    "a value before it is there": (late, "refused", "before it is defined"),
    "a value of another type": (lambda t: t.replace('"tt.splat"(%n)', '"tt.splat"(%a)'), "refused", "takes %a for i32"),
    "a value twice": (lambda t: behind(t, "tt.make_range", line_of(t, "tt.make_range")), "refused", "again"),
    "a symbol twice": (lambda t: re.sub(r'sym_name = "[^"]*doubled[^"]*"', 'sym_name = "kernel"', t), "refused", "again"),
    "no kernel": (lambda t: t.replace('sym_visibility = "public"', 'sym_visibility = "private"'), "refused", "0 public"),
    "no terminator": (lambda t: t.replace(line_of(t, "tt.return") + "\n", "", 1), "refused", "last of one|no operation"),
    "a block that is none": (lambda t: re.sub(r"\[\^bb1\]", "[^bb77]", t, count=1), "refused", "no block"),
    "a call of nothing": (lambda t: re.sub(r"callee = @\S*?doubled[^>]*>", "callee = @nothing}>", t), "refused", "no function"),
    "an attribute twice": (
        lambda t: t.replace("<{end = 8 : i32, start = 0 : i32}>", "<{end = 8 : i32, start = 0 : i32}> {end = 99 : i32}"),
        "refused", "says end twice",
    ),
    "a range that is its type's lie": (lambda t: t.replace("<{end = 8 : i32", "<{end = 2147483647 : i32"), "refused", "verifier"),
    "a line end inside a string": (lambda t: t.replace('loc("', 'loc("\u2028', 1), "refused", "ASCII"),
    "a NUL": (lambda t: t.replace('loc("', 'loc("\0', 1), "refused", "escape"),
    "bytes that are no text": (lambda t: t.replace('loc("', 'loc("\udcff', 1), "refused", "ASCII"),
    "nothing": (lambda t: "", "refused", "ends before"),
    "five megabytes": (lambda t: t + "#" * (5 << 20), "refused", "characters"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_a_program_that_the_compiler_did_not_make_is_refused(executor: None, name: str) -> None:
    edit, outcome, said = ATTACKS[name]
    changed = edit(launched()[0])
    assert changed != launched()[0]
    with pytest.raises(EmulatedFault, match=said) as raised:
        run(changed)
    assert raised.value.outcome == outcome


def test_the_program_itself_gives_what_it_gives_a_trusting_one(executor: None) -> None:
    assert run(launched()[0] + "\n") == RIGHT


# -- what it is given ---------------------------------------------------------------------------------------------------
def test_an_integer_leads_to_no_other_memory_of_the_executor(executor: None) -> None:
    secret = np.arange(100, 100 + N, dtype=np.int32)  # as expected words would lie, were there any
    out = torch.zeros(N, dtype=torch.int32)
    for given in ({"a": secret.ctypes.data}, {"out": secret.ctypes.data}, {"a": id(secret)}, {"a": -16}, {"a": 1 << 62}):
        with pytest.raises(EmulatedFault) as raised:
            run(launched()[0], **{"out": out, **given})
        assert raised.value.outcome == "illegal address"
    assert not out.any() and secret.tolist() == list(range(100, 100 + N))


@pytest.mark.parametrize("given", [{"a": 1 << 200}, {"n": 1 << 200}, {"n": "5; x"}, {"a": "x"}, {"a": [1]}, {"n": {}}], ids=str)
def test_an_argument_of_another_kind_is_refused(executor: None, given: dict[str, Any]) -> None:
    with pytest.raises(EmulatedFault) as raised:
        run(launched()[0], **given)
    assert raised.value.outcome in ("refused", "illegal address")


def test_a_grid_without_end_is_not_begun(executor: None) -> None:
    with pytest.raises(EmulatedFault, match="at most 16777216") as raised:
        run(launched()[0], grid=(2**31 - 1, 1, 1))
    assert raised.value.outcome == "not modelled"
    with pytest.raises(RuntimeError, match=r"Triton Error \[CUDA\]: invalid argument: grid"):  # what a launcher may catch
        run(launched()[0], grid=(1, 1 << 20, 1))


def test_the_record_of_a_launch_is_of_what_ran(executor: None) -> None:
    text, metadata = launched()
    with emulated("sm_80") as device:
        given = [torch.arange(N, dtype=torch.int32), torch.zeros(N, dtype=torch.int32), 5]
        device.run(text.encode(), metadata._replace(name="PASS another\nkernel"), (1, 1, 1), ["a", "out", "n"], given)
    assert [each.name for each in device.launches] == ["kernel"]


# -- beyond the verifiers -----------------------------------------------------------------------------------------------
def test_what_passes_a_hole_in_the_verifier_is_refused(executor: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translate, "check_accepted", lambda text: None)
    with pytest.raises(EmulatedFault, match="its execution raised ValueError") as raised:
        run(launched()[0].replace("<{end = 8 : i32", "<{end = 9 : i32"))
    assert raised.value.outcome == "refused"


def test_native_code_that_dies_ends_a_launch_and_not_the_executor(executor: None) -> None:
    """A division by zero, and an assertion of the compiler's."""
    for ask in (lambda: _bases(SWIZZLED.replace("= 1,", "= 0,"), (64, 64), "f32"), lambda: bases((63,), BLOCKED)):
        with pytest.raises(EmulatedFault, match=r"SIGFPE|SIGABRT") as raised:
            ask()
        assert raised.value.outcome == "compiler abort"
    assert bases((64,), BLOCKED)[0] == []  # no registers: a new process answers


def test_native_code_that_does_not_end_is_cut_off() -> None:
    text = launched()[0]
    with distrust_programs(seconds=0.0), pytest.raises(EmulatedFault, match="did not end") as raised:
        run(text + "\n\n")
    assert raised.value.outcome == "timeout"


def planted(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A translation of `text` on disk whose code makes a folder."""
    monkeypatch.setenv(disk_store.VARIABLE, str(folder / "translations"))
    names: list[str] = []
    own = kept_translations.load_or_translate
    monkeypatch.setattr(kept_translations, "load_or_translate", lambda name, make: (names.append(name), own(name, make))[1])
    run(text)
    monkeypatch.setattr(kept_translations, "load_or_translate", own)
    entry = disk_store.read_entry(names[0])
    assert entry is not None
    ready, _ = kept_translations._Unpickler(io.BytesIO(zlib.decompress(entry))).load()
    code = compile(ready.source + "\n__import__('os').mkdir('executed')\n", "<generated>", "exec")
    buffer = io.BytesIO()
    kept_translations._Pickler(buffer, protocol=5).dump((ready, marshal.dumps(code)))
    disk_store.keep(names[0], zlib.compress(buffer.getvalue()))
    _translations.clear()


def test_a_planted_translation_is_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = launched()[0] + "\n\n\n"
    planted(tmp_path, monkeypatch, text)
    with distrust_programs():
        assert run(text) == RIGHT
        assert not (tmp_path / "executed").exists()
        assert disk_store.place() is None
    _translations.clear()
    run(text)  # what it would have done
    assert (tmp_path / "executed").is_dir()


def test_what_a_program_prints_is_bounded_and_no_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_print, "MOST_PRINTED", 100)
    monkeypatch.setattr(device_print, "_printed_length", 0)
    for _ in range(9):
        device_print._write("\x1b]0;PASS\x07" + "x" * 40 + "\n")
    said = capsys.readouterr().out
    assert "\x1b" not in said and said.startswith("\\x1b]0;PASS\\x07xxx")
    assert said.count("x" * 40) == 2 + 1 and "left out" in said


# -- the structure ------------------------------------------------------------------------------------------------------
def test_dominators_are_those_of_the_definition() -> None:
    """By removing each block in turn."""
    draw = np.random.default_rng(5)
    for _ in range(60):
        count = int(draw.integers(1, 8))
        successors = [[int(n) for n in draw.integers(0, count, draw.integers(0, 3))] for _ in range(count)]

        def reached(without: int) -> set[int]:
            found, left = set[int](), [0] if without != 0 else []
            while left:
                at = left.pop()
                if at not in found and at != without:
                    found.add(at)
                    left += successors[at]
            return found

        above = dominators(successors)
        for block in range(count):
            if block not in reached(-1):
                assert above[block] is None
                continue
            strictly = {each for each in reached(-1) if each != block and block not in reached(each)}
            chain, at = set[int](), block
            while at != above[at]:
                at = above[at]  # type: ignore[assignment]
                chain.add(at)
            assert chain == strictly


def test_a_verified_program_is_the_one_that_is_read() -> None:
    text = launched()[0]
    assert [op.text for op in verify_program(text, "sm_80").operations()] == [op.text for op in parse_program(text).operations()]
    assert pickle.dumps(EmulatedFault("refused", "x"))
