"""Large products judged bit for bit by chosen elements: up to 8192^3 and beyond, by the launcher and at the size that is timed.

The kernel runs whole. Of the result, chosen rows are crossed with chosen columns: the first and the last of every tile, so that
each tile's four corners, its edges and both sides of every seam are among the words, and others drawn from all. Every tile of the
result holds chosen words (while there are enough of them for two a tile). What they must be is the contract's answer to the small
problem of those rows and columns (`bitverdict.harness.studies.large_gemm.operands`), computed in processes of their own beside the
next launches. A result small enough is compared whole."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.decide import UNABLE
from bitverdict.harness.judge.launch import launch
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome
from bitverdict.harness.studies.large_gemm import operands as large_operands
from bitverdict.harness.workers.one_thread import one_thread
from bitverdict.kernels.features import Feature

PRODUCTS = 1 << 30  # of one case: what its expected words may cost, about ten seconds of a core
PRODUCTS_AT_ONCE = 1 << 27  # of one piece of work
SHOWN = 4  # wrong words told
DATA_SEED = 8192


@dataclass
class Row:
    """What one large case came to. `words`: compared, of `of`; `tiles`: tiles of the result that hold compared words, of all."""

    contract: str
    kind: str
    size: str
    config: str
    case: dict
    decision: Decision = Decision.NOT_RUN
    outcome: str = str(Outcome.NOT_RUN)
    message: str = ""
    words: int = 0
    of: int = 0
    k: int = 0
    tiles: tuple[int, int] = (0, 0)
    differ: int = 0
    wrong_tiles: int = 0
    never_written: int = 0
    first: list[dict] = field(default_factory=list)
    basis: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass
class Pending:
    """A case that ran: the words that came out at the chosen places, and the answers that are still being worked out."""

    row: Row
    rows: np.ndarray
    columns: np.ndarray
    tile: tuple[int, int]
    got: np.ndarray  # (rows, columns)
    poison: int
    expected_outcome: list[tuple[slice, slice, Future]]


def cases(sizes: Iterable[tuple[int, int, int]], target: Target) -> list[Case]:
    """For each size, every kernel that multiplies, in each of its types; the two blocked ones in fp16 alone. matmul's fp16 is asked
    of the autotuned launcher, and in each of the configurations that bring tiles by TMA where the target has it."""
    return [case for size in sizes for case in _of_size(*size, described=Feature.TMA in target.features)]


def _of_size(m: int, n: int, k: int, *, described: bool) -> Iterator[Case]:
    from bitverdict.kernels import ampere_gemm, block_scaled_matmul, blocked_matmul, blocked_matmul_pipelined, hopper_matmul, matmul

    size: dict[str, Any] = {"m": m, "n": n, "k": k}

    def case(contract: str, problem: Any, config: Any) -> Case:
        return Case(contract=contract, problem=problem, config=config, data_seed=DATA_SEED)

    wide, square = matmul.CONFIGS["cuda"][0], matmul.CONFIGS["cuda"][2]
    kinds: list[tuple[dict, Any]] = [
        ({"dtype": "fp16"}, None),
        *(({"dtype": "fp16"}, config) for config in (matmul.HOPPER_CONFIGS if described and n % 8 == k % 8 == 0 else ())),
        ({"dtype": "fp16", "out": "fp32", "activation": "leaky_relu"}, wide),
        ({"dtype": "bf16", "out": "bf16"}, wide),
        ({"dtype": "e4m3", "out": "fp16", "b": matmul.View(order="column")}, wide),
        ({"dtype": "int8", "out": "int32", "b": matmul.View(order="column")}, wide),
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
    for name in ("mxfp4", "nvfp4", "mxfp8", "mixed"):
        yield case("block_scaled_matmul", block_scaled_matmul.Problem(**size, format=name), block_scaled_matmul.Config())
    yield case("blocked_matmul", blocked_matmul.Problem(**size), blocked_matmul.Config())
    yield case("blocked_matmul_pipelined", blocked_matmul_pipelined.Problem(**size), blocked_matmul_pipelined.Config())


def judge_large(asked: Iterable[Case], target: Target, *, products: int = PRODUCTS, jobs: int = 0) -> Iterator[Row]:
    """A `Row` a case, in order. `jobs`: processes for expected words; 0: this one. Cases that the target lacks the features for are
    rows that say so."""
    if jobs == 0:
        yield from _judge_all(asked, target, products, Here())
        return
    with one_thread(), ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:  # starts them as needed
        asked = list(asked)
        if not target.emulated:
            compile_before(asked, target, pool)
        yield from _judge_all(asked, target, products, pool)


def compile_before(asked: Iterable[Case], target: Target, pool: Executor) -> None:
    """Fill Triton's cache with what `asked` compiles, each kernel on a small problem of the same divisibility, many at a time. An
    autotuner's candidates are left to it."""
    small: dict[str, Case] = {}
    for case in asked:
        if case.config is not None:
            p = case.problem
            sizes = {name: least + getattr(p, name) % 16 for name, least in (("m", 512), ("n", 512), ("k", 1024))}
            smaller = replace(case, problem=replace(p, **sizes))
            small[smaller.key] = smaller
    for done in [pool.submit(_compiled, case.to_json(), target) for case in small.values()]:
        done.result()


