"""What a kernel owes, and the record of one case.

A `Contract` is written once a kernel, in `harness/contracts/<stem>.py`. It answers, in this order: which cases are legal and
worth drawing (`cases`, `required`), what is owed for one of them on one target (`owed`), what to feed it (`operands`), how to
launch it (`launch`), and what must come out (`expected`). Nothing here knows a kernel, a GPU or pytest.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.supervision import stage
from bitverdict.harness.model.usage import UsageError, did_you_mean

if TYPE_CHECKING:  # the court draws and launches; a contract is read without either
    import torch
    from hypothesis.strategies import SearchStrategy

    from bitverdict.harness.model.targets import Target

CASE_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Case:
    """One launch of one kernel, complete: what is asked, how it is launched, what it is fed, how the emulator schedules it.

    `problem` and `config` are the kernel's own frozen dataclasses; `config` is None where the launcher chooses (autotuning, a
    user's own launcher). `schedule` is "eager", "latest" or "drawn:<schedule_seed>", and may end in " on
    <multiprocessors>"; hardware ignores it. `tuning` says which configuration autotuners take ("first", "config <n>") and whether
    their tuning runs are judged too ("runs"); "" leaves it to the target. `calls`: 2 calls the launcher again on other operands.
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

    @property
    def schedule_kind(self) -> str:
        """The schedule without its seed, for a count of what was covered."""
        return re.sub(r":-?\d+", "", self.schedule)

    def to_json(self) -> dict:
        config = dataclasses.asdict(self.config) if dataclasses.is_dataclass(self.config) else self.config  # type: ignore[arg-type]
        more = {name: value for name, value in (("tuning", self.tuning), ("calls", self.calls)) if value != _PLAIN[name]}
        return {
            "version": CASE_VERSION,
            "contract": self.contract,
            "problem": dataclasses.asdict(self.problem),
            "config": config,
            "regime": self.regime,
            "data_seed": self.data_seed,
            "schedule": self.schedule,
            "launcher": self.launcher,
        } | more

    @property
    def key(self) -> str:
        """Canonical text: equal for equal cases, stable over processes."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))


_PLAIN: dict[str, Any] = {"tuning": "", "calls": 1}  # fields of a case that its record leaves out where they say nothing


def case_from_record(contract: Contract, record: Mapping) -> Case:
    """The case of `record`, as `Case.to_json` wrote it: what the contract reads of it, and the fields that every case has."""
    return dataclasses.replace(contract.case_from_json(record), **{name: record.get(name, plain) for name, plain in _PLAIN.items()})


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


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What one output must be.

    Either `words` (bit for bit; NaN compared as the plan says, `any_nan` where the payload is not owed) or `value` and `bound`
    (|got - value| <= bound per element, in float64). With `low` and `high`, which are words, the result must lie between them by
    value, or be NaN where `or_nan`; `value` and `bound` then only tell how far off it is. With `words` too, `bounded` marks the
    elements that the interval decides; the words decide the others. `undecided` marks elements that this case cannot decide.
    `tile` is the (rows, columns) of one program's output, `k_block` the K elements of one step: they explain where errors cluster.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    words: np.ndarray | None = None
    any_nan: bool = False
    value: np.ndarray | None = None
    bound: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    or_nan: np.ndarray | None = None
    bounded: np.ndarray | None = None
    undecided: np.ndarray | None = None
    tile: tuple[int, int] | None = None
    k_block: int | None = None
    rests_on: str = ""


@dataclass(frozen=True, kw_only=True)
class Owed:
    """What a case owes on a target. `result`: an output, judged by `Contract.expected`. Otherwise `outcome` (an
    `bitverdict.harness.model.verdict.Outcome` value such as "refused", "out of resources", "illegal instruction") is owed from
    `layer` (launcher, front end, verifier, ptxas, capacity, hardware, iisan), and `message`, where given, must occur in what is
    said. `any_refusal`: whatever the launcher raises, or the driver for it, is a refusal, and is as good as the rest."""

    result: bool = True
    any_refusal: bool = False
    outcome: str = "right"
    layer: str = ""
    message: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Tile:
    """How a launcher cuts its problem, as an emulated launch showed it: `m`, `n` and `k` of one step of one program, and how many
    rows of tiles one group of programs has."""

    m: int
    n: int
    k: int
    group: int = 8


class Contract:
    """Base of all contracts; a kernel's contract overrides what it needs. See the module's docstring for the order of play."""

    stem: str = ""
    address: str = ""
    requires: frozenset = frozenset()  # bitverdict.kernels.features.Feature
    either_row: bool = False  # of two rows that a case scatters to one place either may stay: elsewhere two that differ are a race
    pointers_in_memory: bool = False  # the kernel loads pointers: to operands, or to what its launcher allocated
    must_launch: bool = False  # whether right words, from operands that are not empty, decide nothing where no kernel was launched
    claims: Mapping[str, str] = MappingProxyType({})  # words that a user's launcher may claim -> what it is then asked besides
    waives: Mapping[str, str] = MappingProxyType({})  # words that it may claim -> what it is then not asked
    parameters: str = ""  # what a user's launcher must accept, shown in errors: "(a, b, activation='', *, out_dtype=None)"

    def cases(self, target: Target) -> SearchStrategy[Case]:
        """Every legal case on `target`, plus the illegal ones whose owed outcome is a refusal."""
        raise TypeError(f"{type(self).__name__} has no cases")

    def required(self, target: Target) -> list[Case]:
        """The cover list: run first in every profile, and gated on having been seen."""
        return []

    def around(self, tile: Tile, target: Target) -> list[Case]:
        """Cases at the edges of a user's launcher that works in steps of `tile`; judged like `required`."""
        return []

    def owed(self, case: Case, target: Target) -> Owed:
        return Owed()

    def operands(self, case: Case) -> list[Operand]:
        raise TypeError(f"{type(self).__name__} has no operands")

    def result_bytes(self, case: Case) -> int:
        """Bytes that the outputs of a far case span (`bitverdict.harness.judge.far_views`): a GPU must have room for them beside
        the operands."""
        return 0

    def launch(self, case: Case, tensors: Mapping[str, torch.Tensor], launcher: Callable | None) -> Mapping[str, torch.Tensor]:
        """Run the kernel on `tensors` (one per operand, on the target's device); returns outputs by name."""
        raise TypeError(f"{type(self).__name__} has no launch")

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[Expected]:
        """One `Expected` per output. `recorded` holds what the run knew, e.g. the autotuner's winning configuration."""
        raise TypeError(f"{type(self).__name__} has no expected")

    def recorded(self, case: Case) -> dict:
        """What only the run just made knows (JSON values): the autotuner's winner, for one."""
        return {}

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        """The classes this case falls in, by dimension: {"config": "128x256x64", "m mod 16": 3, ...}. Counted and shown."""
        return {}

    def case_from_json(self, record: Mapping) -> Case:
        """Inverse of `Case.to_json`; ValueError with value, rule and remedy on anything else."""
        raise TypeError(f"{type(self).__name__} has no case_from_json")


