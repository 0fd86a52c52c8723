"""Contract under test: each configuration of an autotuner can be launched alone, and its tuning runs where they are asked for."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
import triton.testing
from triton import knobs

from bitverdict.harness.emulator import Device, emulated
from bitverdict.harness.emulator.faults import BadArgument, EmulatedFault
from bitverdict.harness.judge.classify import raised_by

BLOCKS = (32, 64, 128)


def configs(**of_all: Any) -> list[triton.Config]:
    return [triton.Config({"BLOCK": block}, **of_all) for block in BLOCKS]


@triton.jit
def copied(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def added(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def doubled(y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, 2 * tl.load(y_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def product(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    """32 KiB of shared memory for each stage but the last: A is (64, n), B is (n, 64)."""
    rows, k = tl.arange(0, 64), tl.arange(0, BLOCK)
    total = tl.zeros((64, 64), tl.float32)
    for step in range(0, n, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * n + (step + k)[None, :])
        b = tl.load(b_ptr + (step + k)[:, None] * 64 + rows[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * 64 + rows[None, :], total)


@triton.jit
def uncompilable(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, 3), 1.0)


def launch(kernel: Any, *tensors: torch.Tensor) -> Any:
    n = tensors[0].numel()
    return kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](*tensors, n)


def grids(device: Device) -> list[int]:
    return [launched.grid[0] for launched in device.launches]


@pytest.mark.parametrize(
    ("tuning", "grid", "took"),
    [("", 4, 0), ("first", 4, 0), ("config 0", 4, 0), ("config 1", 2, 1), ("config 2", 1, 2), ("config 4", 2, 1)],
)
def test_the_configuration_that_is_asked_for_is_launched_alone(tuning: str, grid: int, took: int) -> None:
    tuner = triton.autotune(configs(), key=["n"])(copied)
    with emulated("sm_90", tuning=tuning) as device:
        x, y = torch.arange(128.0), torch.zeros(128)
        launch(tuner, x, y)
    assert grids(device) == [grid] and torch.equal(x, y)
    assert [(told.kernel, told.remaining_configs, told.took) for told in device.tuned] == [("copied", 3, took)]


def test_configurations_that_nobody_asked_for_are_not_compiled(monkeypatch: Any) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", lambda **told: compiled.append(told["repr"]) and None)
    for tuning in ("", "first", "config 2"):
        tuner = triton.autotune(configs(), key=["n"])(triton.jit(copied.fn))
        with emulated("sm_90", tuning=tuning):
            launch(tuner, torch.arange(128.0), torch.zeros(128))
    assert len(compiled) == 3


STAGES = [triton.Config({"BLOCK": 128}, num_stages=stages) for stages in (12, 10, 2)]


@pytest.mark.parametrize(("tuning", "took", "unfit"), [("", 2, (0, 1)), ("config 1", 2, (1,)), ("config 2", 2, ())])
@pytest.mark.share(4)
def test_a_configuration_that_does_not_fit_gives_way_to_the_next(tuning: str, took: int, unfit: tuple) -> None:
    tuner = triton.autotune(STAGES, key=["n"])(product)
    with emulated("sm_90", tuning=tuning) as device:
        a, b, c = torch.ones(64, 256).half(), torch.ones(256, 64).half(), torch.zeros(64, 64)
        tuner[(1,)](a, b, c, 256)
    assert [(told.took, told.unfit) for told in device.tuned] == [(took, unfit)] and len(device.launches) == 1
    assert c.tolist() == [[256.0] * 64] * 64


def test_pruning_decides_what_there_is_to_take() -> None:
    pruning = {"early_config_prune": lambda given, *_, **__: given[1:]}
    tuner = triton.autotune(configs(), key=["n"], prune_configs_by=pruning)(copied)
    with emulated("sm_90", tuning="config 1") as device:
        launch(tuner, torch.arange(128.0), torch.zeros(128))
    assert grids(device) == [1] and (device.tuned[0].remaining_configs, device.tuned[0].took) == (2, 1)


@pytest.mark.parametrize(
    ("kernel", "hooks", "right"), [(added, {}, False), (added, {"reset_to_zero": ["y_ptr"]}, True), (copied, {}, True)]
)
def test_tuning_runs_show_what_adds_up_in_the_result(kernel: Any, hooks: dict, right: bool) -> None:
    """Three configurations, two runs of each, and the launch itself."""
    tuner = triton.autotune(configs(), key=["n"], **hooks)(kernel)
    with emulated("sm_90", tuning="runs") as device:
        x, y = torch.ones(128), torch.zeros(128)
        launch(tuner, x, y)
        again = torch.zeros(128)
        launch(tuner, x, again)
    assert len(device.launches) == 3 * 2 + 1 + 1, "the second launch takes the winner, by the tuner's own memory"
    assert torch.equal(y, x) == right and torch.equal(again, x)


@pytest.mark.parametrize(("hooks", "right"), [({}, False), ({"restore_value": ["y_ptr"]}, True)])
def test_tuning_runs_show_an_operand_that_is_not_restored(hooks: dict, right: bool) -> None:
    tuner = triton.autotune(configs(), key=["n"], **hooks)(doubled)
    with emulated("sm_90", tuning="runs"):
        y = torch.ones(128)
        launch(tuner, y)
    assert torch.equal(y, torch.full((128,), 2.0)) == right


def test_a_later_launch_resets_nothing() -> None:
    """On a GPU only the first launch resets what `reset_to_zero` names: whoever relies on it is wrong ever after."""
    tuner = triton.autotune(configs(), key=["n"], reset_to_zero=["y_ptr"])(added)
    for tuning, expected in (("runs", 1.0), ("", 6.0), ("config 1", 6.0)):
        with emulated("sm_90", tuning=tuning):
            y = torch.full((128,), 5.0)
            launch(tuner, torch.ones(128), y)
        assert y.tolist() == [expected] * 128


def test_a_tuner_remembers_nothing_of_a_block() -> None:
    tuner = triton.autotune(configs(), key=["n"])(copied)
    before = dict(vars(tuner))
    for arch in ("sm_80", "sm_90"):
        for tuning in ("runs", "", "config 2"):
            with emulated(arch, tuning=tuning) as device:
                launch(tuner, torch.arange(128.0), torch.zeros(128))
                assert device.tuned[0].remaining_configs == 3
    left = {name: value for name, value in vars(tuner).items() if name in before and name not in ("nargs", "best_config")}
    assert left == {name: before[name] for name in left} and tuner.cache == {} and "do_bench" not in vars(tuner)


def test_a_tuning_that_says_nothing_is_refused_with_what_it_may_be() -> None:
    said = "tuning 'fastest': must be '', 'first', 'runs' or 'config <n>'"
    with pytest.raises(BadArgument, match=said), emulated("sm_90", tuning="fastest"):
        pass


@pytest.mark.parametrize("tuning", ["", "config 1", "runs"])
def test_the_quantiles_of_a_configuration_s_time_are_its_median(tuning: str) -> None:
    """No time on an emulated GPU varies; in tuning runs all configurations take equally long."""
    tuner = triton.autotune(configs(), key=["n"], cache_results=False)(copied)
    with emulated("sm_90", tuning=tuning):
        launch(tuner, torch.arange(128.0), torch.zeros(128))
    times = list(tuner.configs_timings.values())
    assert len(times) == 3 and all(low == median == high for median, low, high in times)
    assert tuning != "runs" or times[0] == times[1] == times[2]


class OwnTuner(triton.runtime.Autotuner):
    """A tuner as packages derive their own: it asks for the time of each configuration, and chooses."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        times = {config: self._bench(*args, config=config, **kwargs)[0] for config in self.configs}
        self.best_config = min(times, key=times.__getitem__)
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


