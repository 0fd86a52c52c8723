"""A case under a sanitizer, in a worker that is started for it, and what the sanitizer said as a verdict.

    bare                     no sanitizer: what the others are held against
    iisan, consan, fpsan     Triton's instrumentation, compiled into the kernel (`TRITON_INSTRUMENTATION_MODE`)
    memcheck, racecheck      NVIDIA's compute-sanitizer around the process; it needs a GPU and a runtime that lets it in

What is not to be had on a target is `not run`, with the reason, never a pass. fpsan replaces floating point by arithmetic of its
own in which the order of a sum is free: its words are no one's but its own, so they are not compared.

    bitverdict lab sanitize STEM [--target cuda:0] [--mode iisan ...] [--cases N] [--together N]
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bitverdict.harness.judge.classify import failure
from bitverdict.harness.judge.devices import device_of
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import display_path
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import DEVICE_FAULTS, Basis, Decision, Outcome, Verdict
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.start import Start

COMPILED_MODES, AROUND = ("iisan", "consan", "fpsan"), ("memcheck", "racecheck")
MODES = ("bare", *COMPILED_MODES, *AROUND)
EMULATED_MODES = ("bare", "iisan")  # the others rewrite what comes after the tile program, or watch a GPU
OF_WORDS = {Outcome.PASS, Outcome.WRONG_WORDS, Outcome.OUTSIDE_BOUND, Outcome.INCONCLUSIVE}

_MEMCHECK = (
    (r"Invalid __(?:global|shared|local)__ (?:write|read|atomic) of size \d+", Outcome.ILLEGAL_ADDRESS),
    (r"Misaligned (?:\w+ )?(?:Shared|Local|Global)?.*(?:load|store|address)", Outcome.MISALIGNED_ADDRESS),
    (r"Uninitialized __\w+__ (?:memory )?read", Outcome.UNINITIALISED_READ),
    (r"(?:Warp|Thread|Lane)? ?[Ii]llegal instruction|Illegal Instruction", Outcome.ILLEGAL_INSTRUCTION),
)
_RACECHECK = r"(?:Error|Warning): (?:Potential )?(?:Race reported|WAR hazard|RAW hazard|WAW hazard|.*hazard).*"
_ASSERTION = re.compile(r"(.+?):(\d+): .*[Aa]ssertion `(.*)` failed")
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards?)")
_ATTRIBUTE_ERROR = re.compile(r"Program hit CUDA_ERROR_INVALID_VALUE .* on CUDA API call to cuFuncSetAttribute\.")
_LOADER = re.compile(r"Host Frame: (?:loadBinary \[|_init_handles in compiler\.py)")
BESIDES = (
    "Triton's loader asks the driver for the oversized mode of shared memory (kernels that take more than 48 KB), is "
    "refused, and goes on in the older way: memcheck counts the refused call"
)
_REFUSAL = re.compile(
    r"(?:Error: |Warning: )?Device not supported.*"
    r"|Unable to .*attach.*|.*not supported on this (?:device|platform|system).*"
    r"|Failed to initialize.*|Target application .*failed.*|.*ptrace.*",
    re.IGNORECASE,
)


def examine(case: Case, machine: Target, mode: str, *, timeout: float = 300.0) -> Verdict:
    """The verdict on `case` under `mode`, in a worker of its own. ValueError for a mode that there is not."""
    return examine_together([case], machine, mode, timeout=timeout)[0]


def examine_together(
    cases: Sequence[Case], machine: Target, mode: str, *, timeout: float = 300.0, pool: WorkerPool | None = None, place: int = 0
) -> list[Verdict]:
    """The verdicts on `cases` under `mode`, in as few workers as they allow. ValueError for a mode that there is not.

    They are judged at `place` of `pool`; without one, in a pool made for them, in which a case may take `timeout` seconds. What
    compute-sanitizer prints does not say of which case: where it finds anything in a worker of several, or needed more than one
    worker, each is examined alone.
    """
    if mode not in MODES:
        raise UsageError(f"sanitizer {mode!r}: there is none of that name; one of {', '.join(MODES)}")
    if machine.emulated and mode not in EMULATED_MODES:
        return [_not_run(f"{mode} works on machine code; an emulated GPU executes the tile program before it")] * len(cases)
    tool = shutil.which("compute-sanitizer") or _beside_cuda("compute-sanitizer")
    if mode in AROUND and tool is None:
        return [_not_run("compute-sanitizer is not installed; it comes with the CUDA toolkit")] * len(cases)
    if pool is None:
        with WorkerPool(timeout=timeout) as made:
            return examine_together(cases, machine, mode, pool=made)
    start, begun = start_of(machine, mode, tool or "", len(cases)), time.perf_counter()
    judged = [pool.judge(case, machine, place=place, start=start) for case in cases]
    printed = pool.release(machine, place=place, start=start)
    if mode in AROUND and len(cases) > 1 and not (len(printed) == 1 and is_clean_summary(printed[0])):
        return [examine_together([case], machine, mode, pool=pool, place=place)[0] for case in cases]
    share = round((time.perf_counter() - begun) / len(cases), 2)
    found = [merge_output(mode, verdict, printed[-1] if printed else output_of(verdict)) for verdict in judged]
    return [replace(verdict, seconds=verdict.seconds | {"worker": share}) for verdict in found]


def start_of(machine: Target, mode: str, tool: str, cases: int) -> Start:
    """How a worker for `mode` is started, and for how many cases."""
    variables = {"TRITON_INSTRUMENTATION_MODE": mode if mode in COMPILED_MODES else ""}
    around: tuple[str, ...] = ()
    if mode in AROUND:
        variables["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # an allocation a tensor, or its neighbour is the allocator's block
        around = (tool, "--tool", mode, "--target-processes", "all", "--print-limit", "20")
    prepare = "" if machine.emulated else f"{__name__}:allocate_scratch"
    return Start(name=mode, variables=variables, prepare=prepare, around=around, cases=cases)


def output_of(verdict: Verdict) -> str:
    """What the worker printed over the case of a verdict that tells it: of a fault, a death, a hang."""
    return "\n".join(verdict.details.get("stderr", ()))


def merge_output(mode: str, judged: Verdict, output: str) -> Verdict:
    """What the worker pool's verdict and everything that was printed come to."""
    lines = _lines(output)
    no_verdict = "status" in judged.details or judged.details.get("layer") == "machine"  # of a worker that died, or never came
    parsed = None if judged.outcome is Outcome.TIMEOUT else _around(mode, lines) if mode in AROUND else _first_assertion(lines)
    if parsed is not None and (mode in AROUND or no_verdict or judged.outcome in DEVICE_FAULTS):
        outcome, message, location = parsed
        details = {"said": _tail(output), "judge": "" if no_verdict else str(judged.outcome)}
        if outcome is Outcome.NOT_RUN:
            return replace(_not_run(message), details=details)
        return Verdict(
            decision=Decision.FAIL, outcome=outcome, message=message, location=location, basis=Basis.OBSERVED_FAULT, details=details
        )
    if mode in AROUND and not no_verdict and _refused_calls(lines):
        judged = replace(judged, details=judged.details | {"besides": BESIDES})
    if mode == "fpsan" and judged.outcome in OF_WORDS:
        return replace(
            judged,
            decision=Decision.PASS,
            outcome=Outcome.PASS,
            basis=Basis.NO_BASIS,
            details={},
            message="ran; its words are fpsan's own and were not compared",
        )
    return judged


