"""What `kernels/block_scaled_matmul.py` expects: words by its plan (the scaled tcgen05 model, or the compiler's widening), a
refusal where a clause or the target's lack of e4m3 says so, out of resources where a tile does not fit, and, of a user's launcher,
the mathematics within the derived bound."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import bitverdict.kernels.block_scaled_matmul
from bitverdict.harness.contracts.base.single_config import Fields, KernelContract, edges, far_pad
from bitverdict.harness.contracts.inputs import block_scaled_inputs, operand_coverage
from bitverdict.harness.contracts.oracle import shared_mathematics
from bitverdict.harness.contracts.oracle.block_scaled_gemm_bound import bounded_scaled_product, scaled_opinion
from bitverdict.harness.contracts.oracle.dot_lowering import without_a_model
from bitverdict.harness.contracts.oracle.dot_scaled_lowering import result_words, scaled_plan
from bitverdict.harness.contracts.oracle.gemm_bound import has_plan, launched_instructions
from bitverdict.harness.contracts.oracle.matmul_support import beyond_shared_memory, without_e4m3
from bitverdict.harness.model import addresses as contracts
from bitverdict.harness.model.architectures import architecture, is_amd
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutcome, ExpectedOutput, Tile
from bitverdict.harness.model.launcher_limits import nearest
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.triton_release import stores_in_the_ring
from bitverdict.kernels.clauses import broken
from bitverdict.kernels.element_types import ELEMENT_TYPES
from bitverdict.kernels.features import Feature
from bitverdict.kernels.scaled_operands import FORMATS, TILE_COLUMNS, TILE_ROWS, packing, spread
from bitverdict.reference.scale_layout import TILE_BYTES

if TYPE_CHECKING:
    import torch
    from hypothesis.strategies import SearchStrategy

    from bitverdict.harness.model.targets import Target

BUDGET = 1 << 24  # products of one drawn case, masked elements of its tiles included
HARDWARE_BUDGET = 1 << 26  # the same where a launch costs nothing and only the expected words do
KINDS = ("16", "odd", "16", "odd", "1")  # of a size, as often as drawn
COVER = ("cover a", "cover b")
ROW_PADS, TILE_PADS = (0, 16, 512, 24), (0, 64, 512)  # bytes after a row of scale tiles, after a tile
OUTS = ("fp16", "fp32", "e4m3")
TILES: tuple[Fields, ...] = ({}, {"block_m": 256}, {"block_n": 256, "num_warps": 8}, {"block_k": 256, "num_stages": 2},
         {"num_warps": 8, "num_stages": 1}, {"block_n": 256, "block_k": 256, "num_stages": 4})  # fmt: skip
"""What `Config` differs in from its defaults; the last is the tutorial's for fp4."""


