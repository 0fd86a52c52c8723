"""What `kernels/quantize_mxfp.py` expects: OCP's rule for MX, the fp32 steps of its plan for NVFP4, code for code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np

import bitverdict.kernels.quantize_mxfp
from bitverdict.harness.contracts.base.row_contract import RowContract, widen_to_fp32
from bitverdict.harness.contracts.base.single_config import Fields, KernelContract, call_launcher, drawn_operand, results_by_name
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.contracts.inputs.near_ties import TIES, near_ties
from bitverdict.harness.contracts.oracle.matmul_support import without_e4m3
from bitverdict.harness.model.architectures import is_amd
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutcome, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.triton_release import converts_through_fp16
from bitverdict.harness.model.verdict import Basis
from bitverdict.kernels.element_types import bits_of
from bitverdict.kernels.features import Feature
from bitverdict.kernels.quantize_mxfp import FORMATS, NEEDS_E4M3
from bitverdict.reference.block_scaling import saturating_codes
from bitverdict.reference.formats import FORMATS as NUMBERS
from bitverdict.reference.formats import Format, convert
from bitverdict.reference.formats.convert import FP8_BY_INTEGERS
from bitverdict.reference.quantized_rows import quantized_rows

KINDS = (
    ("mxfp4", "bf16", 128, 1),  # of eight significant bits, so that ties are met
    ("mxfp8_e4m3", "fp32", 1024, 4),
    ("nvfp4", "bf16", 128, 2),
    ("mxfp8_e5m2", "fp16", 256, 8),
    ("mxfp4", "fp32", 1024, 4),
    ("nvfp4", "fp32", 512, 4),
)  # format, type of X, block, warps
TENSOR_SCALES = tuple(float(np.float32(scale)) for scale in (1.0, 0.3, 2.0**-126, 2.0**100, 1 / 2688))
PLACES = {"mxfp8_e4m3": "e4m3", "mxfp8_e5m2": "e5m2"}  # what elements are stored as; the others are bytes

BY_SIZE = "all codes by size"
"""A regime: every code of a 16-bit type, neighbours in size side by side, so that none vanishes under the scale of its block."""


def by_size(shape: tuple[int, int]) -> np.ndarray:
    """Codes of `shape`, each of the 2^16 alike often: ascending in magnitude, each beside its negative."""
    count = shape[0] * shape[1]
    codes = np.resize(np.arange(1 << 16, dtype=np.uint16), count)  # (count,)
    return (((codes & 1) << 15) | (codes >> 1)).astype(np.uint16).reshape(shape)


class QuantizeMxfpContract(RowContract):
    conversions = None  # codes are held to codes
    parameters = "(x, format='mxfp4', *, tensor_scale=1.0, block=1024, num_warps=4)"

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        """All kinds; of those that the target lacks, one. AMD's compiler has all; gfx950's conversions to fp8 are not known."""
        kinds = [kind for kind in KINDS if has_format(kind[0], target)]
        if not is_amd(target.arch):
            kinds += [kind for kind in KINDS if kind not in kinds][:1]
        return [({"format": f, "dtype": d}, {"block": b, "num_warps": w}) for f, d, b, w in kinds]

    def lacking_in_part(self, target: Target) -> dict[str, frozenset]:
        names = sorted({kind[0] for kind in KINDS if not has_format(kind[0], target)})
        missing = Feature.FP8_MODE_RULE if is_amd(target.arch) else Feature.FP8_E4M3
        return {", ".join(names): frozenset({missing})} if names else {}

    def draw_problem(self, draw: Callable, problem: Fields, config: object, target: Target) -> Fields:
        from hypothesis import strategies as st

        made = super().draw_problem(draw, problem, config, target) | {"x_pad": draw(st.sampled_from((0, 5, 16)))}
        if problem["format"] == "nvfp4":
            made["tensor_scale"] = draw(st.sampled_from(TENSOR_SCALES) | st.floats(2.0**-20, 2.0**20, width=32))
        return made

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        for place, (problem, config) in enumerate(super().listed_problems(target)):
            scale = _tensor_scale_fields(problem, TENSOR_SCALES[place // 2 % len(TENSOR_SCALES)])
            yield problem | {"x_pad": (0, 3)[place % 2]} | scale, config

    def regime(self, place: int) -> str:
        """Another one for a kind's second case than for its first."""
        return super().regime(place + place // len(KINDS))

    def draw_regime(self, draw: Callable) -> str:
        from hypothesis import strategies as st

        return draw(st.sampled_from((*regimes.REGIMES, TIES)))

    def required(self, target: Target) -> list[Case]:
        near = {"rows": 3, "columns": 512}
        scales = {"fp32": TENSOR_SCALES[1], "bf16": TENSOR_SCALES[0]}
        ties = [
            self.case(
                problem | near | _tensor_scale_fields(problem, scales.get(problem["dtype"], 1.0)),
                config,
                regime=TIES,
                data_seed=place,
            )
            for place, (problem, config) in enumerate(self.pool(target))
        ]
        return ties + super().required(target)

    def covering_problems(self, target: Target) -> Iterable[tuple[Fields, Fields, str]]:
        for problem, config in self.pool(target):
            if bits_of(problem["dtype"]) == 16 and has_format(problem["format"], target):
                yield problem | {"rows": 64, "columns": 1024}, config, BY_SIZE

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"rows": 2, "columns": 16}
        yield sizes | {"dtype": "int32"}, {}
        yield sizes | {"format": "mxfp6"}, {}
        yield sizes | {"tensor_scale": 2.0}, {}
        yield sizes | {"format": "nvfp4", "tensor_scale": 0.0}, {}
        yield sizes, {"block": 16}
        yield sizes, {"num_warps": 32}

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        found = super().expected_outcome(case, target)
        if found.result and case.problem.rows and not has_format(case.problem.format, target):
            return without_e4m3(target.arch)
        return found

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        if case.regime == BY_SIZE:
            return [Operand(name="x", format=p.dtype, codes=by_size((p.rows, p.columns)), strides=(p.columns + p.x_pad, 1))]
        if case.regime != TIES or p.format not in FORMATS:
            x = drawn_operand(case, "x", p.dtype, (p.rows, p.columns), pad=p.x_pad)
            if case.regime == "largest" and p.dtype in NUMBERS:
                x.codes[:, :1] = NUMBERS[p.dtype].largest_code  # the last word of a block that is finite
            return [x]
        rng = regimes.generator(case.data_seed, "x")
        codes = near_ties(p.format, p.dtype, (p.rows, p.columns), p.tensor_scale, rng)
        return [Operand(name="x", format=p.dtype, codes=codes, strides=(p.columns + p.x_pad, 1))]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        p = case.problem
        settings = vars(case.config) | {"tensor_scale": p.tensor_scale}
        returned = call_launcher(launcher or self.module.quantize_mxfp, tensors["x"], p.format, **settings)
        return results_by_name(returned, "elements", "scales")

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        p = case.problem
        narrow = partial(_through_fp16, target.arch) if converts_through_fp16() and not is_amd(target.arch) else saturating_codes
        elements, scales = quantized_rows(p.format, widen_to_fp32(operands["x"], target.arch), p.tensor_scale, narrow)
        formats = {"elements": PLACES.get(p.format, "uint8"), "scales": "e4m3" if p.format == "nvfp4" else "e8m0"}
        return [
            ExpectedOutput(name=name, format=formats[name], shape=words.shape, words=words, basis=Basis.WORDS)
            for name, words in (("elements", elements), ("scales", scales))
        ]

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        p = case.problem
        short = p.columns % FORMATS[p.format] if p.format in FORMATS else 0
        return KernelContract.coverage(self, case, target) | {"format": p.format, "last block": "short" if short else "whole"}


def _through_fp16(arch: str, fmt: Format, values: np.ndarray) -> np.ndarray:
    """Codes of `values`, which are fp32, as an older Triton converts them; of four bits the kernel makes them itself."""
    if fmt.name not in ("e4m3", "e5m2") or not values.size:  # none is converted where the architecture has no such conversion
        return saturating_codes(fmt, values)
    return convert("fp32", fmt, values.astype(np.float32).view(np.uint32), arch, through_fp16=True)


def _tensor_scale_fields(problem: Fields, tensor_scale: float) -> Fields:
    return {"tensor_scale": tensor_scale} if problem["format"] == "nvfp4" else {}


def has_format(name: str, target: Target) -> bool:
    """Whether the target's compiler has the types of `name`, and its conversions are known."""
    if is_amd(target.arch):
        return name == "mxfp4" or target.arch in FP8_BY_INTEGERS
    return name not in NEEDS_E4M3 or Feature.FP8_E4M3 in target.features


contract = QuantizeMxfpContract
CONTRACT = contract(bitverdict.kernels.quantize_mxfp)
