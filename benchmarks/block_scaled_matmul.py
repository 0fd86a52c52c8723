"""Throughput of block_scaled_matmul next to cuBLAS on the same operands widened to bf16, checked word for word before it is timed.

    python -m benchmarks.block_scaled_matmul --format nvfp4
    python -m benchmarks.block_scaled_matmul --format mxfp4 --K_range 512 8192 --bench
    python -m benchmarks.block_scaled_matmul --format mxfp8 --K_range 8192 16384 --K_step 2048 --bench

M = N = 8192 (`--size`). The check takes chosen elements of the result and holds them to the words of the machine's own model:
scaled tcgen05 where there is one, the compiler's widening elsewhere. Exit status 1 when a word differs, 2 without a GPU or, with
`--proton`, without the profiler's library.

`--proton NAME` profiles as the tutorial does: one session of Triton's profiler, active around `--repetitions` launches of each K
and nowhere else, which counts them by their metadata. It writes NAME.hatchet and prints its tree with the tutorial's two metrics;
`proton-viewer`, of the package llnl-hatchet, shows others."""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.campaign import Option, parse, refuse, run_script

CHECKED = 4096  # elements of the result
SESSION = 0  # of the profiler: the first of a process
LIBRARY = "triton._C.libproton"  # the profiler's: some builds of Triton leave it out
METADATA = "__proton_launch_metadata"  # scope in which the profiler works out a launch's metadata; with ":kernel" after it, of one


def main(arguments: list[str] | None = None) -> int:
    given = parsed(arguments)
    import torch

    if not torch.cuda.is_available():
        print("this benchmark times launches and needs a CUDA GPU; emulated ones: bitverdict run block_scaled_matmul")
        return 2
    if given.proton and (reason := lacks_profiler()):
        print(f"not run: --proton {given.proton}: {reason}; install a Triton whose wheel has {LIBRARY}, or leave --proton out")
        return 2
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    if given.proton:
        import triton

        print(f"{torch.cuda.get_device_name()}, triton {triton.__version__}, {time.strftime('%Y-%m-%d', time.gmtime())}")
    wrong = 0
    with profiled(given.proton):
        for k in depths(given):
            wrong += measured(given, k, arch, "cuda")
    if given.proton:
        print(tree(Path(f"{given.proton}.hatchet")))
    return 1 if wrong else 0


def depths(given: argparse.Namespace) -> range:
    first, last = given.K_range or (given.K, given.K)
    return range(first, last + 1, given.K_step)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """The tutorial's options, and more."""
    given = parse(
        __doc__, argv=arguments, K=512, K_range=Option(int, "", {"nargs": 2, "metavar": ("FIRST", "LAST")}), K_step=512,
        bench=True, format=Option("nvfp4", choices=["mxfp4", "nvfp4", "mxfp8", "mixed"]),
        size=Option(8192, "of M and N"),
        regime=Option("codes", "what is multiplied: see bitverdict.harness.contracts.inputs.block_scaled_inputs.REGIMES"),
        proton=Option(str, "profile into NAME.hatchet and print its tree"),
        repetitions=Option(10_000, "launches of each K that are profiled: the tutorial's"),
    )  # fmt: skip
    if given.K_step < 1:
        refuse(f"--K_step {given.K_step}: must be at least 1")
    if given.repetitions < 1:
        refuse(f"--repetitions {given.repetitions}: must be at least 1")
    if given.proton and not given.bench:
        refuse(f"--proton {given.proton}: counts timed launches, and --no-bench times none; leave one of them out")
    if given.proton and not (place := Path(given.proton).absolute().parent).is_dir():
        refuse(f"--proton {given.proton}: must be in a directory that exists; make {place} first")
    return given


def measured(given: argparse.Namespace, k: int, arch: str, device: str) -> int:
    """One line for one K; how many of the checked words differ."""
    import torch
    from triton.testing import do_bench

    from bitverdict.harness.contracts.block_scaled_matmul import CONTRACT
    from bitverdict.kernels.block_scaled_matmul import block_scaled_matmul

    size = given.size
    case = CONTRACT.case(CONTRACT.size_fields(given.format, size, size, k) | {"format": given.format}, {}, regime=given.regime)
    a, b, tensors = placed(case, device)

    def run():
        return CONTRACT.launch(case, tensors, block_scaled_matmul)["c"]

    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, size, CHECKED), rng.integers(0, size, CHECKED)
    got = run().cpu()[torch.from_numpy(rows), torch.from_numpy(columns)].numpy().view(np.uint16)  # (CHECKED,)
    wrong = int((got != expected_outcome(case, a, b, rows, columns, arch)).sum())
    line = f"{given.format} {arch} [M={size}, N={size}, K={case.problem.k}]: {wrong} of {CHECKED} words differ"
    if given.bench:
        flops = 2.0 * size * size * case.problem.k
        if given.proton:
            active(run, given.repetitions)
        ours = do_bench(run)
        left, right = (torch.randn(size, case.problem.k, device=device, dtype=torch.bfloat16) for _ in range(2))
        peer = do_bench(lambda: left @ right.T)
        line += f"; {flops / ours / 1e9:.0f} TFLOP/s, cuBLAS in bf16 {flops / peer / 1e9:.0f}"
    print(line, flush=True)
    return wrong


