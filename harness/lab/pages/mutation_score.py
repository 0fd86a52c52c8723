"""The page of a campaign of mutants: counts, scores, the matrix of kills, what the required cases are worth, and each survivor."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from bitverdict.harness.model.architectures import BY_DEFAULT
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.mutants.counts import Counts, count_ends
from bitverdict.harness.mutants.record import End, JudgedMutant, Kind, MutantResult

HEAD = """# Mutation score of the shipped kernels

Printed by `python -m benchmarks.mutation_score --out DIR --page FILE` from the results in `DIR`.

A *mutant* is a kernel with one deliberate fault, made by an operator: in its source, or in the tile program that the compiler made
of it. The required cases of the kernel's contract judge it until one fails. *Invalid*: the compiler refuses it, or its file cannot
be imported. *Equivalent*: it computes what the kernel computes; below is how that is known. The others are *live*: killed,
survived, or *doubtful*, of which nothing is proved. The score is killed / live.

Of each kernel so many live mutants of either kind are drawn, operators in turn. A place of a tile program is drawn from where at
least four required cases come to it: fewer come to what one specialisation alone has.
A kernel without a row is not measured yet."""
SPEED_OF = (Kind.PROGRAM, Kind.SOURCE)
NOT_EXAMINED = "not examined"
LIVE, SHARE = 3000, 99
"""The goal of a campaign over all kernels: so many live mutants, and so many per cent of them killed."""
MOST_TEXT = 110  # characters of an edit or a reason in a table


def newest_emulated(contract: Contract) -> Target:
    """The last of the emulated targets that are judged by default which has the features of `contract`."""
    machines = [Target(f"emulated:{arch}", arch) for arch in BY_DEFAULT]
    return [machine for machine in machines if not contract.lacking(machine)][-1]


def counted_by(judged: Iterable[JudgedMutant], name: Callable[[JudgedMutant], str]) -> dict[str, Counts]:
    """The counts of each group that `name` puts its mutants in, by name in their order."""
    groups: dict[str, list[JudgedMutant]] = defaultdict(list)
    for each in judged:
        groups[name(each)].append(each)
    return {group: count_ends(groups[group]) for group in sorted(groups)}


def kills(judged: Iterable[JudgedMutant]) -> Counter[tuple[str, str]]:
    """(clause, regime) -> mutants killed so. Of a regime that names row numbers too, its values alone are told."""
    found: Counter[tuple[str, str]] = Counter()
    for each in judged:
        if each.result.end is End.KILL:
            found[each.result.clause, each.result.regime.partition("/")[0]] += 1
    return found


def kills_per_second(judged: Sequence[JudgedMutant], workers: int = 2) -> float | None:
    """Kills per second of so many workers, one a core: workers * kills / seconds of killed mutants. Of the second half of the
    kills, in their order: by then workers hold operands, expected results and compiled programs. None where none is killed."""
    seconds = [each.result.seconds for each in judged if each.result.end is End.KILL]
    later = seconds[len(seconds) // 2 :]
    return workers * len(later) / sum(later) if sum(later) else None


@dataclass(frozen=True)
class CasesWorth:
    """What the required cases of a kernel are worth, by mutants that each of them judged.

    `kills`: case -> mutants that it fails. `alone`: case -> the mutants that it alone fails. `enough`: cases that together fail
    every mutant that any case fails, few of them: the one that fails most of the rest is taken first.
    """

    cases: tuple[str, ...]
    mutants: int
    kills: Mapping[str, int]
    sole_kills: Mapping[str, tuple[str, ...]]
    enough: tuple[str, ...]

    @property
    def idle(self) -> tuple[str, ...]:
        """Cases that fail none of these mutants."""
        return tuple(case for case in self.cases if not self.kills.get(case))


def cases_worth(cases: Sequence[str], results: Iterable[MutantResult]) -> CasesWorth:
    """The worth of `cases` (digests, in their order), by results of mutants that were judged by all of them."""
    judged = [(each.mutant, [each.killed_by, *each.also_killed_by] if each.killed_by else []) for each in results]
    failures = [(mutant, killers) for mutant, killers in judged if killers]
    sole_kills: dict[str, list[str]] = defaultdict(list)
    for mutant, killers in failures:
        if len(killers) == 1:
            sole_kills[killers[0]].append(mutant)
    left, enough = [set(killers) for _, killers in failures], []
    while left:
        most = Counter(case for killers in left for case in killers)
        best = min(most, key=lambda case: (-most[case], cases.index(case)))
        enough.append(best)
        left = [killers for killers in left if best not in killers]
    kills = Counter(case for _, killers in failures for case in killers)
    told = {case: tuple(killers) for case, killers in sole_kills.items()}
    return CasesWorth(tuple(cases), len(judged), kills, told, tuple(enough))


@dataclass(frozen=True)
class Campaign:
    """What was run: `judged` mutants, by `cases` required cases of each kernel. `worth`: by kernel, of a sample that all cases
    judged. `lines`: by its digest a case in one line. `reasons`: by a survivor's id why it survives."""

    judged: Sequence[JudgedMutant]
    runs: Sequence[Mapping[str, str]]
    cases: Mapping[str, int] = field(default_factory=dict)
    worth: Mapping[str, CasesWorth] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


