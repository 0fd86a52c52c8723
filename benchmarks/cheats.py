"""Cheats of the public lists, judged: what each comes to without a seal, and sealed in both front ends.

    python -m benchmarks.cheats [-k TEXT] [--not TEXT] [--runs unsealed,command,pytest] [--target TARGET]
                                [--results FILE [--resume]] [--jobs N]
    python -m benchmarks.cheats --page --results FILE > docs/cheats.md

Prints a line a cheat: how it ended without a seal, sealed by the command line, sealed by pytest, and how it may end. A sealed run
must also say of it what its record names: an error of the harness is no *inconclusive*. Each cheat is judged alone, in a folder,
state directory and caches of its own. Those that change files have a copy of the checkout as well. What would harm
the machine (its disk and memory, processes and files of others) is run sealed only. Status 1 where a sealed run believed one, or
ended otherwise than its record says.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.campaign import Option, parse, run_script, write
from benchmarks.cheats_page import page
from tests.faults.cheats.handed_in import write_candidate
from tests.faults.cheats.records import BELIEVED, CHEATS, DESCRIBED, MATMUL, PROBLEM, TWINS, Cheat

CHECKOUT = Path(__file__).resolve().parents[1]

RUNS = ("unsealed", "command", "pytest")
CASES, LONGEST = 4, 400.0
"""Cases of a run by the command line; seconds after which a run is ended, beside what its cases may take by their own limit."""
STATUS = {0: BELIEVED, 1: "fail", 2: "usage error", 3: "inconclusive", 5: "nothing ran"}
SAID = 600  # characters of what was said that --results keeps
OTHERWISE = "otherwise"  # of a cheat in --results: its sealed runs that ended otherwise than its record says
TOGETHER, ALONE, CHANGES_FILES = 8, ("processes", "files_changed", "resources", "guessed_operands"), ("files_changed",)
KEPT, MOST_CASES = "m<70 and n<70 and k<70", 32  # of the cases of a pytest node, and how many these are
COPIED = ("bitverdict", "harness", "kernels", "reference", "tests", "conftest.py", "pyproject.toml")
PLUGIN = "bitverdict.harness.frontends.pytest_options"
_IMPORT, _TEST = (
    "import bitverdict as bv\n",
    """
test_{number} = bv.test({address!r}, like={like!r}{sealed})
""",
)
_DESCRIBED = """

@bv.judged(reference=lambda xp, a, b: a @ b, launcher={address!r}{sealed}, strides="contiguous")
def test_{number}(draw):
    m, n, k = draw.size(1, 6), draw.size(1, 6), draw.size(1, 40)
    return draw.tensor("fp16", (m, k)), draw.tensor("fp16", (k, n))

"""


_SEVERAL = """
import json, os, sys
from bitverdict.harness.frontends.main import main

statuses = []
for words in json.loads(sys.argv[1]):
    print()
    print(sys.argv[2], flush=True)
    try:
        statuses.append(main(words))
    except SystemExit as left:
        statuses.append(left.code)
    with open("statuses.json", "w") as file:
        json.dump(statuses, file)