def placed(case, device: str) -> tuple:
    """(logical a, logical b, tensors by name on `device`, laid out as the contract lays them)."""
    import torch

    from bitverdict.harness.contracts.block_scaled_matmul import CONTRACT
    from bitverdict.harness.judge.guarded_buffers import TORCH_DTYPES

    operands = {operand.name: operand for operand in CONTRACT.operands(case)}
    tensors = {}
    for name, operand in operands.items():
        held = torch.from_numpy(np.ascontiguousarray(operand.codes)).to(device).view(TORCH_DTYPES[operand.format])
        room = torch.empty_strided(held.shape, operand.strides, dtype=held.dtype, device=device)
        room.view(torch.uint8).copy_(held.view(torch.uint8))
        tensors[name] = room
    return *CONTRACT.sides(case, operands), tensors


def expected_outcome(case, a, b, rows: np.ndarray, columns: np.ndarray, arch: str) -> np.ndarray:
    """fp16 words of the chosen elements, by this machine's model."""
    from bitverdict.harness.contracts.oracle.dot_scaled_lowering import element_words, scaled_plan
    from bitverdict.kernels.scaled_operands import FORMATS

    f = FORMATS[case.problem.format]
    plan = scaled_plan(arch, f.a, f.b, f.scale, f.block_size)
    return element_words(plan, "fp16", arch, a.codes[rows], a.scales[rows], b.codes[columns], b.scales[columns])


def lacks_profiler() -> str:
    """Why Triton's profiler cannot be loaded; empty where it can."""
    try:
        importlib.import_module(LIBRARY)
    except ImportError as error:
        return f"Triton's profiler cannot be loaded: {error}"
    return ""


@contextmanager
def profiled(name: str | None) -> Iterator[None]:
    """A session of Triton's profiler into NAME.hatchet, whose hook asks each launch for its metadata; not active yet."""
    if name is None:
        yield
        return
    import triton.profiler as proton

    proton.start(name, hook="triton")
    proton.deactivate(SESSION)  # operands are made outside it
    try:
        yield
    finally:
        proton.finalize()


def active(run: Callable[[], object], repetitions: int) -> None:
    """Launches that the session counts. What is launched around them it does not see."""
    import triton.profiler as proton

    proton.activate(SESSION)
    try:
        for _ in range(repetitions):
            run()
    finally:
        proton.deactivate(SESSION)


def tree(path: Path) -> str:
    """The tree of a profile in `proton.finalize`'s JSON: TFLOP/s, milliseconds and launches of each node that ran, all that is
    below it included. Kernels that the profiler launched for itself are left out, as in Triton's own viewer. ValueError for another
    file."""
    try:
        told = json.loads(path.read_text())
        heading = "tflop/s   time/ms  launches"
        return "\n".join([heading, *_branch(told[0], 0)])
    except (json.JSONDecodeError, UnicodeDecodeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: {type(error).__name__}: {error}: must be a tree that Triton's profiler wrote as JSON; "
            'profile with data="tree" and the format "hatchet"'
        ) from error


def _branch(node: dict, depth: int) -> list[str]:
    """Lines of a node and of all below it; none for what took no time on a GPU."""
    flops, took, count = (_total(node, metric) for metric in ("flops", "time (ns)", "count"))
    if not took:
        return []
    shown = f"{flops / took / 1e3:7.1f} {took / 1e6:9.3f} {count:9,.0f}"
    return [f"{shown}  {'  ' * depth}{node['frame']['name']}"] + [
        line for child in node["children"] for line in _branch(child, depth + 1)
    ]


def _total(node: dict, metric: str) -> float:
    """A metric of a node and of all below it, several values summed; 0 for what the profiler launched for itself."""
    name = node["frame"]["name"]
    if name == METADATA or name.startswith(f"{METADATA}:"):
        return 0.0
    own = node["metrics"].get(metric, 0)
    return float(sum(own) if isinstance(own, list) else own) + sum(_total(child, metric) for child in node["children"])


if __name__ == "__main__":
    run_script(main)