def page(campaign: Campaign) -> str:
    """The page, Markdown."""
    judged = campaign.judged
    lines = [HEAD, "", *_runs(campaign.runs), "## Score", "", goal(count_ends(judged)), ""]
    lines += _counts("kind", counted_by(judged, lambda each: str(each.mutant.kind)), count_ends(judged))
    lines += ["## By kernel", "", *_by_kernel(campaign)]
    lines += ["## Kills per second", "", *_speed(judged)]
    lines += ["## By operator", "", *_by_operator(judged)]
    lines += ["## Kills by clause and regime", "", *_matrix(judged)]
    lines += ["## What the required cases are worth", "", *_worth(campaign)]
    lines += ["## Survivors", "", *_sorts(judged, campaign.reasons), *_open(judged, End.SURVIVAL, campaign.reasons)]
    lines += ["## Doubtful", "", *_open(judged, End.DOUBTFUL, campaign.reasons)]
    lines += ["## Equivalent and invalid", "", *_reasons_of(judged, End.EQUIVALENT), *_reasons_of(judged, End.INVALID)]
    return "\n".join(lines).rstrip() + "\n"


def goal(found: Counts) -> str:
    """Whether as many mutants are live, and as large a share of them is killed, as was meant."""
    met = found.live >= LIVE and found.killed_count * 100 >= SHARE * found.live
    return (
        f"Goal: {LIVE:,} live mutants and {SHARE} % of them killed: {'met' if met else 'missed'} ({found.live:,}, {share(found)})."
    )


def _runs(runs: Sequence[Mapping[str, str]]) -> Iterator[str]:
    yield "| run on | commit | machine | Triton | mutants |"
    yield "| --- | --- | --- | --- | ---: |"
    for run in runs:
        yield f"| {run['date']} | {run['commit']} | {run['machine']} | {run['triton']} | {run['mutants']} |"
    yield ""


def _counts(head: str, groups: Mapping[str, Counts], whole: Counts) -> Iterator[str]:
    yield f"| {head} | generated | invalid | equivalent | error | live | killed | survived | doubtful | score |"
    yield "| --- |" + " ---: |" * 9
    for name, found in [*groups.items(), ("all", whole)]:
        yield f"| {name} | {_row(found)} |"
    yield ""


def _row(found: Counts) -> str:
    count = [found.ends.get(end, 0) for end in (End.INVALID, End.EQUIVALENT, End.ERROR)]
    rest = [found.ends.get(end, 0) for end in (End.KILL, End.SURVIVAL, End.DOUBTFUL)]
    return " | ".join(f"{number:,}" for number in (found.generated_count, *count, found.live, *rest)) + f" | {share(found)}"


def share(found: Counts) -> str:
    """The score in per cent, rounded down to a tenth so that 100 % means all; a dash where none is live."""
    return f"{int(1000 * found.killed_count / found.live) / 10:.1f} %" if found.live else "-"


def _by_kernel(campaign: Campaign) -> Iterator[str]:
    targets = {each.mutant.kernel: each.result.target for each in campaign.judged if each.result.target}
    names = {each.mutant.kernel: _kernel_told(each.mutant.kernel, targets, campaign.cases) for each in campaign.judged}
    groups = {names[kernel]: found for kernel, found in counted_by(campaign.judged, lambda each: each.mutant.kernel).items()}
    yield from _counts("kernel, target, required cases", groups, count_ends(campaign.judged))


def _speed(judged: Sequence[JudgedMutant]) -> Iterator[str]:
    """A row for each kernel, a column for each kind; then the medians."""
    yield "Of two workers on two of the machine's cores: 2 x kills / seconds of killed mutants, the second half of the kills."
    yield "Seconds of equivalent, surviving and other mutants are not in it."
    yield ""
    kernels = dict.fromkeys(each.mutant.kernel for each in judged)
    rates_by_kernel = {
        kernel: [
            kills_per_second([each for each in judged if (each.mutant.kernel, each.mutant.kind) == (kernel, kind)])
            for kind in SPEED_OF
        ]
        for kernel in sorted(kernels)
    }
    yield f"| kernel | {' | '.join(map(str, SPEED_OF))} |"
    yield "| --- |" + " ---: |" * len(SPEED_OF)
    for kernel, rates in rates_by_kernel.items():
        yield f"| `{kernel}` | {' | '.join(_rate(rate) for rate in rates)} |"
    columns = [[rate for rate in column if rate is not None] for column in zip(*rates_by_kernel.values(), strict=True)]
    yield f"| median | {' | '.join(_rate(median(column) if column else None) for column in columns)} |"
    yield ""


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1f}"


def _kernel_told(kernel: str, targets: Mapping[str, str], cases: Mapping[str, int]) -> str:
    parts = [f"`{kernel}`", targets.get(kernel, "").removeprefix("emulated:"), str(cases[kernel]) if kernel in cases else ""]
    return ", ".join(part for part in parts if part)


