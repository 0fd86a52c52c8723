"""The emulated GPU beside Triton's own interpreter: the same kernels, the same operands, in one run.

    python -m benchmarks.interpreter_speed                          # the kernels of everyday_kernels.py and `matmul`
    python -m benchmarks.interpreter_speed --cases FILE.py --only norm --rounds 9 --markdown

Each side is a process of its own with one core: the interpreter is chosen when Triton is imported. They take turns, launch by
launch, so both see the same machine. Seconds are of the processor, so a busy machine changes them little. The first launch of each
side compiles and is not timed. A row is the median of the rounds. "faster" is the median of the paired ratios: how often the
emulator launches while the interpreter launches once. "products" is the share of the emulator's time that goes into bit-accurate
products of tensor cores, which the interpreter leaves to a BLAS.

Goals (exit status 1 where one is missed): not slower on 95 % of the kernels, a median of 8, none below 0.5. A kernel that the
emulator refuses, or that the interpreter cannot run, is named and not counted.

FILE.py has `CASES`: name -> function without arguments that makes operands and gives a function that launches and returns outputs.
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads its BLAS
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import contextlib  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import select  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from benchmarks.campaign import Option, parse, run_script  # noqa: E402

HERE = Path(__file__).resolve().parent
EVERYDAY = str(HERE / "everyday_kernels.py")
SIDES = ("emulator", "interpreter")
ROUNDS, LEAST_SECONDS, PATIENCE = 7, 0.02, 120.0  # of one kernel; that one timing takes; until a side is given up, seconds
NOT_SLOWER, MEDIAN, LEAST = 0.95, 8.0, 0.5


@dataclass(frozen=True)
class Row:
    """What came of one kernel: median seconds of a launch on each side, the median of the paired ratios, the share of bit-accurate
    products in the emulator's time, the share of equal bytes; or why there is none."""

    name: str
    emulator: float = 0.0
    interpreter: float = 0.0
    faster: float = 0.0
    products: float = 0.0
    equal: float = 0.0
    refused: str = ""


# -- one side, in a process of its own ----------------------------------------------------------------------------------
def cases_of(file: str) -> dict[str, Callable[[], Callable[[], tuple]]]:
    """`CASES` of a file."""
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[Path(file).stem] = module
    spec.loader.exec_module(module)
    return dict(module.CASES)


