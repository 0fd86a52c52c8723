"""What `kernels/matmul.py` expects: words by its plan on every target it has a plan for, a refusal where the target lacks the
type, "out of resources" where a tile does not fit, and, of a user's launcher with the same mathematics, a value within the
derived bound."""

from __future__ import annotations

import dataclasses
import inspect
import random
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

import bitverdict.kernels.matmul
from bitverdict.harness.contracts.base.single_config import EXACT_SIZES, aligned_pad, edges
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.contracts.inputs.all_codes import PAIRS
from bitverdict.harness.contracts.oracle.dot_lowering import FMA, MFMA, accumulator_words, dot_plan, without_a_model, words_rest_on
from bitverdict.harness.contracts.oracle.gemm_bound import bounded_product, has_model, launched_instructions, product_opinion
from bitverdict.harness.contracts.oracle.matmul_support import KINDS, has_operands, has_pair, has_type, outcome
from bitverdict.harness.contracts.oracle.shared_mathematics import decode_operand, product_mathematics
from bitverdict.harness.model.architectures import is_amd
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.case_fields import check_record
from bitverdict.harness.model.contract import Contract, ExpectedOutcome, ExpectedOutput, Tile
from bitverdict.harness.model.launcher_limits import FAR_CLAIM, FAR_CLAIM_WORD, FAR_PAD, nearest, read_claims
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.triton_release import converts_through_fp16
from bitverdict.harness.model.usage import UsageError
from bitverdict.kernels.clauses import broken
from bitverdict.kernels.element_types import ELEMENT_TYPES
from bitverdict.kernels.features import Feature

if TYPE_CHECKING:
    import torch
    from hypothesis.strategies import SearchStrategy

    from bitverdict.harness.model.targets import Target

_RESIDUES = (16, 16, 16)  # sizes shrink by these where the tile's masked elements cost nothing
BUDGET = 1 << 24  # products of one case, masked elements of its tiles included: what an emulated launch may cost
HARDWARE_BUDGET = 1 << 22  # products of one case on hardware: what its expected words may cost
_KINDS_OF_SIZES = ("16", "16", "odd", "odd", "odd", "odd", "1")  # of m and n, by weight
CLAIMS = {
    "strides": "operands of any strides and offsets, 0 among them",
    "bf16": "bf16 operands",
    "fp32": "fp32 operands",
    "e4m3": "e4m3 operands",
    "int8": "int8 operands",
    "activation": "activation='leaky_relu'",
    "out_dtype": "results of another type than the operands'",
    **FAR_CLAIM,
    "refusals": "operands that do not belong together, which must be refused",
}
"""What a user's launcher may say that it takes besides contiguous fp16 operands."""
_TUTORIAL_SIZES = (
    (128, 256, 32), (128, 16, 32), (32, 128, 64), (128, 128, 64), (64, 128, 128), (64, 64, 32), (32, 32, 128), (512, 512, 512),
    (1024, 1024, 1024),
)  # fmt: skip
TUTORIAL: dict[str, Any] = {
    "m, n, k": _TUTORIAL_SIZES,
    "dtype, out": (("int8", "int8"), ("fp16", "fp16"), ("bf16", "bf16"), ("fp16", "fp32"), ("fp32", "fp32")),
}
"""Of the tutorial's own test: sizes, and types of operands and result."""
SMALLEST = 32 * 64  # elements of a tile that may go through more blocks of K in any case
DEEP_TILE = 1 << 13  # elements of a tile up to which one case of a configuration has more blocks of K than stages
EVERY_RUN = 1 << 21  # products of such a case that every run judges
PAIR_SIZE = 256  # rows and columns of a product of every pair of 8-bit codes
_TILES = (10, 3, 5)  # largest counts of tiles and K blocks drawn, before the budget: more rows of tiles than one group has