def is_clean_summary(said: str) -> bool:
    """Whether compute-sanitizer summed up, and had nothing to say of the kernel."""
    lines = _lines(said)
    counts = _error_counts(lines)
    return bool(counts) and sum(counts) == _refused_calls(lines)


def _lines(said: str) -> list[str]:
    return [line.removeprefix("=========").strip() for line in _split_lines(said).splitlines()]


def _error_counts(lines: Sequence[str]) -> list[int]:
    """The errors, or hazards, of each of compute-sanitizer's summaries."""
    return [int(found[1]) for line in lines if (found := _SUMMARY.match(line))]


def _refused_calls(lines: Sequence[str]) -> int:
    """How many of memcheck's errors are `BESIDES`: this call, refused, and made by Triton's loader.

    Triton 3.9, backends/nvidia/driver.c, loadBinary: the call's failure is the way it finds out. Where the older way fails too,
    the launch raises, and the judge fails."""
    places = [place for place, line in enumerate(lines) if _ATTRIBUTE_ERROR.match(line)]
    blocks = [lines[place + 1 : place + 80] for place in places]
    ends = [next((end for end, line in enumerate(block) if not line or line.startswith("Program hit")), None) for block in blocks]
    return sum(any(_LOADER.match(line) for line in block[:end]) for block, end in zip(blocks, ends, strict=True))


def _split_lines(said: str) -> str:
    """What was printed, each of compute-sanitizer's lines on a line of its own: the process may end without ending its last one."""
    return re.sub(r"(?<=[^\n])=========", "\n=========", said)


def _first_assertion(lines: Sequence[str]) -> tuple[Outcome, str, str] | None:
    """The first assertion that the device printed: message, and line relative to the checkout."""
    for line in lines:
        if found := _ASSERTION.match(line):
            path = Path(found[1])
            place = display_path(path)
            return Outcome.DEVICE_ASSERT, found[3], f"{place}:{found[2]}"
    return None