def matmul_cases() -> dict[str, Callable[[], Callable[[], tuple]]]:
    """The project's kernel that the interpreter can run: the others are written in Gluon, or scale what it scales wrongly."""
    import torch
    import triton.language as tl

    from bitverdict.kernels.matmul import matmul_kernel

    def made(dtype: torch.dtype, size: int) -> Callable[[], tuple]:
        draw = torch.Generator().manual_seed(2)
        a, b = (torch.randn(size, size, generator=draw).to(dtype) for _ in range(2))
        c = torch.empty(size, size, dtype=dtype)

        def launch() -> tuple:
            named: dict[str, Any] = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "ACTIVATION": "leaky_relu"}
            named |= {
                "PRECISION": "ieee",
                "ACCUMULATOR": tl.float32,
                "WIDE_OFFSETS": False,
                "USE_DESCRIPTORS": False,
                "B_TURNED": False,
            }
            tiles = (size // 64) ** 2
            matmul_kernel[(tiles,)](
                a, b, c, None, None, size, size, size, size, 1, size, 1, size, 1, **named, LAYOUT="", num_warps=4
            )
            return (c,)

        return launch

    return {"kernels/matmul.py fp16": lambda: made(torch.float16, 128)}


class Products:
    """How long bit-accurate products took, by the functions that all of them go through."""

    def __init__(self) -> None:
        self.seconds, self.depth = 0.0, 0

    def watch(self) -> None:
        from bitverdict.harness.emulator.frontend.lowerings import block_scaled, products

        for module in (products, block_scaled):
            for name in ("product", "partial_product", "fma_product", "scaled_product"):
                if hasattr(module, name):
                    setattr(module, name, self.timed(getattr(module, name)))

    def timed(self, function: Callable) -> Callable:
        def run(*given: Any, **named: Any) -> Any:
            begun = time.process_time()
            try:
                return function(*given, **named)
            finally:
                self.seconds += time.process_time() - begun

        return run


def serve(side: str, arch: str, files: list[str]) -> None:
    """Answer each line of stdin, the name of a case, by a line of JSON: seconds of a launch, and digests of its outputs."""
    sys.path.insert(0, str(HERE.parent))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a kernel prints is no answer
    launches: dict[str, Callable[[], tuple]] = {}
    repeats: dict[str, int] = {}
    made = {name: make for file in files for name, make in cases_of(file).items()}
    products = Products()
    if EVERYDAY in files:
        made |= matmul_cases()
    around: Callable[[], Any] = contextlib.nullcontext
    if side == "emulator":
        from bitverdict.harness.emulator import emulated

        os.environ["BITVERDICT_TRANSLATIONS"] = "off"
        products.watch()
        around = lambda: emulated(arch)
    print(json.dumps(sorted(made)), file=answers, flush=True)
    for line in sys.stdin:
        name = line.strip()
        try:
            if name not in launches:
                launches[name] = made[name]()
                with around():
                    launches[name]()
                    begun = time.process_time()
                    launches[name]()
                    repeats[name] = max(1, int(LEAST_SECONDS / max(time.process_time() - begun, 1e-9)))
            products.seconds = 0.0
            with around():
                begun = time.process_time()
                for _ in range(repeats[name]):
                    outputs = launches[name]()
                spent = time.process_time() - begun
            answer = {"seconds": spent / repeats[name], "products": products.seconds / spent, "words": words(outputs)}
        except Exception as error:
            answer = {"refused": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
        print(json.dumps(answer), file=answers, flush=True)


def words(outputs: tuple) -> str:
    """The bytes of the outputs."""
    import torch

    return b"".join(each.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes() for each in outputs).hex()


# -- both sides ---------------------------------------------------------------------------------------------------------
class Side:
    """A process that launches what it is told, started anew when it died or took too long."""

    def __init__(self, name: str, arch: str, files: list[str]) -> None:
        self.command = [
            sys.executable,
            "-m",
            "benchmarks.interpreter_speed",
            "--serve",
            name,
            "--arch",
            arch,
            *(x for f in files for x in ("--cases", f)),
        ]
        self.environment = os.environ | ({"TRITON_INTERPRET": "1"} if name == "interpreter" else {})
        self.name = name
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment
        )
        self.names: list[str] = self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            return {"refused": f"took longer than {PATIENCE:.0f} s"}
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"refused": f"the process ended with {self.process.wait()}"}

    def launch(self, name: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        answer = self.answer()
        if "refused" in answer and answer["refused"].startswith(("took", "the process")):
            self.end()
            self.start()
        return answer

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def row(name: str, sides: list[Side], rounds: int) -> Row:
    """One kernel on both sides, in turn."""
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    products, last = [], {}
    for _ in range(rounds):
        for side in sides:
            answer = side.launch(name)
            if "refused" in answer:
                return Row(name, refused=f"{side.name}: {answer['refused']}")
            seconds[side.name].append(answer["seconds"])
            last[side.name] = bytes.fromhex(answer["words"])
            if side.name == "emulator":
                products.append(answer["products"])
    ours, theirs = seconds["emulator"], seconds["interpreter"]
    faster = statistics.median(other / own for own, other in zip(ours, theirs, strict=True))
    return Row(name, statistics.median(ours), statistics.median(theirs), faster, statistics.median(products), equal(*last.values()))


def equal(one: bytes, other: bytes) -> float:
    """Share of equal bytes."""
    return sum(map(int.__eq__, one, other)) / max(len(one), 1)


def told(rows: list[Row], markdown: bool) -> Iterator[str]:
    """The table, slowest first, and what is said of the goals."""
    head = ("kernel", "emulator ms", "interpreter ms", "faster", "products", "equal bytes")
    shape = "| {} | {} | {} | {} | {} | {} |" if markdown else "{:28s} {:>12s} {:>15s} {:>8s} {:>9s} {:>12s}"
    yield shape.format(*head)
    if markdown:
        yield shape.format(*["---"] * len(head))
    counted = sorted((each for each in rows if not each.refused), key=lambda each: each.faster)
    for each in counted:
        yield shape.format(
            each.name, f"{1e3 * each.emulator:.2f}", f"{1e3 * each.interpreter:.2f}", f"{each.faster:.2f}",
            f"{each.products:.0%}", f"{each.equal:.1%}",
        )  # fmt: skip
    yield ""
    for each in rows:
        if each.refused:
            yield f"not counted: {each.name}: {each.refused}"


def judged(rows: list[Row]) -> tuple[str, list[str]]:
    """(summary, goals that are missed) of the kernels that both sides ran."""
    counted = [each for each in rows if not each.refused]
    if not counted:
        return "no kernel ran on both sides", ["no kernel ran on both sides"]
    slower = [each for each in counted if each.faster < 1]
    share, median = 1 - len(slower) / len(counted), statistics.median(each.faster for each in counted)
    lowest = min(counted, key=lambda each: each.faster)
    summary = (
        f"{len(counted)} kernels: not slower on {share:.0%}, median {median:.1f} times, lowest {lowest.faster:.2f} ({lowest.name})"
    )
    missed = [f"slower: {each.name}, {each.faster:.2f}, {each.products:.0%} of its time in products" for each in slower]
    goals = [] if share >= NOT_SLOWER else [f"not slower on {share:.0%}, goal {NOT_SLOWER:.0%}"]
    goals += [] if median >= MEDIAN else [f"median {median:.1f}, goal {MEDIAN:.0f}"]
    goals += [] if lowest.faster >= LEAST else [f"{lowest.name}: {lowest.faster:.2f}, goal {LEAST}"]
    return "\n".join([summary, *missed]), goals


def main() -> int:
    given = parse(
        __doc__, cases=[], only="", arch="sm_90", rounds=ROUNDS, markdown=False,
        serve=Option(str, "one side, as this script starts it", choices=SIDES),
    )  # fmt: skip
    files = given.cases or [EVERYDAY]
    if given.serve:
        serve(given.serve, given.arch, files)
        return 0
    sides = [Side(name, given.arch, files) for name in SIDES]
    try:
        rows = [row(name, sides, given.rounds) for name in sides[0].names if given.only in name]
    finally:
        for side in sides:
            side.end()
    print(f"emulated {given.arch}, one core a side, in turn; median of {given.rounds} rounds")
    print("\n".join(told(rows, given.markdown)))
    summary, missed = judged(rows)
    print(summary)
    for goal in missed:
        print("missed: " + goal)
    return int(bool(missed))


if __name__ == "__main__":
    run_script(main)