class MatmulContract(Contract):
    """The contract of one matmul module: the kernel's own, or a copy of it with a mutant."""

    stem = "matmul"
    requires = frozenset({Feature.MMA_SYNC})
    by_mfma = True
    must_launch = True
    conversions = frozenset()
    claims = CLAIMS
    parameters = "(a, b, activation='', *, out_dtype=None)"

    def __init__(self, module: ModuleType, address: str) -> None:
        self.module, self.address = module, address

    def configurations(self, target: Target) -> tuple[Any, ...]:
        """Those that the kernel is tuned over on `target`."""
        return self.module.configurations("hip" if is_amd(target.arch) else "cuda")

    # which cases

    def cases(self, target: Target) -> SearchStrategy[Case]:
        from hypothesis import strategies as st

        from bitverdict.harness.contracts.inputs import strategies

        pool = self.pool(target, strategies.pool_seed()) + self.ungrouped_specials(target) + self.tensor_map_specials(target)

        @st.composite
        def drawn(draw: Callable) -> Case:
            special = draw(st.sampled_from(pool))
            sizes = [
                draw(strategies.sizes(tile, count, kind))
                for tile, count, kind in zip(_tile(special["config"]), _TILES, special["kinds"], strict=True)
            ]
            return self._case(
                target,
                special,
                sizes,
                draw(strategies.regimes()),
                draw(strategies.data_seeds()),
                draw(strategies.schedules(target.emulated)),
            )

        return drawn()

    def lacking_in_part(self, target: Target) -> dict[str, frozenset]:
        missing_features = {}
        if not has_operands("e4m3", target):
            missing_features["operands in e4m3"] = without_a_model(target.arch) or frozenset({Feature.FP8_E4M3})
        if not has_pair("e4m3", "e4m3", target):
            rule = frozenset({Feature.FP8_MODE_RULE if is_amd(target.arch) else Feature.FP8_E4M3})
            missing_features["operands and results in e4m3" if has_type("e4m3", target) else "results in e4m3"] = rule
        if is_amd(target.arch) and not _multiplies_tf32(target):
            missing_features["fp32 through tf32"] = frozenset({Feature.XF32})
        if not self.tensor_map_specials(target):
            missing_features["tiles by tensor maps"] = frozenset({Feature.TMA})
        return missing_features

    def pool(self, target: Target, seed: int) -> list[dict]:
        """The specialisations of a run: each kind with each configuration, the other dimensions drawn from `seed`. A type that
        the target lacks stays in by two: its refusal is expected too."""
        rng = random.Random(seed)
        configs = self.configurations(target)
        pairs = [(kind, config) for config in configs for kind in KINDS]
        if is_amd(target.arch):
            known = sorted((pair for pair in pairs if pair[0] in _amd_kinds(target)), key=lambda pair: pair[0][0] == "e4m3")
            return [_special(kind, config, rng, target) for kind, config in known]
        lacking = [pair for pair in pairs if not has_type(pair[0][0], target)]
        pairs = [pair for pair in pairs if pair not in lacking[2:]]
        return [_special(kind, config, rng, target) for kind, config in pairs]

    def required(self, target: Target) -> list[Case]:
        """A covering list: every kind with every configuration; sizes, residues, layouts, outputs, regimes and schedules go
        round in steps that meet each value of each, and EVEN_K, with every kind. Then the sizes 0 and 1, the autotuned
        launcher, and one case a clause."""
        from bitverdict.harness.contracts.inputs import strategies

        rng, cases, ragged_count = random.Random(0), [], 0
        for place, special in enumerate(self.pool(target, 0)):
            turn = place + place // len(KINDS)  # shifts by one from configuration to configuration, so that no kind keeps one value
            tile = _tile(special["config"])
            around = [
                strategies.cycle_value((-1, 0, 1), turn),
                strategies.cycle_value((-1, 0, 1), turn // 3),
                strategies.cycle_value((0, -1, 0, 1), place),
            ]
            blocks = 1 + place % 3 + 3 * (tile[0] * tile[1] == SMALLEST)  # of K: more than its stages hold
            sizes = [tile[0] + around[0], tile[1] + around[1], tile[2] * blocks + around[2]]
            if turn % 2:
                residues = [(5 * ragged_count + 3) % 16, ragged_count % 16, (3 * ragged_count + 1) % 16]  # each meets all sixteen
                whole = tile[2] * (ragged_count % 4 > 0)  # of each fourth not one block of K is
                sizes = [16 * (1 + place % 5) + residues[0], 16 * (1 + place % 3) + residues[1], whole + 16 + residues[2]]
                ragged_count += 1
            if (
                place % len(KINDS) == place // len(KINDS) % len(KINDS) and tile[0] * tile[1] <= DEEP_TILE
            ):  # one case a configuration
                sizes[2] = tile[2] * (special["config"].num_stages + 1) + sizes[2] % tile[2]
            schedule = strategies.cycle_value(strategies.listed_schedules(target.emulated, place), turn)
            regime = strategies.cycle_value(regimes.REGIMES, turn)
            cases.append(self._case(target, special, sizes, regime, rng.randrange(1 << 31), schedule))
        if is_amd(target.arch):
            cases = [dataclasses.replace(each, regime=regimes.of_amd(each.regime, each.problem.dtype)) for each in cases]
        more = self._tutorial(target) + self._ungrouped_cases(target) + self._tensor_map_cases(target)
        return (
            _order_by_cost(cases)
            + self._small_cases(target)
            + more
            + self._far_cases(target)
            + self._pairs(target)
            + self._refusal_cases()
        )

    def _pairs(self, target: Target) -> list[Case]:
        """Every pair of codes of the 8-bit types, by the instruction of a warp group where the target has one. mma.sync takes e4m3
        as fp16: a case of its own."""
        *_, wide, _, narrow = self.configurations(target)
        pair_kinds = (("e4m3", "fp32", wide), ("e4m3", "fp32", narrow), ("int8", "int32", wide))
        return [
            Case(
                contract=self.address,
                problem=self.module.Problem(m=PAIR_SIZE, n=PAIR_SIZE, k=33, dtype=dtype, out=out),
                config=config,
                regime=PAIRS,
                data_seed=place,
            )
            for place, (dtype, out, config) in enumerate(pair_kinds)
            if has_operands(dtype, target)
        ]

    def _tutorial(self, target: Target) -> list[Case]:
        """The sizes of the tutorial's own test that cost little, with each pair of types; one small configuration a pair."""
        problem, configs = self.module.Problem, self.configurations(target)
        return [
            Case(
                contract=self.address,
                problem=problem(m=m, n=n, k=k, dtype=dtype, out=out),
                config=configs[-1 - place],
                data_seed=m + n,
            )
            for place, (dtype, out) in enumerate(TUTORIAL["dtype, out"])
            for m, n, k in TUTORIAL["m, n, k"]
            if m * n * k <= EVERY_RUN and (dtype != "fp32" or not is_amd(target.arch) or _multiplies_tf32(target))
        ]

    def whole(self, target: Target) -> list[Case]:
        """The tutorial's large sizes with each pair of types: 1024 cubed in one configuration a pair, 512 cubed in every one."""
        problem, configs = self.module.Problem, self.configurations(target)
        cases = []
        for m, n, k in sorted(TUTORIAL["m, n, k"], reverse=True):
            for place, (dtype, out) in enumerate(TUTORIAL["dtype, out"]):
                taken = configs if m == 512 else (configs[place],) if m * n * k > EVERY_RUN else ()
                asked = problem(m=m, n=n, k=k, dtype=dtype, out=out)
                cases += [Case(contract=self.address, problem=asked, config=config, data_seed=place) for config in taken]
        return cases

    def ungrouped_specials(self, target: Target) -> list[dict]:
        """Specialisations whose tiles are taken row by row, and in groups of 4: AMD's configurations have both."""
        small, kinds = self.configurations(target)[-1], (KINDS[0], KINDS[1])
        return [
            _special(kind, dataclasses.replace(small, group_m=group), random.Random(group), target)
            for group in (1, 4)
            for kind in kinds
        ]

    def _ungrouped_cases(self, target: Target) -> list[Case]:
        """Ten rows of tiles by three: two groups of 4 and one of 2."""
        return [
            self._case(target, special, [32 * 9 + 5, 64 * 2 + 7, 40 + place], regimes.REGIMES[0], place, "eager")
            for place, special in enumerate(self.ungrouped_specials(target))
        ]

    def tensor_map_specials(self, target: Target) -> list[dict]:
        """Specialisations whose tiles come by TMA; none where the target has none. `aligned`: rows start on 16 bytes."""
        if Feature.TMA not in target.features:
            return []
        wide = self.module.HOPPER_CONFIGS
        small = dataclasses.replace(wide[0], block_m=64, block_n=64, block_k=32, group_m=2, num_warps=4)
        kinds = (("fp16", "row"), ("e4m3", "column"), ("fp32", "column"), ("bf16", "column"), ("int8", "column"))
        asked = [(small, *kind) for kind in kinds] + list(
            zip(wide, ("fp16", "bf16", "fp16", "fp16"), ("row", "column", "column", "row"), strict=True)
        )
        made = []
        for place, (config, dtype, order) in enumerate(asked):
            special = _special((dtype, "tf32"), config, random.Random(place), target)
            views = {"a": {"order": "row", "pad": 0}, "b": {"order": order, "pad": 0}}
            made.append(special | views | {"aligned": True})
        return made

    def _tensor_map_cases(self, target: Target) -> list[Case]:
        """One ragged problem each, K in more blocks than stages or in fewer; and what no tensor map can hold: rows off 16 bytes, a
        turned A, rows of B in 8 bits."""
        specials, problem, view = self.tensor_map_specials(target), self.module.Problem, self._view
        cases = []
        for place, special in enumerate(specials):
            m, n, k = _tile(special["config"])
            long = special["config"] not in self.module.HOPPER_CONFIGS and place % 2 == 0
            rest = 16 if place == 1 else 9 + place  # 16: contiguous rows that begin on 16 bytes
            sizes = [m + 5, n - 3, (6 if long else 2) * k + rest]
            cases.append(self._case(target, special, sizes, regimes.REGIMES[place % 3], place, "eager"))
        small = dataclasses.replace(self.module.HOPPER_CONFIGS[0], block_m=64, block_n=64, block_k=32, num_warps=4)
        wrong = ({"k": 33}, {"a": view({"order": "column"})}, {"dtype": "int8", "out": "int32"}, {"b": view({"offset": 1})})
        return cases + [
            Case(contract=self.address, problem=problem(**{"m": 64, "n": 64, "k": 64} | fields), config=small) for fields in wrong
        ]

    def _small_cases(self, target: Target) -> list[Case]:
        problem, small_config = self.module.Problem, self.configurations(target)[-1]
        sizes = [(0, 3, 5), (3, 0, 5), (3, 5, 0), (1, 1, 1), (1, 33, 40), (33, 1, 40), (40, 33, 1), (300, 70, 33)]
        cases = [
            Case(
                contract=self.address,
                problem=problem(m=m, n=n, k=k, activation=activation),
                config=small_config,
                regime="normal",
                data_seed=m + n + k,
            )
            for (m, n, k), activation in zip(sizes, ("", "leaky_relu") * 4, strict=True)
        ]
        cases += [  # NaN through an activation, and operands of stride 0
            Case(
                contract=self.address,
                problem=problem(m=40, n=33, k=48, activation="leaky_relu", **views),
                config=small_config,
                regime=regime,
            )
            for regime, views in (
                ("planted", {}),
                ("normal", {"a": self._view({"broadcast": "rows"})}),
                ("normal", {"b": self._view({"broadcast": "rows", "offset": 1})}),
                ("normal", {"a": self._view({"broadcast": "columns", "order": "column"})}),
            )
        ]
        if not is_amd(target.arch):
            saturating = problem(m=40, n=33, k=48, out="e4m3")
            cases += [
                Case(contract=self.address, problem=saturating, config=small_config, regime=regime)
                for regime in ("wide", "planted")
            ]
        return cases + [Case(contract=self.address, problem=problem(m=40, n=33, k=48), data_seed=1)]

    def _far_cases(self, target: Target) -> list[Case]:
        """Rows of A, and columns of B, so far apart that offsets pass 2^31; then steps of K in both, within one block of K."""
        from bitverdict.harness.contracts.base.single_config import far_pad

        m, n, k, small_config = 3, 3, 40, self.configurations(target)[-1]
        by_lines: dict[str, dict] = {"a": {"pad": far_pad(m, k)}, "b": {"order": "column", "pad": far_pad(n, k)}}
        by_steps: dict[str, dict] = {
            "a": {"order": "column", "pad": far_pad(small_config.block_k, m)},
            "b": {"pad": far_pad(small_config.block_k, n)},
        }
        return [
            Case(
                contract=self.address,
                problem=self.module.Problem(m=m, n=n, k=k, **{name: self._view(view) for name, view in views.items()}),
                config=small_config,
                data_seed=1,
            )
            for views in (by_lines, by_steps)
        ]

    def _refusal_cases(self) -> list[Case]:
        problem = self.module.Problem
        wrong_fields: list[dict[str, Any]] = [
            {"dtype_of_b": "bf16"},
            {"k_of_b": 7},
            {"out": "int32"},
            {"activation": "gelu"},
            {"precision": "tf32x3"},
            {"dtype": "int8", "out": "int8", "activation": "leaky_relu"},
            {"dtype": "int8", "out": "fp16"},
            {"dtype": "int32", "out": "int32"},
        ]
        return [Case(contract=self.address, problem=problem(m=4, n=4, k=4, **fields)) for fields in wrong_fields]

    def _case(self, target: Target, special: dict, sizes: list[int], regime: str, data_seed: int, schedule: str) -> Case:
        from bitverdict.harness.contracts.inputs import strategies

        tile = _tile(special["config"])
        m, n, k = (
            strategies.within(sizes, tile, BUDGET) if target.emulated else strategies.within(sizes, _RESIDUES, HARDWARE_BUDGET)
        )
        views = {side: self._view(special[side]) for side in "ab"}
        if special.get("aligned"):
            lines = {"a": k, "b": n if views["b"].order == "row" else k}  # elements that follow each other
            pads = {side: aligned_pad(lines[side], special["types"]["dtype"]) for side in "ab"}
            views = {side: dataclasses.replace(view, pad=pads[side]) for side, view in views.items()}
        problem = self.module.Problem(m=m, n=n, k=k, **views, **special["types"])
        return Case(
            contract=self.address, problem=problem, config=special["config"], regime=regime, data_seed=data_seed, schedule=schedule
        )

    def _view(self, fields: dict) -> Any:
        return self.module.View(**fields)

    def around(self, tile: Tile, target: Target) -> list[Case]:
        at_edges = [
            Case(contract=self.address, problem=self.module.Problem(m=m, n=n, k=k), **how) for (m, n, k), how in edges(tile, target)
        ]
        exact = [
            Case(contract=self.address, problem=self.module.Problem(m=m, n=n, k=k, dtype=dtype, out=dtype), regime=regimes.EXACT)
            for dtype in bitverdict.kernels.matmul.OUTPUTS
            if dtype != "int8" and has_pair(dtype, dtype, target)
            for m, n, k in EXACT_SIZES
        ]
        return at_edges + exact

    def configured(self, case: Case, target: Target) -> list[Case]:
        """`case` in each other configuration of the autotuner, with pointers and with descriptors."""
        if case.launcher or case.config is None:
            return []
        hopper = () if is_amd(target.arch) else self.module.HOPPER_CONFIGS
        known = (*self.configurations(target), *hopper)
        return [dataclasses.replace(case, config=config) for config in known if config != case.config]

    def for_launcher(self, case: Case, launcher: str) -> Case | None:
        """`case` as a user's launcher can be asked it: without a configuration. A launcher promises no more than it says: plain
        contiguous fp16 operands, beyond them what its attribute `claims` names of `CLAIMS`, and of them what its `requires` takes.
        ValueError for another claim."""
        p, claims = case.problem, read_claims(launcher, CLAIMS)
        b_mismatch = {"k_of_b": p.k_of_b, "dtype_of_b": p.dtype_of_b}
        if (p.k_of_b is not None or p.dtype_of_b) and "refusals" not in claims:
            return None
        if case.regime == PAIRS and not {p.dtype, "out_dtype"} <= set(claims):
            return None
        dtype = p.dtype if p.dtype in claims else "fp16"
        fields = nearest(launcher, {name: getattr(p, name) for name in "mnk"} | {"dtype": dtype}, ("m", "n", "k"))
        if fields is None:
            return None
        far = max(p.a.pad, p.b.pad) >= FAR_PAD
        if far and FAR_CLAIM_WORD not in claims:
            return None
        views = {"a": p.a, "b": p.b} if far or "strides" in claims else {}
        out = p.out if "out_dtype" in claims and p.out in bitverdict.kernels.matmul.OUTPUTS[dtype] else dtype
        activated = "activation" in claims and dtype != "int8" and p.activation in bitverdict.kernels.matmul.ACTIVATIONS
        activation = p.activation if activated else ""
        problem = self.module.Problem(**fields, out=out, activation=activation, **views, **b_mismatch)
        regime = regimes.of_a_launcher(case.regime)
        return dataclasses.replace(case, config=None, launcher=launcher, regime=regime, problem=problem)

    # what is expected

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        p = case.problem
        if case.launcher and (p.k_of_b is not None or p.dtype_of_b):
            reason = "A and B do not belong together: the launcher must raise, as torch.matmul does"
            return ExpectedOutcome(result=False, any_refusal=True, outcome="refused", layer="launcher", reason=reason)
        clause = broken(bitverdict.kernels.matmul.CLAUSES, case.problem, case.config)  # the model's, also for a copy that lost one
        if case.launcher and not clause and 0 in (p.m, p.n, p.k):
            return ExpectedOutcome(any_refusal=True)  # an answer, which is then held to be right, or a refusal
        if clause:
            return ExpectedOutcome(result=False, outcome="refused", layer="launcher", message=clause[0].rule, reason=clause[0].cost)
        if case.config is not None and case.config.loads == "descriptors" and not _describable(p, target):
            reason = "a tensor map has no such operand"
            return ExpectedOutcome(result=False, outcome="refused", layer="launcher", message="tiles come by TMA", reason=reason)
        return outcome(case.problem, case.config, target)

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        k_of_b = p.k if p.k_of_b is None else p.k_of_b
        operand_list = []
        sides = (("a", p.dtype, (p.m, p.k), p.a, 1), ("b", p.dtype_of_b or p.dtype, (k_of_b, p.n), p.b, 0))
        for name, dtype, shape, view, k_axis in sides:
            codes = regimes.factor(dtype, shape, case.regime, case.data_seed, name, side=name, k_axis=k_axis)
            if view.broadcast and codes.size:
                codes = np.broadcast_to(codes[:1] if view.broadcast == "rows" else codes[:, :1], shape).copy()
            operand_list.append(Operand(name=name, format=dtype, codes=codes, strides=view.strides(*shape), offset=view.offset))
        return operand_list

    def launch(self, case: Case, tensors: Mapping[str, torch.Tensor], launcher: Callable | None) -> Mapping[str, torch.Tensor]:
        p, a, b = case.problem, tensors["a"], tensors["b"]
        out_dtype = ELEMENT_TYPES[p.out].torch
        if launcher is not None:
            return {"c": launcher(a, b, **_accepted_keywords(launcher, p, out_dtype))}
        if case.config is None:
            return {"c": self.module.matmul(a, b, p.activation, out_dtype=out_dtype, precision=p.precision)}
        return {"c": self.module.matmul_configured(a, b, p.activation, out_dtype, case.config, p.precision)}

    def recorded(self, case: Case) -> dict:
        """The autotuner's winner: the words expected are those of its configuration."""
        won = self.module.winner() if case.config is None and not case.launcher else None
        return {"config": dataclasses.asdict(won)} if won is not None else {}

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        p = case.problem
        config = case.config or (self.module.Config(**recorded["config"]) if "config" in recorded else None)
        a, b = operands["a"].codes, operands["b"].codes
        if case.launcher or (config is None and p.m and p.n):
            return [bounded_product(p, a, b, target.arch, launched_kinds=launched_instructions(recorded))]
        tile = config or self.configurations(target)[0]  # an empty result has no tile, and no words either
        how: dict[str, Any] = {"tile": (tile.block_m, tile.block_n), "k_block": tile.block_k}
        plan = dot_plan(
            target.arch,
            p.dtype,
            precision=p.precision,
            block_m=tile.block_m,
            block_n=tile.block_n,
            block_k=tile.block_k,
            num_warps=tile.num_warps,
        )
        if plan.family not in (FMA, MFMA) and not has_model(target.arch):
            return [
                dataclasses.replace(bounded_product(p, a, b, target.arch, launched_kinds=launched_instructions(recorded)), **how)
            ]
        words = epilogue(accumulator_words(plan, a, b), p, target.arch)
        return [
            ExpectedOutput(
                name="c",
                format=p.out,
                shape=(p.m, p.n),
                words=words,
                **how,
                basis=words_rest_on(plan.rule),
                any_nan=plan.family == MFMA,
                opinion=product_opinion(p, words, a, b, target.arch, plan.family),
            )
        ]

    def factors(self, case: Case, operands: Mapping[str, Operand]) -> tuple[np.ndarray, np.ndarray] | None:
        return operands["a"].codes, operands["b"].codes.T

    def mathematics(self, case: Case, operands: Mapping[str, Operand]) -> Mathematics:
        p = case.problem
        a, b = (decode_operand(operands[name]) for name in "ab")  # (M, K), (K, N)
        return product_mathematics(a, b, activation=p.activation)

    # what was seen

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        p, c = case.problem, case.config
        classes: dict[str, str | int] = {
            "dtype": p.dtype if p.dtype != "fp32" else f"fp32 {p.precision}",
            "out": p.out,
            "activation": p.activation or "none",
            "a": layout_name(p.a),
            "b": layout_name(p.b),
            "regime": case.regime,
            "schedule": case.schedule_kind,
            "target": target.name,
            "config": c.name if c else "the launcher's own" if case.launcher else "autotuned",
        }
        classes |= {f"{name} mod 16": size % 16 for name, size in (("m", p.m), ("n", p.n), ("k", p.k))}
        clause = broken(bitverdict.kernels.matmul.CLAUSES, p, c)
        classes["clause"] = clause[0].name if clause else "none broken"
        if c is not None:
            tiles = -(-p.m // c.block_m), -(-p.n // c.block_n)
            classes["tiles"] = {(False, False): "one", (True, False): "a column", (False, True): "a row"}.get(
                (tiles[0] > 1, tiles[1] > 1), "a grid"
            )
            classes["groups"] = "several" if tiles[0] > c.group_m else "one"
            classes["EVEN_K"] = str(p.k % c.block_k == 0)
            classes |= {
                f"{name} at tile": _place(size, tile) for name, size, tile in zip("mnk", (p.m, p.n, p.k), _tile(c), strict=True)
            }
        return classes

    def case_from_json(self, record: Mapping) -> Case:
        """Inverse of `Case.to_json`. ValueError (value, rule, remedy) for fields or values that no case of this kernel has."""
        from bitverdict.harness.model.case import CASE_VERSION

        if record.get("version") != CASE_VERSION:
            raise UsageError(
                f"case of version {record.get('version')!r}: this checkout reads version {CASE_VERSION}; "
                "replay it with the checkout that wrote it"
            )
        try:
            fields = dict(record["problem"])
            problem = self.module.Problem(**fields | {side: self._view(fields.get(side, {})) for side in ("a", "b")})
            config = None if record["config"] is None else self.module.Config(**record["config"])
            rest = {name: record[name] for name in ("regime", "data_seed", "schedule", "launcher")}
        except (KeyError, TypeError) as error:
            raise UsageError(
                f"case of matmul: {error}: it must have the fields of Problem, Config and Case; write it with Case.to_json"
            ) from error
        check_record(problem, "problem")
        check_record(config, "config")
        return Case(contract=record.get("contract", self.address), problem=problem, config=config, **rest)


def contract(module: ModuleType) -> MatmulContract:
    """The contract for `module`, which is bitverdict.kernels.matmul or a copy of its source; a copy is addressed by its file."""
    if module is bitverdict.kernels.matmul:
        return MatmulContract(module, "matmul")
    return MatmulContract(module, f"{module.__file__}:CONTRACT")


def epilogue(accumulator: np.ndarray, problem: Any, arch: str) -> np.ndarray:
    """Output words (M, N) of accumulator words (M, N): activation in fp32, then the one conversion."""
    from bitverdict.reference.activation import leaky_relu
    from bitverdict.reference.formats import FORMATS, convert

    if problem.dtype == "int8":
        return accumulator.astype(np.int8 if problem.out == "int8" else np.int32)  # modulo 2^8: the low bits
    words = leaky_relu(accumulator) if problem.activation else accumulator
    return convert(FORMATS["fp32"], FORMATS[problem.out], words, arch, through_fp16=converts_through_fp16())


def layout_name(view: Any) -> str:
    extras = [name for name, there in (("padded", view.pad), ("stepped", view.step > 1), ("offset", view.offset)) if there]
    extras += [f"broadcast {view.broadcast}"] if view.broadcast else []
    return " ".join([view.order, *extras])


def _accepted_keywords(launcher: Callable, problem: Any, out_dtype: torch.dtype) -> dict:
    """The keywords this launcher takes, of those that say anything beyond its defaults or have none."""
    says = {"activation": (problem.activation, problem.activation), "out_dtype": (out_dtype, problem.out != problem.dtype)}
    taken = inspect.signature(launcher).parameters
    needed = {name for name, (_, told) in says.items() if told} | {name for name, p in taken.items() if p.default is p.empty}
    return {name: value for name, (value, _) in says.items() if name in taken and name in needed}


def _multiplies_tf32(target: Target) -> bool:
    """Whether one of AMD's chips has a matrix instruction for tf32 (`xf32`)."""
    return Feature.XF32 in target.features


def _amd_kinds(target: Target) -> list[tuple[str, str]]:
    """Of `KINDS` those whose words are known on one of AMD's chips."""
    return [kind for kind in KINDS if has_operands(kind[0], target) and (kind != ("fp32", "tf32") or _multiplies_tf32(target))]


def _special(kind: tuple[str, str], config: object, rng: random.Random, target: Target) -> dict:
    dtype, precision = kind
    views = [
        {
            "order": rng.choice(("row", "column")),
            "pad": rng.choice((0, 0, 16, 3)),
            "step": rng.choice((1, 1, 1, 2)),
            "offset": rng.choice((0, 0, 16, 1)),
        }
        for _ in "ab"
    ]
    outputs = [name for name in bitverdict.kernels.matmul.OUTPUTS[dtype] if has_pair(dtype, name, target)] or [dtype]
    out = rng.choice([outputs[0] if dtype not in outputs else dtype, *outputs])
    activation = rng.choice(("", "leaky_relu")) if dtype != "int8" else ""
    return {
        "types": {"dtype": dtype, "precision": precision, "out": out, "activation": activation},
        "config": config,
        "a": views[0],
        "b": views[1],
        "kinds": [rng.choice(_KINDS_OF_SIZES if axis < 2 else ("16", "odd", "odd")) for axis in range(3)],
    }


def _describable(p: Any, target: Target) -> bool:
    """Whether tensor maps of A (m, k) and of B (k, n), or of B's transpose where its columns lie in consecutive elements, can be
    made: rows of consecutive elements that start on 16 bytes; B in rows only in 16 bits (wgmma and tcgen05 read other types with K
    running fastest). True where the result is empty, which is no launch."""
    if 0 in (p.m, p.n):
        return True
    unit = 128 // ELEMENT_TYPES[p.dtype].bits
    (a_row, a_step), (b_row, b_step) = p.a.strides(p.m, p.k), p.b.strides(p.k, p.n)
    turned = b_row == 1 and b_step != 1
    rows = ((a_row, a_step, p.k, p.a.offset), (b_step, b_row, p.k, p.b.offset) if turned else (b_row, b_step, p.n, p.b.offset))
    able = Feature.TMA in target.features and p.k > 0 and (turned or unit == 8)
    return able and all(
        step == 1 and pitch >= columns and pitch % unit == offset % unit == 0 for pitch, step, columns, offset in rows
    )


def _tile(config: Any) -> tuple[int, int, int]:
    return config.block_m, config.block_n, config.block_k


def _place(size: int, tile: int) -> str:
    around = {tile - 1: "tile - 1", tile: "tile", tile + 1: "tile + 1"}
    return around.get(size, "below" if size < tile else "multiple" if size % tile == 0 else "ragged")


def _order_by_cost(cases: list[Case]) -> list[Case]:
    """Cheap ones first, so that the first verdict comes soon; the order of equals stays."""
    return sorted(cases, key=lambda case: case.config.block_m * case.config.block_n * case.config.block_k)


CONTRACT = contract(bitverdict.kernels.matmul)
# One file because it is the contract of one kernel: its plan, its refusals and its cases share the same conditions.
