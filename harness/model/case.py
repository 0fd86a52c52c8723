"""The record of one case, and one of its inputs. Both go through JSON or a pipe unchanged."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

CASE_VERSION = 1
SECOND, THIRD = " of the second call", " of the third call"  # what names of operands and outputs of later calls end in
Indices = tuple[tuple[str, tuple[int, ...]], ...]
"""Row numbers of a case, each list behind the name of its operand."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One launch of one kernel, complete: what is asked, how it is launched, what it is fed, how the emulator schedules it.

    `problem` and `config` are the kernel's own frozen dataclasses; `config` is None where the launcher chooses (autotuning, a
    user's own launcher). `schedule` is "eager", "latest" or "drawn:<schedule_seed>", and may end in " on
    <multiprocessors>"; hardware ignores it. `tuning` says which configuration autotuners take ("first", "config <n>") and whether
    their tuning runs are judged too ("runs"); "" leaves it to the target. `calls`: 2 calls the launcher again on other operands
    elsewhere, 3 on other operands in the same storage, and then on these elsewhere (`bitverdict.harness.checks.second_call`).
    `indices` are operands of row numbers, each written out; an operand that it does not name is drawn from regime and `data_seed`.
    `search_path`: folders in which the files of a user's repository find each other's modules, before all others.
    `real_values`: whether an emulated launch also computes without rounding, where the contract wants it (`Contract.declared`).
    `certificate`: whether a pass says which faults it exposes (`bitverdict.harness.model.certificate`), and lost precision where.
    `recover_order`: the order of the launcher's sums is recovered by launches of their own, and words are expected by it where the
    contract has but a bound (docs/order_of_sums.md).
    `ptx`: the PTX of each launch on an emulated GPU is executed beside the tile program (docs/ptx.md).
    `promises`: what a user's launcher promises besides right words (docs/invariance.md): "deterministic", "rows", names of sizes,
    with commas between.
    `sealed`: the launcher's file is imported by a process of its own alone, which shares nothing with the judge but bytes.
    """

    contract: str  # address of the contract, as `resolve` takes it
    problem: Any
    config: Any = None
    regime: str = "normal"
    data_seed: int = 0
    schedule: str = "eager"
    launcher: str = ""  # address of a user's launcher; empty: the kernel's own
    tuning: str = ""
    calls: int = 1
    indices: Indices = ()
    real_values: bool = True
    recover_order: bool = False
    ptx: bool = False
    sealed: bool = False
    certificate: bool = False
    promises: str = ""
    search_path: tuple[str, ...] = ()

    @property
    def schedule_kind(self) -> str:
        """The schedule without its seed, for a count of what was covered."""
        return re.sub(r":-?\d+", "", self.schedule)

    def to_json(self) -> dict[str, Any]:
        config = dataclasses.asdict(self.config) if dataclasses.is_dataclass(self.config) else self.config  # type: ignore[arg-type]
        extra_fields: dict[str, Any] = {
            name: value for name, plain in _DEFAULT_FIELDS.items() if (value := getattr(self, name)) != plain
        }
        if self.search_path:
            extra_fields["search_path"] = list(self.search_path)
        if self.indices:
            extra_fields["indices"] = {name: list(numbers) for name, numbers in self.indices}
        return {
            "version": CASE_VERSION,
            "contract": self.contract,
            "problem": dataclasses.asdict(self.problem),
            "config": config,
            "regime": self.regime,
            "data_seed": self.data_seed,
            "schedule": self.schedule,
            "launcher": self.launcher,
        } | extra_fields

    @cached_property
    def key(self) -> str:
        """Canonical text: equal for equal cases, stable over processes. A case that has a certificate made is no other one."""
        record = {name: value for name, value in self.to_json().items() if name != "certificate"}
        return json.dumps(record, sort_keys=True, separators=(",", ":"))


_DEFAULT_FIELDS: dict[str, Any] = {
    "tuning": "", "calls": 1, "real_values": True, "recover_order": False, "ptx": False, "sealed": False, "certificate": False,
    "promises": "",
}  # fmt: skip
"""Fields of a case that its record leaves out where they say nothing."""


@dataclass(frozen=True, kw_only=True)
class Operand:
    """One input as the launcher will see it.

    `codes` is the logical array of bits in `format`'s storage type (`bitverdict.reference.formats` name, or "int8", "int32", ...);
    `strides` are element strides of the view handed over (None: contiguous row-major), `offset` the elements before its first.
    """

    name: str
    format: str
    codes: np.ndarray
    strides: tuple[int, ...] | None = None
    offset: int = 0
