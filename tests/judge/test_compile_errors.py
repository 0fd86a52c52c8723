"""Contract under test: a refusal by the compiler is told once, by its innermost message and the line of the kernel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bitverdict.harness.emulator import emulated
from bitverdict.harness.frontends.main import main
from bitverdict.harness.judge.classify import outcome_of
from bitverdict.harness.judge.compile_errors import named_by_compiler, says_nothing
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import LONGEST, Decision, Outcome, Verdict
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from tests.support import refused_kernels
from tests.support.vector_add import ADDRESS, Case, Problem

SM_90 = target("emulated:sm_90")
FILE = "tests/support/refused_kernels.py"
SOURCE = Path(refused_kernels.__file__).read_text().splitlines()
BY_FRONT_END = {
    "nested": """AttributeError("'tensor' object has no attribute 'nosuch'")""",
    "shape": "Cannot make_shape_compatible: incompatible dimensions at index 0: 64 and 128",
    "asserted": "N must be 7",
    "unnamed": "NameError('no_such_name is not defined')",
    "silent": "assert x.dtype.is_int()",
    "layouts": "Layout mismatch in broadcast: ",
}


def marked(name: str) -> str:
    return f"{FILE}:{next(number for number, line in enumerate(SOURCE, 1) if f'# {name}' in line)}"


@pytest.mark.parametrize("name", BY_FRONT_END)
def test_the_front_ends_refusal_is_its_innermost_message_and_line(name: str) -> None:
    a = torch.ones(64)
    with emulated("sm_90"), pytest.raises(Exception) as raised:
        refused_kernels.launcher_of(refused_kernels.KERNELS[name])(a, a)
    seen = outcome_of(raised.value)
    assert (seen.outcome, seen.layer, seen.location) == (Outcome.REFUSED, "front end", marked(name))
    assert BY_FRONT_END[name] in seen.message[: len(BY_FRONT_END[name]) + len("ValueError('")]  # older releases print the error so
    calls = [int(place.rpartition(":")[2]) for place in seen.details.get("called at", ())]
    assert [SOURCE[line - 1].strip() for line in calls] == (
        ["tl.store(c + places, between(tl.load(a + places)))", "return innermost(x)"] if name == "nested" else []
    )


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    with WorkerPool(journal=Journal(tmp_path_factory.mktemp("journal") / "j.jsonl")) as pool:
        yield pool


def test_a_refusal_by_the_verifier_keeps_its_sentence_and_its_line(pool: WorkerPool) -> None:
    """Triton's exception says no more than "error encountered during parsing"; the rest is printed."""
    refused = pool.judge(Case(contract=ADDRESS, problem=Problem(n=64), launcher=f"{refused_kernels.__name__}:launch_warps"), SM_90)
    assert (refused.outcome, refused.details["layer"], refused.location) == (Outcome.REFUSED, "verifier", marked("warps"))
    assert refused.message.startswith("Result has an invalid layout: ")
    assert refused.message.endswith("Layout has 8 warps per CTA, but the context requires 4 warps per CTA.")


def test_a_kernel_that_the_compiler_takes_is_judged(pool: WorkerPool) -> None:
    taken = Case(contract=ADDRESS, problem=Problem(n=64), launcher=f"{refused_kernels.__name__}:launch_taken")
    assert pool.judge(taken, SM_90).outcome is Outcome.WRONG_WORDS


SILENT = Verdict(decision=Decision.FAIL, outcome=Outcome.REFUSED, message="PassManager::run failed", location="mine.py:40")
PRINTED = [
    "warming up",
    "/somewhere/mine.py:12:9: warning: this may be slow",
    "/somewhere/mine.py:31:4: error: 'tt.dot' op expected the first operand",
    "to have another layout",
    "    gl.dot(a, b)",
    "    ^",
    "/somewhere/mine.py:31:4: note: see current operation: %3",
    "/somewhere/mine.py:50:4: error: another one",
]


def test_the_first_error_that_was_printed_names_a_silent_refusal() -> None:
    assert says_nothing(SILENT)
    named = named_by_compiler(SILENT, PRINTED)
    assert (named.message, named.location) == ("'tt.dot' op expected the first operand to have another layout", "mine.py:31")
    assert not says_nothing(named)


def test_a_refusal_that_says_something_or_is_expected_stays_as_it_is() -> None:
    assert named_by_compiler(SILENT, PRINTED[:2]) == SILENT
    spoken = Verdict(decision=Decision.FAIL, outcome=Outcome.REFUSED, message="N must be 7")
    expected_outcome = Verdict(decision=Decision.PASS, outcome=Outcome.REFUSED, message="PassManager::run failed")
    assert not says_nothing(spoken) and not says_nothing(expected_outcome)


