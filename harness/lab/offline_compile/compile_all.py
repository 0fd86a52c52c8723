"""Every kernel to the machine code of every GPU it is for, without a GPU: ``bitverdict lab compile [KERNEL ...]``.

Each row of `harness/lab/offline_compile/expectations.py` is launched under `harness/judge/offline_driver.py` and its
code held against what it must and must not be. Rows are compiled in worker processes: a compiler that dies takes its worker and is
told of as "compiler abort", not the table."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from bitverdict.harness.judge.offline_driver import CompiledKernel, capture_compilations, shared_limit
from bitverdict.harness.lab.offline_compile.expectations import Row, rows
from bitverdict.harness.model.paths import IMPORTED_FROM
from bitverdict.harness.model.trusted_imports import environment_of_a_child
from bitverdict.harness.model.usage import UsageError

MOST_REGISTERS, MOST_COLUMNS = 255, 512
WORKER = ("-m", "bitverdict.harness.lab.offline_compile.compile_all")
REFUSING_LAYERS = ("front end", "verifier", "ptxas", "compiler")


@dataclass(kw_only=True)
class CompileResult:
    """What came of one row: the verdict ("right", or what is wrong), and the figures of the machine code."""

    verdict: str = "pass"
    registers: int = -1
    stack: int = -1  # bytes of local memory: spills, and arrays that left registers
    shared: int = -1
    columns: int = -1  # of tensor memory
    bytes: int = -1  # of machine code
    waves_per_eu: int = 0  # that an AMD kernel was compiled for
    refused_by: str = ""
    refusal: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def compile_row(row: Row, contract: Any = None) -> CompileResult:
    """Compiles one row in this process and holds it against what it must and must not be. `contract` may be a faulty copy's."""
    from bitverdict.harness.judge.classify import outcome_of
    from bitverdict.harness.model.addresses import resolve

    start_time = time.perf_counter()
    contract = contract or resolve(row.stem)
    record = {"version": 1, "regime": "integers", "data_seed": 0, "schedule": "eager", "launcher": "", "config": row.config or {}}
    try:
        case = contract.case_from_json(record | {"problem": _problem(contract, row)})
    except UsageError as error:
        return CompileResult(verdict=f"no row for this kernel: {error}; or fix the row", refused_by="contract")
    try:
        kernel = _compile_kernel(contract, case, row.arch, row.kernel)
    except Exception as error:  # whatever the compiler says is a refusal by some layer
        seen = outcome_of(error)
        found = CompileResult(refused_by=_layer(error, seen), refusal=_error_text(seen))
    else:
        found = _figures(kernel, row)
    found.verdict = _verdict(row, found)
    found.seconds = round(time.perf_counter() - start_time, 2)
    return found


def _problem(contract: Any, row: Row) -> dict:
    """The row's problem with rows on 16-byte boundaries, where the contract knows how to lay them."""
    from bitverdict.harness.contracts.base.single_config import aligned_pad

    p = dict(row.problem)
    if hasattr(contract, "family"):
        sizes = {name: p.pop(name) for name in ("m", "n", "k")}
        return contract.size_fields(p, *sizes.values())
    if row.stem == "fused_gather_scatter_matmul":
        p |= {"x_pad": aligned_pad(p["k"], p.get("dtype", "bf16"))}
    return p


def _compile_kernel(contract: Any, case: Any, arch: str, name: str = "") -> Any:
    """The compiled kernel of the one launch that `case` makes on `arch`, or of those of the kernel `name`."""
    import torch

    from bitverdict.harness.judge.guarded_buffers import torch_dtype

    tensors = {}
    for operand in contract.operands(case):
        shape, strides = operand.codes.shape, operand.strides
        reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if strides else operand.codes.size
        flat = torch.zeros(reach + operand.offset, dtype=torch_dtype(operand.format))  # (reach,)
        tensors[operand.name] = flat.as_strided(shape, strides or (1,) * len(shape), operand.offset)  # (*shape,)
        if operand.format == "int32":  # sizes and row numbers, which a launcher may read
            tensors[operand.name].copy_(torch.from_numpy(operand.codes))
    with capture_compilations(arch) as launched:
        contract.launch(case, tensors, None)
    found = [kept for kept in launched if name in ("", kept.metadata["name"])]
    if len(found) != 1:
        names = ", ".join(kept.metadata["name"] for kept in launched)
        raise RuntimeError(f"a row compiles one kernel: its case launched {names or 'none'}, and the row asks for {name or 'one'}")
    return found[0]


