"""Hazards for sm_90, each one text replaced in a kernel, and the launch in which it can show: what the sanitizers and the emulated
GPU are asked about side by side (docs/sanitizers.md).

    python -m tests.faults.hazards_for_sanitizers --out FILE [--target cuda:0] [--jobs 16] [--timeout 30] [--only TEXT ...]

writes what `sanitize --json` writes. On an emulated target every hazard is judged bare and with iisan, eagerly, at the latest, and
under drawn schedules. A `ProgramEdit` is a fault of the compiler's: Triton's own pipeliner owns the order in a `tl` kernel, and a
person cannot break it from the source.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitverdict.harness.model.addresses import load
from bitverdict.harness.model.case import Case
from tests.faults.kernels import ampere_gemm, hopper_matmul, matmul
from tests.faults.mutants import Mutant, ProgramEdit, SourceEdit, write_mutant
from tests.faults.timing import barriers, memory, order

SCHEDULES = ("eager", "latest", *(f"drawn:{seed}" for seed in range(4)))


def _hazard(
    kernel: str,
    kind: str,
    name: str,
    replace: str,
    by: str,
    *expected: str,
    in_program: bool = False,
    hangs: bool = False,
    **launch: Any,
) -> Mutant:
    """`replace` is empty in a kernel as it is. `expected`: what the emulated GPU may call it ("pass" where the compiler repairs
    it); with `in_program` it says so of the compiler, not of the kernel."""
    problem, config = LAUNCHES[kernel]
    edit = ProgramEdit(replace, by) if in_program else SourceEdit(replace, by)
    return Mutant(
        kernel=kernel,
        kind=kind,
        name=name,
        edits=(edit,) if replace else (),
        expected=expected,
        problem=problem | launch.get("problem", {}),
        config=config | launch.get("config", {}),
        hangs=hangs,
    )


_OTHERS = {mutant.id: mutant for module in (ampere_gemm, hopper_matmul, matmul) for mutant in module.MUTANTS}
_OTHERS |= {mutant.id: mutant for mutant in (*order.HAZARDS, *barriers.HAZARDS, *memory.HAZARDS)}


def _again(id: str, *expected: str, kind: str = "", name: str = "", **launch: Any) -> Mutant:
    """The edit of `id`, a mutant of the kernels or of the timing, in a launch that sanitizers are asked about."""
    other = _OTHERS[id]
    (edit,) = other.edits
    assert isinstance(edit, SourceEdit)
    return _hazard(other.kernel, kind or other.kind, name or other.name, edit.replace, edit.by, *expected, **launch)


LAUNCHES: dict[str, tuple[dict, dict]] = {  # more blocks of K than stages, ragged edges, several programs
    "hopper_matmul": ({"m": 70, "n": 72, "k": 224}, {"block_m": 64, "block_n": 64, "block_k": 32, "stages": 3}),
    "ampere_gemm": ({"m": 70, "n": 72, "k": 120, "dtype": "fp16"}, {"stages": 3}),
    "matmul": ({"m": 70, "n": 72, "k": 224}, {"block_m": 64, "block_n": 64, "block_k": 32, "num_stages": 3}),
    "tiled_copies": ({}, {}),
}
_RING, _PARTS = "tiled_copies", {"problem": {"form": "partitions"}}
_TMA = {"config": {"num_warps": 4, "loads": "descriptors"}}
RACE, MISUSE, DEADLOCK, UNKNOWN = "race", "barrier misuse", "deadlock", "uninitialised read"

HAZARDS: tuple[Mutant, ...] = (
    *(_hazard(kernel, "none", "as it is", "", "", "pass") for kernel in LAUNCHES),
    _hazard(_RING, "none", "as it is", "", "", "pass", **_PARTS),
    _hazard("matmul", "none", "as it is with TMA", "", "", "pass", **_TMA),
    _again("hopper_matmul: nobody waits for the load", RACE, kind="read before it has arrived", name="no wait for the load"),
    _again("hopper_matmul: refill of the buffer being read", RACE, kind="in-flight operand overwritten"),
    _again("hopper_matmul: waits for too little", RACE, name="wgmma waited for with too many under way"),
    _again("hopper_matmul: result read before the last product is over", RACE, kind="waits for too little"),
    _again("hopper_matmul: wrong phase", RACE, DEADLOCK, name="phase turned round", hangs=True),
    _again("hopper_matmul: phase flips at every block", RACE, DEADLOCK, kind="wrong phase", hangs=True),
    _again("hopper_matmul: barrier expects A only", MISUSE, RACE, kind="wrong bytes", hangs=True),
    _again("hopper_matmul: barrier expects too much", DEADLOCK, kind="wrong bytes", hangs=True),
    _again("hopper_matmul: wrong arrival count", DEADLOCK, name="barrier counts two", hangs=True),
    _again("hopper_matmul: use after invalidate", MISUSE, name="invalidated in the loop", hangs=True),
    # the ring of one is smaller than the tile of C, which comes to lie over the barrier
    _again("hopper_matmul: barriers left under the tile of C", MISUSE, kind="barrier reused without re-initialising",
           problem={"out": "fp32"}, config={"stages": 1}),
    _again("hopper_matmul: aliased allocations", RACE, MISUSE, name="one refill too many"),
    _hazard("hopper_matmul", "shared memory released while in use", "program ends under its store",
            "    tma.store_wait(pendings=0)\n", "", RACE),
    _again("ampere_gemm: steady state waits for one group too few", RACE, kind="waits for too little"),
    _hazard("ampere_gemm", "read before it has arrived", "steady state does not wait",
            "        async_copy.wait_group(STAGES - 1)\n", "", RACE),
    _again("ampere_gemm: drain waits as in the steady state", RACE, kind="waits for too little"),
    _again("ampere_gemm: waits for too little: B is copied after the commit", RACE),
    _hazard("ampere_gemm", "in-flight operand overwritten", "no barrier before the refill",
            "        gl.barrier()\n        copy_block(a, a_chunks", "        copy_block(a, a_chunks", "pass"),
    _again("ampere_gemm: uninitialised read, shared memory", UNKNOWN, name="B left out of the first copies"),
    _again("ampere_gemm: outside what the program owns: two programs store one row", RACE),
    _again("ampere_gemm: outside what the program owns: rows of the result unmasked", "stray write",
           name="rows outside are stored"),
    _again("matmul: outside what the program owns: two programs store one tile", RACE),
    _again("matmul: rows not wrapped", "stray read", kind="outside what the program owns", name="rows of A not wrapped"),
    _again("matmul: rows of the result unmasked", "stray write", kind="outside what the program owns",
           name="rows outside are stored"),
    _hazard("matmul", "read before it has arrived", "the compiler waits for no copy",
            r"(ttg\.async_wait [^\n]*\{num = )\d+", r"\g<1>99", RACE, in_program=True),
    _hazard("matmul", "read before it has arrived", "the compiler waits for no TMA load",
            r"\n[^\n]*ttng\.wait_barrier [^\n]*", "", RACE, in_program=True, **_TMA),
    _hazard("matmul", "wrong arrival count", "the compiler's barriers count two",
            r"(ttng\.init_barrier %[^\n]*, )1( :)", r"\g<1>2\2", DEADLOCK, in_program=True, hangs=True, **_TMA),
    _hazard(_RING, "read before it has arrived", "no wait for the load",
            "        mbarrier.wait(arrived.index(stage), step // STAGES & 1)\n", "", RACE),
    _hazard(_RING, "wrong phase", "phase turned round", "        mbarrier.wait(arrived.index(stage), step // STAGES & 1)\n",
            "        mbarrier.wait(arrived.index(stage), step // STAGES & 1 ^ 1)\n", RACE, DEADLOCK, hangs=True),
    _hazard(_RING, "in-flight operand overwritten", "source written before the store has read it",
            "        tma.store_wait(pendings=0)  # the store before has read its source\n", "", RACE),
    _hazard(_RING, "wrong bytes", "barrier expects half", "mbarrier.expect(arrived, table.nbytes_per_cta)",
            "mbarrier.expect(arrived, table.nbytes_per_cta // 2)", MISUSE, RACE, hangs=True),
    _hazard(_RING, "wrong bytes", "barrier expects too much", "mbarrier.expect(arrived, table.nbytes_per_cta)",
            "mbarrier.expect(arrived, table.nbytes_per_cta + 16)", DEADLOCK, hangs=True),
    _hazard(_RING, "barrier not initialised", "no initialisation",
            "        mbarrier.init(arrived.index(early), count=1)\n", "        early = early\n", MISUSE, hangs=True),
    _hazard(_RING, "barrier reused without re-initialising", "initialised twice",
            "        mbarrier.init(arrived.index(early), count=1)\n",
            "        mbarrier.init(arrived.index(early), count=1)\n" * 2, MISUSE),
    _hazard(_RING, "use after invalidate", "invalidated in the loop",
            "        values = ring.index(stage).load(by_rows(gl.num_warps()))  # (ROWS, COLUMNS)\n        if step",
            "        values = ring.index(stage).load(by_rows(gl.num_warps()))  # (ROWS, COLUMNS)\n"
            "        mbarrier.invalidate(arrived.index(stage))\n        if step", MISUSE, hangs=True),
    _hazard(_RING, "uninitialised read, shared memory", "nothing is written to the tile that is stored",
            "        out_tile.store(values)\n        fence_async_shared()\n        tma.async_store(out, [first_row",
            "        fence_async_shared()\n        tma.async_store(out, [first_row", UNKNOWN),
    _hazard(_RING, "stale read through the other proxy", "no fence in one partition", "        fence_async_shared()\n", "", "pass"),
    _hazard(_RING, "shared memory released while in use", "program ends under its store",
            "    tma.store_wait(pendings=0)  # before the program's memory goes\n", "", RACE),
    _hazard(_RING, "outside what the program owns", "two programs store one tile",
            "first_row + step * HEIGHT, 0], out_tile", "step * HEIGHT, 0], out_tile", RACE, problem={"tiles": 8, "programs": 2}),
    _hazard(_RING, "fence missing across partitions", "no fence between two partitions",
            "        fence_async_shared()  # before the arrival: it is this partition that knows of the store\n", "", RACE,
            **_PARTS),
    _hazard(_RING, "fence missing across partitions", "no fence between read and refill",
            "        fence_async_shared()  # TMA may write what was read, once the arrival says so\n", "", RACE, **_PARTS),
    _hazard(_RING, "partition does not wait", "reader does not wait for the load",
            "        mbarrier.wait(full.index(stage), step // STAGES & 1)\n", "", RACE, UNKNOWN, MISUSE, **_PARTS),
    _hazard(_RING, "partition does not wait", "loader does not wait for the reader",
            "        mbarrier.wait(free.index(stage), step // STAGES & 1 ^ 1)\n", "", RACE, MISUSE, DEADLOCK, hangs=True, **_PARTS),
    _hazard(_RING, "partition does not wait", "sender does not wait for the tile",
            "        mbarrier.wait(filled, step & 1)\n", "", RACE, UNKNOWN, MISUSE, **_PARTS),
    _hazard(_RING, "partition does not wait", "writer does not wait for the sender",
            "        mbarrier.wait(sent, step & 1 ^ 1)\n", "", RACE, MISUSE, DEADLOCK, hangs=True, **_PARTS),
    _hazard(_RING, "wrong phase", "loader waits for the reader's later phase",
            "mbarrier.wait(free.index(stage), step // STAGES & 1 ^ 1)", "mbarrier.wait(free.index(stage), step // STAGES & 1)",
            DEADLOCK, hangs=True, **_PARTS),
    _hazard(_RING, "wrong arrival count", "the reader arrives twice", "mbarrier.arrive(free.index(stage), count=1)",
            "mbarrier.arrive(free.index(stage), count=2)", MISUSE, RACE, hangs=True, **_PARTS),
)  # fmt: skip


def write_hazard(hazard: Mutant, directory: Path) -> Case:
    """Write the edited kernel into `directory`; its case. ValueError where the text does not occur exactly once."""
    address = write_mutant(hazard, directory)
    contract: Any = load(address)
    return contract.case_from_json(
        {
            "version": 1,
            "contract": address,
            "problem": dict(hazard.problem),
            "config": dict(hazard.config),
            "regime": "normal",
            "data_seed": 0,
            "schedule": "eager",
            "launcher": "",
        }
    )


def main(words: Sequence[str] | None = None) -> int:
    from bitverdict.harness.lab.sanitizers import runs
    from bitverdict.harness.model.targets import target

    parser = argparse.ArgumentParser(prog="python -m tests.faults.hazards_for_sanitizers")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--target", default="emulated:sm_90")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="S", help="seconds for a case; half as many again under compute-sanitizer"
    )
    parser.add_argument("--only", action="append", metavar="TEXT", help="hazards whose kernel, kind, name or file contain a TEXT")
    parser.add_argument("--hanging", choices=("no", "last", "only"), default="last", help="those under which a GPU may hang")
    parser.add_argument("--mode", action="append", help="these modes only")
    arguments = parser.parse_args(words)
    machine = target(arguments.target)
    modes = arguments.mode or [m for m in runs.MODES if not machine.emulated or m in runs.EMULATED_MODES]
    wanted = [
        h
        for hangs in (False, True)
        if arguments.hanging != ("only", "no")[hangs]
        for h in HAZARDS
        if h.hangs is hangs and any(text in f"{h.kernel} {h.kind} {h.name} {h.stem}" for text in arguments.only or [""])
    ]
    with tempfile.TemporaryDirectory() as place:
        cases = [write_hazard(hazard, Path(place)) for hazard in wanted]
        if machine.emulated:  # nothing hangs: one worker a mode and kernel for all schedules
            work = [([replace(case, schedule=schedule) for schedule in SCHEDULES], mode) for case in cases for mode in modes]
        else:
            work = [([case], mode) for case in cases for mode in modes]
        rows = judged(work, machine, arguments.jobs, arguments.timeout, arguments.out)
    for row in rows:
        verdict = row["verdict"]
        print(
            runs.name_of(row["contract"]),
            row["mode"],
            row["case"]["schedule"],
            verdict["outcome"],
            verdict["location"],
            verdict["message"][:60],
            sep=" | ",
        )
    return 0 if rows else 5


def judged(work: list[tuple[list[Case], str]], machine: Any, jobs: int, timeout: float, out: Path) -> list[dict]:
    """The rows of `work` in its order, written to `out` as they come: what a run that is ended did not reach is not there."""
    from bitverdict.harness.lab.sanitizers import runs

    done: dict[int, list[dict]] = {}

    def one(place: int) -> None:
        cases, mode = work[place]
        patience = timeout * (1.5 if mode in runs.AROUND else 1.0)
        try:
            verdicts = runs.examine_together(cases, machine, mode, timeout=patience)
        except Exception as error:  # the next worker is unaffected
            verdicts = [runs.unable(error)] * len(cases)
        done[place] = [
            {"contract": case.contract, "case": case.to_json(), "mode": mode, "target": machine.name, "verdict": verdict.to_json()}
            for case, verdict in zip(cases, verdicts, strict=True)
        ]
        if len(done) % 8 == 0:
            _write(out, list(done.items()))

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, range(len(work))))
    return _write(out, list(done.items()))


def _write(out: Path, done: list[tuple[int, list[dict]]]) -> list[dict]:
    rows = [row for _, rows in sorted(done) for row in rows]
    unfinished = out.with_suffix(f".{threading.get_ident()}")  # a reader never finds half a file
    unfinished.write_text(json.dumps(rows, indent=1, default=str))
    unfinished.replace(out)
    return rows


if __name__ == "__main__":
    sys.exit(main())
# One file because it is one table of launches, each beside its right twin.
