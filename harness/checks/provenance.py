"""Which words of an output a kernel of the judged call has stored, and which torch or the host computed.

An emulated device that follows provenance knows the origin of every byte. `observed` counts, beside the launch, and says it in JSON
(`LaunchResult.recorded`). `held` makes of right words that no kernel stored an inconclusive verdict: nobody can tell whether the
kernel under test would have computed them. Words count as a kernel's in three more cases:

- a constant that the host filled in before it read anything, or zeros in a whole tensor: a launcher clears what its kernel adds to;
- words of an operand in an output that is this operand, where the contract lets it be written in place;
- words of an operand at their own places in a copy of it that a kernel was given to write into, or wrote: a scatter into a clone.

Any other copy of an operand is *copied without a kernel*: a launcher whose whole task is to copy would do nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bitverdict.harness.judge.judgement import CaseCheck, Judgement
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.protocols import LaunchProbe
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.emulator import Device, Origin

RECORDED = "provenance"  # in `LaunchResult.recorded` and `Verdict.recorded`
MOST = 8  # origins of an output, inputs and reads that are told
NOT_OBSERVED = "provenance not observed"


class ProvenanceProbe(LaunchProbe):
    """Has the emulated device of a sealed launch follow where each byte comes from."""

    def options(self, case: Case, *, far: bool) -> Mapping[str, Any]:
        return {"provenance": case.sealed and not far}

    def returned(self, device: Any, outputs: Mapping[str, Any], in_place: Sequence[Any]) -> Mapping[str, Any]:
        found = observed(device, outputs, in_place)
        return {RECORDED: found} if found else {}


class OriginOfWords(CaseCheck):
    """Right words that no kernel stored make a verdict inconclusive."""

    def after_comparison(self, judgement: Judgement, verdict: Verdict) -> Verdict:
        recorded = judgement.launch_result.recorded
        if judgement.has_work and (RECORDED in recorded or (judgement.case.sealed and judgement.target.emulated)):
            return held(verdict, recorded.get(RECORDED, {}))
        return verdict


def observed(device: Device, outputs: Mapping[str, torch.Tensor], in_place: Iterable[torch.Tensor]) -> dict[str, Any]:
    """What `device` knows of the words of `outputs`, by name; {} where it does not follow provenance. `in_place`: operands that
    the launch may have written."""
    if device.origins is None:
        return {}
    bases = {each.untyped_storage().data_ptr() for each in in_place}
    return {
        "outputs": {name: _counted(device, output, bases) for name, output in outputs.items()},
        "inputs": [[*each[:2], str(each.origin), each.bytes] for each in list(device.origins.inputs)[:MOST]],
        "more inputs": max(len(device.origins.inputs) - MOST, 0),
        "reads": [[each.by, each.line, [str(origin) for origin in each.of[:MOST]]] for each in list(device.origins.reads)[:MOST]],
    }


def _counted(device: Device, output: torch.Tensor, in_place: set[int]) -> dict[str, Any]:
    """The words of one output: how many a `kernel` stored, how many are `filled` with a constant or words of an `operand` at their
    places, and the `others`, [what they are of, how many] each."""
    from bitverdict.harness.emulator.cuda_tensors import inside
    from bitverdict.harness.emulator.memory.provenance import Kind

    held = inside(output)
    found = device.provenance(output)
    assert found is not None and device.origins is not None
    counted = found.counts()
    told: dict[str, Any] = {"words": held.numel(), "kernel": 0, "filled": 0, "operand": 0}
    others: list[tuple[Origin, int]] = []
    base = held.untyped_storage().data_ptr()
    by_kernel = base in device.origins.offered or any(origin.kind is Kind.KERNEL for origin in counted)
    at_their_places = base in in_place or (by_kernel and device.origins.at_their_places(held))
    for origin, count in counted.items():
        if origin.kind in (Kind.KERNEL, Kind.FILLED):
            told["kernel" if origin.kind is Kind.KERNEL else "filled"] += count
        elif origin.kind is Kind.OPERAND and at_their_places:
            told["operand"] += count
        elif origin.kind is not Kind.UNWRITTEN:  # or a word that nobody wrote is right: none is due there
            others.append((origin, count))
    others.sort(key=lambda each: -each[1])
    return told | {
        "computed": sum(count for origin, count in others if origin.computed),
        "copied": sum(count for origin, count in others if not origin.computed),
        "others": [[str(origin), count] for origin, count in others[:MOST]],
    }


def held(verdict: Verdict, found: Mapping[str, Any]) -> Verdict:
    """`verdict` told of what `observed` gave, and inconclusive where words that pass are no kernel's. {}: nothing was observed, as
    on a real GPU, or of rows that lie far apart."""
    if not found:
        return replace(verdict, details=verdict.details | {"provenance": NOT_OBSERVED})
    verdict = replace(verdict, details=verdict.details | _details(found))
    if verdict.decision is not Decision.PASS:
        return verdict
    wrong = {name: each for name, each in found["outputs"].items() if each["computed"] or each["copied"]}
    if not wrong:
        return verdict
    said = "; ".join(_told(name, each) for name, each in wrong.items())
    return replace(verdict, decision=Decision.INCONCLUSIVE, outcome=Outcome.COMPUTED_ON_HOST, message=said)


def _told(name: str, each: Mapping[str, Any]) -> str:
    of = f"of {each['words']:,} words of {name}"
    parts = [
        f"{each[what]:,} {of} {said}"
        for what, said in (("computed", "were computed on the host"), ("copied", "were copied without a kernel"))
        if each[what]
    ]
    return f"{' and '.join(parts)}: {', '.join(f'{origin} ({count:,})' for origin, count in each['others'])}"


def _details(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a person reads: of which origin the words are, what kernels were given that torch or the host computed, and what the
    host read."""
    told: dict[str, Any] = {"provenance": "; ".join(_counts(name, each) for name, each in found["outputs"].items())}
    inputs = [f"{argument} of {kernel}: {origin}, {count:,} bytes" for kernel, argument, origin, count in found["inputs"]]
    if inputs:
        more = [f"and {found['more inputs']} more"] if found["more inputs"] else []
        told["computed inputs"] = inputs + more
    if found["reads"]:
        told["host reads"] = [
            f"{by} at {line}: {', '.join(of)}" if line else f"{by}: {', '.join(of)}" for by, line, of in found["reads"]
        ]
    return told


def _counts(name: str, each: Mapping[str, Any]) -> str:
    more = [f"{each[what]:,} {said}" for what, said in _COUNTED if each[what]]
    return f"{name}: {each['kernel']:,} of {each['words']:,} words stored by kernels" + "".join(f", {said}" for said in more)


_COUNTED = (
    ("filled", "filled with a constant"),
    ("operand", "of an operand at their places"),
    ("computed", "computed on the host"),
    ("copied", "copied without a kernel"),
)

__all__ = ["NOT_OBSERVED", "RECORDED", "held", "observed"]
