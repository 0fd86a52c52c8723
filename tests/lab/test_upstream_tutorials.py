"""Contract under test: the table of tutorials tells pass, fail, refused, refused by Triton, time limit and not run apart; what is
too large runs again with reduced sizes; benchmarks do not run; a failure that nobody examined is a failing status."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from benchmarks.tutorial_cases import (
    BY_TRITON,
    FAIL,
    LIMIT,
    NOT_RUN,
    NOT_TRIED,
    PASS,
    REFUSED,
    SCRIPT,
    Case,
    Products,
    Result,
    result_of,
)
from benchmarks.tutorial_copies import copied, smaller, with_reduced_sizes
from benchmarks.tutorial_runs import run
from benchmarks.upstream_tutorials import EXAMINED, main, page, read, unexamined
from bitverdict.harness.emulator import emulated
from bitverdict.kernels.matmul import matmul
from tests.support.shared_folders import shared_folder
from tests.support.shares import of_a_campaign

CHECKOUT = Path(__file__).resolve().parents[2]
HEAD = """\
import sys
import torch
import triton
import triton.language as tl


@triton.jit
def move(x, y, n, OF: tl.constexpr = 0, BLOCK: tl.constexpr = 64):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    if OF == 1:
        value = tl.inline_asm_elementwise("activemask.b32 $0;", "=r,r", [value], tl.float32, True, 1)
    if OF == 2:
        value = tl.no_name_of_this_release(value)
    tl.store(y + at, value, mask=at < n)


def moved(n, OF=0):
    x = torch.randn(n, device="cuda")
    y = torch.empty_like(x)
    move[(triton.cdiv(n, 64),)](x, y, n, OF)
    return x, y