def _figures(compiled_kernel: CompiledKernel, row: Row) -> CompileResult:
    from bitverdict.harness.emulator.machine_code import (  # not at the top: the command line names this module
        amd_resources,
        cubin_resources,
    )

    registers, stack = (
        amd_resources(compiled_kernel.assembly) if row.arch.startswith("gfx") else cubin_resources(compiled_kernel.binary)
    )
    code = "\n".join(line for line in compiled_kernel.assembly.splitlines() if not line.lstrip().startswith(("//", ";")))
    counts = {pattern: len(re.findall(pattern, code)) for pattern in dict.fromkeys((*row.must, *row.counts, *row.must_not))}
    return CompileResult(
        registers=registers,
        stack=stack,
        shared=compiled_kernel.metadata["shared"],
        columns=compiled_kernel.metadata.get("tmem_size") or 0,
        bytes=len(compiled_kernel.binary),
        waves_per_eu=compiled_kernel.metadata.get("waves_per_eu") or 0,
        counts=counts,
    )


def _layer(error: Exception, seen: Any) -> str:
    """Who refused; the compiler's own exceptions that `outcome_of` has no layer for are the compiler's."""
    if seen.layer == "launcher" and not isinstance(error, ValueError):
        return "compiler"
    return seen.layer


def _error_text(seen: Any) -> str:
    return "\n".join(filter(None, (seen.message, str(seen.details.get("text", "")))))


def _verdict(row: Row, result: CompileResult) -> str:
    """ "right", or the first thing that is wrong."""
    if result.refused_by:
        if row.expected_outcome is None:
            return f"refused by the {result.refused_by}: {result.refusal.splitlines()[0] if result.refusal else ''}"
        layer, words = row.expected_outcome
        same = layer == result.refused_by or (layer == "compiler" and result.refused_by in REFUSING_LAYERS)
        if same and words in result.refusal:
            return "pass"
        return f"expects a refusal by the {layer} saying {words!r}; the {result.refused_by} said {result.refusal!r}"
    if row.expected_outcome is not None:
        return f"compiled, but expects a refusal by the {row.expected_outcome[0]}"
    for pattern in row.must:
        if not result.counts[pattern]:
            return f"lacks {pattern}"
    for pattern, count in row.counts.items():
        if result.counts[pattern] != count:
            return f"has {result.counts[pattern]} of {pattern}, must have {count}"
    for pattern in row.must_not:
        if result.counts[pattern]:
            return f"has {result.counts[pattern]} of {pattern}, must have none"
    if row.waves_per_eu and result.waves_per_eu != row.waves_per_eu:
        return f"is compiled for waves_per_eu = {result.waves_per_eu}, must be for {row.waves_per_eu}"
    return _over_limit(row, result)


def _over_limit(row: Row, found: CompileResult) -> str:
    limits = (
        ("registers", found.registers, MOST_REGISTERS if not row.arch.startswith("gfx") else 512),
        ("bytes of stack", found.stack, row.most_stack),
        ("bytes of shared memory", found.shared, shared_limit(row.arch)),
        ("columns of tensor memory", found.columns, MOST_COLUMNS),
    )
    for name, value, limit in limits:
        if value > limit:
            return f"{value} {name}, the limit is {limit}"
    return "pass"


# the table


