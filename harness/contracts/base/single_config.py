"""What the contracts of one-configuration kernels share: cases from clauses, JSON, refusals, and rows that are further apart than
they need.

A contract built on this names its kernel's module (or a faulty copy of it), gives a pool of specialisations, draws a `Problem` for
one of them, and says how to launch and what must come out. Everything a clause forbids is expected as a refusal by the launcher,
with the clause's rule in what is said."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.contracts.oracle.matmul_support import beyond_shared_memory, without_e4m3
from bitverdict.harness.contracts.oracle.row_mathematics import Formula
from bitverdict.harness.model.architectures import architecture
from bitverdict.harness.model.case import CASE_VERSION, Case, Operand
from bitverdict.harness.model.case_fields import check_indices, check_record
from bitverdict.harness.model.contract import Contract, ExpectedOutcome, Tile
from bitverdict.harness.model.launcher_limits import FAR_CLAIM, FAR_PAD, claims_far, nearest
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.usage import UsageError
from bitverdict.kernels.clauses import broken
from bitverdict.kernels.element_types import ELEMENT_TYPES, bits_of
from bitverdict.kernels.features import Feature

if TYPE_CHECKING:
    import torch
    from hypothesis.strategies import SearchStrategy

    from bitverdict.harness.model.targets import Target
    from bitverdict.reference.tensor_core import Instruction

BUDGET = 1 << 22  # products of one drawn case, masked elements of its tiles included

Fields = dict[str, Any]


class KernelContract(Contract):
    """Contract of `module`: `kernels.<stem>`, or a copy of its source with a mutant. The class stands in `contracts.<stem>`."""

    must_launch = True
    claims = FAR_CLAIM
    signed_fields: frozenset[str] = frozenset()  # fields of Problem and Config that may be negative
    rows_of: Mapping[str, tuple[str, str]] = MappingProxyType({})
    """Field of a gap behind rows -> fields of how many rows and columns there are. Of one row PyTorch lets the stride be anything,
    and no program reads it: there the gap may be negative, down to a stride of one element."""
    tutorial_regime = "normal"  # what the tutorial's own test feeds the kernel

    def __init__(self, module: ModuleType) -> None:
        places = [kind.__module__.rpartition(".") for kind in type(self).__mro__]
        here = (stem for package, _, stem in places if package == "bitverdict.harness.contracts")  # a subclass may stand elsewhere
        self.module, self.stem = module, next(here, places[0][2])
        self.address = self.stem if module.__name__ == f"bitverdict.kernels.{self.stem}" else f"{module.__file__}:CONTRACT"
        self.requires = module.REQUIRES

    # for a kernel's contract to say

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        """Specialisations: (fields of Problem that the compiler sees, fields of Config)."""
        raise TypeError(f"{type(self).__name__} has no pool")

    def draw_problem(self, draw: Callable, problem: Fields, config: object, target: Target) -> Fields:
        """The remaining fields of Problem, drawn for one specialisation."""
        raise TypeError(f"{type(self).__name__} draws no problem")

    def draw_regime(self, draw: Callable) -> str:
        from bitverdict.harness.contracts.inputs import strategies

        return draw(strategies.regimes())

    def with_drawn_indices(self, draw: Callable, case: Case) -> Case:
        """`case` with its row numbers drawn, where the kernel takes some."""
        return case

    def regime(self, place: int) -> str:
        """The regime of the case at `place` of the list that every run judges."""
        return regimes.REGIMES[place % len(regimes.REGIMES)]

    def regime_for(self, problem: Fields, place: int) -> str:
        """The regime of `problem` at `place`: that of the place; of one product a plain one, where zero times anything, or two
        subnormals, would give the word that a kernel gives that reads neither."""
        return self.regime(0 if products(problem) == 1 and "k" in problem else place)

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        """Problems and configurations that every run judges."""
        return ()

    def tutorial(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        """Problems and configurations of the tutorial's own tests and tables of figures, at the sizes of its tests."""
        return ()

    def formula(self, case: Case) -> Formula | None:
        """The mathematics of `case` against the array API; None where it has none."""
        return None

    def mathematics(self, case: Case, operands: Mapping[str, Operand]) -> Mathematics | None:
        formula = self.formula(case)
        return None if formula is None else formula.mathematics(operands)

    def cut(self, problem: Fields, config: Fields) -> Fields:
        """`problem` of `tutorial` as every run judges it: smaller by whole tiles where its own sizes would cost too much. Residues
        stay."""
        return problem

    def covering_problems(self, target: Target) -> Iterable[tuple[Fields, Fields, str]]:
        """Problems, configurations and regimes in which every code of an 8-bit operand is judged, of factors every pair
        (`bitverdict.harness.contracts.inputs.all_codes`)."""
        return ()

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        """One problem and configuration for each clause that can be broken."""
        return ()

    def far_problems(self) -> Iterable[tuple[Fields, Fields]]:
        """A small problem whose rows lie so far apart (`far_pad`) that offsets pass 2^31: for each kernel that takes strides."""
        return ()

    def shared_bytes(self, case: Case) -> int:
        """Shared memory the launch needs, for the expected "out of resources"; 0 where a clause already covers it."""
        return 0

    # what follows from it

    def cases(self, target: Target) -> SearchStrategy[Case]:
        return self.cases_from_pool(self.pool(target), target)

    def cases_from_pool(self, pool: list[tuple[Fields, Fields]], target: Target) -> SearchStrategy[Case]:
        """Cases of the specialisations in `pool`."""
        from hypothesis import strategies as st

        from bitverdict.harness.contracts.inputs import strategies

        @st.composite
        def drawn(draw: Callable) -> Case:
            problem, fields = draw(st.sampled_from(pool))
            config = self.module.Config(**fields)
            problem = problem | self.draw_problem(draw, problem, config, target)
            case = self.case(
                problem,
                fields,
                regime=self.draw_regime(draw),
                data_seed=draw(strategies.data_seeds()),
                schedule=draw(strategies.schedules(target.emulated)),
            )
            return self.with_drawn_indices(draw, case)

        return drawn()

    def required(self, target: Target) -> list[Case]:
        from bitverdict.harness.contracts.inputs import strategies

        schedules = strategies.listed_schedules(target.emulated, 1)
        listed = enumerate(self.listed_problems(target))
        requests = [(problem, config, self.regime_for(problem, place)) for place, (problem, config) in listed]
        for problem, config in self.tutorial(target):
            small = self.cut(problem, config)
            requests.append((small, config, self.tutorial_regime if small == problem else self.regime(len(requests))))
        cases = [
            self.case(problem, config, regime=regime, data_seed=place, schedule=strategies.cycle_value(schedules, place))
            for place, (problem, config, regime) in enumerate(requests)
        ]
        cases += [self.case(problem, config, regime=self.regime(0), data_seed=1) for problem, config in self.far_problems()]
        cases += [
            self.case(problem, config, regime=regime, data_seed=place)
            for place, (problem, config, regime) in enumerate(self.covering_problems(target))
        ]
        return cases + [self.case(problem, config) for problem, config in self.refusals(target)]

    def whole(self, target: Target) -> list[Case]:
        asked = [
            (problem, self.case(problem, config, regime=self.tutorial_regime, data_seed=place))
            for place, (problem, config) in enumerate(self.tutorial(target))
            if self.cut(problem, config) != problem
        ]
        return [case for problem, case in sorted(asked, key=lambda each: -products(each[0]))]

    def case(self, problem: Fields, config: Fields, **rest: Any) -> Case:
        return Case(contract=self.address, problem=self.module.Problem(**problem), config=self.module.Config(**config), **rest)

    def resized(self, case: Case, name: str, value: int) -> Case | None:
        """`case` with another size. Where a clause forbids it as it is, rows keep their distance: gaps make up for the size."""
        p, config = case.problem, case.config or self.module.Config()
        new_problem = dataclasses.replace(p, **{name: value})
        for pad, (_, columns) in self.rows_of.items():  # of one row, whose stride stays positive
            new_problem = dataclasses.replace(
                new_problem, **{pad: max(getattr(new_problem, pad), min(1 - getattr(new_problem, columns), 0))}
            )
        if broken(self.module.CLAUSES, new_problem, config) and not broken(self.module.CLAUSES, p, config):
            step = getattr(p, name) - value
            pads = {each: getattr(p, each) + step for each in vars(p) if each.endswith("_pad") and getattr(p, each) + step >= 0}
            for count in range(1, len(pads) + 1):
                for chosen in itertools.combinations(pads, count):
                    kept = dataclasses.replace(new_problem, **{each: pads[each] for each in chosen})
                    if not broken(self.module.CLAUSES, kept, config):
                        return dataclasses.replace(case, problem=kept)
        return dataclasses.replace(case, problem=new_problem)

    def configured(self, case: Case, target: Target) -> list[Case]:
        """`case` in each other configuration of the pool, and in the launcher's own: of a user's launcher nobody knows them."""
        known = dict.fromkeys([self.module.Config(), *(self.module.Config(**fields) for _, fields in self.pool(target))])
        return [] if case.launcher else [dataclasses.replace(case, config=config) for config in known if config != case.config]

    def for_launcher(self, case: Case, launcher: str) -> Case | None:
        """`case` as a user's launcher is asked it: as it is, configuration too (the launcher is handed what of it it accepts); None
        where its `requires`, a predicate over fields of Problem and Config, does not hold, and of a far case that it does not
        claim."""
        case = self.with_rows_apart(case)
        if self.is_far(case.problem) and not claims_far(launcher):
            return None
        fields = vars(case.config or self.module.Config()) | vars(case.problem)
        return None if nearest(launcher, fields) is None else dataclasses.replace(case, launcher=launcher)

    @staticmethod
    def is_far(problem: object) -> bool:
        """Whether rows of an operand lie so far apart that offsets pass 2^31 elements (`far_pad`)."""
        return any(name.endswith("_pad") and pad >= FAR_PAD for name, pad in vars(problem).items())

    def with_regime_of_a_launcher(self, case: Case) -> Case:
        """`case` in a regime that a bound can decide, for contracts whose launchers are held to one."""
        return dataclasses.replace(case, regime=regimes.of_a_launcher(case.regime))

    def with_rows_apart(self, case: Case) -> Case:
        """`case` as a launcher takes it: one row whose stride is below its columns has that of rows without a gap."""
        p = case.problem
        apart = {pad: 0 for pad, (rows, _) in self.rows_of.items() if getattr(p, rows) == 1 and getattr(p, pad) < 0}
        return dataclasses.replace(case, problem=dataclasses.replace(case.problem, **apart)) if apart else case

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        clause = broken(self.module.CLAUSES, self.with_rows_apart(case).problem, case.config)
        if clause:
            return ExpectedOutcome(result=False, outcome="refused", layer="launcher", message=clause[0].rule, reason=clause[0].cost)
        if case.launcher and getattr(case.problem, "dtype", "") == "e4m3" and Feature.FP8_E4M3 not in target.features:
            return without_e4m3(target.arch)
        limit, needed = architecture(target.arch).shared_memory, self.shared_bytes(case)
        return beyond_shared_memory(needed, limit, target.arch) or ExpectedOutcome()

    def case_from_json(self, record: Mapping) -> Case:
        if record.get("version") != CASE_VERSION:
            raise UsageError(
                f"case of version {record.get('version')!r}: this checkout reads version {CASE_VERSION}; replay it "
                "with the checkout that wrote it"
            )
        try:
            rest = {name: record[name] for name in ("regime", "data_seed", "schedule", "launcher")}
            problem = self.module.Problem(**record["problem"])
            config = None if record["config"] is None else self.module.Config(**record["config"])
        except (KeyError, TypeError) as error:
            raise UsageError(
                f"case of {self.stem}: {error}: it must have the fields of Problem, Config and Case; write it with Case.to_json"
            ) from error
        check_record(problem, "problem", self.signed_fields | set(self.rows_of))
        check_record(config, "config", self.signed_fields)
        for pad, (rows, columns) in self.rows_of.items():
            least = 1 - getattr(problem, columns) if getattr(problem, rows) == 1 else 0
            if getattr(problem, pad) < min(least, 0):
                said = f"problem.{pad} = {getattr(problem, pad)}: rows must not overlap, and a stride is at least 1"
                raise UsageError(f"{said}; take at least {min(least, 0)}, or 0")
        check_indices(listed := record.get("indices", {}))
        indices = tuple((name, tuple(numbers)) for name, numbers in listed.items())
        case = Case(contract=record.get("contract", self.address), problem=problem, config=config, indices=indices, **rest)
        self.check_indices(case)
        return case

    def check_indices(self, case: Case) -> None:
        """UsageError where the case writes out row numbers that it cannot be fed."""
        lists_by_name = {each.name: each for each in self.index_lists(case)}
        for name, numbers in case.indices:
            if name not in lists_by_name:
                has = f"it has {', '.join(lists_by_name)}" if lists_by_name else "it has none"
                raise UsageError(f"case.indices.{name}: {self.stem} has no such operand of row numbers; {has}")
            due = getattr(case.problem, lists_by_name[name].length)
            if len(numbers) != due:
                raise UsageError(
                    f"case.indices.{name} has {len(numbers)} numbers: must have {due}, as problem.{lists_by_name[name].length} says"
                )

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        classes: dict[str, str | int] = {"target": target.name, "regime": case.regime, "schedule": case.schedule_kind}
        if hasattr(case.problem, "dtype"):
            classes["dtype"] = case.problem.dtype
        if case.config is not None:
            classes["config"] = " ".join(f"{name}={value}" for name, value in vars(case.config).items())
        for name in ("m", "n", "k"):
            if hasattr(case.problem, name):
                classes[f"{name} mod 16"] = getattr(case.problem, name) % 16
        return classes


