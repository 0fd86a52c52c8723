"""Contract under test: the shards of a run have no case in common and all of it together; merged they count each case once, name
what is missing, and come to the exit status of a run that judged the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitverdict.harness.frontends.main import main
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict
from bitverdict.harness.session import merge_journals
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.profiles import Profile
from bitverdict.harness.session.resume import past
from bitverdict.harness.session.session import Session
from bitverdict.harness.session.shard import WHOLE_RUN, Shard
from bitverdict.harness.workers.journal import records
from bitverdict.harness.workers.pool import WorkerPool
from tests.support.fake_runs import FakePool

ADDRESS = "tests.support.vector_add:CONTRACT"
ASKED = [
    "run",
    "--contract",
    ADDRESS,
    "--target",
    "emulated:sm_90",
    "--target",
    "emulated:sm_80",
    "--max-cases",
    "14",
    "--jobs",
    "1",
]
CASES = 27
PLAIN = Profile("plain", draws=20, seconds=None, node_seconds=None, shrink_seconds=0)


def test_shards_share_out_everything_and_nothing_twice() -> None:
    sources = [CaseSource(ADDRESS, Target(f"emulated:{arch}", arch)) for arch in ("sm_80", "sm_90")]

    def dealt(shard: Shard) -> list[tuple[str, str]]:
        return [(where.name, case.key) for case, where in Session(FakePool(), PLAIN, max_cases=14, shard=shard).choose(sources)]

    whole, parts = dealt(WHOLE_RUN), [dealt(Shard(number, 4)) for number in range(1, 5)]
    assert sorted(each for part in parts for each in part) == sorted(whole) and len(set(whole)) == len(whole)
    assert max(map(len, parts)) - min(map(len, parts)) <= 2
    assert dealt(Shard(3, 4)) == parts[2], "nothing but what is asked decides it"


@pytest.mark.parametrize("text", ["0/4", "5/4", "3", "a/b", "3/", "-1/4", "1/0"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must be NUMBER/OF with 1 <= NUMBER <= OF, for example 3/16"):
        Shard.parse_shard(text)


def judged_here(pool: WorkerPool, case: Case, target: Target, **more: object) -> Verdict:
    """A verdict by the case alone, with its line in the journal: n of 64 fails, n of 63 ends in an error."""
    number = pool.journal.begin(case, target.name)
    n = case.problem.n
    found = Decision.FAIL if n == 64 else Decision.ERROR if n == 63 and target.arch == "sm_80" else Decision.PASS
    outcome = {Decision.FAIL: Outcome.WRONG_WORDS, Decision.ERROR: Outcome.ERROR}.get(found, Outcome.PASS)
    verdict = Verdict(decision=found, outcome=outcome, message=f"n is {n}", basis=Basis.EXACT, words=n)
    pool.journal.end(number, verdict)
    return verdict


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The journals of the three shards of a run, judged without workers, and the results of the whole run."""
    place, found = tmp_path_factory.mktemp("shards"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkerPool, "judge", judged_here)
        for name in ("", "1/3", "2/3", "3/3"):
            state = place / name.replace("/", "of")
            patch.setenv("BITVERDICT_STATE", str(state))
            assert main([*ASKED, "--shard", name, "--json", str(place / "results.jsonl")]) == (0 if name == "3/3" else 1)
            (journal,) = (state / "journal").glob("*.jsonl")
            found[name] = journal.read_text() if name else (place / "results.jsonl").read_text()
    return found


@pytest.fixture
def ran(texts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Those journals as files of this test; no worker is started."""
    monkeypatch.setattr(WorkerPool, "judge", judged_here)
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "merged"))
    found = {name: tmp_path / f"{name.replace('/', 'of')}.jsonl" for name in texts}
    for name, path in found.items():
        path.write_text(texts[name])
    return found


def verdicts(path: Path) -> list[tuple]:
    told = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted((one["target"], json.dumps(one["case"]), one["verdict"]["outcome"]) for one in told if one["event"] == "verdict")


def test_merged_shards_count_as_the_whole_run(ran: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    shards = [str(ran[name]) for name in ("3/3", "1/3", "2/3", "1/3")]
    capsys.readouterr()
    status = main(["merge", *shards, "--json", str(tmp_path / "merged.jsonl"), "--into", str(tmp_path / "one.jsonl")])
    assert status == 1 and f"{CASES} cases judged" in capsys.readouterr().out
    assert verdicts(tmp_path / "merged.jsonl") == verdicts(ran[""])
    told = list(records(tmp_path / "one.jsonl"))
    assert len(past(told).verdicts) == len([one for one in told if one["event"] == "end"]) - 1, "each case once; an error is none"
    assert told[-1]["event"] == "finished" and told[-1]["status"] == 1


def test_a_missing_shard_is_named_and_can_be_judged_later(
    ran: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    one = tmp_path / "one.jsonl"
    main(["merge", str(ran["1/3"]), str(ran["3/3"]), "--into", str(one)])
    said = capsys.readouterr().out
    assert "missing: shard 2/3" in said and "of the required cases were not judged" in said
    before = [record for record in records(one) if record["event"] == "begin"]
    errors = sum(record["verdict"]["decision"] == Decision.ERROR for record in records(one) if record["event"] == "end")
    assert main(["run", "--resume", str(one)]) == 1
    told = list(records(one))
    end = next(place for place, record in enumerate(told) if record["event"] == "reducing")
    begun = [(record["target"], json.dumps(record["case"])) for record in told[:end] if record["event"] == "begin"]
    again = {(record["target"], json.dumps(record["case"])) for record in before} & set(begun[len(before) :])
    assert len(set(begun)) == CASES and len(again) == errors, "nothing but an error is judged again"


def test_what_is_missing_is_no_pass(ran: dict[str, Path]) -> None:
    found = merge_journals.read([ran["1/3"]])
    assert found.missing_shards() == "missing: shards 2/3, 3/3"
    lines = ran["2/3"].read_text().splitlines()
    ran["2/3"].write_text("\n".join(line for line in lines if '"finished"' not in line) + "\n")
    assert merge_journals.read([ran["1/3"], ran["2/3"], ran["3/3"]]).missing_shards() == "cut before the end: shard 2/3"
    assert main(["merge", str(ran["3/3"])]) == 3, "all of its cases pass"


def test_journals_of_two_runs_are_not_merged(ran: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    other = tmp_path / "other.jsonl"
    text = ran["2/3"].read_text()
    for old, new, said in (
        ('"max_cases":14', '"max_cases":15', "ran with --max-cases 15"),
        ('"code":"', '"code":"0', "the code of harness, kernels or reference changed since"),
        ('"event":"asked"', '"event":"begun"', "does not begin with a run's settings"),
        ('"shard":"2/3"', '"shard":"2/4"', "ran with shards 4"),
    ):
        assert text.count(old) == 1
        other.write_text(text.replace(old, new))
        assert main(["merge", str(ran["1/3"]), str(other)]) == 2
        assert said in capsys.readouterr().err


def test_a_failure_in_one_journal_is_not_outvoted(ran: dict[str, Path], tmp_path: Path) -> None:
    """The same shard twice, once with a case that failed and once without."""
    calm = tmp_path / "calm.jsonl"
    calm.write_text(ran["1/3"].read_text().replace('"decision":"fail"', '"decision":"pass"'))
    for paths in ([calm, ran["1/3"]], [ran["1/3"], calm]):
        found = merge_journals.read(paths)
        failed = sum(verdict.failed for verdict in found.past.verdicts.values())
        assert found.conflicts == failed > 0
