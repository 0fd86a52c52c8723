"""Large products judged bit for bit by chosen elements: up to 8192^3 and beyond, by the launcher and at the size that is timed.

The kernel runs whole. On a GPU every word is compared where `bitverdict.harness.lab.gpu_oracle` computes all products of the plan:
there, in integer arithmetic. Elsewhere chosen rows are crossed with chosen columns: the first and the last of every tile, so
that each tile's four corners, its edges and both sides of every seam are among the words, and others drawn from all. Every tile
of the result holds chosen words (while there are enough of them for two a tile). What they must be is the contract's answer to
the small problem of those rows and columns (`bitverdict.harness.lab.large_gemm.operands`). A result small enough is
compared whole. On a target without a tensor-core model the words are held to the bound, and the row's basis says so.

A case is launched and held to its words in a worker of the worker pool, several cases at a time: a fault, a death or a hang is the
verdict of its own case."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from bitverdict.harness.contracts.oracle.dot_lowering import BITS
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.decide import UNABLE
from bitverdict.harness.judge.far_views import admit_bytes
from bitverdict.harness.judge.launch import launch
from bitverdict.harness.lab.large_gemm import operands as large_operands
from bitverdict.harness.lab.large_gemm.held_words import WordComparison, gpu_for_every_word, over_blocks
from bitverdict.harness.lab.large_gemm.row_numbers import sample
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict
from bitverdict.harness.workers.gpu_lease import NEED, free_places
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.task import TASK_RESULT, Task, task_result_of
from bitverdict.kernels.features import Feature

PRODUCTS = 1 << 30  # of one case: what its expected words may cost, about ten seconds of a core
PRODUCTS_AT_ONCE = 1 << 27  # of one piece of work
BLOCK = 2048  # rows and columns at a time of a result whose every word is expected
MOST_WRONG_WORDS = 4  # wrong words told
TIMEOUT = 240.0  # seconds of one case, compilation and expected words included, where those cost `PRODUCTS` or less
PRODUCTS_A_SECOND = 1 << 25  # of expected words beyond that: a third of what one quiet core does
DATA_SEED = 8192
ON_HOST, ON_GPU = "expected words, core seconds", "expected words and comparison, seconds"


@dataclass
class Row:
    """What one large case came to. `words`: compared, of `result_words`; `tiles`: those of the result that hold compared words, of
    all."""

    contract: str
    kind: str
    size: str
    config: str
    case: dict
    decision: Decision = Decision.NOT_RUN
    outcome: str = str(Outcome.NOT_RUN)
    message: str = ""
    words: int = 0
    result_words: int = 0
    k: int = 0
    tiles: tuple[int, int] = (0, 0)
    differ: int = 0
    wrong_tiles: int = 0
    unwritten_words: int = 0
    examples: list[dict] = field(default_factory=list)
    basis: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


def cases(sizes: Iterable[tuple[int, int, int]], target: Target) -> list[Case]:
    """For each size, every kernel that multiplies, in each of its types; the two blocked ones in fp16 alone. matmul's fp16 is asked
    of the autotuned launcher, and in each of the configurations that bring tiles by TMA where the target has it."""
    return [case for size in sizes for case in _of_size(*size, with_descriptors=Feature.TMA in target.features)]


def _of_size(m: int, n: int, k: int, *, with_descriptors: bool) -> Iterator[Case]:
    from bitverdict.harness.contracts.base.single_config import aligned_pad
    from bitverdict.kernels import (
        ampere_gemm,
        block_scaled_matmul,
        blocked_matmul,
        blocked_matmul_pipelined,
        fp8_blockwise_matmul,
        fused_gather_scatter_matmul,
        hopper_matmul,
        matmul,
        pointer_gather_scatter_matmul,
        split_k_matmul,
    )

    size: dict[str, Any] = {"m": m, "n": n, "k": k}

    def case(contract: str, problem: object, config: object) -> Case:
        return Case(contract=contract, problem=problem, config=config, data_seed=DATA_SEED)

    wide_config, square = matmul.CONFIGS["cuda"][0], matmul.CONFIGS["cuda"][2]
    kinds: list[tuple[dict, Any]] = [
        ({"dtype": "fp16"}, None),
        *(({"dtype": "fp16"}, config) for config in (matmul.HOPPER_CONFIGS if with_descriptors and n % 8 == k % 8 == 0 else ())),
        ({"dtype": "fp16", "out": "fp32", "activation": "leaky_relu"}, wide_config),
        ({"dtype": "bf16", "out": "bf16"}, wide_config),
        ({"dtype": "e4m3", "out": "fp16", "b": matmul.View(order="column")}, wide_config),
        ({"dtype": "int8", "out": "int32", "b": matmul.View(order="column")}, wide_config),
        ({"dtype": "fp32", "out": "fp32"}, square),
    ]
    if m * n * k <= 1 << 30:  # one fused multiply-add after the other: the model is slow there
        kinds.append(({"dtype": "fp32", "out": "fp32", "precision": "ieee"}, square))
    for fields, config in kinds:
        yield case("matmul", matmul.Problem(**size, **fields), config)
    tile = hopper_matmul.Config(block_m=128, block_n=256, block_k=64, stages=4, num_warps=8)
    deep = replace(tile, block_k=128, stages=3)
    for dtype, out, config in (("fp16", "fp16", tile), ("bf16", "fp32", tile), ("e4m3", "fp32", deep), ("e5m2", "fp32", deep)):
        problem = hopper_matmul.Problem(**size, dtype=dtype, out=out, transpose_b=config is deep)
        yield case("hopper_matmul", problem, config)
    for dtype, small in (("bf16", True), ("fp16", False)):
        fine = ampere_gemm.Config() if small else ampere_gemm.Config(block_m=128, block_n=128, block_k=32, stages=4, num_warps=8)
        yield case("ampere_gemm", ampere_gemm.Problem(**size, dtype=dtype), fine)
    blocks = fp8_blockwise_matmul.Config(block_m=128, block_n=128, block_k=128, num_warps=8)
    yield case("fp8_blockwise_matmul", fp8_blockwise_matmul.Problem(**size), blocks)
    for dtype, out, reduction in (("fp16", "fp32", "second kernel"), ("bf16", "bf16", "last program")):
        shares = split_k_matmul.Config(block_m=128, block_n=128, block_k=64, split=4, reduction=reduction, num_warps=8)
        yield case("split_k_matmul", split_k_matmul.Problem(**size, dtype=dtype, out=out), shares)
    for name in ("mxfp4", "nvfp4", "mxfp8", "mixed"):
        yield case("block_scaled_matmul", block_scaled_matmul.Problem(**size, format=name), block_scaled_matmul.Config())
    yield case("blocked_matmul", blocked_matmul.Problem(**size), blocked_matmul.Config())
    yield case("blocked_matmul_pipelined", blocked_matmul_pipelined.Problem(**size), blocked_matmul_pipelined.Config())
    for kernel, kinds_of in ((fused_gather_scatter_matmul, ("bf16",)), (pointer_gather_scatter_matmul, ("bf16", "fp16"))):
        for dtype in kinds_of:
            pads = {"x_pad": aligned_pad(k, dtype), "w_pad": aligned_pad(n, dtype), "out_pad": aligned_pad(n, dtype)}
            rows = {"table_rows": m, "rows": m, "out_rows": m, "n": n, "k": k}
            yield case(kernel.__name__.rpartition(".")[2], kernel.Problem(**rows, **pads, dtype=dtype), kernel.Config())


def judge_large(requested_cases: Iterable[Case], target: Target, *, products: int = PRODUCTS, jobs: int = 0) -> Iterator[Row]:
    """A `Row` a case, in order. `jobs`: workers, on a GPU no more than its free memory has room for; 0: this process. Cases that
    the target lacks the features for are rows that say so."""
    if not jobs:
        yield from (large_row(case, target, products) for case in requested_cases)
        return
    room = jobs if target.emulated else min(jobs, max(1, len(free_places([target]))))
    with WorkerPool(jobs=room, timeout=TIMEOUT) as pool, pool.interruptible():
        yield from _in_order(list(requested_cases), target, products, pool)


def _in_order(requested_cases: list[Case], target: Target, products: int, pool: WorkerPool) -> Iterator[Row]:
    tasks = [task_of(case, products) for case in requested_cases]
    places = {id(task): place for place, task in enumerate(tasks)}
    rows_by_place: dict[int, Row] = {}
    next_place = 0
    for task, _, verdict in pool.judge_all((task, target) for task in tasks):
        place = places[id(task)]
        rows_by_place[place] = row_of(requested_cases[place], verdict)
        while next_place in rows_by_place:
            yield rows_by_place.pop(next_place)
            next_place += 1


def task_of(case: Case, products: int = PRODUCTS) -> Task:
    """The work of judging one large case in a worker; `row_of` reads what came."""
    given = {"case": case.to_json(), "products": products}
    return Task(function=f"{__name__}:judged", contract=case.contract, given=given, timeout=timeout_of(case, products))


def timeout_of(case: Case, products: int) -> float:
    """Seconds that the case may take where its expected words may cost `products`."""
    p = case.problem
    room = TIMEOUT if memory_of(case) > NEED else 0.0  # for another's
    return TIMEOUT + room + max(min(products, math.prod(large_operands.size_of(p))) - PRODUCTS, 0) / PRODUCTS_A_SECOND


def judged(target: Target, given: Mapping) -> Verdict:
    """Judge the large case of `given` in this process; its row is what was measured."""
    row = large_row(resolve(given["case"]["contract"]).case_from_json(given["case"]), target, given["products"])
    observed = Basis.OBSERVED_FAULT if row.decision is Decision.FAIL else Basis.NO_BASIS
    return Verdict(
        decision=row.decision,
        outcome=Outcome(row.outcome),
        message=row.message,
        basis=row.basis or observed,
        words=row.words,
        details={TASK_RESULT: asdict(row)},
        seconds=row.seconds,
    )


def row_of(case: Case, verdict: Verdict) -> Row:
    """The row of a case whose task came to `verdict`: that a worker died or hung over it is told by the verdict's name."""
    found = task_result_of(verdict)
    row = _row(case)
    if found is not None:
        examples = [each | {"at": tuple(each["at"])} for each in found["examples"]]
        row = Row(**found | {"tiles": tuple(found["tiles"]), "examples": examples})
    at = f" ({verdict.location})" if verdict.location else ""
    return replace(row, decision=verdict.decision, outcome=str(verdict.outcome), message=verdict.message + at)


