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
    """What one output must be.

    Either `words` (bit for bit; NaN compared as the plan says, `any_nan` where the payload is not expected) or `value` and `bound`
    (|got - value| <= bound per element, in float64). With `low` and `high`, which are words, the result must lie between them by
    value, or be NaN where `or_nan`; `value` and `bound` then only tell how far off it is. With `words` too, `bounded` marks the
    elements that the interval decides; the words decide the others. `others` (R, *shape) are words that are as right as `words`: of
    each element one of them all must come. `inconclusive` marks elements that this case cannot decide.
    `opinion` is a bound's on the words.
    `exact` is the mathematics in float64, of the output's shape, and `exact_error` float64's own running error of it (inf: not
    decidable); the real values of an emulated launch are held to it. `declared`: formats of the conversions that are mathematics.
    `tile` is the (rows, columns) of one program's output, `k_block` the K elements of one step: they explain where errors cluster.
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
    """What a bound says of some of an output's expected words: `words` (R, C), and the `output` (R, C) that they are held to.

    `of`: how many words the output has. Words outside are the harness's own error: what is expected contradicts itself.
    """

    words: np.ndarray
    output: ExpectedOutput
    word_count: int


@dataclass(frozen=True, kw_only=True)
class ExpectedOutcome:
    """What a case expects on a target. `result`: an output, judged by `Contract.expected`. Otherwise `outcome` (an
    `bitverdict.harness.model.verdict.Outcome` value such as "refused", "out of resources", "illegal instruction") is expected from
    `layer` (launcher, front end, verifier, ptxas, capacity, hardware, iisan), and `message`, where given, must occur in what is
    said. `any_refusal`: whatever the launcher raises, or the driver for it, is a refusal, and is as good as the rest."""

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
    Where a tile program of its has more than the `written` operations of the source, "executed" counts `peeled` more."""

    operation: str
    count: int
    option: str
    kernel: str = ""
    source_count: int = 0
    peeled_count: int = 0


