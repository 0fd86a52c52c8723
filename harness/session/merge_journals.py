"""``bitverdict merge``: the journals of the shards of one run become one journal, and its verdicts are counted as those of one run.

Nothing is judged. Each case counts once, whichever journals have it: a case that failed anywhere failed. The required cases are
asked again of the contracts, so that one without a verdict is missed. Shards that are missing, or were cut, are named. The journal
that is written is one of a whole run: where something is missing, ``run --resume`` judges that and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import case_from_record
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.session import resume
from bitverdict.harness.session.case_source import CaseSource, in_turns
from bitverdict.harness.session.resume import Past
from bitverdict.harness.session.session import Session
from bitverdict.harness.session.shard import Shard
from bitverdict.harness.workers.journal import Journal, in_use, records
from bitverdict.harness.workers.stopping import Stopping

OWN = ("shard", "json", "junit", "html", "jobs", "verbose", "coverage")
"""Arguments that may differ between the shards of a run: they decide no verdict."""
_RANK = {Decision.FAIL: 3, Decision.PASS: 2, Decision.INCONCLUSIVE: 2, Decision.NOT_RUN: 2, Decision.ERROR: 1}
Place = tuple[str, str]
"""(target, case's key)."""


@dataclass
class Part:
    """The journal of one shard."""

    path: Path
    request: dict
    is_finished: bool
    dealt: dict[Place, dict] = field(default_factory=dict)  # the begin records, in order, before any bug was reduced
    verdicts: dict[Place, dict] = field(default_factory=dict)
    stored_bugs: list[dict] = field(default_factory=list)  # its bugs, reduced
    secrets: list[dict] = field(default_factory=list)

    @property
    def shard(self) -> Shard:
        return Shard.parse_shard(self.request["arguments"].get("shard") or "")


@dataclass
class MergedRun:
    """What the journals of a run come to."""

    parts: list[Part]
    past: Past
    dealt: dict[Place, dict]
    ends: dict[Place, dict]  # the record of the verdict that counts
    conflicts: int = 0  # cases that failed in one journal and did not in another

    @property
    def request(self) -> dict:
        return self.parts[0].request

    @property
    def arguments(self) -> dict:
        return self.request["arguments"] | dict.fromkeys(("json", "junit", "html")) | {"shard": ""}

    @property
    def machines(self) -> list[Target]:
        return [Target(**each) for each in self.request["targets"]]

    @property
    def secret(self) -> str:
        """The secret of a sealed run; empty for another."""
        told = [each["secret"] for part in self.parts for each in part.secrets if each["event"] == "revealed"]
        return told[0] if told else ""

    def missing_shards(self) -> str:
        """Which shards there is no whole journal of; empty where there is one of each."""
        of = self.parts[0].shard.shard_count
        ended = {part.shard.number for part in self.parts if part.is_finished}
        cut = sorted({part.shard.number for part in self.parts} - ended)
        absent = sorted(set(range(1, of + 1)) - {part.shard.number for part in self.parts})
        said = [f"missing: {_shards(absent, of)}"] if absent else []
        said += [f"cut before the end: {_shards(cut, of)}"] if cut else []
        return ", ".join(said)

    def write(self, path: Path | None) -> Journal:
        """The one journal: what was asked, and each case with its verdict once."""
        if path is not None and path.exists():
            raise UsageError(f"--into {path}: is there already; name another file, or remove it")
        journal = Journal(path)

        def add(record: dict, **more: object) -> None:
            journal.note(**{name: value for name, value in record.items() if name != "time"} | more)  # no time of this run is spent

        add(self.request, arguments=self.arguments, merged=[str(part.path) for part in self.parts])
        for secret in self.parts[0].secrets:
            add(secret)
        for number, (place, begun) in enumerate(self.dealt.items()):
            add(begun, number=number)
            if place in self.ends:
                add(self.ends[place], number=number)
        return journal


def read(paths: Iterable[Path]) -> MergedRun:
    """The journals at `paths`. UsageError (value, rule, remedy) where they are not those of one run, or of other code than this."""
    parts = [_part(path) for path in dict.fromkeys(paths)]
    first = parts[0]
    for part in parts:
        resume.comparable(f"merge {part.path}", part.request, "judge all shards anew")
        for what, of, of_first in (*_shard_differences(part, first), ("shards", part.shard.shard_count, first.shard.shard_count)):
            if of != of_first:
                said = f"ran with {what} {of!r}, {first.path} with {of_first!r}"
                raise UsageError(f"merge {part.path}: {said}; merge the shards of one run")
    past = Past()
    best: dict[Place, dict] = {}
    conflicts = set()
    for part in parts:
        for place, end in part.verdicts.items():
            earlier = best.get(place)
            if earlier is not None and {_rank(end), _rank(earlier)} == {2, 3}:
                conflicts.add(place)
            if earlier is None or _rank(end) > _rank(earlier):
                best[place] = end
    past.verdicts = {place: Verdict.from_json(end["verdict"]) for place, end in best.items()}
    rows = [list(part.dealt.items()) for part in sorted(parts, key=lambda part: part.shard.number)]
    dealt: dict[Place, dict] = {}
    for place, begun in in_turns(rows):
        dealt.setdefault(place, begun)
    return MergedRun(parts, past, dealt, best, len(conflicts))


def _part(path: Path) -> Part:
    if not path.is_file():
        raise UsageError(f"merge {path}: there is no such journal; give the files of the shards' .bitverdict/journal")
    journal_records = list(records(path))
    if (
        not journal_records
        or journal_records[0]["event"] != "asked"
        or journal_records[0].get("version") != resume.VERSION
        or "targets" not in journal_records[0]
    ):
        raise UsageError(f"merge {path}: does not begin with a run's settings; give journals of `run` of this version")
    if in_use(path):
        raise UsageError(f"merge {path}: this run is still going; wait for its end")
    part = Part(path, journal_records[0], any(record["event"] == "finished" for record in journal_records))
    out: dict[int, Place] = {}
    is_reducing = False
    for record in journal_records:
        match record["event"]:
            case "resumed":
                is_reducing = False
            case "reducing":
                is_reducing = True
            case "begin" if "case" in record and not is_reducing:
                place = record["target"], json.dumps(record["case"], sort_keys=True, separators=(",", ":"))
                out[record["number"]] = place
                part.dealt.setdefault(place, record)
            case "end" if record["number"] in out and record["verdict"]["decision"] != Decision.CANCELLED:
                place = out[record["number"]]
                if place not in part.verdicts or _rank(part.verdicts[place]) == _RANK[Decision.ERROR]:
                    part.verdicts[place] = record
            case "stored":
                part.stored_bugs.append(record)
            case "committed" | "revealed":
                part.secrets.append(record)
    return part


def _shard_differences(part: Part, first_part: Part) -> Iterator[tuple[str, object, object]]:
    """What must be equal in the shards of a run: (what, of this one, of the first)."""
    arguments, others = part.request["arguments"], first_part.request["arguments"]
    for name in sorted({*arguments, *others} - set(OWN)):
        yield f"--{name.replace('_', '-')}", arguments.get(name), others.get(name)
    for name in ("targets", "sources", "knobs"):
        yield name, _plain_record(part.request[name]), _plain_record(first_part.request[name])
    secrets = [{each["secret"] for each in one.secrets if each["event"] == "revealed"} for one in (part, first_part)]
    yield "the secret", *(secrets if all(secrets) else ((), ()))


def _plain_record(told: Mapping | list) -> object:
    return told if isinstance(told, Mapping) else [each["name"] for each in told]


def _rank(end: dict) -> int:
    return _RANK[Decision(end["verdict"]["decision"])]


def _shards(numbers: Sequence[int], of: int) -> str:
    return f"shard{'s' * (len(numbers) > 1)} " + ", ".join(f"{number}/{of}" for number in numbers)


class NoPool:
    """A pool that judges nothing: what has no verdict stays without one."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def judge(self, case: Case, target: Target, /) -> Verdict:
        raise AssertionError("nothing is judged while journals are merged")

    def judge_all(
        self, work: Iterable[tuple[Case, Target]], stopping: Stopping | None = None, /
    ) -> Iterator[tuple[Case, Target, Verdict]]:
        for _ in work:
            yield from ()

    def interruptible(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class MergedSession(Session):
    """Counts what the shards of a run judged: the required cases of its sources, then what else was dealt."""

    merged_run: MergedRun

    def choose(self, sources: Sequence[CaseSource]) -> Iterator[tuple[Case, Target]]:
        self.tally.missing_shards, start_time = self.merged_run.missing_shards(), time.perf_counter()
        served, required = self.ask(sources)
        yield from self._dealt(served, required)
        known_keys = {(source.target.name, case.key) for source, cases in zip(served, required, strict=True) for case in cases}
        by_name = {(source.address, source.target.name): source for source in served}
        for source in served:  # the launch that shows what a launcher is counts where the case is asked too
            if (case := source.first_case()) is not None:
                known_keys.add((source.target.name, case.key))
        for place, record in self.merged_run.dealt.items():
            found = by_name.get((record["case"]["contract"], record["target"]))
            if found is not None and place not in known_keys and place in self.past.verdicts:
                yield case_from_record(found.contract, record["case"]), found.target
        self.tally.start_time = start_time

    def reduce(self) -> None:
        """Each bug as its shard reduced it."""
        for record in (record for part in self.merged_run.parts for record in part.stored_bugs):
            verdict = Verdict.from_json(record["verdict"])
            bug = self.bugs.get((record["case"]["contract"], record["target"], verdict.signature))
            if bug is not None and bug.first_case is None and record["first"] is not None:
                contract = bug.source.contract
                bug.case, bug.first_case = (case_from_record(contract, record[name]) for name in ("case", "first"))
                bug.verdict, bug.notes = verdict, list(record["notes"])