def resolve(address: str) -> Contract:
    """The contract at `address`: a kernel's stem, ``package.module:NAME`` or ``path/file.py:NAME``.

    Raises ValueError (value, rule, remedy) for an address that leads nowhere.
    """
    if ":" not in address:
        try:
            found = importlib.import_module(f"bitverdict.harness.contracts.{address}").CONTRACT
        except ModuleNotFoundError as error:
            if error.name != f"bitverdict.harness.contracts.{address}":
                raise
            here = kernels_with_a_contract()
            raise UsageError(
                f"contract {address!r}: no such kernel{did_you_mean(address, here)}; known: {', '.join(here)}; "
                "or give package.module:NAME or path/file.py:NAME"
            ) from None
    else:
        found = load(address)
    if not isinstance(found, Contract):
        raise UsageError(f"contract {address!r}: is a {type(found).__name__}, must be a bitverdict.harness.model.contract.Contract")
    return found


# modules of addresses in stored cases: names of version 1 -> names now
_EARLIER = {
    "harness.frontier.contract": "bitverdict.harness.studies.tma_limits.contract",
    "tests.harness_checks.sanitizer_bait": "tests.faults.sanitizer_bait",
    "tests.harness_checks.injected_faults": "tests.faults.crashes.injected",
}


def current(address: str) -> str:
    """The address that a stored case means: modules had other names in version 1. Others come back as they are."""
    place, colon, name = address.rpartition(":")
    if place.partition(".")[0] in ("harness", "kernels", "reference") and place not in _EARLIER and not place.endswith(".py"):
        place = f"bitverdict.{place}"
    return f"{_EARLIER.get(place, place)}{colon}{name}" if colon else address