def _by_operator(judged: Sequence[JudgedMutant]) -> Iterator[str]:
    yield from _counts(
        "operator", counted_by(judged, lambda each: f"{each.mutant.kind}: {each.mutant.operator}"), count_ends(judged)
    )


def _matrix(judged: Sequence[JudgedMutant]) -> Iterator[str]:
    """Rows are clauses, columns regimes of the case that failed first; both by how many they killed."""
    kill_counts = kills(judged)
    if not kill_counts:
        yield from ("No mutant was killed.", "")
        return
    clauses, regimes = (Counter(), Counter())  # type: tuple[Counter[str], Counter[str]]
    for (clause, regime), count in kill_counts.items():
        clauses[clause] += count
        regimes[regime] += count
    columns = [regime for regime, _ in regimes.most_common()]
    yield "Each killed mutant counts once, at the case that failed first. Those that killed earlier mutants come first."
    yield "*Another outcome* is a hazard that is named as the compiler's, whose program a mutant edits."
    yield ""
    yield f"| clause | {' | '.join(regime or 'no case ended' for regime in columns)} | all |"
    yield "| --- |" + " ---: |" * (len(columns) + 1)
    for clause, total in clauses.most_common():
        yield f"| {clause} | {' | '.join(str(kill_counts[clause, regime] or '') for regime in columns)} | {total} |"
    yield f"| all | {' | '.join(str(regimes[regime]) for regime in columns)} | {sum(regimes.values())} |"
    yield ""


def _worth(campaign: Campaign) -> Iterator[str]:
    if not campaign.worth:
        yield from ("Not measured.", "")
        return
    yield "Mutants of this sample were judged by every required case of their kernel, also after one had failed. *Alone*: cases"
    yield "that are the only one to fail some mutant. *Enough*: the fewest cases found that fail each mutant that"
    yield "any case fails. *Idle*: cases that fail none of the sample. A case may be there for a fault that no operator makes."
    yield ""
    yield "| kernel | mutants | cases | fail some mutant | alone | enough | idle |"
    yield "| --- |" + " ---: |" * 6
    for kernel, worth in campaign.worth.items():
        some = len(worth.cases) - len(worth.idle)
        numbers = (worth.mutants, len(worth.cases), some, len(worth.sole_kills), len(worth.enough), len(worth.idle))
        yield f"| `{kernel}` | {' | '.join(map(str, numbers))} |"
    yield ""
    yield "| kernel | case that alone fails | mutants | one of them |"
    yield "| --- | --- | ---: | --- |"
    for kernel, worth in campaign.worth.items():
        for case, mutants in sorted(worth.sole_kills.items(), key=lambda each: -len(each[1])):
            yield f"| `{kernel}` | {_cut(campaign.lines.get(case, case))} | {len(mutants)} | {_cut(_inside(mutants[0]))} |"
    yield ""


def _inside(mutant: str) -> str:
    """The id without its kernel, which stands before it."""
    return mutant.partition("/")[2]


def _open(judged: Iterable[JudgedMutant], end: End, reasons: Mapping[str, str]) -> Iterator[str]:
    judged_mutants = [entry for entry in judged if entry.result.end is end]
    if not judged_mutants:
        yield from ("None.", "")
        return
    yield "| mutant | line | was | is | cases | reason |"
    yield "| --- | --- | --- | --- | ---: | --- |"
    for entry in sorted(judged_mutants, key=lambda each: each.mutant.id):
        told, result = entry.mutant, entry.result
        why = reasons.get(told.id) or result.why or NOT_EXAMINED
        place = f"`{told.file}:{told.line}`" if told.file else ""
        yield f"| {told.id} | {place} | {_code(told.before)} | {_code(told.after)} | {result.cases_run} | {_cell_text(why)} |"
    yield ""


def _sorts(judged: Iterable[JudgedMutant], reasons: Mapping[str, str]) -> Iterator[str]:
    """Survivors and doubtful ones by the sort of their reason, which is what stands before its colon."""
    left = [each for each in judged if each.result.end in (End.SURVIVAL, End.DOUBTFUL)]
    found = Counter((reasons.get(each.mutant.id) or NOT_EXAMINED).partition(":")[0] for each in left)
    if found:
        yield "| survivors and doubtful ones | mutants |"
        yield "| --- | ---: |"
        yield from (f"| {sort} | {count} |" for sort, count in found.most_common())
        yield ""


def _reasons_of(judged: Iterable[JudgedMutant], end: End) -> Iterator[str]:
    """Why mutants ended so, each reason up to its first colon, with how many."""
    found = Counter(each.result.why.partition(":")[0] or "no reason told" for each in judged if each.result.end is end)
    if not found:
        return
    yield f"| {end}, because | mutants |"
    yield "| --- | ---: |"
    for why, count in found.most_common():
        yield f"| {_cut(why)} | {count} |"
    yield ""


def _cell_text(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _cut(text: str) -> str:
    text = _cell_text(text)
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 3] + "..."


def _code(text: str) -> str:
    told = _cut(text).replace("`", "'")
    return f"`{told}`" if told else ""
