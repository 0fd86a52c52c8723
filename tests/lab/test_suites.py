"""Contract under test: `benchmarks/suites.py` tells what each test of somebody's suite came to under `--emulate`, plants faults
into a copy of it, and says which of them the tests' own assertions see."""

from __future__ import annotations

import os
from argparse import Namespace
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmarks import suites
from benchmarks.campaign import records
from tests.faults.suites import FAULTS, SuiteFault

pytestmark = pytest.mark.compiles
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + places, 2 * tl.load(x + places, mask=places < n), mask=places < n)
"""
TESTS = """
import pytest
import torch

from theirs import doubled


def test_doubled():
    x, y = torch.randn(100, device="cuda"), torch.empty(100, device="cuda")
    doubled[(2,)](x, y, 100, BLOCK=64)
    assert torch.equal(y, 2 * x)


def test_stray():
    x, y = torch.randn(100, device="cuda"), torch.empty(100, device="cuda")
    doubled[(2,)](x, y, 101, BLOCK=64)


def test_wrong():
    assert torch.ones(1, device="cuda") == 2


@pytest.mark.skip
def test_skipped(): ...


def test_refused():
    torch.cuda.MemPool()


@pytest.mark.parametrize("case", range(5))
def test_cases(case): ...
"""
LONG = """
import multiprocessing

import pytest

LOCK = multiprocessing.Lock()


@pytest.mark.parametrize("shape", [(8, 4), (2, 2), (2, 9)])
def test_long(shape):
    with LOCK:
        while shape == (2, 2): ...
"""
OVER = """
import os

import pytest
import torch

from theirs import doubled

STATE = []


@pytest.fixture
def given():
    STATE.append("given")
    yield
    STATE.pop()


def test_over(given):
    while True: ...


def test_over_in_its_report(given):
    doubled[(2,)](torch.randn(100, device="cuda"), torch.empty(100, device="cuda"), 101, BLOCK=64)


def test_next(given):
    assert STATE == ["given"] and os.environ["PREPARED"] == "as asked"
"""
SLOW_REPORT = """
import os


def pytest_runtest_makereport(item, call):
    while item.name == "test_over_in_its_report" and call.when == "call": ...


def prepare():
    os.environ["PREPARED"] = "as asked"
"""
PLANTED = (
    SuiteFault(
        "attorch", "theirs.py", "doubled", "mask=places < n), mask", "mask=None), mask", ("tests/test_theirs.py", "doubled")
    ),
    SuiteFault("attorch", "theirs.py", "doubled", "2 *", "3 *", ("tests/test_theirs.py", "doubled")),
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `run` and `plant` keep of a suite that is named like one of the known ones."""
    folder = tmp_path_factory.mktemp("suites")
    (folder / "attorch" / "tests").mkdir(parents=True)
    (folder / "attorch" / "theirs.py").write_text(KERNEL)
    (folder / "attorch" / "tests" / "test_theirs.py").write_text(TESTS)
    given = Namespace(
        folder=folder,
        results=folder / "results.jsonl",
        suite="",
        only="",
        sample=2,
        seconds=20.0,
        of="",
        budget=0.0,
        small=False,
        part="0/1",
        device="",
    )
    suites.run_suites(given, set())
    (folder / "attorch" / "tests" / "test_long.py").write_text(LONG)
    suites.run_suites(
        Namespace(**vars(given) | {"only": "test_long", "seconds": 1.0, "sample": 2, "small": True}), set()
    )  # no other test has so little time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.faults.suites.FAULTS", PLANTED)
        suites.plant_faults(given, set())
    return given.results  # type: ignore[no-any-return]


def test_each_test_of_a_suite_has_a_state(results: Path) -> None:
    tests = [test for record in records(results) if record["what"] == "run" for test in record["tests"]]
    states = {test["test"].rpartition("::test_")[2]: test["state"] for test in tests}
    cases = [states.pop(name) for name in list(states) if name.startswith("cases")]
    assert sorted(cases) == ["not run"] * 3 + ["passed without a launch"] * 2
    assert states == {"doubled": "passed", "stray": "fault found", "wrong": "failed", "skipped": "skipped", "refused": "refused",
                      "long[shape0]": "not run", "long[shape1]": "too large",
                      "long[shape2]": "passed without a launch"}  # fmt: skip
    said = next(test["said"] for test in tests if test["state"] == "fault found")
    assert "stray read: read at byte 400 of x" in said and "[theirs.py:9]" in said