def products(problem: Fields) -> int:
    """Multiplications that a product of these sizes is, masked elements of its tiles left out."""
    return problem.get("m", problem.get("rows", 1)) * problem.get("n", 1) * problem.get("k", 1)


DEPTH = 4099  # K of a product of few elements: a launcher that drops the end of a long K shows
EXACT_SIZES = ((17, 18, 640), (17, 19, DEPTH))
"""(m, n, k) that a launcher is asked in the regime `EXACT` with each type of operands: of the required cases that go through all
regimes, a type need not meet it, and none has a K in which an accumulator is kept long."""


def edges(tile: Tile, target: Target) -> list[tuple[tuple[int, int, int], Fields]]:
    """Sizes (m, n, k) at the edges of a launcher's tile, each with how it is asked.

    Below, at and above the tile; several tiles for each of two multiprocessors; more rows of tiles than a group; a deep K.
    """
    m, n, k = tile.m, tile.n, tile.k
    sizes = [(m + step, n + step, k + step) for step in (-1, 0, 1)]
    sizes += [(m - 1, n + 1, 2 * k), (m + 1, n - 1, 3 * k - 1), (2 * m, 2 * n, 5 * k + 1)]
    several = [(3 * m - 1, n + 1, k), (2 * m + 1, n + 1, k + 3)]
    sizes += [*several, (m * tile.group + 1, n + 1, min(k, 17)), (17, 19, DEPTH)]
    on_two = "eager on 2" if target.emulated else "eager"
    return [
        (
            (max(size[0], 1), max(size[1], 1), max(size[2], 1)),
            {"regime": ("normal", "integers")[place % 2], "data_seed": place, "schedule": on_two if size in several else "eager"},
        )
        for place, size in enumerate(sizes)
    ]


