"""The fixed list of mutants that the suite judges: `python -m benchmarks.mutation_fixed_list --out DIR` draws it anew, on purpose.

`DIR` is that of `benchmarks.mutation_score`. Of each kernel one case is taken: the one that killed most of its mutants in a second
of judging. Mutants that this case kills are drawn from those that were killed, operators in turn: of the tile program, which share
one compiled kernel, and one of the source. Each is judged here once more, and how it ended is written beside it.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator

from benchmarks.campaign import REQUIRED_PATH, Option, parse, run_script
from benchmarks.mutation_score import CHECKOUT, target_of
from bitverdict.harness.model.case import Case
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.mutant_judge import KernelUnderMutation
from bitverdict.harness.mutants.record import End, GeneratedMutant, JudgedMutant, Kind, digest_of, drawn, read

LIST = CHECKOUT / "tests" / "mutants" / "fixed_list.json"
COUNT = 200
OF_SOURCE = 1
"""Source mutants of a kernel: each compiles anew."""


def quickest(kernel: KernelUnderMutation, judged: Iterable[JudgedMutant]) -> Case:
    """The required case that killed most mutants of the tile program in a second of judging them."""
    cases = {digest_of(case): case for case in kernel.right.required(kernel.target)}
    kills: dict[str, list[float]] = defaultdict(list)
    for each in judged:
        if each.result.killed_by in cases and each.mutant.kind is Kind.PROGRAM:
            kills[each.result.killed_by].append(each.result.seconds)
    return cases[max(kills, key=lambda case: len(kills[case]) / (1.0 + sum(kills[case])))]


def chosen(
    kernel: KernelUnderMutation, judged: list[JudgedMutant], case: Case, count: int
) -> Iterator[tuple[GeneratedMutant, str]]:
    """`count` mutants that `case` kills, each with its outcome."""
    left = {Kind.SOURCE: OF_SOURCE, Kind.PROGRAM: count - OF_SOURCE}
    for mutant in drawn(each.mutant for each in judged if each.result.end is End.KILL):
        if left[mutant.kind]:
            result = kernel.judge(mutant, [case], proofs=False)
            print(f"  {result.seconds:.2f} s: {mutant.id}: {result.end}", flush=True)
            if result.end is End.KILL:
                left[mutant.kind] -= 1
                yield mutant, result.outcome


def lines_of(listed: dict) -> str:
    """The JSON of one kernel, each mutant on a line, so that a difference is read."""
    rest = json.dumps({name: value for name, value in listed.items() if name != "mutants"})
    return rest[:-1] + ', "mutants": [\n' + ",\n".join(map(json.dumps, listed["mutants"])) + "\n]}"


def main() -> int:
    arguments = parse(__doc__, out=REQUIRED_PATH, into=Option(LIST, "the list (default: that of the suite)"))
    by_kernel: dict[str, list[JudgedMutant]] = defaultdict(list)
    for each in read(arguments.out / "results.jsonl"):
        by_kernel[each.mutant.kernel].append(each)
    listed: list[dict] = []
    begun = time.monotonic()
    for place, (name, judged) in enumerate(sorted(by_kernel.items())):
        count = (COUNT - sum(len(each["mutants"]) for each in listed)) // (len(by_kernel) - place)
        kernel = KernelUnderMutation(Kernel(name), target_of(name))
        case = quickest(kernel, judged)
        found = [{"mutant": mutant.to_json(), "outcome": outcome} for mutant, outcome in chosen(kernel, judged, case, count)]
        listed.append({"kernel": name, "target": kernel.target.name, "case": case.to_json(), "mutants": found})
        print(f"{name}: {len(found)} of {count}, {time.monotonic() - begun:.1f} s in all", flush=True)
    arguments.into.write_text("[\n" + ",\n".join(map(lines_of, listed)) + "\n]\n")
    return 0


if __name__ == "__main__":
    run_script(main)