def test_a_run_tells_a_refusal_once_and_asks_no_third_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    words = ["run", "--contract", ADDRESS, "--launcher", f"{refused_kernels.__name__}:launch_nested", "--jobs", "1"]
    assert main([*words, "--target", "emulated:sm_90", "--max-cases", "12", "--shrink-seconds", "0"]) == 1
    out = capsys.readouterr().out
    assert out.count("has no attribute 'nosuch'") == 2  # the report, and why the others are cancelled
    place = marked("nested")
    shown = re.search(rf"^  at {place}$.*?^ +{place.split(':')[1]} │ +return y\.nosuch  # nested$", out, re.MULTILINE | re.DOTALL)
    assert shown is not None and "2 fail, " in out and " cancelled; " in out
    assert f"not judged after 2 that the compiler refuses at {marked('nested')}, and none that it takes: AttributeError" in out
    (stored,) = (tmp_path / "state" / "failures").iterdir()
    assert json.loads(stored.read_text())["verdict"]["location"] == marked("nested")


LONG_WINDED = """
from tests.support.vector_add import add_by_torch

def short(a, b):
    raise ValueError("x" * 100)

def long(a, b):
    raise ValueError("x" * 5_000_000)

def lines(a, b):
    raise ValueError("failed\\n" * 1_000_000)

def printed(a, b):
    print("y" * 5_000_000)
    import os
    os._exit(3)
"""


@pytest.mark.parametrize("name", ["short", "long", "lines", "printed"])
def test_a_text_of_megabytes_is_cut_before_it_is_stored(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    (tmp_path / "mine.py").write_text(LONG_WINDED)
    words = ["run", "--contract", ADDRESS, "--launcher", f"{tmp_path / 'mine.py'}:{name}", "--jobs", "1", "--max-cases", "1"]
    assert main([*words, "--target", "emulated:sm_90", "--shrink-seconds", "0"]) == 1
    (stored,) = (tmp_path / "state" / "failures").iterdir()
    assert stored.stat().st_size < 100_000 and len(capsys.readouterr().out) < 20_000
    verdict = json.loads(stored.read_text())["verdict"]
    if name == "short":
        assert "x" * 100 in verdict["message"] and "characters ...]" not in stored.read_text()
    if name == "long":
        assert "characters ...]" in "".join(verdict["details"]["traceback"]) and len(verdict["message"]) <= LONGEST


REMEDIES = """
import torch, triton
from tests.support.vector_add import add_by_torch, add_kernel

def asserts(a, b):
    assert a.shape[0] % 32 == 0, "n must be a multiple of 32"
    return add_by_torch(a, b)

def raises(a, b):
    if a.shape[0] % 32:
        raise RuntimeError("n must be a multiple of 32")
    return add_by_torch(a, b)

def forgets(a, b):
    return add_by_torch(a, b).nosuch

def misfits(a, b):
    return add_by_torch(a, b) + torch.ones(3)

def slips(a, b):
    return add_by_torch(a, b)[int("many")]

def looks_up(a, b):
    raise KeyError("no entry")

def mislays(a, b):
    c = torch.empty(a.shape)
    add_kernel[(1,)](a, b, c, a.shape[0], a.stride(0), BLOCK=64)
    return c
"""


@pytest.mark.parametrize(
    ("name", "remedy", "said"),
    [
        ("asserts", "if this is meant", "asserts.requires = lambda"),
        ("raises", "if this is meant", "raises.requires = lambda"),
        ("mislays", "remedy", "on its operands' device: torch.empty(..., device=a.device)"),
        ("forgets", "", ""),
        ("misfits", "", ""),
        ("slips", "", ""),  # a ValueError that nobody raised on purpose
        ("looks_up", "", ""),
    ],
)
def test_the_remedy_that_is_offered_fits_the_error(name: str, remedy: str, said: str, tmp_path: Path, pool: WorkerPool) -> None:
    (tmp_path / "mine.py").write_text(REMEDIES)
    verdict = pool.judge(Case(contract=ADDRESS, problem=Problem(n=50), launcher=f"{tmp_path / 'mine.py'}:{name}"), SM_90)
    assert verdict.failed and {"if this is meant", "remedy"} & set(verdict.details) == ({remedy} if remedy else set()), verdict
    assert said in verdict.details.get(remedy, "").replace("their", "its")