def drawn_operand(
    case: Case, name: str, dtype: str, shape: tuple[int, int], *, pad: int = 0, offset: int = 0, side: str = "", k_axis: int = 1
) -> Operand:
    """A row-major matrix drawn by the case's regime and seed; `pad` elements follow each row. int16 travels as bits of fp16.
    `side`: "a" or "b" of a factor of a product, whose axis `k_axis` is K."""
    regime, element = case.regime.partition("/")[0], "fp16" if dtype == "int16" else dtype
    if not side:
        codes = regimes.draw(element, shape, regime, regimes.generator(case.data_seed, name))
    else:
        codes = regimes.factor(element, shape, regime, case.data_seed, name, side=side, k_axis=k_axis)
    codes = codes.view(np.int16) if dtype == "int16" else codes
    return Operand(name=name, format=dtype, codes=codes, strides=(shape[1] + pad, 1), offset=offset)


def empty(like: torch.Tensor, shape: tuple[int, int], *, pad: int = 0, dtype: str | None = None) -> torch.Tensor:
    """An output beside `like`, poisoned by whoever intercepts allocations; `pad` elements follow each row."""
    import torch

    kind = like.dtype if dtype is None else ELEMENT_TYPES[dtype].torch
    return torch.empty_strided(shape, (shape[1] + pad, 1), dtype=kind, device=like.device)


