"""Contract under test: a translated program that comes from disk is the one that would be made, in words, faults and lines; what
decides a translation decides the name of its entry; and an entry that cannot be read is made again."""

from __future__ import annotations

import functools
import gc
import io
import linecache
import pickle
import re
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton.language as tl

from bitverdict.harness.emulator import Device, EmulatedFault, LaunchOptions, device, emulated
from bitverdict.harness.emulator.frontend import kept_translations
from bitverdict.harness.emulator.frontend.lowerings import floats
from bitverdict.harness.emulator.frontend.translate import TranslatedProgram
from bitverdict.harness.emulator.frontend.translator import LOWERINGS, Translator
from tests.support import tile_kernels

GIVEN: dict[str, Any] = {"arch": "sm_90", "fuses_sums": True, "flushes": True, "is_doubted": False, "ptx": 87}
NEVER: Callable[..., Any] = lambda *_, **__: pytest.fail("translated again")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store of the test's own, in a process that has translated nothing yet."""
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", str(tmp_path / "store"))
    monkeypatch.setattr(device, "_translations", {})
    kept_translations.skip_reasons.clear()
    yield tmp_path / "store"
    kept_translations.skip_reasons.clear()


def product(schedule: str = "eager") -> tuple[torch.Tensor, Device]:
    """One launch of a matrix product with masks: its words and its device."""
    draw = torch.Generator().manual_seed(1)
    a, b = torch.randn(20, 40, generator=draw).half(), torch.randn(40, 24, generator=draw).half()
    c = torch.zeros(20, 24)
    with emulated("sm_90", schedule) as found:
        tile_kernels.product[(1, 1)](
            a, b, c, 20, 24, 40, 40, 24, 24, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, ACCUMULATOR=tl.float32, PRECISION="ieee"
        )
    return c, found


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on this is a later process, which has nothing in memory and must not translate."""
    monkeypatch.setattr(device, "_translations", {})
    monkeypatch.setattr(device, "translate", NEVER)


def test_a_later_process_launches_what_an_earlier_one_translated(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, first = product()
    assert len([path for path in store.iterdir() if not path.name.startswith(".")]) >= 1 and not kept_translations.skip_reasons
    later(monkeypatch)
    for schedule in ("eager", "latest"):
        found, again = product(schedule=schedule)
        assert torch.equal(found, made) and found.any()
        assert again.launches[-1].operations == first.launches[-1].operations
        assert again.launches[-1].products == first.launches[-1].products
        assert (again.launches[-1].python, again.launches[-1].program) == (first.launches[-1].python, first.launches[-1].program)


def test_a_fault_is_told_as_by_the_process_that_translated(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault() -> tuple:
        with emulated("sm_90"), pytest.raises(EmulatedFault) as raised:
            tile_kernels.copy[(1,)](torch.zeros(32), torch.zeros(32), 32, 64, BLOCK=64)
        frames = [frame for frame in traceback.extract_tb(raised.value.__traceback__) if frame.filename.startswith("<tile program")]
        lines = [(frame.lineno, frame.line) for frame in frames]
        message = re.sub(r"0x\w+", "an address", raised.value.message)
        return raised.value.outcome, message, raised.value.location, raised.value.details["operation"], lines

    told = fault()
    later(monkeypatch)
    assert fault() == told
    assert "tt.store" in told[4][-1][1] and "tile_kernels.py" in told[2]


def test_no_id_of_an_object_is_written(store: Path) -> None:
    """An id of one process means another object, or none, in the next."""
    product()
    facts = next(iter(device._translations.values())).facts
    asked = {name for name, member in vars(type(facts)).items() if isinstance(member, functools.cached_property)}
    assert all(getattr(facts, name) is not None for name in asked) and facts.looping
    ids, state = {id(op) for op in facts.operations}, facts.__getstate__()
    held = [value for value in state.values() if isinstance(value, set | frozenset | dict | list | tuple)]
    assert not [value for value in held if not ids.isdisjoint(each for each in value if isinstance(each, int))]
    assert not asked & set(state)
    again = pickle.loads(pickle.dumps(facts))
    assert again.looping == {id(op) for op in again.operations if op.line in {o.line for o in state["looping"]}}


def test_source_lines_are_forgotten_with_their_program(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    product()
    later(monkeypatch)
    product()
    held = next(iter(device._translations.values()))
    name = held.entry.__code__.co_filename
    assert "".join(linecache.getlines(name)) == held.source
    device._translations.clear()
    del held
    gc.collect()
    assert not linecache.getlines(name)


# -- the name of an entry -----------------------------------------------------------------------------------------------
CHANGED: dict[str, Callable[[pytest.MonkeyPatch, dict], str]] = {
    "the program": lambda m, g: "another text",
    "target": lambda m, g: g.update(arch="sm_80") or "text",
    "fusion": lambda m, g: g.update(fuses_sums=False) or "text",
    "subnormals": lambda m, g: g.update(flushes=False) or "text",
    "held to widths": lambda m, g: g.update(is_doubted=True) or "text",
    "PTX version": lambda m, g: g.update(ptx=86) or "text",
    "sources": lambda m, g: m.setattr(kept_translations, "TRANSLATOR", "0" * 64) or "text",
    "Triton": lambda m, g: m.setattr(kept_translations, "digest", lambda: "3.9.1-00") or "text",
    "NumPy": lambda m, g: m.setattr(kept_translations.np, "__version__", "9.9") or "text",
    "Python": lambda m, g: m.setattr(kept_translations.sys, "version", "3.99") or "text",
    "Triton's variables": lambda m, g: m.setenv("DISABLE_PTXAS_OPT", "1") or "text",
}


@pytest.mark.parametrize("what", CHANGED)
def test_whatever_decides_a_translation_decides_its_name(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    before = kept_translations.key("text", **GIVEN)
    assert kept_translations.key("text", **GIVEN) == before
    with monkeypatch.context() as patch:
        given = dict(GIVEN)
        text = CHANGED[what](patch, given)
        assert kept_translations.key(text, **given) != before


PTX_OPTIONS: dict[str, Any] = {"capability": 90, "fuses_sums": True, "flushes": True}
CHANGED_PTX: dict[str, Callable[[pytest.MonkeyPatch, dict], str]] = {
    "the program": lambda m, g: "\n",
    "target": lambda m, g: g.update(capability=80) or "",
    "fusion": lambda m, g: g.update(fuses_sums=False) or "",
    "subnormals": lambda m, g: g.update(flushes=False) or "",
    "ptxas": lambda m, g: m.setattr(kept_translations.assembly, "get_ptx_version_from_options", lambda *_: 84) or "",
    "sources": CHANGED["sources"],
    "Triton": CHANGED["Triton"],
    "Triton's variables": CHANGED["Triton's variables"],
    "no store": lambda m, g: m.setenv("BITVERDICT_TRANSLATIONS", "off") or "",  # as in sealed runs
    "an entry that is no PTX": lambda m, g: m.setattr(kept_translations.disk_store, "read_entry", lambda name: b"foreign") or "",
}


@pytest.mark.parametrize("what", CHANGED_PTX)
def test_a_later_process_makes_no_ptx_but_where_what_decides_it_changed(
    store: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    _, found = product()
    made: list[str] = []
    assemble = kept_translations.assembly.ptx.__wrapped__
    record = lambda *given, **named: (made.append(assemble(*given, **named)), made[-1])[1]
    monkeypatch.setattr(kept_translations.assembly, "ptx", record)
    ask = kept_translations.ptx.__wrapped__  # a process that has nothing in memory
    program, options = found.launches[-1].program, dict(PTX_OPTIONS)
    first = ask(program, **options)
    assert ".entry product" in first and ask(program, **options) == first == made[0] and len(made) == 1
    with monkeypatch.context() as patch:
        more = CHANGED_PTX[what](patch, options)
        assert ask(program + more.removesuffix("text"), **options) == made[-1] and len(made) == 2


def test_the_digest_is_of_every_source_that_a_translation_rests_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = {path.name for path in kept_translations._sources()}
    assert {"translator.py", "floats.py", "scalar_ops.py", "threads.py", "convert.py", "architectures.py"} <= named
    (tmp_path / "new_lowering.py").write_text("1")
    monkeypatch.setattr(kept_translations, "_sources", lambda: [tmp_path / "new_lowering.py"])
    one = kept_translations._digest()
    (tmp_path / "new_lowering.py").write_text("2")
    assert kept_translations._digest() != one


# -- entries that are not to be believed --------------------------------------------------------------------------------
class _Runs:
    """What a pickle may say: call a function."""

    def __reduce__(self) -> tuple:
        return print, ("called",)


def _packed(value: Any) -> bytes:
    return zlib.compress(pickle.dumps(value))


@pytest.mark.parametrize(
    "entry",
    [b"", b"no entry", _packed("a string"), _packed((1, 2)), _packed(_Runs()), _packed(Path("x")), _packed(pytest.fail)],
    ids=["empty", "text", "another value", "another pair", "a call", "another class", "another function"],
)
def test_an_entry_that_is_no_translation_is_made_again(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, entry: bytes
) -> None:
    made, _ = product()
    monkeypatch.setattr(device, "_translations", {})
    monkeypatch.setattr(kept_translations.disk_store, "read_entry", lambda name: entry)
    translated = []
    translate = device.translate
    monkeypatch.setattr(device, "translate", lambda *given, **named: (translated.append(1), translate(*given, **named))[1])
    assert torch.equal(product()[0], made) and translated == [1]
    assert "called" not in capsys.readouterr().out


@pytest.mark.parametrize("value", [object(), print, traceback, lambda: None], ids=["object", "print", "module", "of a test"])
def test_what_cannot_be_written_is_translated_in_every_process(store: Path, monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    made = LOWERINGS["arith.cmpi"]

    def lowering(t: Translator, op: Any) -> None:
        t.constants["odd"] = value
        made(t, op)

    monkeypatch.setitem(LOWERINGS, "arith.cmpi", lowering)
    assert product()[0].any() and sum(kept_translations.skip_reasons.values()) == 1
    assert not [path for path in store.iterdir() if not path.name.startswith(".")] if store.is_dir() else True


def test_a_function_of_a_lowering_goes_by_its_place_and_what_it_holds() -> None:
    """Its code comes from the source; what it closes over and its defaults come from the entry."""

    def through(value: Any) -> Any:
        buffer = io.BytesIO()
        kept_translations._Pickler(buffer, protocol=5).dump(value)
        assert b"co_code" not in buffer.getvalue()
        return kept_translations._Unpickler(io.BytesIO(buffer.getvalue())).load()

    add, subtract = floats.binary(floats.np.add, "fp16"), floats.binary(floats.np.subtract, "fp16")
    for made in (add, subtract, floats.binary(floats.np.multiply, "fp32")):
        again = through(made)
        assert again is not made and again.__code__ is not None
        given = torch.tensor([1.5, 2.0]).numpy().astype("float32" if made not in (add, subtract) else "uint16")
        assert (again(given, given) == made(given, given)).all()
    assert through(floats.fma) is floats.fma and through(floats.np.add) is floats.np.add


def test_a_launch_that_executes_nothing_keeps_its_translation_apart(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not ask what the compiler fused."""
    x = torch.zeros(64)
    with emulated("sm_90", options=LaunchOptions(dry=True)):
        tile_kernels.copy[(1,)](x, x, 64, 60, BLOCK=64)
    monkeypatch.setattr(device, "_translations", {})
    made: list[TranslatedProgram] = []
    translate = device.translate
    monkeypatch.setattr(device, "translate", lambda *given, **named: (made.append(translate(*given, **named)), made[-1])[1])
    with emulated("sm_90"):
        tile_kernels.copy[(1,)](x, x, 64, 60, BLOCK=64)
    assert len(made) == 1


class _WithoutCode:
    """A loader as pytest's `AssertionRewritingHook` is one: it executes modules, and gives no code of theirs."""


def test_a_module_whose_loader_gives_no_code_goes_to_disk_all_the_same(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an environment with the wheel pytest loads all of bitverdict with such a loader."""
    kept_translations._codes.cache_clear()
    for name, module in list(sys.modules.items()):
        if name.startswith("bitverdict.harness.emulator.frontend.") and module.__spec__ is not None:
            monkeypatch.setattr(module.__spec__, "loader", _WithoutCode())
    made, _ = product()
    assert not kept_translations.skip_reasons and made.any()
    later(monkeypatch)
    assert torch.equal(product()[0], made)