def load(address: str) -> Any:
    """The object at ``package.module:NAME`` or ``path/file.py:NAME``; a file is imported once per process."""
    place, _, name = current(address).rpartition(":")
    if not place or not name:
        raise UsageError(f"address {address!r}: must be package.module:NAME or path/file.py:NAME")
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise UsageError(f"address {address!r}: there is no file {place}; give a path to an existing Python file")
        try:
            module = _load_file(path, address)
        except (Exception, SystemExit) as error:  # a script that exits would end the run with its own status, nothing judged
            raise UsageError(f"address {address!r}: {place} cannot be imported: {_where(error, path)}; mend the file") from error
    else:
        try:
            module = sys.modules.get(place) or _import(place, address)
        except ModuleNotFoundError as error:
            raise UsageError(f"address {address!r}: cannot import {place} ({error}); give path/file.py:NAME for a file") from error
        except (Exception, SystemExit) as error:
            said = _where(error, Path())
            raise UsageError(f"address {address!r}: {place} cannot be imported: {said}; mend the module") from error
    try:
        return getattr(module, name)
    except AttributeError:
        public = [n for n, value in vars(module).items() if not n.startswith("_") and _may_be_named(value, module)]
        shown = ", ".join(public[:12]) or "no function and no contract"
        raise UsageError(f"address {address!r}: {place} has no {name}{did_you_mean(name, public)}; it has {shown}") from None


def _may_be_named(value: Any, module: Any) -> bool:
    """Whether an address may lead to it: a function of the module's own that is no kernel, or a contract."""
    own = callable(value) and getattr(value, "__module__", None) == module.__name__ and not hasattr(value, "def_file_line_number")
    return own or isinstance(value, Contract)


def load_afresh(address: str) -> Any:
    """The object at `address`, of a module that is imported anew: it remembers nothing of earlier calls."""
    place, _, name = address.rpartition(":")
    module = sys.modules.get(place)
    path = Path(place).resolve() if place.endswith(".py") else Path(str(module.__file__ if module else place))
    return getattr(_load_file(path, address, again=place if module else ""), name)


def _where(error: BaseException, path: Path) -> str:
    """The error in one line, with the line of the file at `path` that raised it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    said = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" + (f" (line {line})" if line else "")


def _import(place: str, address: str) -> Any:
    from bitverdict.harness.model.targets import importing

    with stage(f"address {address!r}: importing {place}", "mend the module"), importing():
        return importlib.import_module(place)


def _load_file(path: Path, address: str, *, again: str | None = None) -> Any:
    """The module of the file at `path`, once per process. `again`: anew, as a sibling of the module of that name, if it has one."""
    name = f"_loaded_{path.stem}_{abs(hash(str(path))):x}"
    if again is not None:
        name = f"{again or name}_again_{len(sys.modules)}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before execution: triton.jit and dataclasses look their module up
    from bitverdict.harness.model.targets import importing

    try:
        with stage(f"address {address!r}: importing {path.name}", "mend the file"), importing():
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