class Contract:
    """Base of all contracts; a kernel's contract overrides what it needs. See the module's docstring for the order of play."""

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
        """The features that the kernel requires and `target` has not. MFMA stands in for mma.sync where `by_mfma`."""
        able = {Feature.MMA_SYNC} if self.by_mfma and Feature.MFMA in target.features else set()
        return frozenset(self.requires - target.features - able)

    def lacking_in_part(self, target: Target) -> dict[str, frozenset[Feature]]:
        """What no case has of `target`, though the kernel can do it elsewhere, in words; and the features that are missing."""
        return {}

    def cases(self, target: Target) -> SearchStrategy[Case]:
        """Every legal case on `target`, plus the illegal ones whose expected outcome is a refusal."""
        raise TypeError(f"{type(self).__name__} has no cases")

    def required(self, target: Target) -> list[Case]:
        """The required cases: run first in every profile, and gated on having been seen."""
        return []

    def whole(self, target: Target) -> list[Case]:
        """Cases at the tutorials' own sizes that are too large for `required`, the longest first: judged by the profile `whole`."""
        return []

    def around(self, tile: Tile, target: Target) -> list[Case]:
        """Cases at the edges of a user's launcher that works in steps of `tile`; judged like `required`."""
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
        """One `ExpectedOutput` per output. `recorded` holds what the run knew, e.g. the autotuner's winning configuration."""
        raise TypeError(f"{type(self).__name__} has no expected")

    def promised_instructions(self, case: Case) -> tuple[PromisedInstruction, ...]:
        """What the options of `case` promise of the shipped kernel's tile programs, where the words are the same without. An
        emulated launch whose words pass is held to them; a user's launcher never is."""
        return ()

    def decides(self, case: Case, target: Target) -> bool:
        """Whether some word of `case` can be decided, as far as its operands tell: a NaN in each row may leave none."""
        return True

    def declared(self, case: Case) -> frozenset[str] | None:
        """The formats whose conversions are mathematics, maybe none, where the launch is to compute real values too; None where
        nobody holds them to anything. The contracts of shipped kernels hold a user's launcher to them, and their own to words."""
        return self.conversions if case.launcher else None

    def written(self, case: Case) -> frozenset[str]:
        """Of the launch just made the operands that it may have written: outputs that are written in place."""
        return frozenset()

    def to_launch(self, case: Case) -> Case:
        """`case` as a process that launches it for the judge is told it: without what is expected."""
        return case

    def left(self) -> dict[str, Any]:
        """What the launch just made left in this contract (JSON values), for `take` of the same contract in another process."""
        return {}

    def take(self, left: Mapping[str, object]) -> None:
        """Take what a launch in another process left there. TypeError or ValueError for what no launch leaves."""

    def problem_told(self, told: Sequence[tuple[str, str]]) -> Any:
        """The problem that a report tells by (name, text) of its parts; None where its fields are those of a record."""
        return None

    def call_text(self, case: Case) -> str:
        """The call that a launch of `case` makes, as Python that can be pasted; empty where it cannot be written on one line."""
        return ""

    def simpler(self, case: Case) -> Iterator[Case]:
        """Cases simpler than `case` by what it drew, the simplest first: where its problem is no record of plain fields."""
        return iter(())

    def mathematics(self, case: Case, operands: Mapping[str, Operand]) -> Mathematics | None:
        """What the outputs are of the values of `operands`, for an explanation of wrong ones; None where there is none to offer."""
        return None

    def mathematics_of(self, case: Case, operands: Mapping[str, Operand], output: str) -> Mathematics | None:
        """`mathematics` of the call that `output` is of: a case may have several."""
        return self.mathematics(case, operands)

    def sizes(self, case: Case) -> dict[str, int]:
        """Numbers of the problem by name that may be sizes of operands: `resized` changes one. By default its integer fields."""
        fields = dataclasses.fields(case.problem) if dataclasses.is_dataclass(case.problem) else ()
        return {each.name: value for each in fields if type(value := getattr(case.problem, each.name)) is int}

    def resized(self, case: Case, name: str, value: int) -> Case | None:
        """`case` with another value of one of its `sizes`, fed anew; None where there is no such case."""
        return dataclasses.replace(case, problem=dataclasses.replace(case.problem, **{name: value}))

    def configured(self, case: Case, target: Target) -> list[Case]:
        """`case` in each configuration that the contract knows of, its own left out."""
        return []

    def factors(self, case: Case, operands: Mapping[str, Operand]) -> tuple[np.ndarray, np.ndarray] | None:
        """Codes (M, K) and (N, K) of the factors of a product, of which each line of one meets each of the other; None: there is no
        product."""
        return None

    def index_lists(self, case: Case) -> tuple[IndexList, ...]:
        """The operands of row numbers that a case of this shape can write out."""
        return ()

    def asked_by_default(self, case: Case) -> str:
        """How operands of `case` lie that a launcher is asked though nobody claims it, in words; empty where they do not."""
        return ""

    def left_out(self, target: Target) -> list[str]:
        """What required cases should ask on `target` and cannot, a sentence each."""
        return []

    def indices(self, case: Case) -> Indices:
        """The row numbers that `case` is fed, whether it writes them out or draws them from its seed."""
        return ()

    def recorded(self, case: Case) -> dict[str, Any]:
        """What only the run just made knows (JSON values): the autotuner's winner, for one."""
        return {}

    def between_calls(self) -> dict[str, Any]:
        """What was seen between the calls of the case just launched (JSON values), whatever they came to; of one call nothing."""
        return {}

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        """The classes this case falls in, by dimension: {"config": "128x256x64", "m mod 16": 3, ...}. Counted and shown."""
        return {}

    def case_from_json(self, record: Mapping[str, object]) -> Case:
        """Inverse of `Case.to_json`; ValueError with value, rule and remedy on anything else."""
        raise TypeError(f"{type(self).__name__} has no case_from_json")
