"""What a kernel expects, and the record of one case.

A `Contract` is written once a kernel, in `harness/contracts/<stem>.py`. It answers, in this order: which cases are legal and
worth drawing (`cases`, `required`), what is expected for one of them on one target (`expected_outcome`), what to feed it
(`operands`), how to launch it (`launch`), and what must come out (`expected`). Nothing here knows a kernel, a GPU or pytest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # the harness draws and launches; a contract is read without either
    import torch
    from hypothesis.strategies import SearchStrategy

    from bitverdict.harness.model.mathematics import Mathematics
    from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.case import _DEFAULT_FIELDS, Case, Indices, Operand
from bitverdict.kernels.features import Feature

Launcher = Callable[..., Any]
"""What launches a kernel: by arguments that its contract knows."""


def case_from_record(contract: Contract, record: Mapping[str, Any]) -> Case:
    """The case of `record`, as `Case.to_json` wrote it: what the contract reads of it, and the fields that every case has."""
    every = {name: record.get(name, plain) for name, plain in _DEFAULT_FIELDS.items()} | {
        "search_path": tuple(record.get("search_path", ()))
    }
    return dataclasses.replace(contract.case_from_json(record), **every)


class UndecidedCase(Exception):
    """Raised by `Contract.expected` where the mathematics of a case cannot be said: the case is inconclusive, for this reason."""


@dataclass(frozen=True, kw_only=True)
class ExpectedOutput:
    """What one output must be: exact words, an interval, or a value with a bound. Arrays have the output's shape.

    - `words`: compared bit for bit. `others` (R, *shape): further words that are as right. `any_nan`: any NaN will do for a NaN.
    - `value`, `bound`: |got - value| <= bound for each element, in float64.
    - `low`, `high`: words between which the result must lie by value, or be NaN where `or_nan` is true; `value` and `bound` then
      only say how far off it is. `bounded`: beside `words`, the elements that this interval decides.
    - `inconclusive`: elements that this case cannot decide. `opinion`: a bound that `words` themselves are checked against.
    - `exact`: the mathematics in float64, `exact_error` its own running error (inf: not decidable); real values of an emulated
      launch are compared with them. `declared`: formats to which a conversion counts as mathematics.
    - `tile`: (rows, columns) of one program, `k_block`: K elements of one step; both explain where errors cluster.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    words: np.ndarray | None = None
    others: np.ndarray | None = None
    any_nan: bool = False
    value: np.ndarray | None = None
    bound: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    or_nan: np.ndarray | None = None
    bounded: np.ndarray | None = None
    inconclusive: np.ndarray | None = None
    tile: tuple[int, int] | None = None
    k_block: int | None = None
    basis: str = ""
    opinion: SecondOpinion | None = None
    exact: np.ndarray | None = None
    exact_error: np.ndarray | None = None
    declared: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class SecondOpinion:
    """Some of an output's expected words, `words` (R, C), and the bound `output` (R, C) that they must lie in.

    `word_count`: how many words the output has. A word outside is the harness's error: its expectations contradict each other.
    """

    words: np.ndarray
    output: ExpectedOutput
    word_count: int


@dataclass(frozen=True, kw_only=True)
class ExpectedOutcome:
    """What must happen when a case runs on a target: a result, or a certain failure.

    - `result`: the launch returns outputs, which `Contract.expected` judges. False: it must end with `outcome`.
    - `outcome`: a value of `Outcome`, such as "refused", "out of resources" or "illegal instruction".
    - `layer`: what must end it: launcher, front end, verifier, ptxas, capacity, hardware or iisan.
    - `message`: a text that must occur in the error; empty: any. `reason`: why this is expected, for reports.
    - `any_refusal`: whatever the launcher or the driver raises is taken for a refusal, and is as good as the rest.
    """

    result: bool = True
    any_refusal: bool = False
    outcome: str = "pass"
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


@dataclass(frozen=True)
class IndexList:
    """An operand of row numbers that a case may write out (`Case.indices`).

    Its length is the field `length` of Problem. The table that it points into has as many rows as the field `rows` says. `block`:
    rows of one program, where two programs must not name one row of the table; 0 where any may.
    """

    name: str
    length: str
    rows: str
    block: int = 0