def compile_rows(requested_rows: list[Row], workers: int = 0) -> list[CompileResult]:
    """Compiles all rows in worker processes; the order is that of `wanted`."""
    queue: SimpleQueue = SimpleQueue()
    for index in range(len(requested_rows)):
        queue.put(index)
    results: list[CompileResult | None] = [None] * len(requested_rows)
    everything = rows()
    names = {id(row): everything.index(row) for row in requested_rows}

    def serve() -> None:
        worker: subprocess.Popen | None = None
        while True:
            try:
                index = queue.get_nowait()
            except Empty:
                break
            if worker is None:
                worker = subprocess.Popen(
                    [sys.executable, *WORKER],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    cwd=IMPORTED_FROM,
                    env=environment_of_a_child(),
                )
            assert worker.stdin and worker.stdout
            worker.stdin.write(f"{names[id(requested_rows[index])]}\n")
            worker.stdin.flush()
            line = worker.stdout.readline()
            if line:
                results[index] = CompileResult(**json.loads(line))
            else:
                results[index] = CompileResult(
                    verdict=f"compiler abort: the worker ended with status {worker.wait()}", refused_by="compiler abort"
                )
                worker = None
        if worker is not None:
            assert worker.stdin
            worker.stdin.close()
            worker.wait()

    with ThreadPoolExecutor(count := workers or min(os.cpu_count() or 1, 8)) as pool:
        for ended in [pool.submit(serve) for _ in range(count)]:
            ended.result()
    return [result for result in results if result is not None]


def _work() -> None:
    """A worker: row numbers in, one line of JSON out for each."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the compiler prints is no answer
    everything = rows()
    for line in sys.stdin:
        answers.write(json.dumps(asdict(compile_row(everything[int(line)]))) + "\n")
    os._exit(0)  # the bindings of the compiler report their leaks at an ordinary end


def table(wanted: list[Row], results: list[CompileResult]) -> str:
    """The table, one row a line: figures of what compiled, the layer of what was refused, and what is wrong."""
    lines = [f"{'kernel':<28}{'arch':<8}{'regs':>5}{'stack':>6}{'shared':>8}{'tmem':>5}{'code':>8}{'s':>6}  verdict, case"]
    for row, result in zip(wanted, results, strict=True):
        figures = (
            f"{result.registers:>5}{result.stack:>6}{result.shared:>8}{result.columns:>5}{result.bytes:>8}"
            if not result.refused_by
            else f"{'refused by the ' + result.refused_by:>32}"
        )
        said = result.verdict if result.verdict != "pass" else "pass" if row.expected_outcome is None else "pass: expected"
        lines.append(f"{row.stem:<28}{row.arch:<8}{figures}{result.seconds:>6.1f}  {said}, {row.label}")
    wrong = sum(result.verdict != "pass" for result in results)
    lines.append(f"{len(results)} compilations, {sum(bool(result.refused_by) for result in results)} refusals, {wrong} wrong")
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``compile``."""
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="stems; all when none is given")
    parser.add_argument("--arch", action="append", metavar="sm_NN", help="only this architecture (may be repeated)")
    parser.add_argument("--json", metavar="FILE", help="write the rows and figures to this file")
    parser.add_argument("--workers", type=int, default=0, help="compiling processes (default: one a core)")


def run(arguments: argparse.Namespace) -> int:
    """Compile and print the table. Status 0 all right, 1 a row is wrong. ValueError for a kernel or architecture without rows."""
    requested_rows = [row for stem in arguments.kernels or [None] for row in rows(stem)]
    requested_rows = [row for row in requested_rows if not arguments.arch or row.arch in arguments.arch]
    if not requested_rows:
        raise UsageError(f"compile: no row for {', '.join(arguments.arch)}; leave --arch out to see those there are")
    begun = time.perf_counter()
    found = compile_rows(requested_rows, arguments.workers)
    print(table(requested_rows, found), f"in {time.perf_counter() - begun:.0f} s")
    if arguments.json:
        records = [asdict(row) | {"compiled": asdict(one)} for row, one in zip(requested_rows, found, strict=True)]
        Path(arguments.json).write_text(json.dumps(records, indent=1))
    return 1 if any(one.verdict != "pass" for one in found) else 0


def main(argv: list[str] | None = None) -> int:
    """``bitverdict lab compile`` without the rest of the command line. Status as `run`, 2 for usage."""
    parser = argparse.ArgumentParser(prog="bitverdict compile", description="Compile every kernel for every GPU it is for.")
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    try:
        return run(arguments)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    _work()
