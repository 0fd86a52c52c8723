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
    """One launch of one kernel, complete: its problem and configuration, its operands, and how the emulator schedules it.

    - `problem`, `config`: the kernel's own frozen dataclasses. `config` is None where the launcher chooses.
    - `regime`, `data_seed`: the kind of values that operands are drawn from, and the seed of the draw. `indices`: operands of row
      numbers that are written out instead.
    - `schedule`: "eager", "latest" or "drawn:<schedule_seed>", with " on <multiprocessors>" or without; hardware ignores it.
    - `tuning`: the configuration that autotuners take ("first", "config <n>"), or "runs": their tuning runs are judged too; "": as
      the target does.
    - `calls`: 2 calls the launcher again on other operands in other storage; 3 calls it on other operands in the same storage, then
      on the first ones in other storage (`bitverdict.harness.checks.second_call`).
    - `real_values`: an emulated launch computes without rounding too, where the contract wants it (`Contract.declared`).
    - `recover_order`: find the order of sums by extra launches, and expect its words (docs/order_of_sums.md).
    - `ptx`: execute the PTX of each emulated launch beside the tile program (docs/ptx.md).
    - `sealed`: a process of its own imports the launcher's file, and shares nothing with the judge but bytes (docs/sealed.md).
    - `certificate`: a pass says which faults it exposes (`bitverdict.harness.model.certificate`), lost precision says where.
    - `promises`: of a user's launcher, besides right words: "deterministic", "rows" and names of sizes, with commas between.
    - `search_path`: folders in which a user's files find each other's modules, before all others.
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

    `codes`: its bits, in the storage type of `format` (a name of `bitverdict.reference.formats`, or "int8", "int32", ...), in
    logical order. `strides`: those of the view that the launcher gets (None: contiguous rows). `offset`: elements before its first.
    """

    name: str
    format: str
    codes: np.ndarray
    strides: tuple[int, ...] | None = None
    offset: int = 0