"""
FILES = {
    "01-right.py": """
        assert torch.equal(*moved(100))


        @triton.testing.perf_report(triton.testing.Benchmark(["n"], [1], "by", ["a"], ["a"], "plot", {}))
        def speed(n, by):
            sys.exit(3)


        def bench_all():
            sys.exit(3)


        triton.testing.do_bench(lambda: sys.exit(3))
        speed.run(show_plots=True)
        bench_all()
        if __name__ == "__main__":
            import triton.profiler

            triton.profiler.start("here")
            sys.exit(3)
        """,
    "02-crossed.py": 'x, y = moved(100)\nprint("right", "\\u2705" if torch.equal(x, y + 1) else "\\u274c")\n',
    "03-refused.py": "moved(100, OF=1)\n",
    "04-lacking.py": 'moved(1) if torch.cuda.get_device_capability()[0] > 9 else print("not for this GPU")\n',
    "08-grouped-gemm.py": """
        @triton.jit
        def follow(pointers, y):
            tl.store(y, tl.load(tl.load(pointers).to(tl.pointer_type(tl.float32))))


        x, y = torch.randn(1, device="cuda"), torch.empty(1, device="cuda")
        follow[(1,)](torch.tensor([x.data_ptr()], device="cuda"), y)
        assert torch.equal(x, y)
        """,
    "notes.py": "raise SystemExit(3)\n",
    "gluon/01-tests.py": """

        import pytest


        @pytest.mark.parametrize("n", [100, 200])
        def test_right(n):
            assert torch.equal(*moved(n))


        def test_wrong():
            x, y = moved(100)
            assert torch.equal(x, y + 1)


        def test_of_another_release():
            moved(100, OF=2)


        @pytest.mark.skipif(torch.cuda.get_device_capability()[0] < 10, reason="needs another GPU")
        def test_skipped():
            moved(100)


        @pytest.mark.parametrize("n", [4096])
        @pytest.mark.parametrize("repeat", [1, 2])
        def test_too_large(n, repeat):
            while n >= 1000:
                pass
            assert n == 512 and torch.equal(*moved(n))


        if __name__ == "__main__":
            sys.exit(3)
        """,
}
EXPECTED = {
    ("01-right.py", SCRIPT): {(PASS, False): 1},
    ("02-crossed.py", SCRIPT): {(FAIL, False): 1},
    ("03-refused.py", SCRIPT): {(REFUSED, False): 1},
    ("04-lacking.py", SCRIPT): {(NOT_RUN, False): 1},
    ("08-grouped-gemm.py", SCRIPT): {(PASS, False): 1},
    ("gluon/01-tests.py", "test_right"): {(PASS, False): 2},
    ("gluon/01-tests.py", "test_wrong"): {(FAIL, False): 1},
    ("gluon/01-tests.py", "test_of_another_release"): {(BY_TRITON, False): 1},
    ("gluon/01-tests.py", "test_skipped"): {(NOT_RUN, False): 1},
    ("gluon/01-tests.py", "test_too_large"): {(LIMIT, False): 1, (NOT_TRIED, False): 1, (PASS, True): 2},
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, Path]:
    """(status, page, file of results) of the command over `FILES`."""
    folder = shared_folder(tmp_path_factory, "upstream_tutorials", _run_files)
    return int((folder / "status").read_text()), (folder / "page").read_text(), folder / "results.jsonl"


def _run_files(folder: Path) -> None:
    (folder / "tutorials" / "gluon").mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (folder / "tutorials" / name).write_text(HEAD.replace("move[", "moving[") + textwrap.dedent(text))
    done = commanded(folder / "tutorials", folder / "results.jsonl", "--jobs", "2", "--seconds", "15")
    (folder / "status").write_text(str(done.returncode))
    (folder / "page").write_text(done.stdout)


def commanded(folder: Path, results: Path, *options: str) -> subprocess.CompletedProcess:
    given = [str(folder), "--target", "emulated:sm_90", "--replace", "moving=move", "--results", str(results), *options]
    command = [sys.executable, "-m", "benchmarks.upstream_tutorials", *given]
    return subprocess.run(command, capture_output=True, text=True, cwd=CHECKOUT)


@of_a_campaign
@pytest.mark.share(4)
def test_the_states_of_cases_are_told_apart(told) -> None:
    found: dict[tuple, Counter] = {}
    for result in read(told[2]):
        counts = found.setdefault((result.case.file, result.case.name), Counter())
        counts[result.state, result.case.reduced] += 1
    assert found == EXPECTED, "\n".join(map(str, read(told[2])))


@of_a_campaign
def test_the_page_names_what_did_not_pass_and_where(told) -> None:
    status, text, _ = told
    assert status == 1
    assert "| 03-refused.py | (script) | sm_90 | 1 |  |  | 1 |" in text
    assert "| gluon/01-tests.py | test_too_large | sm_90 | 2 |  |  |  |  |  | 1 | 1 | 2 |  |  |  |  |" in text
    assert "activemask" in text and " | `03-refused.py:" in text and "needs another GPU" in text
    assert "no_name_of_this_release" in text and "fail: assertion | 02-crossed.py" in text


@of_a_campaign
@pytest.mark.share(4)
def test_results_that_are_kept_are_not_run_again(told, tmp_path: Path) -> None:
    kept = tmp_path / "results.jsonl"
    kept.write_text(told[2].read_text())
    done = commanded(told[2].parent / "tutorials", kept, "--test", SCRIPT)
    assert kept.read_text() == told[2].read_text() and "not run" in done.stdout and "pass  " not in done.stderr


def test_sizes_outside_of_functions_are_reduced_and_lines_stay() -> None:
    text = textwrap.dedent('''\
        """4096"""
        @cases("m, n", [(2000, 1000), (2**16, 767)])  # é
        def test(m, n=4096):
            assert m < 4096
        x = (8 *
             1024); size = 98432
        f = lambda: 4096
        ''')
    got = with_reduced_sizes(text)
    assert got.splitlines() == [
        '"""4096"""', '@cases("m, n", [(720, 744), (512, 767)])  # é', "def test(m, n=4096):", "    assert m < 4096", "x = (512",
        "); size = 640", "f = lambda: 4096",
    ]  # fmt: skip
    assert all(smaller(n) % 256 == n % 256 and 512 <= smaller(n) <= 767 for n in range(768, 5000))


def test_names_are_replaced_whole_and_calls_of_benchmarks_taken_out(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "01-a.py").write_text("old(older)\nbench_it(\n    1,\n)\nif x:\n    benchmark()\nbenchmark.run()\n")
    copied(tmp_path / "from", tmp_path / "to", {"old": "new"}, reduced=False)
    assert (tmp_path / "to" / "01-a.py").read_text() == "new(older)\nNone\n\n\nif x:\n    None\nbenchmark.run()\n"


CASE = Case("emulated:sm_90", "01-a.py", "test", "test[1]", 0, size=1)


def test_a_process_that_ends_without_a_word_is_a_failure() -> None:
    assert result_of(CASE, None, 1.0, "one\nlast words\n") == Result(CASE, FAIL, "process ended", "last words", seconds=1.0)
    assert result_of(CASE, LIMIT, 1.0, "").state == LIMIT


def test_a_test_that_launches_nothing_has_not_run() -> None:
    assert result_of(CASE, (PASS, "", "", "", 0), 1.0, "").state == NOT_RUN
    assert result_of(CASE, (PASS, "", "", "", 1), 1.0, "").state == PASS


def test_only_failures_that_were_examined_pass_as_known() -> None:
    known = Result(replace(CASE, file=EXAMINED[0].file, name=EXAMINED[0].name), FAIL, EXAMINED[0].outcomes[0])
    elsewhere = replace(CASE, name=EXAMINED[0].name)
    others = [replace(known, outcome="assertion"), replace(known, case=CASE), replace(known, case=elsewhere)]
    assert unexamined([known, Result(CASE, REFUSED), Result(CASE, PASS)]) == [] and unexamined(others) == others


class _Sleeps:
    """`Runs` whose cases of a size above 10 reach the limit and all others pass; `started` in their order."""

    jobs, is_over = 2, False

    def __init__(self) -> None:
        self.running: dict = {}
        self.started: list[Case] = []

    def start(self, case: Case) -> None:
        self.started.append(case)
        self.running[case] = (None, case, 0.0, None)

    def ended(self):
        for case in list(self.running):
            del self.running[case]
            yield case, LIMIT if case.size > 10 and not case.reduced else (PASS, "", "", "", 1), 1.0, ""


def test_one_case_of_a_size_goes_ahead_of_the_others() -> None:
    cases = [replace(CASE, case=f"test[{n}]", place=n, size=size) for n, size in enumerate((5, 50, 50, 50, 5))]
    runs = _Sleeps()
    results = list(run(runs, cases, {}))
    counts = Counter((result.state, result.case.reduced) for result in results)
    assert counts == {(PASS, False): 2, (LIMIT, False): 1, (NOT_TRIED, False): 2, (PASS, True): 3}
    assert [case.place for case in runs.started if not case.reduced] == [0, 4, 1]
    again = _Sleeps()
    half = {result.case.key: result for result in results[:3]}
    assert {r.case.key for r in run(again, cases, half)} | set(half) == {r.case.key for r in results}


def test_the_page_escapes_what_would_break_its_table() -> None:
    text = page([Result(CASE, REFUSED, said="a | b")], [])
    assert "a \\| b" in text and json.dumps(asdict(Result(CASE, PASS)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nowhere"], "no such folder"),
        ([".", "--replace", "old"], "it is OLD=NEW"),
        ([".", "--target", "emulated:sm_91"], "there are emulated:sm_80"),
    ],
)
def test_what_is_asked_wrongly_is_a_usage_error(options: list[str], said: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(options)
    assert ended.value.code == 2 and said in capsys.readouterr().err


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_by_the_tensor_core_are_those_of_a_launch(dtype: torch.dtype) -> None:
    """As the words of a kernel that takes K in ascending order; the CPU's product differs from them."""
    a, b = (torch.randn(128, 128, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in range(2))
    with emulated("sm_90"), Products("sm_90") as products:
        there = a.cuda(), b.cuda()
        assert torch.equal((there[0] @ there[1]).cpu(), a @ b) and products.asked
        products.by_tensor_core = True
        got = (there[0] @ there[1]).cpu()
        expected = matmul(*there)
    assert torch.equal(got, expected.cpu()) and not torch.equal(got, a @ b)
