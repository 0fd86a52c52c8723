"""Contract under test: machines are named, described by features, and found without CUDA being touched in this process."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace

import pytest

from bitverdict.harness.judge.devices import device_of
from bitverdict.harness.model import gpu_probe
from bitverdict.harness.model import targets as machines
from bitverdict.harness.model.architectures import EMULATED_ARCHITECTURES, FAMILIES
from bitverdict.harness.model.targets import Target, gpus_called, is_leased, target, targets, targets_called, visible_device
from bitverdict.harness.model.usage import UsageError
from bitverdict.kernels.features import Feature


def test_the_emulated_machines_are_always_there() -> None:
    names = [t.name for t in targets()]
    assert names[:3] == ["emulated:sm_80", "emulated:sm_90", "emulated:sm_100"]


def test_features_follow_the_architecture() -> None:
    assert Feature.WGMMA in target("emulated:sm_90").features
    assert Feature.TCGEN05 in target("emulated:sm_100").features
    assert Feature.FP8_E4M3 not in target("emulated:sm_80").features


@pytest.mark.parametrize("name", ["emulated:sm_75", "", "gpu"])
def test_an_unknown_target_is_refused_with_those_that_are_here(name: str) -> None:
    with pytest.raises(ValueError, match=f"targets here: {', '.join(f'emulated:{arch}' for arch in EMULATED_ARCHITECTURES)}"):
        target(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:99", "cuda:hopper"])
def test_a_gpu_that_is_not_here_is_refused_with_an_emulated_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_gpus", lambda: (Target("cuda:0", "sm_80", 0),) if name != "cuda" else ())
    with pytest.raises(UsageError, match=r"no such GPU is visible; GPUs here: (cuda:0 \(sm_80\)|none); .*such as sm_90"):
        target(name)


def test_a_family_means_each_of_its_chips_and_a_worker_leases_one(monkeypatch: pytest.MonkeyPatch) -> None:
    arches = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121", "gfx942", "sm_999")
    here = [Target(f"cuda:{place}", arch, place) for place, arch in enumerate(arches)]
    monkeypatch.setattr(machines, "targets", lambda **_: here)
    chips = {
        "ampere": ["sm_80", "sm_86", "sm_87"],
        "ada": ["sm_89"],
        "hopper": ["sm_90"],
        "blackwell": ["sm_100", "sm_103", "sm_110", "sm_120", "sm_121"],
        "cdna": ["gfx942"],
    }
    assert chips.keys() <= {*FAMILIES}
    assert {name: [gpu.arch for gpu in gpus_called(f"cuda:{name}")] for name in chips} == chips
    assert all(map(is_leased, ("cuda:ampere", "cuda:sm_86", "cuda"))) and not any(map(is_leased, ("cuda:1", "emulated:sm_80")))
    for name in ("cuda:volta", "cuda:Ampere"):
        with pytest.raises(UsageError, match="no such GPU is visible"):
            gpus_called(name)
    asked = ["cuda:hopper", "cuda:1", "sm_80", "cuda:ampere"]  # as bitverdict run --target takes them: each GPU once
    assert [machine.name for machine in targets_called(asked)] == ["cuda:4", "cuda:1", "emulated:sm_80", "cuda:0", "cuda:2"]
    assert targets_called(["cuda"]) == targets_called(["cuda:"]) == here and target("cuda:hopper") == here[4]


@pytest.mark.parametrize(
    ("visible", "index", "entry"), [("", 1, "1"), ("3,5", 1, "5"), ("GPU-aa,MIG-bb", 0, "GPU-aa"), ("7", 4, "4")]
)
def test_a_worker_is_given_one_entry_of_the_visible_devices(
    monkeypatch: pytest.MonkeyPatch, visible: str, index: int, entry: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_device(index) == entry


def test_looking_for_targets_does_not_initialise_cuda() -> None:
    check = (
        "import sys; from bitverdict.harness.model.targets import targets; targets(); torch = sys.modules.get('torch'); "
        "print(bool(torch and torch.cuda.is_initialized()))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_emulated_target_lives_on_the_cpu() -> None:
    assert device_of(Target("emulated:sm_90", "sm_90")).type == "cpu"


GPU = {"arch": "sm_90", "model": "a GPU", "uuid": "u", "free": 1, "total": 2}


@pytest.mark.parametrize(
    ("visible", "file", "found"),
    [(None, "/dev/null", 1), ("0", "/dev/null", 1), ("", "/dev/null", 0), ("-1", "/dev/null", 0), (None, "/dev/no such node", 0)],
)
def test_gpus_are_asked_for_where_a_driver_is_and_none_is_hidden(
    visible: str | None, file: str, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv(machines.SEEN_GPUS_VARIABLE, raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        asked.append(command)
        return SimpleNamespace(stdout="a warning\n" + json.dumps([GPU]) + "\n")

    monkeypatch.setattr(machines, "GPU_NODES", (file,))
    monkeypatch.setattr(subprocess, "run", run)
    assert machines._gpus.__wrapped__() == (Target("cuda:0", index=0, **GPU),) * found
    assert len(asked) == found


class Nvml:
    """libnvidia-ml with one device, a slice of a GPU; `fails` names the call that returns an error."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails

    def nvmlInit_v2(self) -> int:
        return int(self.fails == "init")

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: object) -> int:
        return int(name != b"MIG-aa")

    def nvmlDeviceGetMemoryInfo(self, handle: object, told) -> int:
        told._obj.free, told._obj.total = 30, 40
        return int(self.fails == "memory")


