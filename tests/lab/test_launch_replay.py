"""Contract under test: a launch of the emulated GPU that is replayed from its bytes is held to every byte, and a fault of the
kernel, of the record or of the replay is seen. A second emulated GPU stands in for the real one, or a driver that takes notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator import device as emulated_device
from bitverdict.harness.emulator.frontend.contraction import Contraction, Fate
from bitverdict.harness.emulator.numerics.enclosures import keys
from bitverdict.harness.lab.pages.launch_replay import FIGURES, page
from bitverdict.harness.report.launch_replay import launch_replayer
from bitverdict.harness.report.launch_replay.launch_recorder import LaunchRecorder, compile_source
from bitverdict.harness.report.launch_replay.launch_replayer import StandIn, replay
from bitverdict.harness.report.launch_replay.recorded_launch import RecordedLaunch
from bitverdict.harness.report.launch_replay.summary import lines, sum_rows


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)


@triton.jit
def mapped(rows, pair, out, scale):
    vector, one = pair
    at = tl.arange(0, 64)
    tl.store(out + at[:, None] * 64 + at[None, :], rows.load([0, 0]) * scale + tl.load(vector + at)[None, :] + one)


@triton.jit
def counted(x, total, BLOCK: tl.constexpr):
    tl.atomic_add(total, tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), 0))


@triton.jit
def multiplied(x, total):
    a = tl.load(x + tl.program_id(0))
    tl.atomic_add(total, (a * a - tl.load(x + 4 + tl.program_id(0))) * 1e6)


@pytest.fixture
def are_sums_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contraction, "fate", lambda self, line: Fate())  # whatever the compiled program says
    monkeypatch.setattr(Contraction, "registers", {})
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", "off")


@triton.jit
def racing(out):
    tl.store(out, tl.program_id(0))


@triton.jit
def led(table, out):
    from_memory = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.arange(0, 16), tl.load(from_memory + tl.arange(0, 16)))


@triton.jit
def truncated(x, y, out):
    at = tl.arange(0, 64)
    tl.store(out + at, ((tl.load(x + at) * tl.load(y + at) - 1.0) * 1e6).to(tl.int32))


class Noted(LaunchRecorder):
    """A recording that keeps what would be sent: (launch, bytes before, bytes after)."""

    def __init__(self, *, compiles: bool = False) -> None:
        self.rows: list[dict] = []
        self.sent: list[tuple[RecordedLaunch, list[np.ndarray], list[np.ndarray | None]]] = []
        super().__init__("test", "first", "", self.rows.append, compiles=compiles)

    def _replay_launch(self, recorded: RecordedLaunch, before: list[np.ndarray], after: list[np.ndarray]) -> dict:
        kept = [new.copy() if storage.is_changed else None for storage, new in zip(recorded.storages, after, strict=True)]
        self.sent.append((recorded, before, kept))
        return recorded.row_start


def recorded(call: Callable[[], Any], *, compiles: bool = False) -> Noted:
    noted = Noted(compiles=compiles)
    with emulated("sm_90", options=LaunchOptions(takes_cpu_tensors=False, whole_storages=True, probes=(noted,))):
        call()
    return noted


def added() -> None:
    x, y = torch.arange(1000, device="cuda").float(), torch.full((1000,), 0.1, device="cuda")
    add[(8,)](x, y, torch.zeros(1000, device="cuda"), 1000, 128)


def with_a_map() -> None:
    rows = torch.arange(128 * 64, device="cuda").half().reshape(128, 64)
    vector, out = torch.arange(64, device="cuda").float(), torch.empty(64, 64, device="cuda")
    mapped[(1,)](TensorDescriptor(rows, [128, 64], [64, 1], [64, 64]), (vector, 3), out, 0.1)


def with_a_view() -> None:
    base = torch.arange(300, device="cuda", dtype=torch.float16)
    add[(1,)](base[3:103], base[150:250], base[200:], 64, 64)


def with_atomics() -> None:
    counted[(4,)](torch.ones(256, device="cuda"), torch.zeros(1, device="cuda"), 64)


MACHINE = StandIn("sm_90")


@pytest.mark.parametrize("call", [added, with_a_map, with_a_view, with_atomics])
def test_a_replayed_launch_is_equal_in_every_byte(call: Callable[[], None]) -> None:
    noted = recorded(call)
    (launch, before, after), *others = noted.sent
    row = replay(launch, before, after, MACHINE)
    assert not others and row["differing"] == row["outside"] == 0
    assert row["enclosed"] == (call is with_atomics)  # four programs add to one float, in any order
    assert row["bytes"] == sum(map(len, before)) and row["words"] > 60
    assert noted.rows[0]["atomics"] is (call is with_atomics)


def test_words_compared_and_written_are_counted_as_elements() -> None:
    (launch, before, after), *_ = recorded(added).sent
    row = replay(launch, before, after, MACHINE)
    assert (row["words"], row["written"], row["bytes"]) == (3000, 1000, 12000)


def test_one_word_that_differs_is_seen_with_its_place_and_both_words() -> None:
    (launch, before, after), *_ = recorded(added).sent
    place = next(number for number, new in enumerate(after) if new is not None)
    after[place].view(np.float32)[777] = 5.0
    row = replay(launch, before, after, MACHINE)
    held = np.float32(777 + np.float32(0.1)).view(np.uint32)
    assert row["differing"] == 1
    assert row["first"] == {"storage": "out", "index": 777, "got": f"{held:08x}", "expected": "40a00000"}


def test_a_byte_that_no_kernel_may_write_is_compared_too() -> None:
    (launch, before, after), *_ = recorded(added).sent
    place = next(number for number, new in enumerate(after) if new is None)
    storages = [replace(storage, is_changed=True) if number == place else storage for number, storage in enumerate(launch.storages)]
    after[place] = before[place].copy()
    after[place][13] ^= 1
    assert replay(replace(launch, storages=tuple(storages)), before, after, MACHINE)["differing"] == 1


class OneWordOff(StandIn):
    """A GPU whose result has another word than the emulated one in one place."""

    argument, place, units = 2, 5, 1

    def launch(self, kernel: Any, grid: tuple[int, int, int], values: Any) -> None:
        super().launch(kernel, grid, values)
        values[self.argument].view(torch.int32)[self.place] += self.units


@pytest.mark.parametrize(("units", "outside"), [(1, 0), (-3, 0), (400, 1), (-400, 1)])
def test_a_float_that_many_programs_add_to_may_be_what_another_order_makes(units: int, outside: int) -> None:
    """The sum of 256 ones, of which four programs add 64 each: no order is further off than 4 steps of 2^-24 of it, twice."""
    machine = OneWordOff("sm_90")
    machine.argument, machine.place, machine.units = 1, 0, units
    (sent,) = recorded(with_atomics).sent
    row = replay(*sent, machine)
    assert (row["differing"], row["enclosed"], row["enclosed_differing"], row["outside"]) == (0, 1, 1, outside)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("units", "outside"), [(1, 0), (-1, 0), (40, 1), (-40, 1)])
def test_a_half_that_many_programs_add_to_is_held_to_any_order(dtype: torch.dtype, units: int, outside: int) -> None:
    class CodeOff(StandIn):
        def launch(self, kernel: Any, grid: tuple[int, int, int], values: Any) -> None:
            super().launch(kernel, grid, values)
            values[1].view(torch.int16)[0] += units

    (sent,) = recorded(
        lambda: counted[(4,)](torch.ones(256, device="cuda").to(dtype), torch.zeros(2, device="cuda").to(dtype), 64)
    ).sent
    row = replay(*sent, CodeOff("sm_90"))
    assert (row["differing"], row["enclosed"], row["enclosed_differing"], row["outside"]) == (0, 1, 1, outside)


def test_a_word_that_open_sums_are_added_to_is_held_once(are_sums_open: None) -> None:
    """To what any order and any choice gives, which is more than any choice in one order."""
    x, total = torch.rand(4, generator=torch.Generator().manual_seed(1)), torch.zeros(1)
    x = torch.cat([x, x * x])
    with emulated("sm_90") as device:
        multiplied[(4,)](x, total)
        one_order = [keys(end.view(np.float32)) for end in device.enclosure(total)]
    (sent,) = recorded(lambda: multiplied[(4,)](x.to("cuda"), torch.zeros(1, device="cuda"))).sent
    (enclosed,) = sent[0].enclosed_words
    assert (enclosed.low < one_order[0]).all() and (one_order[1] < enclosed.high).all() and (one_order[0] < one_order[1]).all()
    assert replay(*sent, MACHINE)["enclosed"] == 1


def test_an_integer_that_many_programs_add_to_is_known_to_the_bit() -> None:
    machine = OneWordOff("sm_90")
    machine.argument, machine.place = 1, 0
    (sent,) = recorded(lambda: counted[(4,)](torch.ones(256, device="cuda").int(), torch.zeros(1, device="cuda").int(), 64)).sent
    row = replay(*sent, machine)
    assert (row["differing"], row["enclosed"]) == (1, 0)


def test_a_machine_with_another_word_is_seen() -> None:
    (launch, before, after), *_ = recorded(added).sent
    assert replay(launch, before, after, OneWordOff("sm_90"))["differing"] == 1


def test_a_word_inside_its_enclosure_is_open_and_outside_is_a_fault() -> None:
    from bitverdict.harness.report.launch_replay.recorded_launch import EnclosedWords

    (launch, before, after), *_ = recorded(added).sent
    place = next(number for number, new in enumerate(after) if new is not None)
    key = keys(after[place].view(np.float32)[5:6])

    def row(low: int, high: int) -> dict:
        enclosed = EnclosedWords(place, np.array([20]), key + low, key + high, np.array([4]), np.array([False]))
        return replay(replace(launch, enclosed_words=(enclosed,)), before, after, OneWordOff("sm_90"))

    wide, narrow = row(-1, 1), row(-1, 0)
    assert (wide["differing"], wide["enclosed"], wide["enclosed_differing"], wide["outside"]) == (0, 1, 1, 0)
    assert (narrow["differing"], narrow["outside"]) == (0, 1)
    assert narrow["first_outside"] == {"storage": "out", "offset": 20, "keys": [int(key[0] + 1), int(key[0] - 1), int(key[0])]}


def test_integers_of_an_open_sum_are_held_to_both_of_their_ends(are_sums_open: None) -> None:
    """Negative ones: as codes of floats they would stand in the other order."""
    x, y = (torch.rand(64, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))

    def call() -> None:
        truncated[(1,)](x.to("cuda"), y.to("cuda"), torch.zeros(64, dtype=torch.int32, device="cuda"))

    ((launch, before, after),) = recorded(call).sent
    (enclosed,) = launch.enclosed_words
    assert enclosed.is_integer.all() and (enclosed.size == 4).all()
    assert (enclosed.low < enclosed.high).all() and (enclosed.high < 0).all()
    word = after[enclosed.storage].view(np.int32)[enclosed.offset[0] // 4]
    for wanted, outside in ((enclosed.low[0], 0), (enclosed.high[0], 0), (enclosed.low[0] - 1, 1), (enclosed.high[0] + 1, 1)):
        machine = OneWordOff("sm_90")
        machine.place, machine.units = int(enclosed.offset[0] // 4), int(wanted - word)
        row = replay(launch, before, after, machine)
        counts = (row["differing"], row["enclosed"], row["enclosed_differing"], row["outside"])
        assert counts == (0, enclosed.offset.size, int(wanted != word), outside)


def test_a_launch_that_a_fault_ended_is_not_compared_and_named() -> None:
    def call() -> None:
        out = torch.zeros(1, device="cuda", dtype=torch.int32)
        with pytest.raises(EmulatedFault):
            racing[(4,)](out)
        added()

    noted = recorded(call)
    assert noted.rows[0]["not_compared"].startswith("race: ") and noted.rows[0]["kernel"] == "racing"
    assert len(noted.sent) == 1 and noted.launches == 2


def test_a_launch_over_addresses_in_memory_is_not_compared() -> None:
    def call() -> None:
        x = torch.ones(16, device="cuda")
        led[(1,)](torch.tensor([x.data_ptr()], device="cuda"), torch.empty(16, device="cuda"))

    noted = recorded(call)
    assert not noted.sent and noted.rows[0]["not_compared"].startswith("addresses that lie in memory")


def ended(rows: list[dict], launches: int) -> list[dict]:
    return [*rows, {"event": "task", "task": "test", "configuration": "first", "state": "ran", "launches": launches}]


def test_a_launch_that_was_dropped_is_counted_as_lost() -> None:
    def call() -> None:
        added()
        with_atomics()

    noted = recorded(call)
    rows = [noted_row | replay(*sent, MACHINE) for noted_row, sent in zip(noted.rows, noted.sent, strict=True)]
    whole, dropped = sum_rows(ended(rows, 2)), sum_rows(ended(rows[1:], 2))
    assert whole.is_equal and whole.lost_launches == 0 and whole.launches == 2 and whole.with_atomics == 1
    assert not dropped.is_equal and dropped.lost_launches == 1


def test_the_summary_names_the_first_difference_of_a_kernel() -> None:
    (launch, before, after), *_ = recorded(added).sent
    row = launch.row_start | replay(launch, before, after, OneWordOff("sm_90"))
    told = sum_rows(ended([row, row | {"launch": 1}], 2))
    assert told.differing == 2 and not told.is_equal
    assert [line for line in lines(told) if "out[5]" in line and "configuration first" in line and "launch 0" in line]


class Notes(launch_replayer.Gpu):
    """Triton's own launcher of a real GPU, over a driver that launches nothing and notes what it is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import triton.backends.nvidia.driver as nvidia
        from triton.runtime.driver import driver

        self.device, self.arch, self._loaded, self.calls = "cpu", 90, {}, []
        self.launcher_sources: list[str] = []  # of an older release, which compiles a launcher for each signature

        def compile_launcher(src: str, **given: Any) -> SimpleNamespace:
            self.launcher_sources.append(src)
            return SimpleNamespace(launch=lambda *given: self.calls.append(given))

        monkeypatch.setattr(nvidia, "library_dirs", list)
        monkeypatch.setattr(nvidia, "compile_module_from_src", compile_launcher, raising=False)
        for name in ("ARG_TUPLE", "ARG_KERNEL", "ARG_CONSTEXPR"):
            monkeypatch.setattr(nvidia, name, name, raising=False)
        monkeypatch.setattr(nvidia, "PyKernelArg", lambda nested_tuple, type: nested_tuple or type, raising=False)
        self.driver, self.active = driver, SimpleNamespace(
            launcher_cls=nvidia.CudaLauncher,
            get_current_device=lambda: 0,
            get_current_stream=lambda device: 0,
            get_current_target=lambda: GPUTarget("cuda", 90, 32),
            allocate_default_profile_scratch=lambda *given: None,
            utils=SimpleNamespace(
                build_signature_metadata=tuple,
                launch=lambda *given: self.calls.append(given),
                load_binary=lambda name, code, shared, device: (None, code, 0, 0, 1024),
                unload_module=lambda module: None,
                fill_tma_descriptor=lambda *given: ("map", *given),
                fill_tma_descriptor_tiled=lambda *given: ("map", *given),
                get_device_properties=lambda device: {"max_shared_mem": 232448},
            ),
        )  # fmt: skip

    def launch(self, kernel: Any, grid: tuple[int, int, int], values: Any) -> None:
        before, self.driver._active = self.driver._active, self.active
        try:
            self._kernel(kernel)[grid](*values)
        finally:
            self.driver._active = before