def result_buffer(
    case: Case, like: torch.Tensor, shape: tuple[int, int], *, pad: int = 0, dtype: str | None = None, optional: bool = True
) -> torch.Tensor | None:
    """The result that a case hands to its kernel's launcher, as `empty` makes it. None, so that the launcher allocates one, where
    that is `optional`, rows have no gaps and the data seed is even: never to a launcher of another's."""
    return None if optional and not (pad or case.launcher or case.data_seed % 2) else empty(like, shape, pad=pad, dtype=dtype)


def far_pad(rows: int, columns: int, itemsize: int = 2) -> int:
    """Elements after each row of a (rows, columns) matrix, so that its last row begins past 2^31 elements and past 2^32 bytes while
    its stride is a 32-bit number and a multiple of 64: an offset that is computed in 32 bits wraps to an address before it."""
    stride = -(-(max(1 << 31, (1 << 32) // itemsize) + 128) // (rows - 1) // 64) * 64
    if stride >= 1 << 31:
        raise ValueError(f"{rows} rows of {itemsize} bytes an element: their stride of {stride} must fit 32 bits; take more rows")
    return stride - columns


def aligned_pad(columns: int, dtype: str, extra: int = 0) -> int:
    """Elements that bring a row of `columns` to whole 16 bytes, and `extra` times 16 bytes more."""
    unit = 128 // bits_of(dtype)
    return -columns % unit + extra * unit


def multiply_words(
    arch: str, family: str, dtype: str, out: str, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None
) -> np.ndarray:
    """Words (M, N) in `out` of one ascending chain over all of K that starts at `c` (fp32 words; None: +0), converted once."""
    from bitverdict.harness.contracts.oracle.dot_lowering import chained_product
    from bitverdict.reference.formats import convert

    return convert("fp32", out, chained_product(chain_of(arch, family, dtype), a, b, c), arch)


def chain_of(arch: str, family: str, dtype: str) -> Instruction:
    """The instruction that a product of the family chains."""
    from bitverdict.reference.tensor_core import instruction

    return instruction(arch, family, dtype, dtype, "fp32")


def results_by_name(returned: object, *names: str) -> dict[str, Any]:
    """What a launcher returned, by the names of its results in their order. Of another number of results those that lack have
    no name, and too many are one: the comparison says which lacks, or is no tensor."""
    values = tuple(returned) if isinstance(returned, tuple | list) and len(returned) <= len(names) else (returned,)
    return dict(zip(names, values, strict=False))


def call_launcher(launcher: Callable, *operands: object, **configuration: object) -> Any:
    """`launcher` with the operands it must take and those of the configuration's keywords that it accepts."""
    accepted = inspect.signature(launcher).parameters
    return launcher(*operands, **{name: value for name, value in configuration.items() if name in accepted})
