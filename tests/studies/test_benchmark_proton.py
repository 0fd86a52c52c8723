"""Contract under test: `benchmarks/block_scaled_matmul.py --proton` asks Triton's profiler as it is, writes a file for each K, and
refuses what would profile nothing before it does anything."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

from benchmarks import block_scaled_matmul as benchmark


class Recorder:
    """In the profiler's place: what it was asked, and how many launches came between."""

    def __init__(self) -> None:
        self.asked: list[tuple] = []
        self.launches = 0

    def start(self, name: str, **options: str) -> None:
        self.asked.append(("start", name, options))

    def finalize(self) -> None:
        self.asked.append(("finalize", self.launches))

    def launch(self) -> None:
        self.launches += 1


@pytest.fixture
def profiler(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    import triton.profiler

    made = Recorder()
    for name in ("start", "finalize"):
        monkeypatch.setattr(triton.profiler, name, getattr(made, name))
    return made


def test_a_hundred_launches_lie_between_start_and_finalize(profiler: Recorder) -> None:
    benchmark.profiled(profiler.launch, "told")
    assert profiler.asked == [("start", "told", {"hook": "triton"}), ("finalize", 100)]


def test_a_launch_that_fails_still_ends_the_session(profiler: Recorder) -> None:
    def fails() -> None:
        raise RuntimeError("no such kernel")

    with pytest.raises(RuntimeError, match="no such kernel"):
        benchmark.profiled(fails, "told")
    assert profiler.asked[-1] == ("finalize", 0)


def test_the_profiler_of_this_triton_takes_what_it_is_asked() -> None:
    import triton.profiler

    inspect.signature(triton.profiler.start).bind("told", hook="triton")
    inspect.signature(triton.profiler.finalize).bind()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--proton", "told", "--no-bench"], "leave one of them out"),
        (["--proton", "no/such/place/told"], "must be in a directory that exists"),
        (["--K_step", "0"], "must be at least 1"),
    ],
)
def test_what_would_profile_nothing_is_refused_with_the_remedy(words: list[str], said: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as left:
        benchmark.parsed(words)
    assert left.value.code == 2 and said in capsys.readouterr().err


def test_without_a_gpu_it_says_what_it_needs_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert benchmark.main(["--proton", "told"]) == 2
    assert "needs a CUDA GPU" in capsys.readouterr().out and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("words", "names"), [(["-K", "128"], ["told"]), (["--K_range", "128", "256", "--K_step", "128"],
                                                                          ["told_K128", "told_K256"])])  # fmt: skip
def test_each_k_of_a_range_has_a_file_of_its_own(
    words: list[str], names: list[str], profiler: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bitverdict.harness.emulator import emulated

    monkeypatch.setattr("triton.testing.do_bench", lambda call: 1.0)
    monkeypatch.setattr(benchmark, "profiled", lambda run, name: profiler.start(name))
    given = benchmark.parsed(["--format", "mxfp8", "--size", "128", "--proton", "told", *words])
    first, last = given.K_range or (given.K, given.K)
    with emulated("sm_100"):
        for k in range(first, last + 1, given.K_step):
            assert benchmark.measured(given, k, "sm_100", "cpu") == 0
    assert [name for _, name, _ in profiler.asked] == names