@dataclass(frozen=True)
class PromisedInstruction:
    """What an option of a case promises of each tile program that its launcher launches, or of those of `kernel` alone: `count`
    operations of the name `operation`, for instance "ttng.tmem_alloc". "barriers of ttng.tc_gen5_mma" counts the barriers that
    these operations name. "executed tt.store" counts how often all programs of a launch come to them, "programs" the programs.
    "constant GROUP_M" is the integer that is compiled in for a parameter.

    AMD's compiler may peel the last steps of a loop, run them also where there are fewer, and drop what they give (for gfx950).
    Where a tile program of its has more than the `source_count` operations of the source, "executed" counts `peeled_count` more."""

    operation: str
    count: int
    option: str
    kernel: str = ""
    source_count: int = 0
    peeled_count: int = 0


class Contract:
    """What a kernel must do: the base of all contracts. A kernel's contract overrides what it needs (docs/adding_a_kernel.md)."""

    stem: str = ""
    address: str = ""
    requires: frozenset[Feature] = frozenset()
    by_mfma: bool = False  # what AMD's matrix instructions make of its products is planned too
    either_row: bool = False  # of two rows that a case scatters to one place either may stay: elsewhere two that differ are a race
    pointers_in_memory: bool = False  # the kernel loads pointers: to operands, or to what its launcher allocated
    any_launcher: bool = False  # the launcher is a user's, of which nothing is known before its first launch
    remedy: str = ""  # how a user says what the launcher takes, where it refuses legal input; empty: by its attributes
    is_later_call: bool = False  # a launch is a later call of a case: what the first one constructed is called again
    must_launch: bool = (
        False  # whether right words, from operands that are not empty, are inconclusive where no kernel was launched
    )
    conversions: frozenset[str] | None = None  # to these formats are mathematics in a user's launcher; None: it has no arithmetic
    claims: Mapping[str, str] = MappingProxyType({})  # words that a user's launcher may claim -> what it is then asked besides
    waives: Mapping[str, str] = MappingProxyType({})  # words that it may claim -> what it is then not asked
    deterministic: bool = False  # a promise: the same operands give the same words, atomics or not
    batch_invariant: tuple[str, ...] = ()  # a promise: along these sizes a row's words depend on the row alone (docs/invariance.md)
    parameters: str = ""  # what a user's launcher must accept, shown in errors: "(a, b, activation='', *, out_dtype=None)"

    def lacking(self, target: Target) -> frozenset[Feature]:
        """The features that the kernel requires and `target` lacks. MFMA stands in for mma.sync where `by_mfma`."""
        able = {Feature.MMA_SYNC} if self.by_mfma and Feature.MFMA in target.features else set()
        return frozenset(self.requires - target.features - able)

    def lacking_in_part(self, target: Target) -> dict[str, frozenset[Feature]]:
        """What the kernel can do elsewhere and no case asks of `target`, in words, each with the features that `target` lacks."""
        return {}

    def cases(self, target: Target) -> SearchStrategy[Case]:
        """A strategy of every legal case on `target`, and of illegal ones whose expected outcome is a refusal."""
        raise TypeError(f"{type(self).__name__} has no cases")

    def required(self, target: Target) -> list[Case]:
        """The cases that every profile judges, before drawn ones; a run that misses one is not complete."""
        return []

    def whole(self, target: Target) -> list[Case]:
        """Cases at the tutorials' own sizes that are too large for `required`, the longest first: judged by the profile `whole`."""
        return []

    def around(self, tile: Tile, target: Target) -> list[Case]:
        """Cases at the edges of the tiles of a user's launcher, which an emulated launch showed; judged like `required`."""
        return []

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        return ExpectedOutcome()

    def operands(self, case: Case) -> list[Operand]:
        raise TypeError(f"{type(self).__name__} has no operands")

    def result_bytes(self, case: Case) -> int:
        """Bytes that the outputs of a far case span (`bitverdict.harness.judge.far_views`): a GPU must have room for them beside
        the operands."""
        return 0

    def launch(self, case: Case, tensors: Mapping[str, torch.Tensor], launcher: Launcher | None) -> Mapping[str, torch.Tensor]:
        """Run the kernel on `tensors` (one per operand, on the target's device); returns outputs by name."""
        raise TypeError(f"{type(self).__name__} has no launch")

    def expected(
        self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping[str, object]
    ) -> list[ExpectedOutput]:
        """One `ExpectedOutput` per output. `recorded`: what the launch found out, such as the configuration an autotuner chose."""
        raise TypeError(f"{type(self).__name__} has no expected")

    def promised_instructions(self, case: Case) -> tuple[PromisedInstruction, ...]:
        """Instructions that the options of `case` promise, where the words would be the same without them. Checked in emulated
        launches of the shipped kernel whose words pass, never of a user's launcher."""
        return ()

    def decides(self, case: Case, target: Target) -> bool:
        """Whether the operands of `case` leave any word to decide: a NaN in each row may leave none."""
        return True

    def declared(self, case: Case) -> frozenset[str] | None:
        """Formats to which a conversion counts as mathematics, not as rounding, when the launch also computes real values; None: it
        does not compute them. A shipped kernel needs none, for its words are compared; a user's launcher does."""
        return self.conversions if case.launcher else None

    def written(self, case: Case) -> frozenset[str]:
        """The operands that the last launch may have written: outputs that are written in place."""
        return frozenset()

    def to_launch(self, case: Case) -> Case:
        """`case` without what is expected of it: what a process is sent that launches it for the judge."""
        return case

    def left(self) -> dict[str, Any]:
        """What the last launch stored in this contract (JSON values), for `take` of the same contract in another process."""
        return {}

    def take(self, left: Mapping[str, object]) -> None:
        """Store what `left` returned in the process that launched. TypeError or ValueError for anything else."""

    def problem_told(self, told: Sequence[tuple[str, str]]) -> Any:
        """The problem that a report printed as `told`, pairs (name, text); None where its fields are those of a record."""
        return None

    def call_text(self, case: Case) -> str:
        """The call that a launch of `case` makes, as Python that can be pasted; empty where it cannot be written on one line."""
        return ""

    def simpler(self, case: Case) -> Iterator[Case]:
        """Cases simpler than `case`, the simplest first, for a problem that is no record of plain fields."""
        return iter(())

    def mathematics(self, case: Case, operands: Mapping[str, Operand]) -> Mathematics | None:
        """The outputs as a function of the values of `operands`, to explain wrong ones by; None where the contract has none."""
        return None

    def mathematics_of(self, case: Case, operands: Mapping[str, Operand], output: str) -> Mathematics | None:
        """`mathematics` of the call that made `output`: a case may call the launcher several times."""
        return self.mathematics(case, operands)

    def sizes(self, case: Case) -> dict[str, int]:
        """Sizes of operands by the names of fields of the problem, by default all integer ones. `resized` changes one."""
        fields = dataclasses.fields(case.problem) if dataclasses.is_dataclass(case.problem) else ()
        return {each.name: value for each in fields if type(value := getattr(case.problem, each.name)) is int}

    def resized(self, case: Case, name: str, value: int) -> Case | None:
        """`case` with `value` for one of its `sizes`, and operands of that size; None where the kernel takes no such case."""
        return dataclasses.replace(case, problem=dataclasses.replace(case.problem, **{name: value}))

    def configured(self, case: Case, target: Target) -> list[Case]:
        """`case` in each other configuration that the contract knows."""
        return []

    def factors(self, case: Case, operands: Mapping[str, Operand]) -> tuple[np.ndarray, np.ndarray] | None:
        """Codes (M, K) and (N, K) of the factors of a matrix product, rows of one by rows of the other; None: there is no such
        product."""
        return None

    def index_lists(self, case: Case) -> tuple[IndexList, ...]:
        """The operands of row numbers that a case of this shape can write out."""
        return ()

    def asked_by_default(self, case: Case) -> str:
        """How the operands of `case` lie, in words, where that is tested by default, claimed or not; else empty."""
        return ""

    def left_out(self, target: Target) -> list[str]:
        """What the required cases should test on `target` and cannot, a sentence each."""
        return []

    def indices(self, case: Case) -> Indices:
        """The row numbers among the operands of `case`, whether it writes them out or draws them from its seed."""
        return ()

    def recorded(self, case: Case) -> dict[str, Any]:
        """What only the last launch knows (JSON values), such as the configuration that an autotuner chose."""
        return {}

    def between_calls(self) -> dict[str, Any]:
        """What was seen between the calls of the last case (JSON values), whatever their outcome; empty where it made one call."""
        return {}

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        """The classes of this case, for the coverage that reports count: {"config": "128x256x64", "m mod 16": 3, ...}."""
        return {}

    def case_from_json(self, record: Mapping[str, object]) -> Case:
        """Inverse of `Case.to_json`; ValueError with value, rule and remedy on anything else."""
        raise TypeError(f"{type(self).__name__} has no case_from_json")
