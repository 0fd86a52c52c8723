"""Contract under test: the results of the shards of a campaign of mutants are joined, each once, and what is missing is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.frontends.main import main
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.mutants.record import End, GeneratedMutant, JudgedMutant, Kind, MutantResult, append, read
from bitverdict.harness.mutants.shards import begin_shard, merge
from bitverdict.harness.session.shard import Shard

WHOLE = [
    GeneratedMutant(
        id=f"k/{number}", kernel="k", kind=Kind.SOURCE, operator="o", family="f", file="k.py", line=number, before="a", after="b"
    )
    for number in range(7)
]


def shard(path: Path, number: int, end: End = End.KILL, *, left: int = 0) -> Path:
    share = Shard(number, 3).share(WHOLE)
    begin_shard(path, "k", "emulated:sm_90", Shard(number, 3), WHOLE)
    for mutant in share[: len(share) - left]:
        append(path, JudgedMutant(mutant, MutantResult(mutant=mutant.id, end=end)))
    return path


def test_merged_campaigns_have_each_mutant_once(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    paths = [shard(tmp_path / f"{number}.jsonl", number) for number in (1, 2, 3)]
    into = tmp_path / "one.jsonl"
    assert main(["merge", *map(str, [*paths, paths[0]]), "--into", str(into)]) == 0
    assert sorted(each.mutant.id for each in read(into)) == [each.id for each in WHOLE]
    assert "7 mutants, 7 live, 7 killed" in capsys.readouterr().out


def test_a_missing_share_of_mutants_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    paths = [shard(tmp_path / "1.jsonl", 1), shard(tmp_path / "3.jsonl", 3, left=1)]
    assert main(["merge", *map(str, paths), "--into", str(tmp_path / "one.jsonl")]) == 3
    assert "shards missing: 2/3; not whole: 3/3" in capsys.readouterr().out


def test_shares_of_two_campaigns_are_not_joined(tmp_path: Path) -> None:
    one, other = shard(tmp_path / "1.jsonl", 1), tmp_path / "2.jsonl"
    begin_shard(other, "k", "emulated:sm_90", Shard(2, 3), WHOLE[:-1])
    with pytest.raises(UsageError, match="merge the shards of one campaign"):
        merge([one, other], tmp_path / "one.jsonl")
