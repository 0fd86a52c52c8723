"""Contract under test: every front end seals what it is asked to seal, and refuses in one sentence what cannot be."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitverdict.harness.frontends import cli_kernelbench, cli_run
from bitverdict.harness.frontends.sealing import protection, source_of
from bitverdict.harness.model import addresses, sealing
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.sealed.jail import protections
from bitverdict.harness.sealed.processes import jails
from bitverdict.harness.session.case_source import CaseSource

TARGET = target("emulated:sm_90")
TESTS = """
import bitverdict as bv
test_named = bv.test("candidate.py:matmul", like="matmul", claims=("bf16",), requires=lambda k: k % 8 == 0, sealed=True)
test_open = bv.test("candidate.py:matmul", like="matmul", claims=())

@bv.judged(reference=lambda xp, x: x * 2, launcher="candidate.py:double", sealed=True)
def test_double(draw):
    return draw.tensor("fp32", (draw.size(1, 9),))

@bv.judged(reference=lambda xp, x: x * 2)
def test_imports(draw):
    return draw.tensor("fp32", (draw.size(1, 9),)) * 2
"""


@pytest.fixture
def tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The path of a file of tests, beside a candidate that cannot be imported; no process is started."""
    (tmp_path / "candidate.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "tests_of_it.py").write_text(TESTS)
    monkeypatch.setattr(jails, "start_of", lambda *given: None)
    yield f"{tmp_path}/tests_of_it.py"
    sealing._sealed_files.clear(), sealing._stand_ins.clear(), sealing._folders.clear()


def source(address: str, *, sealed: bool) -> CaseSource:
    return source_of(addresses.load(address, unwrap=False).__bitverdict__, TARGET, sealed=sealed)


@pytest.mark.parametrize(("name", "sealed"), [("test_named", False), ("test_open", True), ("test_double", False)])
def test_each_case_of_a_sealed_test_is_sealed(tests: str, name: str, sealed: bool) -> None:
    found = source(f"{tests}:{name}", sealed=sealed)
    cases = found.required()
    assert found.is_sealed and cases and all(case.sealed and "candidate.py:" in case.launcher for case in cases)
    if name == "test_named":  # what its user says of it holds, and it is not asked
        assert {case.problem.dtype for case in cases} == {"fp16", "bf16"} and all(case.problem.k % 8 == 0 for case in cases)


def test_a_test_that_is_not_sealed_stays_so(tests: str) -> None:
    found = source(f"{tests}:test_open", sealed=False)
    assert not found.is_sealed and not any(case.sealed for case in found.required())


def test_a_launcher_that_a_test_imports_cannot_be_sealed(tests: str) -> None:
    with pytest.raises(UsageError, match="cannot be sealed; name it instead"):
        source(f"{tests}:test_imports", sealed=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["softmax", "--sealed"], "softmax is judged with its own kernel, which is trusted; name another's by --launcher"),
        (["softmax", "--sealed", "--launcher", "absent.py:f"], "there is no file"),
        (["softmax", "--sealed", "--launcher", "package.module:f"], "a sealed candidate must be path/file.py:NAME"),
    ],
)
def test_a_sealed_run_says_what_it_cannot_seal(given: list[str], said: str) -> None:
    parser = argparse.ArgumentParser()
    cli_run.add_arguments(parser)
    with pytest.raises(UsageError, match=said):
        cli_run.check_arguments(parser.parse_args(given))


def test_a_required_jail_that_is_lacking_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = CaseSource("softmax", TARGET, launcher="candidate.py:softmax", is_sealed=True)
    found = protections.Protections(("no capabilities",), {"seccomp": "install it"})
    monkeypatch.setattr(protections, "protections", lambda: found)
    assert protection([sealed], required=False) == "sealed: no capabilities; lacking: seccomp (install it)"
    with pytest.raises(UsageError, match="--require-jail: this machine lacks seccomp"):
        protection([sealed], required=True)
    assert protection([], required=False) == ""
    with pytest.raises(UsageError, match="--require-jail: is for sealed runs"):
        protection([], required=True)


def test_a_kernelbench_candidate_is_sealed_unless_it_is_said() -> None:
    parser = argparse.ArgumentParser()
    cli_kernelbench.add_arguments(parser)
    assert parser.parse_args(["problem.py", "candidate.py"]).sealed
    assert not parser.parse_args(["problem.py", "candidate.py", "--unsealed"]).sealed