def test_triton_s_own_launcher_gets_machine_code_and_all_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Notes(monkeypatch)
    for launch, before, after in recorded(lambda: (added(), with_a_map()), compiles=True).sent:
        row = replay(launch, before, after, gpu)
        assert row["differing"] == launch.storages[-1].words or row["differing"] > 900, "nothing ran, so nothing is equal"
    first, second = gpu.calls
    assert first[:3] == (8, 1, 1) and first[4][:4] == b"\x7fELF"
    if gpu.launcher_sources:  # each knows the kinds of its arguments: three objects, a number, a constant
        assert f'"iiiKKpp{"O" * 6}OOOiO"' in gpu.launcher_sources[0]
        first, second = ((*call[:13], [], (), call[13:]) for call in (first, second))
    else:
        assert first[14] == ("*fp32", "*fp32", "*fp32", "i32")
        assert first[13] == ["ARG_KERNEL"] * 4 + ["ARG_CONSTEXPR"]
    assert [tuple(each.shape) for each in first[15][:3]] == [(1000,)] * 3 and first[15][3:] == (1000, None)
    code, *sizes, (vector, one), out, scale = second[15]
    assert code[0] == "map" and code[1] % 16 == 0 and code[5:8] == ([64, 64], [128, 64], [64, 1])
    assert sizes == [128, 64, 64, 1] and vector.tolist() == list(range(64)) and one == 3 and out.numel() == 4096
    assert scale == 0.1