def test_a_test_follows_the_teardown_of_one_over_the_limit(tmp_path: Path) -> None:
    """Its fixture is torn down, and its fault is not the next test's; the suite was prepared before its tests were collected."""
    for name, text in {"theirs.py": KERNEL, "test_over.py": OVER, "conftest.py": SLOW_REPORT}.items():
        (tmp_path / name).write_text(text)
    server = suites.Server(suites.Suite("test_over.py", prepare="conftest:prepare"))
    tests = server.run(tmp_path, ["test_over.py"], suites.Limits(0, 3.0, forks=False))
    server.close()
    assert [(test["state"], test.get("said", "")) for test in tests] == [
        ("too large", ""),
        ("too large", ""),
        ("passed without a launch", ""),
    ]


def test_the_interpreter_is_of_its_own_process_alone(results: Path) -> None:
    assert "TRITON_INTERPRET" not in os.environ


def test_a_planted_fault_is_told_beside_the_own_assertion(results: Path) -> None:
    """The unmasked load is right by the test's own assertion; without a fault the tests pass both ways."""
    planted = [record for record in records(results) if record["what"] == "plant"]
    states = [(suites.told(each["emulate"]), suites.told(each["own"])) for each in planted]
    assert states == [("fault found", "passed"), ("failed", "failed"), ("passed", "passed")]


def test_the_page_counts_what_the_results_hold(results: Path) -> None:
    text = "\n".join(suites.page(Namespace(results=results, of="")))
    assert f"| attorch | no checkout, Triton {version('triton')} | 2 | 13 | 1 | 1 | 1 | 1 | 1 |  | 3 | 1 | 4 |  | 2 | " in text
    assert " | 3 of 5 |\n| all |  | 2 | 13 |" in text and "run on a real GPU too" not in text
    assert "stray read: read at byte" in text
    assert "`--emulate` finds 2 of 2." in text and "1 fail and\n1 pass; 0 end" in text and "0x" not in text
    assert "Without a fault 0 of 1 selections" in text


def test_the_page_tells_what_a_real_gpu_decides_otherwise() -> None:
    """Of two tests that a real GPU ran to an end one passed there alone; a third was too large here."""
    here, there = (
        [
            {
                "suite": "theirs",
                "device": "H100",
                "tests": [{"test": "ab"[place], "state": state, "said": state} for place, state in found],
            }
        ]
        for found in (((0, "passed"), (1, "fault found")), ((0, "passed"), (1, "passed")))
    )
    here[0]["tests"].append({"test": "c", "state": "too large"})
    there[0]["tests"].append({"test": "c", "state": "passed", "said": ""})
    text = "\n".join(suites.on_gpu(here, there))
    assert "2 of them were run on a real GPU too (H100), where 2 pass. Of those\n1 do not pass here, and 0 pass here alone" in text
    assert "- theirs, `b`: fault found here: fault found" in text and not list(suites.on_gpu(here, []))


def test_the_page_counts_what_is_too_large_as_its_limit() -> None:
    """Of three functions one is faster than in the interpreter, which does not end within the limit, and one does not end here."""
    names = "fast", "slow", "unknown"
    seconds = {"cold": (2.0, 60.0, 60.0), "warm": (1.0, 60.0, 60.0), "interpreter": (60.0, 6.0, 60.0)}
    record = {
        way: [
            {"test": name, "state": "too large" if of_test == 60 else "passed", "seconds": of_test}
            for name, of_test in zip(names, each, strict=True)
        ]
        for way, each in seconds.items()
    }
    text = "\n".join(suites.beside_the_interpreter([{"suite": "theirs", **record}]))
    assert "3 tests that `--emulate` does not fail 1 pass in the interpreter (too large 2):\n2 functions." in text
    assert "| theirs | cold | 2 | 15.1 | 1.1 | 1 (50%) | slow (0.10) |  |" in text
    assert "| theirs | warm | 2 | 30.1 | 1.1 | 1 (50%) | slow (0.10) |  |" in text
    assert "| all | warm | 2 | 30.1 | 1.1 | 1 (50%) |  |  |" in text


def test_a_fault_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(KERNEL)
    with pytest.raises(ValueError, match="doubled has no '4 \\*': the suite is of another version"):
        PLANTED[1]._replace(old="4 *").plant(tmp_path)


def test_planted_faults_have_names_of_their_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) == 40
    assert {fault.suite for fault in FAULTS} <= suites.SUITES.keys() and all(fault.old != fault.new for fault in FAULTS)
