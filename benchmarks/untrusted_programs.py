"""Tile programs that no compiler made: valid ones with tokens changed, handed to an emulated GPU as a sealed run hands them over.

Run: `python -m benchmarks.untrusted_programs [seconds] [data_seed] [STEM ...]` (240 seconds). Each is executed in a process of
its own, on the tensors of the launch that it was made from, where programs are not trusted
(`harness/sealed/candidate/untrusted_programs.py`). It must end as a result, as a fault of the emulated GPU, or as what a driver
raises to its launcher. Every second one skips the compiler's own verifier, as if that had a hole: so more reach the translation,
the layouts and the execution.

Exit status 1 where one ends in any other way: another exception, a process that dies, a file that is opened for writing, a
program that is started, code that is compiled and is no translation."""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from benchmarks.campaign import run_script
from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.device import Device
from bitverdict.harness.emulator.frontend import translate
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.targets import targets
from bitverdict.harness.sealed.candidate.untrusted_programs import begin
from bitverdict.harness.session.case_source import CaseSource

SECONDS, SEED = 240.0, 17
STEMS = (
    "matmul", "softmax", "rms_norm", "dropout", "split_k_matmul", "block_scaled_matmul", "hopper_matmul", "tma_gather", "attention",
    "warp_specialized_matmul", "small_mma", "quantize_mxfp", "rope", "tmem_copy",
)  # fmt: skip
CASES = 2  # of each kernel on each target
EACH = 10.0  # seconds of one program
MEMORY = 12 << 30  # bytes of address space above what the process begins with
CODE = "__import__('os').mkdir('executed')"
TOKEN = re.compile(r'"[^"\n]*"|%[\w#.]+|#\w+|\^\w+|\d+x|-?\d+(?:\.\d+e[+-]\d+)?|0x[0-9A-F]+|!?[A-Za-z_][\w.]*|[<>(){}\[\],:=]')
HOSTILE = (
    CODE, f'"{CODE}"', f'"\\22); {CODE} #"', "0", "-1", "1", "7", "2147483648", "9223372036854775808", "-9223372036854775809",
    "1e999", "0x" + "F" * 40, "9" * 5000, "65536x65536x", "0x0x", "nan", "{}", "%0:4000000000", "i128", "f64", "i1", "index",
    "!tt.ptr<i8>", "tensor<4xf32>", "\0", "\u2028", "é", "", "<", ">", "({", "})", "^bb0", "#loc", "unit", 'dense<"0xFF">',
    "!llvm.ptr", "!ttg.memdesc<8x8xf32, #shared, #smem, mutable>", "true", "@kernel",
)  # fmt: skip


class Launched(NamedTuple):
    """What a launch of a valid kernel was given."""

    arch: str
    program: bytes
    given: tuple[Any, ...]  # metadata, grid, names, values, constants


def launches(stems: Sequence[str]) -> list[Launched]:
    """Those of the first cases of `stems` on each emulated target."""
    found: list[Launched] = []
    own = Device.run

    def run(self: Device, program: bytes, *given: Any) -> None:
        found.append(Launched(self.arch, program, given))
        own(self, program, *given)

    Device.run = run  # type: ignore[method-assign]
    try:
        for stem in stems:
            for target in (each for each in targets() if each.emulated):
                source = CaseSource(stem, target)
                for case in [] if source.missing_features else source.required()[:CASES]:
                    judge(case, target)
    finally:
        Device.run = own  # type: ignore[method-assign]
    different = {(each.arch, each.program): each for each in found}
    return list(different.values())


