"""Contract under test: a sealed run's draws depend on a secret that is committed before it and revealed after it."""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from bitverdict.harness.frontends import pytest_options
from bitverdict.harness.frontends.cli_run import defaults
from bitverdict.harness.frontends.main import main
from bitverdict.harness.model.launcher_limits import UNLIMITED_LAUNCHER
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.sealed import secret_draws
from bitverdict.harness.sealed.secret_draws import Secret
from bitverdict.harness.session import resume
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.reproducers import read, reproducer_of, restore_case, write
from tests.support.vector_add import ADDRESS, HOST

DIGITS = "0123456789abcdef" * 4
SECRET = Secret(DIGITS)


def test_numbers_come_from_the_secret_as_the_page_says() -> None:
    case = replace(CaseSource(ADDRESS, HOST).required()[0], schedule="drawn:7 on 2")

    def by_hand(what: str) -> int:
        text = what.encode() + b"\0" + case.key.encode()
        return int.from_bytes(hmac.digest(DIGITS.encode(), text, "sha256")[:8], "big") % (2**31 - 1)

    drawn = SECRET.drawn(case)
    assert drawn == replace(case, data_seed=by_hand("data"), schedule=f"drawn:{by_hand('schedule')} on 2")
    assert SECRET.drawn(replace(case, schedule="eager")).schedule == "eager"


def test_anybody_can_check_the_commitment_by_the_line_that_is_printed() -> None:
    (line,) = [line.partition("check: ")[2] for line in secret_draws.revelation_lines(SECRET).splitlines() if "check: " in line]
    printed = subprocess.run(line, shell=True, capture_output=True, text=True, check=True).stdout
    assert secret_draws.commitment_line(SECRET) == f"sealed: secret committed: sha256 {printed.split()[0]}"
    assert DIGITS not in f"{SECRET} {SECRET!r} {secret_draws.commitment_line(SECRET)} {secret_draws.withheld(SECRET)}"


def test_required_cases_keep_their_shapes_and_get_other_seeds() -> None:
    plain = CaseSource(ADDRESS, HOST)
    asked, secret = plain.required(), replace(plain, secret=SECRET).required()
    assert [replace(case, data_seed=0) for case in secret] == [replace(case, data_seed=0) for case in asked]
    seeds = {case.data_seed for case in secret}
    assert len(seeds) == len(secret) and not seeds & {case.data_seed for case in asked}
    assert replace(plain, secret=Secret(DIGITS)).required() == secret
    assert not seeds & {case.data_seed for case in replace(plain, secret=Secret.begin()).required()}


def test_a_case_that_decides_nothing_gets_the_next_seed_of_the_secret() -> None:
    """A NaN in its one row leaves no word of a softmax."""
    source = CaseSource("softmax", target("emulated:sm_90"), launcher=UNLIMITED_LAUNCHER)
    (planted,) = [case for case in source.required() if case.regime == "planted" and case.problem.columns == 1030][:1]
    contract, seen = source.contract, set()
    for number in range(12):
        secret = Secret(f"{number:064x}")
        first, made = secret.drawn(planted), replace(source, secret=secret).apply_seed(planted)
        assert contract.decides(made, source.target) and (made == first or not contract.decides(first, source.target))
        seen.add(made == first)
    assert seen == {True, False}


def test_sizes_are_drawn_by_the_secret_and_not_by_the_seed() -> None:
    source = replace(CaseSource(ADDRESS, HOST), secret=SECRET)
    drawn = source.drawn(12)
    assert drawn == replace(source, seed=9).drawn(12) and drawn
    other = replace(source, secret=Secret.begin()).drawn(12)
    assert [case.problem for case in other] != [case.problem for case in drawn]


def test_a_run_that_is_cut_keeps_its_secret_and_tells_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path))
    journal = resume.begin(argparse.Namespace(**defaults() | {"secret": DIGITS}))
    secret_draws.commit(SECRET, journal)
    (kept,) = (tmp_path / "secrets").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert SECRET.commitment in journal.path.read_text() and DIGITS not in journal.path.read_text()
    assert DIGITS not in json.dumps(dict(os.environ))
    assert secret_draws.take_up(journal) == SECRET
    secret_draws.reveal(SECRET, journal)
    journal.close()
    told = [json.loads(line) for line in journal.path.read_text().splitlines()]
    assert [record["event"] for record in told] == ["asked", "committed", "revealed"]
    assert hashlib.sha256(told[2]["secret"].encode()).hexdigest() == told[1]["sha256"]
    with pytest.raises(UsageError, match=r"the secret of this sealed run is not in .*; run anew without --resume"):
        secret_draws.take_up(journal)


@pytest.mark.parametrize("text", ["", "12", "g" * 64, DIGITS + "0"])
def test_what_is_no_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError, match="must be the 64 hexadecimal digits") as refused:
        Secret.from_text(text)
    assert not text or text not in str(refused.value) or len(text) < 8


def test_a_run_that_is_not_sealed_is_given_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "matmul", "--secret", DIGITS, "--target", "emulated:sm_90"]) == 2
    assert "--secret: is of a sealed run; give --sealed too, or leave it out" in capsys.readouterr().err


def test_a_run_that_goes_on_is_given_no_secret() -> None:
    with pytest.raises(UsageError, match="--resume with --secret"):
        resume.take_up(argparse.Namespace(**defaults() | {"resume": "", "secret": DIGITS}), defaults())


@pytest.mark.parametrize("ended", [True, False])
def test_a_reproducer_tells_the_secret_once_the_run_has_ended(ended: bool, tmp_path: Path) -> None:
    case = SECRET.drawn(CaseSource(ADDRESS, HOST).required()[0])
    verdict = Verdict(decision=Decision.FAIL, outcome=Outcome.WRONG_WORDS)
    path = write(reproducer_of(case, HOST.name, verdict, secret=SECRET.describe(revealed=ended)), tmp_path)
    stored = read(path)
    assert stored.secret is not None and stored.secret["sha256"] == SECRET.commitment
    assert (DIGITS in path.read_text()) == ended
    assert restore_case(stored)[0] == case


def test_pytest_tells_once_what_sealed_tests_drew_by_and_left_out() -> None:
    lines: list[str] = []
    told = [("secret", DIGITS), ("left out", "emulated:sm_90: not judged: f: dtype bf16"), ("cases", 3)]
    report, other = SimpleNamespace(user_properties=told), SimpleNamespace(user_properties=[("secret", DIGITS)])
    nothing = SimpleNamespace(getoption=lambda name: None)
    reporter = SimpleNamespace(stats={"passed": [report, other], "": ["no report"]}, write_line=lines.append, config=nothing)
    pytest_options.pytest_terminal_summary(reporter)
    assert lines[0] == "emulated:sm_90: not judged: f: dtype bf16" and lines[1] == secret_draws.commitment_line(SECRET)
    assert lines[2:] == secret_draws.revelation_lines(SECRET, "--bv-secret").splitlines()
