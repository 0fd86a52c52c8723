"""Launches of one case on operands of our own: what its sums come to, in float64.

Many probes share a launch: outputs that have no element of an operand in common are independent of each other, and each of them
carries a probe. What is told of several outputs rests on no assumption: outputs are put together by results that all of them gave
for the same probes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.diagnose import values as decoded_words
from bitverdict.harness.judge.remote_launcher import LaunchRequest, RemoteLauncher, launch
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.reference.formats import FORMATS, Format, decode, encode
from bitverdict.reference.sums.terms import NoSum, Terms, terms_of

MOST_CARRIERS = 512


class NotRecovered(Exception):
    """Why the order of a sum is not known."""


def format_of(dtype: str) -> str:
    """The format of a tensor of torch's `dtype` ("torch.float16"); empty where it is none of ours."""
    return {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}.get(
        dtype.removeprefix("torch."), ""
    )


@dataclass
class Launches:
    """Launches of `case` on `target`, on operands that replace its own. `count` of them so far."""

    case: Case
    target: Target
    contract: Contract
    launcher: Callable | RemoteLauncher | None
    operands: dict[str, Operand] = field(default_factory=dict)
    count: int = 0
    order_hazard: str = ""

    def __post_init__(self) -> None:
        self.case = replace(self.case, real_values=False, calls=1)
        self.operands = {each.name: each for each in self.contract.operands(self.case)}

    def launch_codes(self, codes: Mapping[str, np.ndarray], schedule: str = "") -> LaunchResult:
        """What a launch on `codes` comes to. Raises NotRecovered where it is no result."""
        operands = {
            name: replace(each, codes=codes[name].astype(each.codes.dtype, copy=False).reshape(each.codes.shape))
            if name in codes
            else each
            for name, each in self.operands.items()
        }
        case = replace(self.case, schedule=schedule) if schedule else self.case
        launch_result = launch(self.launcher, LaunchRequest(case, self.target, self.contract, operands, Clock()))
        self.count += 1
        if launch_result.outcome is not None:
            raise NotRecovered(f"a launch on operands of the probe ends: {launch_result.outcome}: {launch_result.message}"[:300])
        self.order_hazard = self.order_hazard or launch_result.order_hazard
        if (
            "config" in launch_result.launch_record and self.case.config is None
        ):  # the one that an autotuner took: it is the order's
            self.case = self.contract.case_from_json({**self.case.to_json(), "config": launch_result.launch_record["config"]})
        return launch_result