def mutated(text: str, draw: random.Random, others: list[str]) -> str:
    """`text` with one to four tokens or lines changed."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        edit = draw.random()
        lines = text.split("\n")
        if edit < 0.15:  # a line less, twice, or elsewhere
            at, to = draw.randrange(len(lines)), draw.randrange(len(lines))
            line = lines[at] if draw.random() < 0.7 else draw.choice(draw.choice(others).split("\n"))
            if draw.random() < 0.5:
                del lines[at]
            if draw.random() < 0.7:
                lines.insert(to, line)
            text = "\n".join(lines)
            continue
        tokens = list(TOKEN.finditer(text))
        if not tokens:
            return text
        token = draw.choice(tokens)
        if edit < 0.5:
            new = draw.choice(HOSTILE)
        elif edit < 0.85:  # another of the same kind
            alike = [each[0] for each in tokens if each[0][:1] == token[0][:1]]
            new = draw.choice(alike)
        else:
            new = draw.choice(tokens)[0]
        text = text[: token.start()] + new + text[token.end() :]
    return text


def watched(told: Callable[[str], None]) -> None:
    """From here on tell of whatever this process does that an executor never does."""
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT

    def hook(event: str, args: tuple) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & writes and args[0] != os.devnull:
            told(f"opened {args[0]!r}")
        elif event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.mkdir", "os.remove", "socket.connect"):
            told(f"{event} {args!r}"[:200])
        elif event == "compile" and args[1] != "<generated>" and CODE[:10].encode() in str(args[0]).encode():
            told(f"compiled {args!r}"[:200])

    sys.addaudithook(hook)


def ended(launch: Launched, text: bytes, *, verifies: bool) -> str:
    """How the launch of `text` ends, in a process of its own; `verifies`: the compiler's verifier looks at it first."""
    reads, writes = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reads)
        if not verifies:
            translate.check_accepted = lambda text: None
        _child(launch, text, writes)
    os.close(writes)
    with open(reads, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    _, status = os.waitpid(process, 0)
    if (code := os.waitstatus_to_exitcode(status)) == -signal.SIGALRM:
        return "no end in time"  # as a case ends that its session cuts off
    return said if code == 0 else f"DIED with {code}: {said}"


def _child(launch: Launched, text: bytes, writes: int) -> NoReturn:
    found: list[str] = []
    with open(f"/proc/{os.getpid()}/statm") as file:
        mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    begin(scratch=os.getcwd(), seconds=EACH / 2)
    signal.setitimer(signal.ITIMER_REAL, EACH)
    try:
        with emulated(launch.arch, options=LaunchOptions(real_values=frozenset())) as device:
            watched(found.append)
            device.run(text, *launch.given)
        said = "result"
    except EmulatedFault as fault:
        said = f"fault: {fault.outcome}"
        if fault.message.startswith("no tile program of the compiler's: its execution raised"):
            said += f" ({fault.message.partition('raised ')[2].partition(':')[0]})"
    except RuntimeError as error:
        said = "told to the launcher" if "Triton Error [CUDA]" in str(error) else f"RAISED {error!r}"
    except BaseException as error:
        said = f"RAISED {error!r}"
    for each in found:
        said = f"REACHED {each}"
    os.write(writes, said[:2000].encode())
    os._exit(0)


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    draw = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else SEED)
    stems = sys.argv[3:] or STEMS
    with tempfile.TemporaryDirectory() as folder:
        taken = launches(stems)
        texts = [each.program.decode() for each in taken]
        print(f"{len(taken)} programs of {len(stems)} kernels", flush=True)
        os.chdir(folder)
        counts, bad, until = Counter[str](), 0, time.monotonic() + seconds
        while time.monotonic() < until:
            launch = draw.choice(taken)
            text = mutated(launch.program.decode(), draw, texts)
            verifies = counts.total() % 2 == 0
            how = ended(launch, text.encode("utf-8", "surrogateescape"), verifies=verifies)
            counts[(how.partition(" ")[0] if how[0].isupper() else how) + ("" if verifies else ", not verified")] += 1
            if how[0].isupper():
                bad += 1
                print(f"{how}\n  {_difference(launch.program.decode(), text)}", flush=True)
    print(f"{counts.total()} programs in {seconds:g} s, {bad} that ended in another way than they may")
    for how, count in counts.most_common():
        print(f"{count:7d}  {how}")
    return int(bad > 0)


def _difference(before: str, after: str) -> str:
    one, other = before.split("\n"), after.split("\n")
    found = [line for line in other if line not in one][:4]
    return "\n  ".join(line[:300] for line in found) or f"{len(one)} lines -> {len(other)}"


if __name__ == "__main__":
    run_script(main)
