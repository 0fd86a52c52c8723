"""Which words of an output a kernel of the judged call has stored, and which torch or the host computed.

An emulated device that follows provenance knows the origin of every byte. `observed` counts, beside the launch, and says it in JSON
(`LaunchResult.recorded`). `judge_provenance` makes of right words that no kernel stored an inconclusive verdict: nobody can tell
whether the kernel under test would have computed them. Words count as a kernel's in three more cases:

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
from bitverdict.harness.model.protocols import LaunchObserver
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.emulator import Device, Origin

PROVENANCE_KEY = "provenance"  # in `LaunchResult.recorded` and `Verdict.recorded`
MAX_LISTED = 8  # origins of an output, inputs and reads that are told
NOT_OBSERVED = "provenance not observed"


class ProvenanceObserver(LaunchObserver):
    """Has the emulated device of a sealed launch follow where each byte comes from."""

    def options(self, case: Case, *, far: bool) -> Mapping[str, Any]:
        return {"provenance": case.sealed and not far}

    def observe_outputs(self, device: Any, outputs: Mapping[str, Any], in_place: Sequence[Any]) -> Mapping[str, Any]:
        found = observe_provenance(device, outputs, in_place)
        return {PROVENANCE_KEY: found} if found else {}


class OriginOfWords(CaseCheck):
    """Right words that no kernel stored make a verdict inconclusive."""

    def after_comparison(self, judgement: Judgement, verdict: Verdict) -> Verdict:
        recorded = judgement.launch_result.launch_record
        if judgement.has_work and (PROVENANCE_KEY in recorded or (judgement.case.sealed and judgement.target.emulated)):
            return judge_provenance(verdict, recorded.get(PROVENANCE_KEY, {}))
        return verdict


def observe_provenance(device: Device, outputs: Mapping[str, torch.Tensor], in_place: Iterable[torch.Tensor]) -> dict[str, Any]:
    """What `device` knows of the words of `outputs`, by name; {} where it does not follow provenance. `in_place`: operands that
    the launch may have written."""
    if device.origins is None:
        return {}
    bases = {entry.untyped_storage().data_ptr() for entry in in_place}
    return {
        "outputs": {name: _count_words(device, output, bases) for name, output in outputs.items()},
        "inputs": [[*entry[:2], str(entry.origin), entry.bytes] for entry in list(device.origins.inputs)[:MAX_LISTED]],
        "more inputs": max(len(device.origins.inputs) - MAX_LISTED, 0),
        "reads": [
            [entry.call, entry.line, [str(origin) for origin in entry.origins[:MAX_LISTED]]]
            for entry in list(device.origins.reads)[:MAX_LISTED]
        ],
    }


def _count_words(device: Device, output: torch.Tensor, in_place: set[int]) -> dict[str, Any]:
    """The words of one output: how many a `kernel` stored, how many are `filled` with a constant or words of an `operand` at their
    places, and the `others`, [what they are of, how many] each."""
    from bitverdict.harness.emulator.cuda_tensors import inside
    from bitverdict.harness.emulator.memory.provenance import Kind

    inner_tensor = inside(output)
    found = device.provenance(output)
    assert found is not None and device.origins is not None
    origin_counts = found.counts()
    summary: dict[str, Any] = {"words": inner_tensor.numel(), "kernel": 0, "filled": 0, "operand": 0}
    other_origins: list[tuple[Origin, int]] = []
    base = inner_tensor.untyped_storage().data_ptr()
    by_kernel = base in device.origins.offered or any(origin.kind is Kind.KERNEL for origin in origin_counts)
    at_their_places = base in in_place or (by_kernel and device.origins.at_their_places(inner_tensor))
    for origin, count in origin_counts.items():
        if origin.kind in (Kind.KERNEL, Kind.CONSTANT):
            summary["kernel" if origin.kind is Kind.KERNEL else "filled"] += count
        elif origin.kind is Kind.OPERAND and at_their_places:
            summary["operand"] += count
        elif origin.kind is not Kind.UNWRITTEN:  # or a word that nobody wrote is right: none is due there
            other_origins.append((origin, count))
    other_origins.sort(key=lambda each: -each[1])
    return summary | {
        "computed": sum(count for origin, count in other_origins if origin.is_computed),
        "copied": sum(count for origin, count in other_origins if not origin.is_computed),
        "others": [[str(origin), count] for origin, count in other_origins[:MAX_LISTED]],
    }


def judge_provenance(verdict: Verdict, provenance: Mapping[str, Any]) -> Verdict:
    """`verdict` told of what `observed` gave, and inconclusive where words that pass are no kernel's. {}: nothing was observed, as
    on a real GPU, or of rows that lie far apart."""
    if not provenance:
        return replace(verdict, details=verdict.details | {"provenance": NOT_OBSERVED})
    verdict = replace(verdict, details=verdict.details | _details(provenance))
    if verdict.decision is not Decision.PASS:
        return verdict
    wrong = {name: each for name, each in provenance["outputs"].items() if each["computed"] or each["copied"]}
    if not wrong:
        return verdict
    said = "; ".join(_provenance_sentence(name, each) for name, each in wrong.items())
    return replace(verdict, decision=Decision.INCONCLUSIVE, outcome=Outcome.COMPUTED_ON_HOST, message=said)


def _provenance_sentence(name: str, counts: Mapping[str, Any]) -> str:
    of = f"of {counts['words']:,} words of {name}"
    parts = [
        f"{counts[what]:,} {of} {said}"
        for what, said in (("computed", "were computed on the host"), ("copied", "were copied without a kernel"))
        if counts[what]
    ]
    return f"{' and '.join(parts)}: {', '.join(f'{origin} ({count:,})' for origin, count in counts['others'])}"


def _details(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """What a person reads: of which origin the words are, what kernels were given that torch or the host computed, and what the
    host read."""
    details: dict[str, Any] = {"provenance": "; ".join(_counts(name, each) for name, each in provenance["outputs"].items())}
    inputs = [f"{argument} of {kernel}: {origin}, {count:,} bytes" for kernel, argument, origin, count in provenance["inputs"]]
    if inputs:
        more = [f"and {provenance['more inputs']} more"] if provenance["more inputs"] else []
        details["computed inputs"] = inputs + more
    if provenance["reads"]:
        details["host reads"] = [
            f"{by} at {line}: {', '.join(of)}" if line else f"{by}: {', '.join(of)}" for by, line, of in provenance["reads"]
        ]
    return details


def _counts(name: str, each: Mapping[str, object]) -> str:
    more = [f"{each[what]:,} {said}" for what, said in _COUNT_PHRASES if each[what]]
    return f"{name}: {each['kernel']:,} of {each['words']:,} words stored by kernels" + "".join(f", {said}" for said in more)


_COUNT_PHRASES = (
    ("filled", "filled with a constant"),
    ("operand", "of an operand at their places"),
    ("computed", "computed on the host"),
    ("copied", "copied without a kernel"),
)

__all__ = ["NOT_OBSERVED", "PROVENANCE_KEY", "judge_provenance", "observe_provenance"]