def _compiled(record: Mapping, target: Target) -> None:
    """Launch once and forget: what goes wrong goes wrong again where it is judged."""
    contract = resolve(record["contract"])
    case = contract.case_from_json(record)
    if not contract.requires - target.features:
        launch(case, target, contract, None, large_operands.operands(case), Clock())


class Here(Executor):
    """Work done at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        done: Future = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def _judge_all(asked: Iterable[Case], target: Target, products: int, pool: Executor) -> Iterator[Row]:
    waiting: list[Row | Pending] = []
    for case in asked:
        waiting.append(_run(case, target, products, pool))
        while waiting and (
            isinstance(waiting[0], Row) or len(waiting) > 6 or all(f.done() for _, _, f in waiting[0].expected_outcome)
        ):
            yield _told(waiting.pop(0))
    while waiting:
        yield _told(waiting.pop(0))


def _run(case: Case, target: Target, products: int, pool: Executor) -> Row | Pending:
    """Launch `case` and hand the work on its expected words to `pool`."""
    contract, p = resolve(case.contract), case.problem
    kind = getattr(p, "format", "") or p.dtype + (" ieee" if getattr(p, "precision", "") == "ieee" else "")
    row = Row(contract=case.contract, kind=kind, size=f"{p.m}x{p.n}x{p.k}", config=_named(case.config), case=case.to_json(), k=p.k)
    row.of = p.m * p.n
    lacking = contract.requires - target.features
    if lacking:
        row.message = f"{target.name} lacks {', '.join(sorted(map(str, lacking)))}"
        return row
    clock = Clock()
    with clock.on("reference"):
        operands = large_operands.operands(case)
    seen = launch(case, target, contract, None, operands, clock)
    row.seconds = clock.seconds()
    if seen.outcome is not None:
        expected_outcome = contract.expected_outcome(case, target)
        as_expected = not expected_outcome.result and str(seen.outcome) == expected_outcome.outcome
        otherwise = UNABLE.get(seen.outcome, Decision.FAIL)
        row.decision, row.outcome = Decision.PASS if as_expected else otherwise, str(seen.outcome)
        row.message = seen.message + (" (expected)" if as_expected else "")
        return row
    config = seen.recorded.get("config") or (vars(case.config) if case.config is not None else {})
    row.config = _named(config)
    tile = int(config.get("block_m", 128)), int(config.get("block_n", 128))
    name, words = next(iter(seen.outputs.items()))
    if words.shape != (p.m, p.n):
        row.decision, row.outcome, row.message = Decision.FAIL, str(Outcome.WRONG_SHAPE), f"{name} has shape {words.shape}"
        return row
    count = products // max(p.k, 1)
    rows, columns = sample((p.m, p.n), tile, count, np.random.default_rng(case.data_seed))
    step = max(1, math.isqrt(PRODUCTS_AT_ONCE // max(p.k, 1)))
    owed_words = []
    for top in range(0, len(rows), step):
        for left in range(0, len(columns), step):
            place = slice(top, top + step), slice(left, left + step)
            smaller, chosen = large_operands.part(case, operands, rows[place[0]], columns[place[1]])
            codes = {n: (o.format, o.codes) for n, o in chosen.items()}
            owed_words.append((*place, pool.submit(words_of, smaller.to_json(), target, codes, dict(seen.recorded))))
    got = words if words.size == len(rows) * len(columns) else words[np.ix_(rows, columns)]
    return Pending(row, rows, columns, tile, got, seen.details[f"poison of {name}"], owed_words)


def sample(shape: tuple[int, int], tile: tuple[int, int], count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Ascending rows and columns whose crossings are at most about `count` words; all of both where that is enough."""
    if shape[0] * shape[1] <= count:
        return np.arange(shape[0]), np.arange(shape[1])
    side = max(2, math.isqrt(count))
    rows = min(shape[0], max(side, count // max(shape[1], 1)))
    return _chosen(shape[0], tile[0], rows, rng), _chosen(shape[1], tile[1], min(shape[1], max(side, count // rows)), rng)


def _chosen(size: int, tile: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` of `size` places: both ends of every tile first, then any."""
    if size <= count:
        return np.arange(size)
    starts = np.arange(0, size, tile)
    ends = np.unique(np.concatenate([starts, np.minimum(starts + tile, size) - 1]))
    if len(ends) > count:
        inner = rng.choice(ends[1:-1], count - 2, replace=False)
        return np.sort(np.concatenate([ends[[0, -1]], inner]))
    others = np.setdiff1d(np.arange(size), ends)
    return np.sort(np.concatenate([ends, rng.choice(others, count - len(ends), replace=False)]))


def words_of(
    record: Mapping, target: Target, codes: Mapping[str, tuple[str, np.ndarray]], recorded: Mapping
) -> tuple[np.ndarray, str, float]:
    """Expected words of a small problem, what they rest on, seconds taken. Runs in any process."""
    begun = time.perf_counter()
    contract = resolve(record["contract"])
    case = contract.case_from_json(record)
    given = {name: Operand(name=name, format=form, codes=array) for name, (form, array) in codes.items()}
    expected = contract.expected(case, target, given, recorded)[0]
    if expected.words is None:
        raise ValueError(f"{case.contract} on {target.name}: has no plan for {case.key}: large cases are judged by words")
    return expected.words, str(expected.basis), time.perf_counter() - begun


def _told(done: Row | Pending) -> Row:
    """The row of a case whose words are there, waiting for them if need be."""
    if isinstance(done, Row):
        return done
    row, spent = done.row, 0.0
    differ = np.zeros(done.got.shape, bool)  # (rows, columns)
    for top, left, future in done.expected_outcome:
        words, row.basis, seconds = future.result()
        spent += seconds
        place = top, left
        expected_outcome = words.view(done.got.dtype)
        differ[place] = done.got[place] != expected_outcome
        for i, j in np.argwhere(differ[place])[: SHOWN - len(row.first)] if len(row.first) < SHOWN else ():
            at = int(done.rows[top.start + i]), int(done.columns[left.start + j])
            row.first.append({"at": at, "got": hex(done.got[place][i, j]), "expected": hex(expected_outcome[i, j])})
    row.words = int(differ.size)
    row.differ = int(differ.sum())
    tile_rows, tile_columns = done.rows // done.tile[0], done.columns // done.tile[1]
    m, n = (int(done.row.size.split("x")[axis]) for axis in (0, 1))
    row.tiles = len(np.unique(tile_rows)) * len(np.unique(tile_columns)), -(-m // done.tile[0]) * -(-n // done.tile[1])
    row.seconds = dict(row.seconds, **{"expected words, core seconds": round(spent, 3)})
    row.decision, row.outcome = Decision.PASS, str(Outcome.PASS)
    if row.differ:
        wrong = {(int(tile_rows[i]), int(tile_columns[j])) for i, j in np.argwhere(differ)}
        row.wrong_tiles = len(wrong)
        row.never_written = int((differ & (done.got == done.got.dtype.type(done.poison))).sum())
        (r0, r1), (c0, c1) = ((min(axis), max(axis)) for axis in zip(*wrong, strict=True))
        row.decision, row.outcome = Decision.FAIL, str(Outcome.WRONG_WORDS)
        row.message = (
            f"{row.differ:,} of {row.words:,} words differ, {row.never_written:,} of them never written, in {len(wrong)} of "
            f"{row.tiles[1]} tiles: tile rows {r0} to {r1}, tile columns {c0} to {c1}; the first {row.first[0]}"
        )
    return row


def _named(config: Any) -> str:
    if config is None:
        return "autotuned"
    fields = config if isinstance(config, dict) else vars(config)
    tile = "x".join(str(fields[name]) for name in ("block_m", "block_n", "block_k") if name in fields)
    rest = [
        f"{short}{fields[name]}"
        for short, name in (("g", "group_m"), ("w", "num_warps"), ("s", "num_stages"), ("s", "stages"), ("", "loads"))
        if fields.get(name)
    ]
    return " ".join([tile, *rest])
