"""Contract under test: `tl.device_print` writes what the compiled program's vprintf would, a line for each thread and element."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from tests.support import structure_kernels as kernels

N, THREADS = 64, 128


def operands() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    numbers = torch.arange(-3, N - 3, dtype=torch.int16)
    return numbers, (torch.arange(N) * 4).to(torch.uint8), torch.arange(2 * N).reshape(N, 2).half() / 4


def test_each_thread_prints_each_element_it_holds(capfd: pytest.CaptureFixture[str]) -> None:
    """64 elements lie in 128 threads twice. The format strings are those in the LLVM IR of the same kernel."""
    numbers, words, floats = operands()
    with emulated("sm_90") as device:
        kernel = kernels.printed[(1, 2)](numbers, words, floats, N=N, debug=True)
    told = Counter(capfd.readouterr().out.splitlines())
    expected: Counter[str] = Counter()
    for pid in ("pid (0, 0, 0)", "pid (0, 1, 0)"):
        for i in range(N):
            expected[f"{pid} idx ({i:2}) both: (operand 0) {i - 3}"] += 2
            expected[f"{pid} idx ({i:2}) both: (operand 1) {4 * i}"] += 2
            expected[f"{pid} idx ({i:2}) hex: 0x{(i - 3) & (0xFFFF if i > 2 else 0xFFFFFFFF):04x}"] += 2
            for j in range(2):
                expected[f"{pid} idx ({i:2}, {j}) float: {(2 * i + j) / 4:f}"] += 1
        expected[f"{pid} here"] += THREADS
        expected[f"{pid} idx () scalar: -2"] += THREADS
    assert told == expected
    shapes = re.findall(r'c"(pid [^"]*)\\0A\\00"', kernel.asm["llir"])
    assert len(shapes) == 6 and {"pid (%u, %u, %u) idx (%2u) hex: 0x%04x", "pid (%u, %u, %u) here"} <= set(shapes)
    assert device.findings == []
    for options in ({"prints_once": True}, {"options": LaunchOptions(prints_once=True)}):
        with emulated("sm_90", **options):
            kernels.printed[(1, 2)](numbers, words, floats, N=N, debug=True)
        assert Counter(capfd.readouterr().out.splitlines()) == Counter(set(expected)), "each line once"


def test_a_device_assertion_that_fails_names_its_message_and_line() -> None:
    numbers, words, floats = operands()
    numbers[5] = 100
    with emulated("sm_90"), pytest.raises(EmulatedFault, match="device assert: below a hundred") as raised:
        kernels.printed[(1,)](numbers, words, floats, N=N, debug=True)
    assert "structure_kernels.py" in raised.value.location