def test_a_kernel_for_another_gpu_is_told_and_not_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Notes(monkeypatch)
    gpu.arch = 100
    (launch, before, after), *_ = recorded(added, compiles=True).sent
    with pytest.raises(ValueError, match="compiled for 90, this GPU is 100"):
        replay(launch, before, after, gpu)
    assert not gpu.calls


def test_machine_code_is_compiled_with_the_options_of_the_launch() -> None:
    seen: list[Any] = []

    class Keeps(Noted):
        def on_request(self, source: Any, metadata: Any, *given: Any) -> None:
            seen.append((source, metadata))
            super().on_request(source, metadata, *given)

    noted = Keeps()
    with emulated("sm_90", options=LaunchOptions(takes_cpu_tensors=False, probes=(noted,))):
        out = torch.empty(64, device="cuda")
        add[(1,)](out, out, torch.empty(64, device="cuda"), 64, 64, num_warps=2, num_stages=5, maxnreg=96)
    source, metadata = seen[0]
    whole = compile_source(source, metadata, noted._program)
    assert (whole.metadata.num_warps, whole.metadata.num_stages, whole.metadata.maxnreg) == (2, 5, 96)
    assert ".maxnreg 96" in whole.asm["ptx"] and whole.asm["cubin"][:4] == b"\x7fELF"


def test_the_page_keeps_its_text_and_takes_the_figures_of_a_run() -> None:
    (launch, before, after), *_ = recorded(added).sent
    told = sum_rows(ended([launch.row_start | replay(launch, before, after, MACHINE)], 1))
    begin, end = FIGURES
    printed = page(f"# A page\n\n{begin}\nold\n{end}\n\nMore.\n", told, "Commit abc on an H100.")
    assert printed.startswith(f"# A page\n\n{begin}\n") and printed.endswith(f"{end}\n\nMore.\n") and "old" not in printed
    assert "| launches compared | 1 |" in printed and "| words compared | 3,000 |" in printed and "Commit abc" in printed