class BlockScaledMatmulContract(KernelContract):
    """The contract of one block_scaled_matmul module: the kernel's own, or a copy of it with a mutant."""

    conversions = frozenset()
    by_mfma = True
    parameters = "(a, a_scale, b, b_scale, out_dtype=torch.float16)"

    def lacking(self, target: Target) -> frozenset:
        """Its program of gfx950 multiplies by f8f6f4 alone, and of nvfp4 there is none: Triton 3.9.0 makes an invalid layout."""
        return super().lacking(target) | without_a_model(target.arch)

    def lacking_in_part(self, target: Target) -> dict[str, frozenset]:
        names = [name for name in FORMATS if not has_format(name, "fp32", target)]
        if has_format("mxfp4", "e4m3", target):
            return {}
        return {", ".join([*names, "results in e4m3"]): frozenset({Feature.FP8_E4M3})}

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        """Every format with every way to load; outputs and tiles go round. A format the target lacks stays in by one case."""
        pool_entries: list[tuple[Fields, Fields]] = []
        lacking: set[str] = set()
        for place, name in enumerate(FORMATS):
            if not has_format(name, "fp32", target) and lacking:
                continue
            lacking |= {name} if not has_format(name, "fp32", target) else set()
            for turn, (load, where) in enumerate((x, y) for x in ("2D", "5D") for y in ("host", "device")):
                for shift in (0, 3):
                    step = place + turn + shift
                    out, tile = OUTS[step % 3], TILES[step % len(TILES)]
                    pool_entries.append(({"format": name, "out": out}, tile | {"scale_load": load, "descriptors": where}))
        return pool_entries

    def along_n(self, target: Target) -> list[tuple[Fields, Fields]]:
        """B in e4m3 whose elements along N follow each other: both ways to load, and the tutorial's tile."""
        if not has_format("mxfp8", "fp32", target):
            return []
        fields, wide = {"format": "mxfp8", "b_order": "row"}, {"block_n": 256, "num_stages": 4}
        return [
            (fields | {"out": "fp32"}, {"scale_load": "5D", "descriptors": "device"}),
            (fields | {"out": "fp16"}, wide | {"scale_load": "2D", "descriptors": "host"}),
        ]

    def tutorial(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        """The tutorial's tile of each format, in whole tiles: four blocks of K in a ring of four, of e2m1 two that are as deep.
        Then two tiles of rows and of columns, by descriptors of the device, which the tutorial makes room for where B is mixed."""
        names = [name for name in FORMATS if has_format(name, "fp32", target)]
        for tiles, depth, where in ((1, 512, "host"), (2, 256, "device")):
            for name in names:
                tile = bitverdict.kernels.block_scaled_matmul.configurations(name, block_scaled_mma=True)[0]
                config = {"block_m": tile.block_m, "block_n": tile.block_n, "block_k": tile.block_k, "num_stages": tile.num_stages}
                sizes = self.size_fields(name, tiles * tile.block_m, tiles * tile.block_n, depth)
                yield sizes | {"format": name, "out": "fp16"}, config | {"descriptors": where}

    def draw_problem(self, draw: Callable, problem: Fields, config: Any, target: Target) -> Fields:
        from hypothesis import strategies as st

        from bitverdict.harness.contracts.inputs import strategies

        tile = (config.block_m, config.block_n, config.block_k)
        counts = (2, 2, 2) if target.emulated else (6, 6, 3)
        sizes = [draw(strategies.sizes(t, count, draw(st.sampled_from(KINDS)))) for t, count in zip(tile, counts, strict=True)]
        m, n, k = strategies.within(sizes, tile, BUDGET if target.emulated else HARDWARE_BUDGET)
        extra = {side: draw(st.integers(0, 2)) for side in "ab"}
        fields = self.size_fields(
            problem["format"], max(m, 1), max(n, 1), max(k, 1), extra["a"], extra["b"], problem.get("b_order", "")
        )
        pads = {f"{side}_scale_pad": draw(st.sampled_from(ROW_PADS)) for side in "ab"}
        if config.scale_load == "5D":
            pads |= {f"{side}_tile_pad": draw(st.sampled_from(TILE_PADS)) for side in "ab"}
        return fields | pads | {"a_offset": 16 * extra["b"], "b_offset": 32 * extra["a"]}

    def draw_regime(self, draw: Callable) -> str:
        from hypothesis import strategies as st

        return draw(st.sampled_from(block_scaled_inputs.REGIMES))

    def cases(self, target: Target) -> SearchStrategy[Case]:
        found = self.cases_from_pool(self.pool(target) + self.along_n(target), target)
        return found.map(in_64_kib) if is_amd(target.arch) else found

    def size_fields(self, name: str, m: int, n: int, k: int, a_extra: int = 0, b_extra: int = 0, b_order: str = "") -> Fields:
        """Sizes near those asked for that the format can have, rows of operands that begin on the boundaries TMA needs."""
        f = FORMATS[name]
        if spread(name):
            k = max(1, round(k / 128)) * 128
        elif f.a == "e2m1":
            k += k % 2
        b_unit = 32 if spread(name) else 16
        b_row = n if b_order == "row" else k // packing(f.b)
        return {"m": m, "n": n, "k": k, "a_pad": -(k // packing(f.a)) % 16 + 16 * a_extra,
                "b_pad": -b_row % b_unit + b_unit * b_extra}  # fmt: skip

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        """The cover cases, then the pool at the tiles' edges, then every residue of m, n and k."""
        names = [name for name in FORMATS if has_format(name, "fp32", target)]
        for name in names:
            for place, dense in enumerate("ab"):
                m, n = cover_sizes(dense)
                config = {"scale_load": ("2D", "5D")[place], "descriptors": ("device", "host")[place]}
                yield self.size_fields(name, m, n, operand_coverage.COVER_K) | {"format": name, "out": "fp32"}, config
        for place, (problem, config) in enumerate(self.pool(target)):
            made = self.module.Config(**config)
            m, n = made.block_m + (-1, 0, 1, 3)[place % 4], max(made.block_n // (1 + place % 2) + (0, -3, 2)[place % 3], 1)
            blocks = made.num_stages + 2 if place % 12 == 11 else 1 + place % 3  # deep: past what is loaded ahead
            k = made.block_k * blocks + (0, -31, 34, -64, 2)[place % 5]
            fields = self.size_fields(problem["format"], m, n, max(k, 1), place % 2, place // 2 % 2)
            yield problem | fields | self._pads(place, made.scale_load), config
        even = [name for name in names if FORMATS[name].b == "e2m1" and not spread(name)]
        for residue in range(16):  # only e4m3 can have an odd K
            name = "mxfp8" if residue % 2 and "mxfp8" in names else even[residue // 2 % len(even)]
            k = 32 * (2 + residue % 4) + residue
            fields = self.size_fields(name, 32 + residue, 16 + (5 * residue + 3) % 16, k) | {"format": name}
            yield fields | {"out": OUTS[residue % 3] if has_format(name, "e4m3", target) else "fp32"}, {}
        for name in names:  # one short block, one element, the launcher's own configuration is in `required`
            yield self.size_fields(name, 1, 1, 2) | {"format": name, "out": "fp32"}, {"scale_load": "5D"}
        name = (
            "mxfp8" if "mxfp8" in names else names[0]
        )  # a second column of tiles, of which the last tile of scales does not exist
        for load, where in (("5D", "host"), ("2D", "device")):
            wide = {"block_n": 256, "scale_load": load, "descriptors": where}
            yield self.size_fields(name, 20, 356, 160) | {"format": name, "out": "fp32"}, wide
        # the tile of the first cover case, deeper than its ring; then one block of K whose second tile of scales does not exist
        device: Fields = {"scale_load": "2D", "descriptors": "device"}
        yield self.size_fields(names[0], 4, 8, 640) | {"format": names[0], "out": "fp32"}, device
        yield (
            self.size_fields(names[0], 4, 8, 128) | {"format": names[0], "out": "fp32"},
            device | {"block_k": 256, "num_stages": 2},
        )

    def _pads(self, place: int, load: str) -> Fields:
        pads = {"a_scale_pad": ROW_PADS[place % 4], "b_scale_pad": ROW_PADS[(place // 2 + 1) % 4]}
        if load == "5D":
            pads |= {"a_tile_pad": TILE_PADS[place % 3], "b_tile_pad": TILE_PADS[(place + 1) % 3]}
        return pads | {"a_offset": 16 * (place % 3), "b_offset": 32 * (place % 2)}

    def required(self, target: Target) -> list[Case]:
        from bitverdict.harness.contracts.inputs import strategies

        schedules = strategies.listed_schedules(target.emulated, 1)
        cover = 2 * sum(has_format(name, "fp32", target) for name in FORMATS)
        cases = []
        for place, (problem, config) in enumerate(self.listed_problems(target)):
            regime = COVER[place % 2] if place < cover else block_scaled_inputs.REGIMES[place % len(block_scaled_inputs.REGIMES)]
            schedule = strategies.cycle_value(schedules, place // 2)
            cases.append(self.case(problem, config, regime=regime, data_seed=place, schedule=schedule))
        for place, (problem, config) in enumerate(self.tutorial(target)):
            schedule = strategies.cycle_value(schedules, place)
            cases.append(self.case(problem, config, regime=block_scaled_inputs.UNIFORM, data_seed=place, schedule=schedule))
        for place, (problem, config) in enumerate(self.along_n(target)):
            sizes = self.size_fields("mxfp8", 130 - place, 259 - 20 * place, 300 + 33 * place, 0, place, "row")
            schedule, regime = strategies.cycle_value(schedules, place), block_scaled_inputs.REGIMES[2 + place]
            cases.append(self.case(problem | sizes, config, regime=regime, data_seed=place, schedule=schedule))
        sizes = self.size_fields("mxfp4", 130, 40, 64) | {"format": "mxfp4", "out": "fp32"}
        cases.append(Case(contract=self.address, problem=self.module.Problem(**sizes), regime="layer"))
        cases += [
            self.case(problem, config, regime=block_scaled_inputs.REGIMES[0], data_seed=1)
            for problem, config in self.far_problems()
        ]
        cases += [self.case(problem, config) for problem, config in self.refusals(target)]
        return list(dict.fromkeys(map(in_64_kib, cases))) if is_amd(target.arch) else cases

    def far_problems(self) -> Iterable[tuple[Fields, Fields]]:
        """Rows of A and B far apart. Of their scales, in three tiles down and three along K, A's far apart down, B's along."""
        m, n, k, apart = 257, 8, 384, (1 << 30) + 64
        pads = {"a_pad": far_pad(m, k // 2, 1), "b_pad": far_pad(n, k // 2, 1)}
        pads |= {"a_scale_pad": apart - 3 * TILE_BYTES, "b_tile_pad": apart - TILE_BYTES}
        yield self.size_fields("mxfp4", m, n, k) | {"format": "mxfp4", "out": "fp32"} | pads, {"scale_load": "5D"}

    def around(self, tile: Tile, target: Target) -> list[Case]:
        name = next(name for name in ("mxfp8", "mxfp4") if has_format(name, "fp32", target))
        fields = {"format": name, "out": "fp32"}
        return [self.case(self.size_fields(name, *sizes) | fields, {}, **how) for sizes, how in edges(tile, target)]

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        fields = self.size_fields("mxfp8", 64, 64, 128) | {"format": "mxfp8", "out": "fp32"}
        yield fields | {"out": "bf16"}, {}
        yield fields | {"m": 0}, {}
        yield fields, {"block_m": 64}
        yield fields, {"block_n": 512}
        yield fields, {"block_k": 64}
        yield fields, {"block_k": 96}
        yield fields, {"num_warps": 2}
        yield fields, {"scale_load": "3D"}
        yield fields, {"descriptors": "nowhere"}
        yield fields | {"k": 256, "a_tile_pad": 64}, {"scale_load": "2D"}
        yield fields | {"a_pad": 8}, {}
        yield fields | {"a_offset": 8}, {}
        for name in ("mxfp4", "nvfp4", "mixed"):
            yield self.size_fields(name, 64, 64, 128) | {"format": name, "out": "fp32", "b_order": "row"}, {}
        yield fields | {"b_order": "row", "b_pad": 8}, {}
        mixed = self.size_fields("mixed", 64, 64, 128) | {"format": "mixed", "out": "fp32"}
        yield mixed | {"k": 64, "b_pad": 0}, {}
        yield mixed | {"b_pad": 16}, {}
        yield mixed | {"b_offset": 16}, {}

    # what is expected

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        p, config = case.problem, case.config
        clause = broken(
            bitverdict.kernels.block_scaled_matmul.CLAUSES, p, config or self.module.Config()
        )  # the model's, also for a copy
        if clause:
            return ExpectedOutcome(result=False, outcome="refused", layer="launcher", message=clause[0].rule, reason=clause[0].cost)
        if not has_format(p.format, p.out, target):
            return without_e4m3(target.arch)
        needed, limit = shared_bytes(p, config, target.arch) if config else 0, architecture(target.arch).shared_memory
        return beyond_shared_memory(needed, limit, target.arch) or ExpectedOutcome()

    def operands(self, case: Case) -> list[Operand]:
        p, f = case.problem, FORMATS[case.problem.format]
        if case.regime in COVER:
            a, b = operand_coverage.cover(case.regime[-1], f.a, f.b, f.scale, f.block_size, case.data_seed)
        else:
            a, b = (
                block_scaled_inputs.draw(case.regime, element, f.scale, f.block_size, rows, p.k, case.data_seed, name)
                for name, element, rows in (("a", f.a, p.m), ("b", f.b, p.n))
            )
        operand_list = []
        for name, element, side in (("a", f.a, a), ("b", f.b, b)):
            pad, offset, row_pad, tile_pad = (getattr(p, f"{name}_{what}") for what in ("pad", "offset", "scale_pad", "tile_pad"))
            along_k = name == "a" or p.b_order == "column"
            operand_list.append(block_scaled_inputs.element_operand(name, element, side, pad=pad, offset=offset, along_k=along_k))
            pads = {"row_pad": row_pad, "tile_pad": tile_pad, "zero_padding": bool(case.launcher)}
            operand_list.append(block_scaled_inputs.scale_operand(f"{name}_scale", f.scale, side, case.data_seed, **pads))
        return operand_list

    def launch(self, case: Case, tensors: Mapping[str, torch.Tensor], launcher: Callable | None) -> Mapping[str, torch.Tensor]:
        import torch

        p = case.problem
        as_scale = torch.float8_e4m3fn if FORMATS[p.format].scale == "ue4m3" else torch.uint8
        given = [tensors["a"], tensors["a_scale"].view(as_scale), tensors["b"], tensors["b_scale"].view(as_scale)]
        out_dtype = ELEMENT_TYPES[p.out].torch
        if launcher is not None:
            keywords = {"out_dtype": out_dtype} if "out_dtype" in inspect.signature(launcher).parameters else {}
            return {"c": launcher(*given, **keywords)}
        return {"c": self.module.block_scaled_matmul(*given, out_dtype, configs=case.config)}

    def sides(self, case: Case, operands: Mapping[str, Operand]) -> tuple[block_scaled_inputs.Side, block_scaled_inputs.Side]:
        """The logical operands: codes (M, K) and (N, K), scales one for a block."""
        p, size = case.problem, FORMATS[case.problem.format].block_size
        return (block_scaled_inputs.read_back(operands["a"], operands["a_scale"], p.m, p.k, size),
                block_scaled_inputs.read_back(operands["b"], operands["b_scale"], p.n, p.k, size))  # fmt: skip

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        p, f = case.problem, FORMATS[case.problem.format]
        a, b = self.sides(case, operands)
        if case.launcher or not has_plan(target.arch):
            return [bounded_scaled_product(f, p.out, a, b, target.arch, launched_instructions(recorded))]
        plan = scaled_plan(target.arch, f.a, f.b, f.scale, f.block_size)
        words = result_words(plan, p.out, target.arch, a.codes, a.scales, b.codes, b.scales)  # (M, N)
        tile = case.config or self.module.Config()
        return [ExpectedOutput(name="c", format=p.out, shape=(p.m, p.n), words=words, tile=(tile.block_m, tile.block_n),
                         k_block=tile.block_k, basis=plan.basis, any_nan=is_amd(target.arch),
                         opinion=scaled_opinion(f, p.out, words, a, b, target.arch, plan.family))]  # fmt: skip

    def mathematics(self, case: Case, operands: Mapping[str, Operand]) -> Mathematics:
        f = FORMATS[case.problem.format]
        sides = self.sides(case, operands)
        a, b = (
            shared_mathematics.decode_operand(Operand(name="", format=of, codes=side.codes))
            for of, side in zip((f.a, f.b), sides, strict=True)
        )
        a_scale, b_scale = (
            shared_mathematics.decode_operand(Operand(name="", format=f.scale, codes=side.scales)) for side in sides
        )
        return shared_mathematics.scaled_product(a, b, a_scale, b_scale, block=f.block_size)

    def for_launcher(self, case: Case, launcher: str) -> Case | None:
        """`case` as a user's launcher can be asked it: operands and scales contiguous, but for rows TMA could not take; the default
        output where it takes no `out_dtype`; values that the bound can decide. None where its `requires` (of m, n, k, format, out)
        holds for nothing near."""
        p = case.problem
        if p.format not in FORMATS or min(p.m, p.n, p.k) <= 0 or self.is_far(p):
            return None  # its own refusals are the kernel's; without pads no address is far
        out = p.out if "out_dtype" in inspect.signature(contracts.load(launcher)).parameters else "fp16"
        asked = {"m": p.m, "n": p.n, "k": self.size_fields(p.format, p.m, p.n, p.k)["k"], "format": p.format, "out": out}
        sizes = () if case.regime in COVER else ("m", "n", "k")  # a cover fills the sizes it was made for
        near = nearest(launcher, asked, sizes)
        if near is None or (fields := self.size_fields(p.format, near["m"], near["n"], near["k"]))["k"] != near["k"]:
            return None
        regime = "wide" if case.regime == "ends" and FORMATS[p.format].scale == "e8m0" else case.regime  # past what widening holds
        problem = self.module.Problem(**fields, format=p.format, out=out)
        return dataclasses.replace(case, config=None, launcher=launcher, problem=problem, regime=regime)

    # what was seen

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        p, c = case.problem, case.config
        classes: dict[str, str | int] = {"target": target.name, "regime": case.regime, "schedule": case.schedule_kind}
        classes |= {"dtype": p.format, "out": p.out, "config": c.name if c else "the launcher's own"}
        classes |= {f"{name} mod 16": getattr(p, name) % 16 for name in ("m", "n", "k")}
        if c is not None and p.format in FORMATS:
            size = FORMATS[p.format].block_size
            classes["scale tiles of K"] = "whole" if -(-p.k // size) % (c.block_k // size) == 0 else "ragged"
            classes["last block"] = "whole" if p.k % size == 0 else "short"
            classes["loads"] = f"{c.scale_load} {c.descriptors}"
            classes["B"] = "along K" if p.b_order == "column" else "along N"
            alike = p.a_tile_pad == p.b_tile_pad and (p.a_scale_pad == p.b_scale_pad or p.n <= TILE_ROWS)
            classes["scale strides"] = "one for both" if alike else "of their own"
            rows = [-(-rows // TILE_ROWS) for rows in (p.m, p.n)]
            classes["scale tile rows"] = "as many" if rows[0] == rows[1] else "more of A" if rows[0] > rows[1] else "more of B"
        return classes


def cover_sizes(dense: str) -> tuple[int, int]:
    """(m, n) of the cover case whose `dense` side is named."""
    sizes = operand_coverage.COVER_DENSE, operand_coverage.COVER_PROBE
    return sizes if dense == "a" else sizes[::-1]


def has_format(name: str, out: str, target: Target) -> bool:
    """Whether the target has every type that the format and the output are made of."""
    f = FORMATS[name]
    return Feature.FP8_E4M3 in target.features or ((f.a, f.b, f.scale) == ("e2m1", "e2m1", "e8m0") and out != "e4m3")


def in_64_kib(case: Case) -> Case:
    """`case` with no more stages than the tiles of `TILES` have room for in AMD's LDS, in each format."""
    if case.config is None:
        return case
    most = 2 if case.config.block_k == 128 else 1
    return dataclasses.replace(case, config=dataclasses.replace(case.config, num_stages=min(case.config.num_stages, most)))


def shared_bytes(problem: Any, config: Any, arch: str) -> int:
    """Bytes of shared memory that decide whether the launch fits: the ring of operands, one slot less than stages.

    A machine that widens keeps the scales in the ring too, where each thread has four of them to copy from whole words, and B
    in bf16 beside it, where wgmma reads it. Before Triton 3.9 a tile of C in fp32 is stored in B's place while the ring and its
    barriers are held: now in theirs. tcgen05 takes e2m1 beside e4m3 from a byte each. mma.sync reads registers: where TMA
    brings and stores its tiles (sm_120) the ring holds a barrier a slot, and scales where K has whole tiles of them; the tile
    of C takes its place at the end, or in fp32 lies beside it before 3.9. 0 without TMA: no tile drawn here fills an A100.
    """
    if is_amd(arch):  # `in_64_kib`
        return 0
    f = FORMATS[problem.format]
    tile_bytes = config.block_m * config.block_n * ELEMENT_TYPES[problem.out].bits // 8
    families = architecture(arch).families
    if families == ("mma.sync",):
        if Feature.TMA not in architecture(arch).features:
            return 0
        tiles = config.block_k * (config.block_m // packing(f.a) + config.block_n // packing(f.b))
        whole = problem.k % (TILE_COLUMNS * f.block_size) == 0  # else scales pass through registers on their way
        slot = tiles + 8 + whole * (config.block_m + config.block_n) * config.block_k // f.block_size
        ring = 0 if problem.k == 1 else (config.num_stages - 1) * slot
        return max(tile_bytes, ring) if problem.out != "fp32" or stores_in_the_ring() else tile_bytes + ring
    if problem.k == 1:  # one block of K, known to the compiler: no ring
        return 0
    b_packing = 1 if "tcgen05" in families and spread(problem.format) else packing(f.b)
    operands = config.block_k * (config.block_m // packing(f.a) + config.block_n // b_packing)
    if "tcgen05" in families:
        return (config.num_stages - 1) * operands
    a_pad = 0 if problem.m == 1 and config.block_m == TILE_ROWS else problem.a_scale_pad  # the compiler knows the one row of tiles
    scale_bytes = sum(
        rows * config.block_k // f.block_size
        for rows, pad in ((config.block_m, a_pad), (config.block_n, problem.b_scale_pad))
        if rows * config.block_k // f.block_size >= 4 * 32 * config.num_warps and pad % 16 == 0
    )
    ring, widened = (config.num_stages - 1) * (operands + scale_bytes), 2 * config.block_k * config.block_n
    if problem.out != "fp32" or stores_in_the_ring():
        return max(ring + widened, tile_bytes)
    return ring + 16 * (config.num_stages - 1) + max(widened, tile_bytes)


contract = BlockScaledMatmulContract
CONTRACT = contract(bitverdict.kernels.block_scaled_matmul)
# One file because it is the contract of one kernel, and each of its methods overrides one of the base's.
