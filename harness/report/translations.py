"""What the emulated GPU executes for a kernel: each tile program that was launched, and the Python that it is translated to."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitverdict.harness.judge.classify import outcome_of
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.devices import target_device
from bitverdict.harness.judge.launch import launch
from bitverdict.harness.judge.remote_launcher import launcher_of
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import Target
from bitverdict.harness.session.case_source import CaseSource


@dataclass
class Translation:
    """One kernel as it was compiled once, and how often a launch ran it. `python` and `program` are texts."""

    kernel: str
    python: str
    program: str
    launches: int = 1


@dataclass
class Translations:
    """Of one run of a launcher or script, in the order of the launches. `fault`: what ended it, empty where nothing did."""

    translations: list[Translation]
    fault: str = ""


def of_launcher(address: str, target: Target, launcher: str = "") -> Translations | None:
    """Of the kernel whose contract is at `address`, or of a user's `launcher`, in the first case that every run judges there; None
    where there is none. Raises UsageError for an address that leads nowhere."""
    contract = resolve(address)
    case = next(iter(CaseSource(address, target, launcher=launcher).required()), None)
    if case is None:
        return None
    devices: list[Any] = []

    @contextmanager
    def enter_device(*given: Any, **options: Any) -> Iterator[Any]:
        with target_device(*given, **options) as device:
            devices.append(device)
            yield device

    operands = {operand.name: operand for operand in contract.operands(case)}
    seen = launch(case, target, contract, launcher_of(case, target), operands, Clock(), enter_device)
    fault = f"{seen.outcome}: {seen.message} [{seen.location}]" if seen.outcome is not None else ""
    return Translations(_collect_translations(devices[-1:]), fault)


def of_script(path: Path, target: Target) -> Translations:
    """Of what the Python file at `path` launches while it runs as a program, on CPU tensors or on `device="cuda"`."""
    before = sys.argv, sys.path[:]
    sys.argv, sys.path[:0] = [str(path)], [str(path.parent)]
    fault, device = "", None
    try:
        with target_device(target) as device:
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        fault = f"the script exits with {end.code}" if end.code else ""
    except Exception as error:
        seen = outcome_of(error)
        fault = f"{seen.outcome}: {seen.message} [{seen.location}]"
    finally:
        sys.argv, sys.path[:] = before
    return Translations(_collect_translations([device]), fault)


def _collect_translations(devices: list[Any]) -> list[Translation]:
    """Each program that was launched, once."""
    translations_by_key: dict[tuple[str, str], Translation] = {}
    for launched in (launched for device in devices if device is not None for launched in device.launches):
        key = launched.name, launched.python
        if key in translations_by_key:
            translations_by_key[key].launches += 1
        else:
            translations_by_key[key] = Translation(launched.name, launched.python, launched.program)
    return list(translations_by_key.values())
