"""Contract under test: `benchmarks/block_scaled_matmul.py --proton` profiles as the tutorial does, prints the tree of what it
counted, and refuses what would profile nothing before it does anything."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import block_scaled_matmul as benchmark
from tests.support.tutorial_facts import holds


class Recorder:
    """In the profiler's place: what it was asked, and how many launches came while it was active and while it was not."""

    def __init__(self) -> None:
        self.asked: list[tuple] = []
        self.active, self.seen, self.unseen = False, 0, 0

    def start(self, name: str, **options: str) -> None:
        self.active = True
        self.asked.append(("start", name, options))

    def activate(self, session: int) -> None:
        self.active = True
        self.asked.append(("activate", session))

    def deactivate(self, session: int) -> None:
        self.active = False
        self.asked.append(("deactivate", session))

    def finalize(self) -> None:
        self.asked.append(("finalize",))

    def launch(self) -> None:
        self.seen, self.unseen = self.seen + self.active, self.unseen + (not self.active)


@pytest.fixture
def profiler(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    import triton.profiler

    made = Recorder()
    for name in ("start", "activate", "deactivate", "finalize"):
        monkeypatch.setattr(triton.profiler, name, getattr(made, name))
    return made


@holds("repetitions", repetitions=10000)
@holds("session of the profiler", hook="triton")
def test_the_session_is_active_around_the_counted_launches_alone(profiler: Recorder) -> None:
    with benchmark.profiled("told"):
        profiler.launch()
        benchmark.active(profiler.launch, 100)
        profiler.launch()
    assert (profiler.seen, profiler.unseen) == (100, 2)
    around = [("activate", 0), ("deactivate", 0)]
    assert profiler.asked == [("start", "told", {"hook": "triton"}), ("deactivate", 0), *around, ("finalize",)]


def test_a_launch_that_fails_still_ends_the_session(profiler: Recorder) -> None:
    def fails() -> None:
        raise RuntimeError("no such kernel")

    with pytest.raises(RuntimeError, match="no such kernel"), benchmark.profiled("told"):
        benchmark.active(fails, 100)
    assert profiler.asked[-2:] == [("deactivate", 0), ("finalize",)]


def test_without_a_name_nothing_is_profiled(profiler: Recorder) -> None:
    with benchmark.profiled(None):
        assert not profiler.asked
    assert benchmark.parsed(["--proton", "told"]).repetitions == 10_000


@holds("metrics")
def test_the_tree_shows_rate_time_and_launches_with_all_below(tmp_path: Path) -> None:
    def node(name: str, metrics: dict, *children: dict) -> dict:
        return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": list(children)}

    whole = node("matmul [K=512]", {"time (ns)": 2_000_000, "flops": 4e11, "count": 10})
    apart = node("matmul [K=1024]", {"flops": 2e11}, node("matmul", {"time (ns)": 1_000_000, "count": 5}))
    kept = tmp_path / "told.hatchet"
    kept.write_text(json.dumps([node("ROOT", {}, node("__proton_launch_metadata", {}), whole, apart), {"CUDA": {}}]))
    assert benchmark.tree(kept).splitlines() == [
        "tflop/s   time/ms  launches",
        "  200.0     3.000        15  ROOT",
        "  200.0     2.000        10    matmul [K=512]",
        "  200.0     1.000         5    matmul [K=1024]",
        "    0.0     1.000         5      matmul",
    ]


def written_by_the_profiler(place: Path, launches: list[tuple[str, dict]]) -> Path:
    """The file that Triton's own writer makes of launches (name, metrics), as its hook records them. Its times stand in for
    those of a GPU, which adds the metrics "time (ns)" and "count" to a launch's node."""
    from triton._C.libproton import proton as library

    session = library.start(str(place / "told"), "shadow", "tree", "instrumentation", "cuda")
    for name, metrics in launches:
        scope = library.record_scope()
        library.enter_op(scope, name)
        library.add_metrics(scope, metrics)
        library.exit_op(scope, name)
    library.deactivate(*((session, False) if "bool" in library.deactivate.__doc__ else (session,)))
    library.finalize(session, "hatchet")
    return place / "told.hatchet"


def test_the_tree_is_read_from_the_file_of_tritons_own_writer(tmp_path: Path) -> None:
    """Launches of one name are one node; what the profiler launches to work out metadata is not counted."""
    launch = {"flops": 4e11, "bytes": 512, "time (ns)": 2_000_000, "count": 1}
    own = {"time (ns)": 9_000_000, "count": 1}
    launches = [("matmul [K=512]", launch)] * 3 + [("matmul [K=1024]", launch)]
    launches += [(benchmark.METADATA, own), (f"{benchmark.METADATA}:matmul_kernel", own), ("not timed", {"flops": 4e11})]
    kept = written_by_the_profiler(tmp_path, launches)
    head, root, *nodes = benchmark.tree(kept).splitlines()
    assert (head, root) == ("tflop/s   time/ms  launches", "  250.0     8.000         4  ROOT")
    assert sorted(nodes) == [  # in the writer's order, which is no release's promise
        "  200.0     2.000         1    matmul [K=1024]",
        "  200.0     6.000         3    matmul [K=512]",
    ]


def test_names_of_metrics_and_of_the_metadata_scope_are_the_writers() -> None:
    import triton._C.libproton as library
    import triton.profiler

    built = Path(str(library.__file__)).read_bytes()
    assert all(name in built for name in (b"time (ns)", b"count\0"))
    if hasattr(library.proton, "metadata_scope_name"):
        assert library.proton.metadata_scope_name == benchmark.METADATA
        assert library.proton.metadata_scope_prefix == f"{benchmark.METADATA}:"
    else:  # of an older release: in Python
        sources = Path(str(triton.profiler.__file__)).parent.rglob("*.py")
        assert any(f'SCOPE_NAME = "{benchmark.METADATA}"\n' in source.read_text() for source in sources)


@pytest.mark.parametrize("text", ["", "[]", "{}", '[{"metrics": {}}]', "not JSON", '{"traceEvents": []}'])
def test_another_file_than_a_profile_is_refused_with_the_remedy(text: str, tmp_path: Path) -> None:
    (tmp_path / "told.hatchet").write_text(text)
    with pytest.raises(ValueError, match=r'told.hatchet: .*must be a tree .*data="tree"'):
        benchmark.tree(tmp_path / "told.hatchet")


def test_without_the_profilers_library_it_says_not_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Some builds of Triton leave the library out: nothing is launched, and the line says why."""
    assert benchmark.lacks_profiler() == ""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, benchmark.LIBRARY, None)
    assert benchmark.main(["--proton", "told"]) == 2
    said = capsys.readouterr().out
    assert said.startswith("not run: --proton told: Triton's profiler cannot be loaded") and "libproton" in said


def test_the_profiler_of_this_triton_takes_what_it_is_asked() -> None:
    import triton.profiler

    inspect.signature(triton.profiler.start).bind("told", hook="triton")
    inspect.signature(triton.profiler.finalize).bind()
    for name in ("activate", "deactivate"):
        inspect.signature(getattr(triton.profiler, name)).bind(benchmark.SESSION)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--proton", "told", "--no-bench"], "leave one of them out"),
        (["--proton", "no/such/place/told"], "must be in a directory that exists"),
        (["--K_step", "0"], "must be at least 1"),
        (["--proton", "told", "--repetitions", "0"], "must be at least 1"),
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


@holds("depth that is timed", multiple=128)
def test_each_k_of_a_range_is_counted_in_one_session(profiler: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    from bitverdict.harness.emulator import emulated

    counted: list[int] = []
    monkeypatch.setattr("triton.testing.do_bench", lambda call: 1.0)
    monkeypatch.setattr(benchmark, "active", lambda run, repetitions: counted.append(repetitions))
    given = benchmark.parsed(
        [
            "--format",
            "mxfp8",
            "--size",
            "128",
            "--proton",
            "told",
            "--K_range",
            "128",
            "256",
            "--K_step",
            "128",
            "--repetitions",
            "3",
        ]
    )
    with emulated("sm_100"), benchmark.profiled("told"):
        assert [benchmark.measured(given, k, "sm_100", "cpu") for k in benchmark.depths(given)] == [0, 0]
    assert counted == [3, 3] and [what for what, *_ in profiler.asked] == ["start", "deactivate", "finalize"]


@holds("options of the script", default_format="nvfp4", default_k=512, default_step=512, default_bench=True)
def test_the_options_and_their_defaults_are_the_tutorials() -> None:
    given = benchmark.parsed([])
    assert (given.format, given.K, given.K_step, given.bench) == ("nvfp4", 512, 512, True)
    assert benchmark.parsed(["--K_range", "512", "8192"]).K_range == [512, 8192]