"""
"""Several commands in one process: what they import, and the processes that sealed runs start from, are there once."""
_NEXT = "== the next command"
"""A line before what each of them prints."""


class Ended(NamedTuple):
    """How a cheat ended: a word of `STATUS` with the outcome of its cases that tells most, and what was said of it."""

    word: str
    said: str = ""


def judged(cheats: Sequence[Cheat], run: str) -> dict[str, Ended]:
    """How each of `cheats` ends, by its id. pytest has a test for each, and the command line a run."""
    if run == "unsealed" and cheats[0].harm:
        return {cheats[0].id: Ended(f"not run: it would {cheats[0].harm}")}
    with tempfile.TemporaryDirectory(prefix="bitverdict-cheat-", ignore_cleanup_errors=True) as place:
        folder, said = Path(place) / "work", Path(place) / "work" / "said"
        for name in ("work", "state", "triton"):
            (Path(place) / name).mkdir()
        checkout = _copied(Path(place)) if cheats[0].family in CHANGES_FILES else CHECKOUT
        addresses, tests = [write_candidate(cheat.family, cheat.name, folder) for cheat in cheats], _IMPORT
        for number, (cheat, address) in enumerate(zip(cheats, addresses, strict=True)):
            text, like = _DESCRIBED if cheat.task == DESCRIBED else _TEST, "problem.py" if cheat.task == PROBLEM else "matmul"
            tests += text.format(number=number, address=address, sealed=", sealed=True" if run != "unsealed" else "", like=like)
        shutil.copy(checkout / "tests/support/kernelbench/problems/softmax.py", folder / "problem.py")
        (folder / "test_cheats.py").write_text(tests)
        if cheats[0].family == "guessed_operands":
            write_table(folder / f"guessed_operands_{cheats[0].name}.json", addresses[0], cheats[0].target)
        learnt = Path(addresses[0].rpartition(":")[0]).with_suffix(".txt")
        environment = os.environ | {
            "BITVERDICT_STATE": f"{place}/state",
            "TRITON_CACHE_DIR": f"{place}/triton",
            "PYTHONPATH": os.pathsep.join([str(checkout), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }

        def status_of(*words: str) -> int | None:
            command = [sys.executable, *words]
            if cheats[0].learns:
                learnt.write_text("*")
                _status(command, folder, environment, _longest(cheats))
                teach(learnt, Path(place) / "state")
            return _status(command, folder, environment, _longest(cheats))

        if run == "pytest":
            return _told_by_pytest(folder / "told.xml", cheats, status_of(*_by_pytest(cheats)))
        asked = [_asked(cheat, address, run != "unsealed") for cheat, address in zip(cheats, addresses, strict=True)]
        if len(cheats) == 1:
            status = status_of("-m", "bitverdict", *asked[0])
            return {cheats[0].id: _told(folder, cheats[0], status, said.read_text(errors="replace"))}
        status = status_of("-c", _SEVERAL, json.dumps(asked), _NEXT)
        ended = json.loads((folder / "statuses.json").read_text()) if (folder / "statuses.json").is_file() else []
        each = ended + [status] * (len(cheats) - len(ended))
        texts = said.read_text(errors="replace").split(f"\n{_NEXT}\n")[1:]
        texts += [""] * (len(cheats) - len(texts))
        return {cheat.id: _told(folder, cheat, came, text) for cheat, came, text in zip(cheats, each, texts, strict=True)}


def teach(file: Path, state: Path) -> None:
    """Digests of the operands of all cases, and of their later calls, that the journals in `state` have."""
    import hashlib

    from bitverdict.harness.checks.second_call import case_of_later_call
    from bitverdict.harness.model.addresses import resolve
    from bitverdict.harness.model.contract import case_from_record

    contract, digests = resolve("matmul"), []
    records = [json.loads(line) for journal in state.rglob("*.jsonl") for line in journal.read_text().splitlines()]
    for record in (each["case"] for each in records if each.get("event") == "begin" and "case" in each):
        case = case_from_record(contract, record)
        for one in (case, case_of_later_call(case)):
            operands = {operand.name: operand.codes for operand in contract.operands(one)}
            digests.append(hashlib.sha256(operands["a"].tobytes() + operands["b"].tobytes()).hexdigest())
    file.write_text("\n".join(digests))


def write_table(file: Path, address: str, where: str) -> None:
    """Answers to the cases of an ordinary run, by the digest of their operands: what an earlier run taught the candidate."""
    import hashlib

    from bitverdict.harness.model.targets import target
    from bitverdict.harness.session.case_source import CaseSource

    known, source = {}, CaseSource("matmul", target(where), launcher=address)
    for case in source.required()[:CASES]:
        operands = {operand.name: operand.codes.view(np.float16) for operand in source.contract.operands(case)}
        digest = hashlib.sha256(operands["a"].tobytes() + operands["b"].tobytes()).hexdigest()
        known[digest] = (operands["a"].astype(np.longdouble) @ operands["b"].astype(np.longdouble)).astype(float).ravel().tolist()
    file.write_text(json.dumps(known))


def _asked(cheat: Cheat, address: str, sealed: bool) -> list[str]:
    """The words of the command that judges `cheat`."""
    options = ["--target", cheat.target, "--max-cases", str(CASES), "--shrink-seconds", "0", "--jobs", "1", "--json", _json(cheat)]
    options += ["--sealed"] if sealed and cheat.task != PROBLEM else []
    options += ["--timeout", str(cheat.seconds)] if cheat.seconds else []
    options += ["--secret", cheat.secret] if cheat.secret and sealed else []
    if cheat.task == PROBLEM:
        options += [] if sealed else ["--unsealed"]
        asked = ["kernelbench", "problem.py", address]
    else:
        asked = ["run", "test_cheats.py:test_0"] if cheat.task == DESCRIBED else ["run", "matmul", "--launcher", address]
    return [*asked, *options]


def _json(cheat: Cheat) -> str:
    return f"{cheat.family}_{cheat.name}.jsonl"


def _by_pytest(cheats: Sequence[Cheat]) -> list[str]:
    kept = ["--bv-k", KEPT] if cheats[0].task == MATMUL else []
    kept += ["--bv-secret", cheats[0].secret] if cheats[0].secret else []
    kept += ["--bv-timeout", str(cheats[0].seconds)] if cheats[0].seconds else []
    asked = f"-q -p no:cacheprovider -p {PLUGIN} --hypothesis-seed 0 --bv-draws 0 --bv-target {cheats[0].target}"
    return ["-m", "pytest", *asked.split(), *kept, "--junitxml", "told.xml", "test_cheats.py"]


def _longest(cheats: Sequence[Cheat]) -> float:
    """Seconds after which a run of `cheats` is ended: no case that keeps to its own limit may use them up."""
    return sum(LONGEST + MOST_CASES * cheat.seconds for cheat in cheats)


def _status(command: list[str], folder: Path, environment: dict[str, str], seconds: float) -> int | None:
    """The exit status of the run `command`, None where it did not end within `seconds`; nothing of it is left running."""
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _clear(environment["BITVERDICT_STATE"], process)


def _told(folder: Path, cheat: Cheat, status: int | None, printed: str) -> Ended:
    """How a run of the command line ended: by its status, and the commonest outcome that is no pass. It says what its verdicts say;
    without any, as of a usage error, what it printed."""
    if status is None:
        return Ended("the run did not end")
    outcomes, said = Counter[str](), list[str]()
    with contextlib.suppress(OSError):
        for line in (folder / _json(cheat)).read_text().splitlines():
            verdict = json.loads(line).get("verdict", {})
            if verdict and (verdict["outcome"] != "pass" or status == 0):
                outcomes[verdict["outcome"]] += 1
                said.append(f"{verdict['outcome']}: {verdict.get('message', '')}")
    word = STATUS.get(status, f"the run died with status {status}")
    return Ended(": ".join(dict.fromkeys([word, *(name for name, _ in outcomes.most_common(1))])), "\n".join(said) or printed)


def _told_by_pytest(file: Path, cheats: Sequence[Cheat], status: int | None) -> dict[str, Ended]:
    """How the test of each cheat ended; what a run that died or hung has no result of is lost."""
    lost = Ended("lost: the run did not end" if status is None else f"lost: the run left with status {status}")
    ended = {cheat.id: lost for cheat in cheats}
    try:
        cases = list(xml.etree.ElementTree.parse(file).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError):
        return ended
    for case in cases:
        number = case.get("name", "").removeprefix("test_").partition("[")[0]
        if number.isdigit() and int(number) < len(cheats):
            ended[cheats[int(number)].id] = _ended(case)
    return ended


def _ended(case: xml.etree.ElementTree.Element) -> Ended:
    for kind, word in (("failure", "fail"), ("error", "error"), ("skipped", "nothing ran")):
        if (found := case.find(kind)) is not None:
            said = f"{found.get('message', '')}\n{found.text or ''}"
            lines = said.splitlines()
            first = next((line for line in lines if line.startswith(("FAIL ", "INCONCLUSIVE ", "ERROR "))), "")
            if first:
                told = re.search(
                    r" on \S+: ([a-z][^:]*?)(?: at [^:]+)?(?:: |$)", first
                )  # ADDRESS on TARGET: OUTCOME[ at LINE]: CAUSE
                return Ended(f"{first.partition(' ')[0].lower()}: {told[1] if told else first}", said)
            open_ = any("inconclusive" in line or "not claimed" in line for line in lines)
            return Ended("inconclusive" if word == "fail" and open_ else word, said)
    return Ended(BELIEVED)


def _clear(state: str, process: subprocess.Popen) -> None:
    """End what is left of a run: its group, and processes that have its state directory in their environment."""
    for pid in [process.pid, *_with(state)]:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                kill(pid, signal.SIGKILL)
    process.wait()


def _with(state: str) -> Iterator[int]:
    wanted = f"BITVERDICT_STATE={state}".encode()
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                yield int(place.name)


def _copied(place: Path) -> Path:
    """A copy of what a run needs of the checkout: these cheats write to it."""
    for name in COPIED:
        whole, to = CHECKOUT / name, place / "checkout" / name
        if whole.is_dir():
            shutil.copytree(whole, to, symlinks=True, ignore=shutil.ignore_patterns("hardware_words", "function_words"))
        elif whole.exists():
            shutil.copy(whole, to)
    return place / "checkout"


def serve_answers() -> None:
    """The server that `processes: answer_over_network` asks, on loopback and an abstract socket, in threads of this process."""
    for family, address in ((socket.AF_INET, ("127.0.0.1", 47211)), (socket.AF_UNIX, "\0bitverdict-cheats")):
        server = socket.socket(family, socket.SOCK_STREAM)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(address)
        except OSError:  # another run of this benchmark serves
            continue
        server.listen()
        threading.Thread(target=_serve, args=(server,), daemon=True).start()


def _serve(server: socket.socket) -> None:
    while True:
        asked, _ = server.accept()
        with contextlib.suppress(OSError, ValueError, struct.error), asked, asked.makefile("rb") as given:
            m, k, n = json.loads(given.read(struct.unpack("!I", given.read(4))[0]))
            a, b = (
                np.frombuffer(given.read(4 * rows * columns), "<f4").reshape(rows, columns) for rows, columns in ((m, k), (k, n))
            )
            asked.sendall((a @ b).astype("<f4").tobytes())


def main() -> int:
    arguments = parse(
        __doc__, k=Option("", "cheats whose id has the text, or one of several between commas"),
        not_=Option("", "leave out those whose id has it, likewise"), target="",
        runs=Option(",".join(RUNS), "which of unsealed, command, pytest (default: all)"), results=Path, resume=False, jobs=2,
        page=False,
    )  # fmt: skip
    there = arguments.results and arguments.results.is_file()
    known: dict[str, dict[str, str]] = json.loads(arguments.results.read_text()) if there else {}
    if arguments.page:
        print(page(known), end="")
        return 0
    signal.signal(signal.SIGINT, lambda *told: None)  # a cheat interrupts whoever it descends from
    serve_answers()
    runs = [run for run in RUNS if run in arguments.runs.split(",")]
    chosen = [cheat for cheat in (*TWINS, *CHEATS) if _named(cheat, arguments.k)]
    chosen = [cheat for cheat in chosen if not arguments.not_ or not _named(cheat, arguments.not_)]
    chosen = [replace(cheat, target=arguments.target or cheat.target) for cheat in chosen]
    begun, believed = time.perf_counter(), []

    def some(cheats: tuple[Cheat, ...]) -> list[tuple[Cheat, dict[str, Ended]]]:
        found: dict[str, dict[str, Ended]] = {cheat.id: {} for cheat in cheats}
        for run in runs:
            left = tuple(cheat for cheat in cheats if not (arguments.resume and _is_kept(known.get(cheat.id, {}), run)))
            alone = run == "unsealed" or (run == "command" and cheats[0].task == DESCRIBED)
            for part in [(cheat,) for cheat in left] if alone else [left] * bool(left):
                for name, came in judged(part, run).items():
                    found[name][run] = came
        return [(cheat, found[cheat.id]) for cheat in cheats]

    with ThreadPoolExecutor(arguments.jobs) as pool:
        for cheat, found in (each for part in pool.map(some, _parts(chosen)) for each in part):
            known[cheat.id] = known.get(cheat.id, {}) | {run: came.word for run, came in found.items()}
            known[cheat.id] |= {f"{run} said": came.said.strip()[:SAID] for run, came in found.items()}
            wrong = [run for run, came in found.items() if run != "unsealed" and not _as_it_may(cheat, came)]
            known[cheat.id][OTHERWISE] = " ".join(wrong)
            believed += [cheat.id] * bool(wrong)
            print(f"{cheat.id:<46} " + " ".join(f"{known[cheat.id][run]:<36}" for run in runs) + f" {' or '.join(cheat.ends)}"
                  + (" <== NOT SO" if wrong else ""), flush=True)  # fmt: skip
            if arguments.results:
                write(arguments.results, known, sort_keys=True)
    passing = sum(known[cheat.id].get("unsealed", "").startswith(BELIEVED) for cheat in chosen if cheat not in TWINS)
    print(
        f"{len(chosen)} in {time.perf_counter() - begun:.0f} s; {passing} pass without a seal; {len(believed)} not as they must be"
    )
    return 1 if believed else 0


def _named(cheat: Cheat, texts: str) -> bool:
    return any(text in cheat.id for text in texts.split(","))


def _parts(cheats: Sequence[Cheat]) -> list[tuple[Cheat, ...]]:
    """`cheats` by what one pytest judges together: at most `TOGETHER`; those that attack what is around them alone."""
    found: list[tuple[Cheat, ...]] = []
    for (_, family, _), several in groupby(cheats, key=lambda cheat: (cheat.task, cheat.family, cheat.target)):
        left, most = list(several), 1 if family in ALONE else TOGETHER
        found += [tuple(left[first : first + most]) for first in range(0, len(left), most)]
    return found


def _is_kept(kept: Mapping[str, str], run: str) -> bool:
    """Whether the results that are `kept` of a cheat have this run, which ended as its record says."""
    return run in kept and run not in kept.get(OTHERWISE, "").split()


def _as_it_may(cheat: Cheat, came: Ended) -> bool:
    """Whether a sealed run ended as the record says that it may, and said so."""
    said = " ".join(came.said.split())  # lines are broken where they are printed
    return came.word.partition(":")[0] in cheat.ends and (not cheat.says or any(text.strip() in said for text in cheat.says))


if __name__ == "__main__":
    run_script(main)
