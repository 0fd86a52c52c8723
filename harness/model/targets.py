"""Machines a kernel is judged on, real or emulated: `emulated:sm_90`, `emulated:sm_120` ..., `cuda:N`.

A target says its architecture, its features (never a model number) and how to enter it for one launch. Looking for GPUs never
initialises CUDA in this process, which may go on to start the forkserver: a worker asks torch, so that `CUDA_VISIBLE_DEVICES` means
exactly what CUDA takes it to mean (indices, UUIDs, MIG slices, empty, -1).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from bitverdict.harness.model.architectures import ARCHITECTURES, BY_DEFAULT, EMULATED_ARCHITECTURES, FAMILIES, is_amd
from bitverdict.harness.model.paths import IMPORTED_FROM
from bitverdict.harness.model.trusted_imports import environment_of_a_child
from bitverdict.harness.model.usage import UsageError, did_you_mean
from bitverdict.kernels.features import Feature, features_of

GPU_NODES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # where there is a GPU's driver there is one of these
SEEN_GPUS_VARIABLE = "BITVERDICT_GPUS_SEEN"
"""Set by a process for its own workers: what it found, so that a dozen pytest workers need not each start CUDA to look."""


@dataclass(frozen=True)
class Target:
    """One machine. `index` counts the GPUs that are visible to the process that asked; -1 for an emulated one. `uuid` is the
    driver's name for it, the same in every process; `free` and `total` are bytes of its memory when it was looked for."""

    name: str
    arch: str
    index: int = -1
    model: str = ""
    uuid: str = ""
    free: int = field(default=0, compare=False)
    total: int = field(default=0, compare=False)

    @property
    def emulated(self) -> bool:
        return self.index < 0

    @property
    def features(self) -> frozenset[Feature]:
        return features_of(self.arch)

    def __str__(self) -> str:
        return self.name


def nearest_emulated(arch: str) -> Target:
    """The emulated target whose instructions are nearest to those of a GPU of `arch`."""
    known = {_number(name): name for name in EMULATED_ARCHITECTURES if is_amd(name) == is_amd(arch)}
    name = known[max((number for number in known if number <= _number(arch)), default=min(known))]
    return Target(f"emulated:{name}", name)


def _number(arch: str) -> int:
    """Of an architecture among its maker's: ``sm_90`` is 90, and AMD's ``gfx90a`` is hexadecimal."""
    return int(arch.removeprefix("gfx"), 16) if is_amd(arch) else int(arch.removeprefix("sm_"))


def targets(*, every: bool = False) -> list[Target]:
    """The machines that are judged where none is named: emulated ones, then each visible GPU. `every`: all emulated ones."""
    return [Target(f"emulated:{arch}", arch) for arch in (EMULATED_ARCHITECTURES if every else BY_DEFAULT)] + list(_gpus())


def target(name: str) -> Target:
    """The target called `name`, an emulated one by its architecture alone too (``sm_90``), the first where `name` means several
    GPUs; UsageError (value, rule, remedy) when it is unknown or not here."""
    for arch in EMULATED_ARCHITECTURES:  # without looking for GPUs
        if name in (arch, f"emulated:{arch}"):
            return Target(f"emulated:{arch}", arch)
    if name.startswith("cuda"):
        return gpus_called(name)[0]
    known_targets = targets(every=True)
    names = ", ".join(t.name for t in known_targets)
    meant = (
        "" if re.fullmatch(r"emulated:(sm_\d+|gfx\w+)", name) else did_you_mean(name, (machine.name for machine in known_targets))
    )
    raise UsageError(f"target {name!r}: must be sm_NN, emulated:sm_NN, cuda:N or cuda{meant}; targets here: {names}")


def targets_called(names: Iterable[str], gpus: Sequence[Target] | None = None) -> list[Target]:
    """The targets that `names` mean, in their order, each once: of "cuda" and of a family every GPU, of `gpus` or of those here."""
    machines = (gpus_called(name, gpus) if name.startswith("cuda") else [target(name)] for name in names)
    return list(dict.fromkeys(machine for some in machines for machine in some))


def is_leased(name: str) -> bool:
    """Whether a worker leases one of the GPUs that `name` means, as against cuda:N, which is that one."""
    kind, _, place = name.partition(":")
    return kind == "cuda" and (not place or place.startswith("sm_") or place in FAMILIES)


def gpus_called(name: str, gpus: Sequence[Target] | None = None) -> list[Target]:
    """The GPUs, of `gpus` or else of those here, that "cuda" (all), "cuda:ampere" (of a family), "cuda:sm_NN" (of an architecture)
    or "cuda:N" means; UsageError for none."""
    is_here = gpus is None
    gpus = [machine for machine in targets() if not machine.emulated] if gpus is None else gpus
    place = name.partition(":")[2]
    named_gpus = [gpu for gpu in gpus if not place or gpu.name == name or place in (gpu.arch, _family(gpu.arch))]
    if not named_gpus:
        here = ", ".join(f"{gpu.name} ({gpu.arch})" for gpu in gpus) or "none"
        seen = "is visible; GPUs here" if is_here else "is in the cluster, by models; GPUs there"
        remedy = f"{'see CUDA_VISIBLE_DEVICES and nvidia-smi, or ' * is_here}name an emulated one, such as sm_90"
        raise UsageError(f"target {name!r}: no such GPU {seen}: {here}; {remedy}")
    return named_gpus


def _family(arch: str) -> str:
    """The family of an architecture; empty where it has no record."""
    known = ARCHITECTURES.get(arch)
    return known.family if known else ""


def visible_device(index: int) -> str:
    """The entry of `CUDA_VISIBLE_DEVICES` that a worker must be given to see only GPU `index` of those visible here."""
    listed = [entry.strip() for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    return listed[index] if index < len(listed) else str(index)


def show_workers(found: list[Target]) -> None:
    """Tell this process's workers which GPUs there are; believed only where CUDA_VISIBLE_DEVICES is what it is here."""
    rows = [{name: getattr(t, name) for name in ("arch", "model", "uuid", "free", "total")} for t in found if not t.emulated]
    os.environ[SEEN_GPUS_VARIABLE] = json.dumps({"visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "gpus": rows})


@cache
def _gpus() -> tuple[Target, ...]:
    seen = json.loads(os.environ.get(SEEN_GPUS_VARIABLE, "null"))
    if seen and seen["visible"] == os.environ.get("CUDA_VISIBLE_DEVICES"):
        return _name_targets(seen["gpus"])
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1") or not any(map(os.path.exists, GPU_NODES)):
        return ()
    try:
        ask = [sys.executable, "-m", "bitverdict.harness.model.gpu_probe"]
        given = environment_of_a_child()
        asked = subprocess.run(ask, cwd=IMPORTED_FROM, env=given, capture_output=True, text=True, timeout=60, check=True)
        return _name_targets(json.loads(asked.stdout.splitlines()[-1]))
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        print(f"looking for GPUs failed ({error}); going on with the emulated targets", file=sys.stderr)
        return ()


def _name_targets(rows: list[dict[str, Any]]) -> tuple[Target, ...]:
    return tuple(Target(f"cuda:{i}", index=i, **row) for i, row in enumerate(rows))