@dataclass
class SummedOutput:
    """One output of a case that is a sum: its terms, the formats of its factors, and how probes get there."""

    launches: Launches
    name: str
    terms: Terms
    format: str
    formats: dict[str, Format]  # by operand
    probes: int = 0
    _carriers: dict[bytes, np.ndarray] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.terms.shape

    @property
    def bits(self) -> int:
        """Significant bits of the output."""
        return FORMATS[self.format].mantissa_bits + 1

    def results(self, seen: LaunchResult) -> np.ndarray:
        """(outputs,) float64, the sum before the exact power of two that multiplies it."""
        return decoded_words(self.format, seen.outputs[self.name]).reshape(-1) / self.terms.scale

    def factor_ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """(F, T) each: the least and the largest exponent of a power of two, and of 1.5 times it, that a factor holds."""
        low, high = (np.zeros((self.terms.factors, self.terms.count), np.int64) for _ in range(2))
        start = 0
        for segment in self.terms.segments:
            for place, (name, _) in enumerate(segment.factors):
                fmt = self.formats[name]
                low[place, start : start + segment.count] = int(np.log2(fmt.smallest)) + 1
                high[place, start : start + segment.count] = int(np.floor(np.log2(fmt.largest / 1.5)))
            start += segment.count
        return low, high

    def factors_for(self, values: np.ndarray) -> np.ndarray:
        """(F, P, T): factors of `values` (P, T), each +-(1 or 1.5) times a power of two, in every format of a position."""
        low, high = self.factor_ranges()
        factors = np.ones((len(low), *values.shape))
        with np.errstate(divide="ignore"):
            exponent = np.floor(np.log2(np.abs(np.where(values == 0, 1.0, values)))).astype(np.int64)
        factors[0] = values / np.exp2(exponent)
        if len(low) == 1:
            factors[0] = values
            return factors
        later = np.clip(exponent // 2, low[1], high[1])
        first = np.clip(exponent - later, low[0], high[0])
        later = exponent - first
        factors[0] = np.where(values == 0, 0.0, factors[0] * np.exp2(first.astype(float)))
        factors[1] = np.where(values == 0, np.exp2(np.clip(0, low[1], high[1]).astype(float)), np.exp2(later.astype(float)))
        return factors

    def carriers(self, outputs: np.ndarray) -> np.ndarray:
        """Of `outputs` as many as have no element of an operand in common, at most `MOST_CARRIERS`."""
        key = outputs.tobytes()
        if key not in self._carriers:
            self._carriers[key] = self._disjoint_outputs(outputs)
        return self._carriers[key]

    def _disjoint_outputs(self, outputs: np.ndarray) -> np.ndarray:
        used_elements = {name: np.zeros(entry.codes.size, bool) for name, entry in self.launches.operands.items()}
        carriers: list[int] = []
        shift = np.argsort(_diagonal(outputs, self.shape), kind="stable")
        for start in range(0, len(outputs), 256):
            some = outputs[shift[start : start + 256]]
            segments = self.terms.segments_of(some)
            for row, output in enumerate(some.tolist()):
                taken = [(name, index[row][index[row] >= 0]) for entry in segments for name, index in entry.factors]
                if any(used_elements[name][index].any() for name, index in taken):
                    continue
                for name, index in taken:
                    used_elements[name][index] = True
                carriers.append(output)
                if len(carriers) == MOST_CARRIERS:
                    return np.asarray(carriers)
        return np.asarray(carriers)

    def probe_results(self, factors: np.ndarray, carriers: np.ndarray) -> np.ndarray:
        """(P,) results of probes with `factors` (F, P, T), one a carrier in as many launches as it takes."""
        results = np.empty(factors.shape[1])
        for start in range(0, factors.shape[1], len(carriers)):
            probe_factors = factors[:, start : start + len(carriers)]
            mine = carriers[: probe_factors.shape[1]]
            operand_values = {name: np.zeros(self.launches.operands[name].codes.size) for name in self.formats}
            at = 0
            for segment in self.terms.segments_of(mine):
                for place, (name, index) in enumerate(segment.factors):
                    there = index >= 0
                    operand_values[name][index[there]] = probe_factors[place][:, at : at + segment.count][there]
                at += segment.count
            results[start : start + len(carriers)] = self.results(self._launch_values(operand_values))[mine]
        self.probes += factors.shape[1]
        return results

    def everywhere(self, factors: np.ndarray) -> np.ndarray | None:
        """(outputs,) results of one probe with `factors` (F, T) at every output; None where outputs share elements of an operand
        as different terms."""
        operand_values = {name: np.zeros(self.launches.operands[name].codes.size) for name in self.formats}
        offset = 0
        for segment in self.terms.segments:
            for place, (name, whole) in enumerate(segment.factors):
                index = whole[tuple(slice(None if stride else 1) for stride in whole.strides)]  # what is repeated, once
                there = index >= 0
                due = np.broadcast_to(factors[place, offset : offset + segment.count], index.shape)
                operand_values[name][index[there]] = due[there]
                if not np.array_equal(operand_values[name][index[there]], due[there]):
                    return None
            offset += segment.count
        self.probes += 1
        return self.results(self._launch_values(operand_values))

    def _launch_values(self, given: Mapping[str, np.ndarray]) -> LaunchResult:
        return self.launches.launch_codes({name: encode(self.formats[name], values) for name, values in given.items()})

    def drawn(self, rng: np.random.Generator, spread: int) -> dict[str, np.ndarray]:
        """Codes of operands: normal numbers times 2^-spread to 2^spread."""
        return {
            name: encode(
                fmt,
                rng.standard_normal(self.launches.operands[name].codes.shape)
                * np.exp2(rng.integers(-spread, spread, self.launches.operands[name].codes.shape, endpoint=True)),
            )
            for name, fmt in self.formats.items()
        }

    def values_of(self, codes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """float64 of the operands that the sum takes."""
        return {name: decode(fmt, np.ascontiguousarray(codes[name]).view(fmt.storage)) for name, fmt in self.formats.items()}


def _diagonal(outputs: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A key by which outputs of different rows and columns come before those that share some."""
    if len(shape) < 2:
        return np.zeros(len(outputs))
    places = np.unravel_index(outputs, shape)
    size = min(shape[-2:])
    return (places[-1] - places[-2]) % max(size, 1)


def sums_of(launches: Launches) -> list[SummedOutput]:
    """The outputs of the case that are sums. Raises NotRecovered, with the reason, where they are none."""
    launch_result = launches.launch_codes({})
    mathematics = launches.contract.mathematics(launches.case, launches.operands)
    if mathematics is None:
        raise NotRecovered("the contract offers no mathematics of this kernel")
    unknown = [name for name in mathematics.operands if launches.operands[name].format not in FORMATS]
    shapes: dict[str, Any] = {name: each.shape for name, each in mathematics.operands.items()}
    try:
        output_terms = terms_of(mathematics.function, shapes, mathematics.keyword_values)
    except NoSum as why:
        raise NotRecovered(f"the reference is no plain sum: {why}") from None
    except (TypeError, ValueError, IndexError, AttributeError) as why:
        raise NotRecovered(f"the reference is no plain sum: {type(why).__name__}: {why}") from None
    summed_outputs = []
    for name, terms in zip(mathematics.outputs, output_terms, strict=True):
        used_operands = list(dict.fromkeys(operand for segment in terms.segments for operand, _ in segment.factors))
        if bad := [operand for operand in used_operands if operand in unknown]:
            raise NotRecovered(f"operand {bad[0]} holds {launches.operands[bad[0]].format}, no floating-point format")
        if terms.factors > 2:
            raise NotRecovered(f"a term is a product of {terms.factors} factors")
        if terms.squares():
            raise NotRecovered("a term is the square of an element: it is never negative, so no mask takes another one away")
        form = format_of(launch_result.dtypes[name])
        if not form or tuple(launch_result.outputs[name].shape) != terms.shape:
            raise NotRecovered(
                f"{name} is {launch_result.dtypes[name]} {launch_result.outputs[name].shape}, and the reference gives {terms.shape}"
            )
        summed_outputs.append(
            SummedOutput(
                launches, name, terms, form, {operand: FORMATS[launches.operands[operand].format] for operand in used_operands}
            )
        )
    return summed_outputs