@pytest.mark.parametrize(
    ("fails", "name", "told"), [("", "aa", (30, 40)), ("", "bb", None), ("init", "aa", None), ("memory", "aa", None)]
)
def test_the_memory_of_a_gpu_is_nvmls_where_it_says(fails: str, name: str, told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda library: Nvml(fails))
    assert gpu_probe.memory(name) == told


def test_without_nvml_the_memory_of_a_gpu_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(library: str) -> None:
        raise OSError(f"{library}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert gpu_probe.memory("aa") is None


class Driver:
    """libcuda: one GPU; `status` is what cuInit gives."""

    def __init__(self, status: int = 0) -> None:
        self.status = status

    def cuInit(self, flags: int) -> int:
        return self.status

    def cuDeviceGetCount(self, count) -> int:
        count._obj.value = 1
        return 0

    def cuDeviceGet(self, device, index: int) -> int:
        device._obj.value = 7
        return int(index != 0)

    def cuDeviceGetName(self, name, size: int, device) -> int:
        name.value = b"Invented"
        return int(device.value != 7)

    def cuDeviceGetAttribute(self, held, attribute: int, device) -> int:
        held._obj.value = {75: 9, 76: 0}[attribute]
        return int(device.value != 7)

    def cuDeviceGetUuid_v2(self, held, device) -> int:
        held[:] = bytes(range(16))
        return 0


def test_gpus_are_asked_of_the_driver_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_probe, "built_for", lambda: "cuda")
    monkeypatch.setattr(gpu_probe, "memory", lambda name: (3, 4))
    monkeypatch.setattr(ctypes, "CDLL", lambda library: Driver())
    uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert gpu_probe.rows() == [{"arch": "sm_90", "model": "Invented", "uuid": uuid, "free": 3, "total": 4}]
    monkeypatch.setattr(ctypes, "CDLL", lambda library: Driver(100))
    assert gpu_probe.rows() == []
    monkeypatch.setattr(ctypes, "CDLL", lambda library: Driver(803))
    with pytest.raises(RuntimeError, match="cuInit gave CUDA error 803"):
        gpu_probe.rows()


def test_what_torch_is_built_for_is_read_without_importing_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise AssertionError('torch is imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "meta_path", [PathFinder])  # where bitverdict was used in this process, installed packages come first
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for told, due in {"cuda = None": "", "cuda = '13.0'": "cuda", "cuda = None; hip = '6.4'": "hip"}.items():
        (tmp_path / "torch" / "version.py").write_text(told)
        assert gpu_probe.built_for() == due


def test_an_amd_gpu_is_called_by_its_architecture_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    told = SimpleNamespace(name="Invented", gcnArchName="gfx942:sramecc+:xnack-", uuid="aa")
    cuda = SimpleNamespace(device_count=lambda: 1, get_device_properties=lambda index: told, mem_get_info=lambda index: (3, 4))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(gpu_probe, "built_for", lambda: "hip")
    assert gpu_probe.rows() == [{"arch": "gfx942", "model": "Invented", "uuid": "aa", "free": 3, "total": 4}]