def _around(mode: str, lines: Sequence[str]) -> tuple[Outcome, str, str] | None:
    """What compute-sanitizer says: its first error and the line it names, or its own refusal; None where it found nothing."""
    counts = _error_counts(lines)
    if not counts:
        why = next((line for line in lines if _REFUSAL.match(line)), "it printed no summary")
        return Outcome.NOT_RUN, f"compute-sanitizer {mode}: {why}", ""
    if sum(counts) == _refused_calls(lines):
        return None
    kinds = ((_RACECHECK, Outcome.RACE),) if mode == "racecheck" else _MEMCHECK
    for place, line in enumerate(lines):
        for pattern, outcome in kinds:
            if re.match(pattern, line):
                where = next((m for near in lines[place : place + 4] if (m := re.search(r"in ([^ ]+\.py):(\d+)", near))), None)
                return outcome, line, f"{Path(where[1]).name}:{where[2]}" if where else ""
    refused = next((line for line in lines if _REFUSAL.match(line)), None)
    if refused is not None:
        return Outcome.NOT_RUN, f"compute-sanitizer {mode}: {refused}", ""
    named = [line for line in lines if "error" in line.lower() and "SUMMARY" not in line]
    first = next((line for line in named if not _ATTRIBUTE_ERROR.match(line)), next(iter(named), "an error without a name"))
    return Outcome.LAUNCH_FAILURE, first, ""


def _beside_cuda(name: str) -> str | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    return next((str(p) for p in (Path(home) / "bin" / name, Path(home) / "compute-sanitizer" / name) if p.exists()), None)


def _not_run(why: str) -> Verdict:
    return Verdict(decision=Decision.NOT_RUN, outcome=Outcome.NOT_RUN, message=why)


def unable(error: Exception) -> Verdict:
    """The verdict where the harness itself failed: `error`, which is inconclusive about a kernel."""
    return failure(error, "harness")


def _tail(said: str) -> list[str]:
    return said.splitlines()[-40:]


def allocate_scratch(machine: Target) -> None:
    """consan keeps the state of barriers and buffers in global memory, which Triton asks of whoever launches."""
    import torch
    import triton

    triton.set_allocator(lambda size, alignment, stream: torch.zeros(size, dtype=torch.int8, device=device_of(machine)))


def choose_cases(address: str, machine: Target, count: int | None) -> list[Case]:
    """The first `count` cases of the required cases that expect a result (None: all); one of a kernel that lacks something here.

    Cases that leave the configuration to an autotuner are left out: it would have every candidate instrumented.
    """
    contract = resolve(address)
    if contract.lacking(machine):
        count = 1
    required = contract.required(machine)
    cases = [case for case in required if case.config is not None] or required
    return [case for case in cases if contract.expected_outcome(case, machine).result][:count]


def check_features(address: str, machine: Target) -> Verdict | None:
    """`not run`, with what is missing, where the kernel at `address` cannot run on `machine`."""
    missing = resolve(address).lacking(machine)
    return _not_run(f"{machine.arch} lacks {', '.join(sorted(map(str, missing)))}") if missing else None


def read(path: Path) -> list[dict]:
    """The rows of a file that `sanitize --json` wrote, what was printed as this checkout understands it. ValueError for others."""
    try:
        rows = json.loads(path.read_text())
        if isinstance(rows, list) and all({"contract", "case", "mode", "target", "verdict"} <= set(row) for row in rows):
            return [_reread(row) for row in rows]
        problem = "it is no list of verdicts"
    except (OSError, ValueError, TypeError) as error:
        problem = str(error)
    raise UsageError(f"{path}: {problem}: give a file that sanitize --json wrote")


def _reread(row: dict) -> dict:
    """`row`, or what its verdict is since `BESIDES` is no finding: of what was printed, the file has the message and the end."""
    verdict = row["verdict"]
    details = verdict["details"]
    if row["mode"] != "memcheck" or not _ATTRIBUTE_ERROR.match(verdict["message"]) or details.get("judge") != Outcome.PASS:
        return row
    end = details["said"]
    said = [*([] if any(verdict["message"] in line for line in end) else [verdict["message"]]), *end]
    judged = Verdict(decision=Decision.PASS, outcome=Outcome.PASS, seconds=verdict["seconds"])
    return row | {"verdict": merge_output(row["mode"], judged, "\n".join(said)).to_json()}


def name_of(address: str) -> str:
    """A contract's address without the place of its file: a faulty copy has the same name wherever it was written."""
    path, mark, name = address.rpartition(":")
    return f"{Path(path).name}:{name}" if mark and path.endswith(".py") else address


def cases_of(rows: Sequence[dict], address: str) -> list[Case]:
    """The different cases of `rows` that are of the contract at `address`, wherever its file lay then."""
    contract = resolve(address)
    records = [row["case"] | {"contract": address} for row in rows if name_of(row["contract"]) == name_of(address)]
    return list({case.key: case for case in map(contract.case_from_json, records)}.values())
