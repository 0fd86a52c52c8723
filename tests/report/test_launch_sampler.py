"""Contract under test: a sampler keeps one in N launches and outliers, within its budget; a failure of its own ends no launch."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import bitverdict as bv
from bitverdict.harness.emulator.compiled_kernel import CompiledKernel
from bitverdict.harness.frontends.cli_exec import replay_launch
from bitverdict.harness.report.launch_replay.launch_file import LaunchImage, StoredLaunch
from tests.lab.test_launch_replay import Notes, add

TENSORS: dict[int, list[torch.Tensor]] = {}


def serve(*sizes: int) -> None:
    for size in sizes:
        add[(-(-size // 128),)](*TENSORS[size], size, 128)


def reasons(folder: Path) -> str:
    return " | ".join(sorted(StoredLaunch(path).record["reason"] or "ordinary" for path in folder.glob("*.launch")))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Triton's own launcher, over a driver whose GPU is torch, and which has another word in one place of 2,032."""

    def launch(*call: Any) -> None:
        x, y, out = [each for each in (call[15] if len(call) == 16 else call) if isinstance(each, torch.Tensor)]
        torch.add(x, y, out=out)
        out[777] += out.numel() == 2032

    TENSORS.update({size: [torch.full((size,), number) for number in (1.0, 2.0, 3.0)] for size in (1008, 2032, 4080, 8176)})
    notes: Any = Notes(monkeypatch)
    notes.active.utils.launch = launch
    compiled = SimpleNamespace(launch=launch)  # an older release compiles a launcher for each signature
    monkeypatch.setattr("triton.backends.nvidia.driver.compile_module_from_src", lambda **given: compiled, raising=False)
    monkeypatch.setattr(notes.driver, "_active", notes.active)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


@pytest.mark.usefixtures("gpu")
def test_words_of_a_gpu_are_held_to_the_emulated_ones(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    serve(1008)  # each thread would compile a kernel of its own
    with bv.sample(0.1, tmp_path, seed=3) as sampler:
        threads = [threading.Thread(target=serve, args=[1008] * 50) for _ in range(4)]
        [each.start() for each in threads], [each.join() for each in threads]
        TENSORS[1008][0][3] = torch.inf
        serve(2032, *[1008] * 20)  # of the last 20 one at least is drawn
    serve(8176)
    found = reasons(tmp_path)
    assert sampler.failure == "" and sampler.counts["kept ordinary"] + sampler.counts["kept outlier"] in range(22, 26)
    assert "the first launch of" in found and "n[0] of 2^10" in found and "x holds Inf" in found and "2^12" not in found
    monkeypatch.undo()
    assert sorted(map(replay_launch, tmp_path.glob("*.launch")))[-2:] == [0, 1]
    assert ": 1 differ from those of sm_90, 0 lie outside of their bounds; out[777] is 0x40800000 there" in capsys.readouterr().out


@pytest.mark.usefixtures("gpu")
def test_a_full_folder_gives_room_to_outliers_alone(tmp_path: Path) -> None:
    for budget in {"most_files": 3}, {"most_bytes": 8_200}:
        folder = tmp_path / next(iter(budget))
        with bv.sample(1, folder, **budget) as sampler:
            for size in (1008, 1008, 1008, 1008, 2032, 4080, 8176):
                serve(size)
                TENSORS[1008][1] += 2**-9
                while sampler.waiting_bytes:
                    time.sleep(0.01)
        sizes = [path.stat().st_size for path in folder.glob("*.launch")]
        assert "ordinary" not in reasons(folder) and sampler.counts["replaced"] == 2 and sampler.counts["dropped"] == 2
        assert len(sizes) == 3 and sum(sizes) <= 8_200


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", ["__init__", "write"])
def test_a_failure_of_the_sampler_is_said_once(tmp_path: Path, monkeypatch: Any, capsys: Any, name: str) -> None:
    monkeypatch.setattr(LaunchImage, name, lambda *words: 1 / 0)
    before, TENSORS[1008][2][5] = CompiledKernel.run, 0
    with bv.sample(1, tmp_path) as sampler:
        serve(1008, 1008)
    assert TENSORS[1008][2][5] > 2 and sampler.failure == "ZeroDivisionError: division by zero" and CompiledKernel.run is before
    assert capsys.readouterr().err.count("note: bitverdict's sampler failed") == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: the launches are its own")
def test_launches_of_streams_are_kept_and_those_of_graphs_are_not(tmp_path: Path) -> None:
    sizes = (1008, 2032, 4080, 8176)
    TENSORS.update({size: [torch.full((size,), number, device="cuda") for number in (1.0, 2.0, 3.0)] for size in sizes})
    serve(*sizes)
    streams, graph = [torch.cuda.Stream() for _ in range(2)], torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with bv.sample(0.05, tmp_path, seed=3) as sampler:
        for turn in range(400):
            with torch.cuda.stream(streams[turn % 2]):
                TENSORS[sizes[turn % 4]][1] += 2**-9  # launches with equal bytes have one file
                serve(sizes[turn % 4])
        torch.cuda.synchronize()
        TENSORS[1008][1].fill_(2), TENSORS[1008][2].zero_()
        with torch.cuda.graph(graph):
            serve(1008)
        graph.replay()
        torch.cuda.synchronize()
    assert (TENSORS[1008][2] == 3).all() and sampler.failure == ""
    files = list(tmp_path.glob("*.launch"))
    assert sampler.counts["kept ordinary"] + sampler.counts["kept outlier"] >= len(files) > len(sizes)
    assert {replay_launch(path) for path in files} == {0}


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    for bad in {"rate": 0}, {"rate": True}, {"rate": 1.5}, {"rate": "1"}, {"most_bytes": 0}, {"most_files": 1.5}:
        with pytest.raises(ValueError, match=rf"sample: {next(iter(bad))} .*: must be .*; "):
            bv.sample(**{"rate": 0.5, **bad})
    with bv.sample(1, tmp_path), pytest.raises(ValueError, match="stop it first"):
        bv.sample(1, tmp_path).start()
    with pytest.raises(ValueError, match="cannot be written"):
        bv.sample(1, tmp_path / ".lock" / "folder").start()
