"""``bitverdict lab large``: products of up to 8192^3 and beyond on a GPU, held bit for bit to the plan at chosen elements."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bitverdict.harness.model.targets import target, targets
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.session import tables
from bitverdict.harness.session.reproducers import versions

SIZES = ("4096x2048x128", "8192", "8176x8144x4128")  # whole; by chosen elements; ragged in every tile, rows still on 16 bytes

OF_TUTORIALS = "tutorials"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stems", nargs="*", metavar="STEM", help="kernels to judge (default: all that multiply)")
    parser.add_argument("--target", default="", metavar="T", help="cuda:N or emulated:sm_NN (default: the first GPU)")
    parser.add_argument(
        "--sizes",
        nargs="+",
        default=list(SIZES),
        metavar="S",
        help=f"N for a cube, MxNxK, or {OF_TUTORIALS!r}: what they time (default {SIZES})",
    )
    parser.add_argument("--contract", default="", metavar="ADDRESS", help="judge matmul's cases by path/file.py:NAME instead")
    parser.add_argument("--products", type=int, default=0, metavar="N",
                        help="products that one case's expected words may cost (default 2^30)")  # fmt: skip
    parser.add_argument(
        "--jobs", type=int, default=None, metavar="N", help="workers (default: one a core, as fit the GPU; 0: none)"
    )
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="a line a case, then a summary")


def run(arguments: argparse.Namespace) -> int:
    """Judge as asked; exit status 0 when nothing differs, 1 when something does, 5 when nothing ran."""
    from dataclasses import replace

    from bitverdict.harness.lab.large_gemm.cases import PRODUCTS, cases, judge_large, tutorial_cases

    hardware = target(arguments.target) if arguments.target else next((t for t in targets() if not t.emulated), None)
    if hardware is None:
        raise UsageError("target 'cuda:0': no GPU is visible here; give --target emulated:sm_90 with small --sizes")
    requested_cases = cases([size_of(size) for size in arguments.sizes if size != OF_TUTORIALS], hardware)
    requested_cases += tutorial_cases(hardware) if OF_TUTORIALS in arguments.sizes else []
    known = list(dict.fromkeys(case.contract for case in requested_cases))
    stems = ["matmul"] if arguments.contract else arguments.stems or known
    for stem in stems:
        if stem not in known:
            raise UsageError(f"kernel {stem!r}: has no large cases; one of {', '.join(known)}")
    requested_cases = [case for case in requested_cases if case.contract in stems]
    if arguments.contract:
        requested_cases = [replace(case, contract=arguments.contract) for case in requested_cases]
    jobs = len(os.sched_getaffinity(0)) if arguments.jobs is None else arguments.jobs
    rows, start_time, console = [], time.monotonic(), tables.console()
    out = arguments.json.open("w") if arguments.json else None
    with console.status(f"{len(requested_cases)} cases") as status:
        for row in judge_large(requested_cases, hardware, products=arguments.products or PRODUCTS, jobs=jobs):
            rows.append(row)
            status.update(f"{len(rows)} of {len(requested_cases)} cases, {sum(r.words for r in rows):,} words")
            if out:
                out.write(json.dumps(asdict(row)) + "\n")
                out.flush()
    summary = summarize(rows, hardware.name, hardware.model, time.monotonic() - start_time)
    if out:
        out.write(json.dumps({"event": "summary", **summary, "versions": versions()}) + "\n")
        out.close()
    console.print(table(rows, f"Large products on {hardware.name} ({hardware.model or 'emulated ' + hardware.arch})"))
    for row in rows:
        if row.message:
            console.print(f"{row.contract} {row.kind} {row.size}: {row.outcome}: {row.message}", markup=False)
    console.print(summary["sentence"], markup=False, style="bold")
    if summary["fail"] or summary["errors"]:
        return 1 if summary["fail"] else 3
    return 0 if summary["words"] else 5


def size_of(text: str) -> tuple[int, int, int]:
    """(m, n, k) of "8192" or "9728x8192x65536"."""
    parts = text.split("x")
    if len(parts) not in (1, 3) or not all(part.isdigit() and int(part) for part in parts):
        raise UsageError(f"size {text!r}: must be N for a cube, MxNxK or {OF_TUTORIALS}, for example 9728x8192x65536")
    m, n, k = map(int, parts * 3 if len(parts) == 1 else parts)
    return m, n, k


def summarize(rows: list, name: str, model: str, seconds: float) -> dict:
    """The figures a reader asks for first."""
    by_kind: Counter = Counter()
    for row in rows:
        by_kind[f"{row.contract} {row.kind}"] += row.words
    words, deep_words = sum(r.words for r in rows), sum(r.words for r in rows if r.k >= 4096)
    ran = [r for r in rows if r.decision is not Decision.NOT_RUN]
    summary: dict[str, Any] = {
        "target": name,
        "model": model,
        "cases": len(ran),
        "words": words,
        "words_with_k_of_4096_or_more": deep_words,
        "differ": sum(r.differ for r in rows),
        "fail": sum(r.decision is Decision.FAIL for r in rows),
        "errors": sum(r.decision is Decision.ERROR for r in rows),
        "fewest_words_of_a_kernel_and_type": min((by_kind[f"{r.contract} {r.kind}"] for r in ran), default=0),
        "not_run": sorted({f"{r.contract}: {r.message}" for r in rows if r.decision is Decision.NOT_RUN}),
        "seconds": round(seconds, 1),
    }
    bounded = [r for r in ran if r.basis.startswith("bound")]
    how = "bit for bit" if not bounded else f"(in {len(bounded)} cases with a bound: the target has no tensor-core model)"
    summary["sentence"] = (
        f"{len(ran)} large cases, {words:,} words compared {how}, {deep_words:,} of them with K of 4,096 or more, "
        f"{summary['fewest_words_of_a_kernel_and_type']:,} or more in every kernel and type; {summary['differ']:,} differ; "
        f"{len(summary['not_run'])} kernels not run; {seconds:.0f} s"
    )
    return summary


def table(rows: list, title: str) -> Any:
    from rich.table import Table

    from bitverdict.harness.lab.large_gemm.cases import ON_GPU, ON_HOST

    rich_table = Table(title=title, title_justify="left", title_style="bold", pad_edge=False)
    named = ("kernel", "type", "configuration", "verdict")
    others = ("words", "of", "tiles", "differ", "verdict", "launch s", "expected s")
    for column in ("kernel", "type", "M x N x K", "configuration", *others):
        rich_table.add_column(column, justify="left" if column in named else "right", no_wrap=True)
    for r in rows:
        seconds = r.seconds.get("launch", 0) + r.seconds.get("tuning", 0) + r.seconds.get("compile", 0)
        tiles = f"{r.tiles[0]}/{r.tiles[1]}" if r.words else ""
        rich_table.add_row(r.contract.rpartition("/")[2], r.kind, r.size, r.config, f"{r.words:,}", f"{r.result_words:,}", tiles,
        f"{r.differ:,}",
                      str(r.decision), f"{seconds:.1f}", f"{r.seconds.get(ON_GPU, 0) + r.seconds.get(ON_HOST, 0):.1f}")  # fmt: skip
    return rich_table
