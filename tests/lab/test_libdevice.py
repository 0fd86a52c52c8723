"""Contract under test: the studies of libdevice see every symbol of Triton's module, and a word that is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bitverdict.harness.judge.offline_driver import capture_compilations
from bitverdict.harness.lab import libdevice_errors, libdevice_words
from bitverdict.harness.lab.libdevice_errors import has_exact_function, measure
from bitverdict.harness.lab.libdevice_words import BLOCK, compare, drawn, launch_symbol, symbols

EMULATED = "emulated:sm_90"


def test_every_symbol_of_the_module_is_found_with_its_types():
    found = symbols()
    assert len(found) == 313 and all(name == symbol.name for name, symbol in found.items())
    assert found["__nv_umulhi"].operands == ("uint32", "uint32") and found["__nv_umulhi"].elements == ("i32", "i32")
    assert found["__nv_ldexp"].operands == ("fp64", "int32") and found["__nv_llrintf"].result == "int64"


def test_drawn_words_are_of_every_kind():
    words = drawn("f32", 3000, np.random.default_rng(0))
    values, exponents = words.view(np.float32), words >> 23 & 255
    assert len(np.unique(exponents)) == 256 and np.isnan(values).any() and np.isinf(values).any() and (values == 0).any()
    assert ((np.abs(values) > 0.1) & (np.abs(values) < 100)).mean() > 0.2


def test_a_kernel_gives_the_words_of_the_operation_and_another_does_not(monkeypatch):
    right = compare("__nv_umulhi", 2048, EMULATED, "sm_90")
    assert (right.words, right.differ, right.error) == (2048, 0, "")
    wrong = replace(symbols()["__nv_umulhi"], name="__nv_mulhi")
    monkeypatch.setattr(libdevice_words, "symbols", lambda: {"__nv_umulhi": wrong})
    monkeypatch.setattr(libdevice_words, "launch_symbol", lambda symbol, words, device: words[0] * words[1])
    found = compare("__nv_umulhi", 2048, EMULATED, "sm_90")
    assert found.differ > 1500 and found.examples[0].keys() == {"operands", "device", "emulated"}


def test_the_compiler_finds_the_function_that_a_kernel_calls():
    """Not the kernel. It failed so on a GPU for all 313 symbols while each kernel had the name of its symbol."""
    symbol = symbols()["__nv_umulhi"]
    with capture_compilations("sm_90") as kept:
        launch_symbol(symbol, symbol.words(BLOCK), "cpu")
    assert "mul.hi.u32" in kept[-1].assembly and ".entry kernel_of__nv_umulhi(" in kept[-1].assembly


def test_a_kernel_that_fails_is_an_error_of_its_line(monkeypatch):
    def fails(*given: object) -> None:
        raise RuntimeError("no such device")

    monkeypatch.setattr(libdevice_words, "launch_symbol", fails)
    assert compare("__nv_popc", 1024, EMULATED, "sm_90").error == "RuntimeError: no such device"


@pytest.mark.parametrize("name", ["__nv_logf", "__nv_double2float_rd", "__nv_byte_perm", "__nv_nextafterf"])
def test_an_error_beyond_what_is_documented_is_counted(name, monkeypatch):
    found = measure(symbols()[name], 200, "sm_90")
    assert found.excess_count == 0 and found.documented_error is not None
    right = libdevice_errors.compile_operation
    monkeypatch.setattr(libdevice_errors, "compile_operation", lambda *given: lambda *values: np.roll(right(*given)(*values), 1))
    assert measure(symbols()[name], 200, "sm_90").excess_count > 100


def test_every_symbol_but_one_has_an_exact_function():
    """rcp64h gives the upper word of an approximation, of which nothing is documented."""
    assert {name for name, symbol in symbols().items() if not has_exact_function(symbol)} == {"__nv_rcp64h"}