@pytest.mark.share(4)
def test_a_tuner_with_a_run_of_its_own_takes_the_first_that_fits() -> None:
    own = OwnTuner(
        product, ["a_ptr", "b_ptr", "c_ptr", "n", "BLOCK"], [triton.Config({"BLOCK": b}) for b in (1024, 64)], [], [], []
    )
    operands = [torch.ones(64, 1024), torch.ones(1024, 64), torch.empty(64, 64)]
    with emulated("sm_90") as device:
        for _ in range(2):
            own[(1,)](*operands, 1024)
    assert own.best_config.kwargs == {"BLOCK": 64}, "1024 takes more shared memory than there is"
    assert [launched.constants["BLOCK"] for launched in device.launches] == [64, 64]
    assert torch.equal(operands[2], torch.full((64, 64), 1024.0))


@pytest.mark.parametrize("tuning", ["", "runs"])
@pytest.mark.parametrize("named", [{}, {"BLOCK": 32}])
def test_what_triton_refuses_of_a_tuned_kernel_is_no_failure_of_ours(named: dict[str, int], tuning: str) -> None:
    """What its compiler refuses is the kernel's, and a constant that the configurations have too the launcher's, tuned or not."""
    tuner = triton.autotune(configs(), key=["n"])(uncompilable)
    with emulated("sm_90", tuning=tuning), pytest.raises(Exception, match="Conflicting" if named else "power of 2") as raised:
        tuner[(1,)](torch.zeros(8), 8, **named)
    assert raised_by(raised.value) == ""


