"""The results of the shards of one campaign of mutants, joined: a line of a result file says which share it has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.mutants.record import End, GeneratedMutant, JudgedMutant, append, read
from bitverdict.harness.session.shard import Shard


@dataclass(frozen=True)
class Campaign:
    """What the shards of a campaign come to. `missing` says in a sentence what is not judged; empty where all of it is."""

    address: str
    target: str
    mutants: int
    judged: list[JudgedMutant]
    missing_text: str


def begin_shard(path: Path, address: str, target: str, shard: Shard, whole: Sequence[GeneratedMutant]) -> None:
    """Say in the result file at `path` that it has the share `shard` of the mutants `whole`."""
    ids = hashlib.sha256("\0".join(json.dumps(each.to_json(), sort_keys=True) for each in whole).encode()).hexdigest()[:16]
    said = {"address": address, "target": target, "shard": str(shard), "mutants": len(whole), "digest": ids}
    with path.open("a") as file:
        file.write(json.dumps({"campaign": said}) + "\n")


def is_campaign(path: Path) -> bool:
    """Whether the file at `path` has results of mutants, and says of which share."""
    return _campaign(path) is not None


def merge(paths: Sequence[Path], into: Path) -> Campaign:
    """Join the result files at `paths` in `into`, each mutant once. UsageError where they are not those of one campaign."""
    if into.exists() and into in paths:
        raise UsageError(f"--into {into}: is one of the files that are merged; name another")
    told = {path: _campaign(path) for path in paths}
    first_header = next(header for header in told.values() if header is not None)
    judged: dict[str, JudgedMutant] = {}
    counts_by_shard: dict[int, int] = {}
    for path, header in told.items():
        if header is None or _campaign_key(header) != _campaign_key(first_header):
            raise UsageError(f"merge {path}: has no share of the campaign of {paths[0]}; merge the shards of one campaign")
        shard, share = Shard.parse_shard(header["shard"]), list(read(path))
        counts_by_shard[shard.number] = max(counts_by_shard.get(shard.number, 0), len(share))
        for entry in share:
            if entry.mutant.id not in judged or judged[entry.mutant.id].result.end is End.ERROR:
                judged[entry.mutant.id] = entry
    into.parent.mkdir(parents=True, exist_ok=True)
    into.unlink(missing_ok=True)
    for entry in judged.values():
        append(into, entry)
    of = Shard.parse_shard(first_header["shard"]).shard_count
    absent = [f"{number}/{of}" for number in range(1, of + 1) if number not in counts_by_shard]
    whole = range(first_header["mutants"])
    cut = [f"{number}/{of}" for number in sorted(counts_by_shard) if counts_by_shard[number] < len(Shard(number, of).share(whole))]
    said = [f"missing: {', '.join(absent)}"] if absent else []
    said += [f"not whole: {', '.join(cut)}"] if cut else []
    missing = f"shards {'; '.join(said)}" if said else ""
    return Campaign(first_header["address"], first_header["target"], first_header["mutants"], list(judged.values()), missing)


def _campaign(path: Path) -> dict | None:
    """What the file at `path` says of its share: the last such line, which a resumed run wrote."""
    header = None
    if path.is_file():
        with path.open(errors="replace") as lines:
            for line in lines:
                if line.startswith('{"campaign"'):
                    header = json.loads(line)["campaign"]
    return header


def _campaign_key(found: dict) -> tuple:
    return (found["address"], found["target"], found["mutants"], found["digest"], Shard.parse_shard(found["shard"]).shard_count)