def large_row(case: Case, target: Target, products: int = PRODUCTS) -> Row:
    """Launch `case` in this process, and hold the words at chosen places to the plan's.

    On a GPU a case that needs more memory than a worker is counted for (`gpu_lease.NEED`) waits until it is the only such case
    there, and is not run where the memory that is free is too little.
    """
    needed = memory_of(case)
    with admit_bytes(
        needed if needed > NEED and not target.emulated else 0, target, purpose="a large product", wait=TIMEOUT
    ) as short:
        if short:
            return replace(_row(case), message=short)
        return _large_row(case, target, products)


def memory_of(case: Case) -> int:
    """Bytes of a GPU that the case may come to hold at a time: operands as they are sent, guarded, and kept to be compared; the
    result and its guards, in fp32; packed operands of one block."""
    m, n, k = large_operands.size_of(case.problem)
    p = case.problem
    itemsize = 1 if hasattr(p, "format") else BITS[p.dtype] // 8
    shares = getattr(case.config, "split", 1)
    return 3 * (m + n) * k * itemsize + (2 + shares) * m * n * 4 + 4 * BLOCK * k * 4


def _large_row(case: Case, target: Target, products: int) -> Row:
    contract, row = resolve(case.contract), _row(case)
    m, n, k = large_operands.size_of(case.problem)
    lacking = contract.lacking(target)
    if lacking:
        row.message = f"{target.name} lacks {', '.join(sorted(map(str, lacking)))}"
        return row
    clock = Clock()
    with clock.measure("reference"):
        operands = large_operands.operands(case)
    launch_result = launch(case, target, contract, None, operands, clock)
    row.seconds = clock.seconds()
    if launch_result.outcome is not None:
        expected_outcome = contract.expected_outcome(case, target)
        as_expected = not expected_outcome.result and str(launch_result.outcome) == expected_outcome.outcome
        otherwise = UNABLE.get(launch_result.outcome, Decision.FAIL)
        row.decision, row.outcome = Decision.PASS if as_expected else otherwise, str(launch_result.outcome)
        row.message = launch_result.message + (" (expected)" if as_expected else "")
        return row
    config = launch_result.launch_record.get("config") or (vars(case.config) if case.config is not None else {})
    row.config = _config_name(config)
    tile = int(config.get("block_m", 128)), int(config.get("block_n", 128))
    name, words = next(iter(launch_result.outputs.items()))
    if words.shape != (m, n):
        row.decision, row.outcome, row.message = Decision.FAIL, str(Outcome.WRONG_SHAPE), f"{name} has shape {words.shape}"
        return row
    gpu_name = gpu_for_every_word(case, target, contract, operands, launch_result.launch_record)
    count = m * n if gpu_name else products // max(k, 1)
    rows, columns = sample((m, n), tile, count, np.random.default_rng(case.data_seed))
    landing = large_operands.landing_rows(case, operands)[rows]  # (rows,) of the result
    comparison = WordComparison.for_places(words.dtype, (landing, columns), (rows // tile[0], columns // tile[1]))
    step = BLOCK if gpu_name else max(1, math.isqrt(PRODUCTS_AT_ONCE // max(k, 1)))

    def hold(place: tuple[slice, slice]) -> str:
        smaller, chosen = large_operands.part(case, operands, rows[place[0]], columns[place[1]])
        expected = contract.expected(smaller, target, chosen, launch_result.launch_record)[0]
        comparison.hold(place, words, expected)
        return str(expected.basis)

    with clock.measure(ON_GPU if gpu_name else ON_HOST):
        bases = over_blocks(hold, comparison.blocks(step), gpu_name)
    row.basis = bases[-1] + (f"; computed on {target.name} in integer arithmetic" if gpu_name else "")
    row.seconds = clock.seconds()
    row.tiles = comparison.tiles_held, -(-m // tile[0]) * -(-n // tile[1])
    _decide(row, comparison, launch_result.details[f"poison of {name}"])
    return row


def _row(case: Case) -> Row:
    m, n, k = large_operands.size_of(case.problem)
    row = Row(case.contract, kind_of(case.problem), f"{m}x{n}x{k}", _config_name(case.config), case.to_json(), k=k)
    row.result_words = m * n
    return row


def kind_of(p: Any) -> str:
    """The element type of a problem's operands as tables name it."""
    return getattr(p, "format", "") or p.dtype + (" ieee" if getattr(p, "precision", "") == "ieee" else "")


def _decide(row: Row, comparison: WordComparison, poison: int) -> None:
    """Fill in what `comparison` comes to."""
    row.words, row.differ = int(comparison.decided_mask.sum()), int(comparison.differs.sum())
    row.decision, row.outcome = Decision.PASS, str(Outcome.PASS)
    if not row.words:
        row.decision, row.outcome = Decision.INCONCLUSIVE, str(Outcome.INCONCLUSIVE)
        row.message = "no word is decided: the bound allows what a missing product would change"
    if not row.differ:
        return
    found = np.argwhere(comparison.differs)  # (differ, 2)
    for i, j in found[:MOST_WRONG_WORDS]:
        at = int(comparison.places[0][i]), int(comparison.places[1][j])
        row.examples.append({"at": at, "got": hex(comparison.actual[i, j]), "expected": hex(comparison.expected[i, j])})
    wrong_tiles = {(int(comparison.tiles[0][i]), int(comparison.tiles[1][j])) for i, j in found}
    row.wrong_tiles = len(wrong_tiles)
    row.unwritten_words = int((comparison.differs & (comparison.actual == comparison.actual.dtype.type(poison))).sum())
    (r0, r1), (c0, c1) = ((min(axis), max(axis)) for axis in zip(*wrong_tiles, strict=True))
    by_bound = row.basis.startswith("bound")
    row.decision, row.outcome = Decision.FAIL, str(Outcome.OUTSIDE_BOUND if by_bound else Outcome.WRONG_WORDS)
    row.message = (
        f"{row.differ:,} of {row.words:,} words {'lie outside the bound' if by_bound else 'differ'}, {row.unwritten_words:,} of "
        f"them never written, in {len(wrong_tiles)} of {row.tiles[1]} tiles: tile rows {r0} to {r1}, tile "
        f"columns {c0} to {c1}; the first "
        f"{row.examples[0]}"
    )


def _config_name(config: object) -> str:
    if config is None:
        return "autotuned"
    fields = config if isinstance(config, dict) else vars(config)
    tile = "x".join(str(fields[name]) for name in ("block_m", "block_n", "block_k") if name in fields)
    rest = [
        f"{short}{fields[name]}"
        for short, name in (
            ("g", "group_m"),
            ("w", "num_warps"),
            ("s", "num_stages"),
            ("s", "stages"),
            ("s", "num_buffers"),
            ("", "loads"),
            ("", "schedule"),
        )
        if fields.get(name)
    ]
    return " ".join([tile, *rest])


_SCALED_K = {"mxfp4": range(512, 8193, 512), "mxfp8": range(8192, 16385, 2048), "nvfp4": (512, 8192), "mixed": (8192,)}
TUTORIALS: dict[tuple[str, str], list[tuple[int, int, int]]] = {
    ("matmul", "fp16"): [(1024,) * 3, (2048,) * 3, (4096,) * 3, (8192,) * 3, (9728, 8192, 65536)],
    ("ampere_gemm", "bf16"): [(4096,) * 3],
    ("blocked_matmul", "fp16"): [(8192, 8192, 16384)],
    ("blocked_matmul_pipelined", "fp16"): [(8192, 8192, 16384)],
    **{("block_scaled_matmul", kind): [(8192, 8192, k) for k in depths] for kind, depths in _SCALED_K.items()},
}


def tutorial_cases(target: Target) -> list[Case]:
    """Each size of each kernel in the types that a tutorial names, as `tests/tutorial_parameters.json` has them; of `matmul` the
    autotuned launcher, as there."""
    found = []
    for (contract, kind), sizes in TUTORIALS.items():
        of_kernel = [case for case in cases(sizes, target) if case.contract == contract and kind_of(case.problem) == kind]
        found += [case for case in of_kernel if contract != "matmul" or case.config is None]
    return found