def test_a_failure_of_ours_under_a_tuner_stays_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "run", None)
    with emulated("sm_90"), pytest.raises(TypeError) as raised:
        launch(triton.autotune(configs(), key=["n"])(copied), torch.zeros(8), torch.zeros(8))
    assert raised_by(raised.value) == "emulator"


@triton.jit
def counted(x, n):
    total = tl.load(x)
    for _ in range(n):
        total += tl.load(x)
    tl.store(x, total)


@pytest.mark.parametrize("name", [name for name in vars(triton.testing) if name.startswith("do_bench")])
def test_a_benchmark_runs_once_and_takes_a_time_that_is_a_number(name: str) -> None:
    calls: list[int] = []

    def call() -> None:
        calls.append(len(calls))
        counted[(1,)](x, 3)

    with emulated("sm_90") as device:
        x, gradient = torch.ones(1, device="cuda"), torch.ones(3, device="cuda", requires_grad=True)
        (2 * gradient).sum().backward()
        bench = getattr(triton.testing, name)
        took = bench(call, warmup=1000, grad_to_none=[gradient])
        at_quantiles, all_of_them = bench(call, quantiles=[0.5, 0.2, 0.8]), bench(call, return_mode="all")
    assert took > 0 and len(at_quantiles) == 3 and len(all_of_them) == 1 and len(calls) == len(device.launches) == 3
    assert gradient.grad is None and x.item() == 4**3 and device.benchmarks == 3
    assert getattr(triton.testing, name) is not bench


def test_a_benchmark_that_is_too_large_is_not_judged_and_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitverdict.harness.emulator.benchmark_runs.BENCHMARK_SECONDS", 0.05)
    with emulated("sm_90") as device:
        x = torch.ones(1, device="cuda")
        took = [triton.testing.do_bench(lambda n=n: counted[(1,)](x, n)) for n in (3, 1 << 30, 1 << 31)]
        counted[(1,)](x, 2000)  # which has no limit
        with pytest.raises(EmulatedFault, match=r"misaligned|illegal|stray"):
            triton.testing.do_bench(lambda: counted[(1,)](x[1:], 1))
    assert list(map(math.isnan, took)) == [False, True, True] and len(device.launches) == 4 and len(device.findings) == 3
    assert device.findings[0].message.startswith("too large: 1 of 1 programs had begun after 0.05 s")
    assert device.findings[1].message.startswith("too large: a benchmark did not run")


def test_time_goes_by_operators_of_torch_too() -> None:
    """A benchmark that repeats by what a call took would repeat an operator for a million times."""
    with emulated("sm_90"):
        x, (begin, end) = torch.ones(8, device="cuda"), (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        x + x
        end.record()
        assert begin.elapsed_time(end) >= 1000
