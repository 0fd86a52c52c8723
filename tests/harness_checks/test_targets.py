"""Contract under test: machines are named, described by features, and found without CUDA being touched in this process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.targets import Target, target, targets, visible_device
from kernels.features import Feature


def test_the_emulated_machines_are_always_there() -> None:
    names = [t.name for t in targets()]
    assert names[:3] == ["emulated:sm_80", "emulated:sm_90", "emulated:sm_100"]


def test_features_follow_the_architecture() -> None:
    assert Feature.WGMMA in target("emulated:sm_90").features
    assert Feature.TCGEN05 in target("emulated:sm_100").features
    assert Feature.FP8_E4M3 not in target("emulated:sm_80").features


@pytest.mark.parametrize("name", ["emulated:sm_75", "cuda", "cuda:99", "", "gpu"])
def test_an_unknown_target_is_refused_with_those_that_are_here(name: str) -> None:
    with pytest.raises(ValueError, match="targets here: emulated:sm_80, emulated:sm_90, emulated:sm_100"):
        target(name)


@pytest.mark.parametrize(
    ("visible", "index", "entry"), [("", 1, "1"), ("3,5", 1, "5"), ("GPU-aa,MIG-bb", 0, "GPU-aa"), ("7", 4, "4")]
)
def test_a_child_is_given_one_entry_of_the_visible_devices(
    monkeypatch: pytest.MonkeyPatch, visible: str, index: int, entry: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_device(index) == entry


def test_looking_for_targets_does_not_initialise_cuda() -> None:
    check = (
        "import sys; from harness.targets import targets; targets(); torch = sys.modules.get('torch'); "
        "print(bool(torch and torch.cuda.is_initialized()))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_emulated_target_lives_on_the_cpu() -> None:
    assert Target("emulated:sm_90", "sm_90").device.type == "cpu"
