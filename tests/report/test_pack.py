"""Contract under test: a conformance pack says what was judged, and `verify` rejects each pack that says anything else."""

# One file because every test changes one of two packs, which are made once a module since judging them takes long.

from __future__ import annotations

import argparse
import copy
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.frontends.cli_run import check_arguments, defaults
from bitverdict.harness.frontends.main import main
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import add_search_path
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.report import pack, required_lists, verify
from bitverdict.harness.report.certify import certify_sources, counts, open_points
from bitverdict.harness.report.own_sources import own_files
from bitverdict.harness.session.case_source import CaseSource
from tests.support import vector_add

SM_90 = "emulated:sm_90"
KNOWN = {"target": SM_90, "outcome": "wrong words", "owner": "kim", "issue": "https://example.org/7"}


class Here:
    """Judges in this process."""

    def judge(self, case: Case, where: Target) -> Verdict:
        return judge(case, where, explained=False)


@pytest.fixture(scope="module")
def made() -> pack.Pack:
    return certify_sources([CaseSource(vector_add.ADDRESS, target(SM_90))], Here())


KERNEL = """import torch, triton
import triton.language as tl

@triton.jit
def plus_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

def plus(x):
    y = torch.empty_like(x)
    plus_kernel[(1,)](x, y, x.numel(), BLOCK=64)
    return y
"""
TEST = """import bitverdict as bv
from packed_ops.plus import plus

@bv.judged(reference=lambda xp, x: x + 1)
def test_plus(draw):
    return plus(draw.integers((draw.size(2, 33),), 0, 99))
"""


@pytest.fixture(scope="module")
def of_a_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pack.Pack]:
    """A test in a folder of its own, whose kernel lies in a package beside it; the folder is gone before anything is verified."""
    folder = tmp_path_factory.mktemp("foreign") / "repository"
    (folder / "packed_ops").mkdir(parents=True)
    (folder / "packed_ops" / "__init__.py").touch()
    (folder / "packed_ops" / "plus.py").write_text(KERNEL)
    (folder / "test_plus.py").write_text(TEST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        add_search_path([str(folder)])
        asked = argparse.Namespace(**defaults() | {"stems": [f"{folder}/test_plus.py:test_plus"]})
        held = certify_sources(check_arguments(asked, [target(SM_90)]), Here())
        shutil.rmtree(folder)
        yield held
    for name in [name for name in sys.modules if name.partition(".")[0] == "packed_ops"]:
        del sys.modules[name]


@pytest.fixture
def placed(of_a_user: pack.Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[pack.Pack], pack.Pack]:
    """Unpacks a user's pack, and leaves no trace of it on the path."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    return lambda held: verify.unpack(held, tmp_path / "unpacked")


def verified(held: pack.Pack, here: dict | None = None) -> verify.Verification:
    return verify.verify_pack(held, Here(), {SM_90: target(SM_90)} if here is None else here, seed=3)


def test_a_users_pack_has_what_its_test_imports_and_no_path(of_a_user: pack.Pack, placed: Callable) -> None:
    assert sorted(of_a_user.sources) == ["packed_ops/__init__.py", "packed_ops/plus.py", "test_plus.py"]
    assert "repository" not in json.dumps([of_a_user.about, of_a_user.cases]) and of_a_user.about["contract"][0] != "/"
    found = verified(placed(of_a_user))
    assert sys.path[-1].endswith("/unpacked"), "no module of the pack comes before one of Python's"
    assert found.rejections == [] and found.recomputed_cases == len(of_a_user.cases) and found.rejudged_cases > 0


def test_a_users_known_failure_is_owned_and_its_pass_loud(of_a_user: pack.Pack, placed: Callable) -> None:
    held = copy.deepcopy(of_a_user)
    record = held.cases[1]
    held.about["known"] = [KNOWN | {"case": record["line"]}]
    assert [said.partition(":")[0] for said in open_points(held)] == ["UNEXPECTED PASS"]
    record["decision"], record["outcome"] = "fail", "wrong words"
    assert open_points(held) == []
    assert verified(placed(held), here={}).owned_failures == [
        f"{record['line']} on {SM_90}: wrong words, of kim (https://example.org/7)"
    ]


TUNED = KERNEL.replace(
    "@triton.jit", "@triton.autotune([triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 128})], key=['n'])\n@triton.jit"
).replace(", BLOCK=64)", ")")


def test_a_pack_has_each_configuration_that_a_first_launch_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `run` asks for them; a pack without one is rejected, whatever else its author counted again."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "test_tuned.py").write_text(TUNED + TEST.replace("from packed_ops.plus import plus\n", ""))
    asked = argparse.Namespace(**defaults() | {"stems": [f"{tmp_path}/test_tuned.py:test_plus"]})
    held = certify_sources(check_arguments(asked, [target(SM_90)]), Here())
    tunings = [record["case"]["tuning"] for record in held.cases]
    assert tunings[:2] == ["config 0", "config 1"] and tunings[-1] == "runs"
    assert {record["decision"] for record in held.cases} == {"pass"}
    fewer = copy.deepcopy(held)
    del fewer.cases[1]
    fewer.about |= {"counts": counts(fewer.cases), "clauses": pack.clauses(fewer.cases)}
    said = [verified(verify.unpack(each, tmp_path / name), here={}).rejections for name, each in (("whole", held), ("less", fewer))]
    assert said[0] == [] and len(said[1]) == 1 and "1 required cases are not in the pack" in said[1][0]


def test_an_honest_pack_is_verified_and_each_case_computed_again(made: pack.Pack, tmp_path: Path) -> None:
    pack.write(tmp_path / "add.zip", made)
    found = verified(pack.read(tmp_path / "add.zip"))
    assert found.rejections == [] and found.recomputed_cases == 5 and found.rejudged_cases == 5
    assert found.sentence == "verified: 5 cases with expected words computed again, 5 cases judged again"


def test_what_needs_the_packs_gpu_is_named(made: pack.Pack) -> None:
    found = verified(made, here={})
    assert found.rejections == [] and found.rejudged_cases == 0
    assert found.not_run == [f"5 cases on {SM_90}: could not be judged again without sm_90"]


def change(place: str, value: object) -> Callable[[pack.Pack], None]:
    """Sets what lies at `place` ("about.counts.words", "cases.2.words") to `value`; "out" is the name of the first output."""

    def edit(held: pack.Pack) -> None:
        *path, last = (next(iter(held.cases[3]["got"])) if part == "out" else part for part in place.split("."))
        at: object = held
        for name in path:
            at = getattr(at, name) if isinstance(at, pack.Pack) else at[int(name) if name.isdigit() else name]  # type: ignore[index]
        at[int(last) if last.isdigit() else last] = value  # type: ignore[index]

    return edit


def swap(held: pack.Pack) -> None:
    first, second = held.cases[2], held.cases[3]
    first["expected"], second["expected"] = second["expected"], first["expected"]


def drop(held: pack.Pack) -> None:
    """A case left out, and all sums made to fit."""
    del held.cases[4]
    from bitverdict.harness.report.certify import counts

    held.about["counts"], held.about["clauses"] = counts(held.cases), pack.clauses(held.cases)


def repeat(held: pack.Pack) -> None:
    held.cases.append(copy.deepcopy(held.cases[0]))


def both_digests(held: pack.Pack) -> None:
    """Wrong words that agree with a wrong expectation."""
    name = next(iter(held.cases[3]["got"]))
    held.cases[3]["expected"][name]["words"] = held.cases[3]["got"][name] = "0123456789abcdef"


def size(held: pack.Pack) -> None:
    """A case of another size."""
    problem = held.cases[3]["case"]["problem"]
    if "draws" in problem:
        problem["draws"][0]["value"] -= 1
    else:
        problem["n"] = 2


def known(held: pack.Pack) -> None:
    held.about["known"] = [KNOWN | {"case": held.cases[3]["line"]}]


def seed(held: pack.Pack) -> None:
    """A case fed otherwise, where its words would be easier."""
    held.cases[3]["case"]["data_seed"] = 5


TAMPERED: dict[str, Callable[[pack.Pack], None]] = {
    "a digest of expected words": change("cases.3.expected.out.words", "0123456789abcdef"),
    "a digest of what is expected": change("cases.3.expected.out.digest", "00" * 32),
    "a digest of the words got": change("cases.3.got.out", "0123456789abcdef"),
    "both digests": both_digests,
    "expectations of two cases": swap,
    "an expectation left out": change("cases.3.expected", {}),
    "words that may differ": change("cases.3.expected.out.unique", False),
    "a case left out": drop,
    "a case twice": repeat,
    "a data seed": seed,
    "a size": size,
    "fewer words": change("cases.3.words", 0),
    "the counts": change("about.counts.words", 1_000_000),
    "the clauses": change("about.clauses.0.cases", 500),
    "a clause": change("cases.3.clause", "refused: n ="),
    "a pass made of a failure": change("cases.3.outcome", "wrong words"),
    "a failure nobody owns": change("cases.3.decision", "fail"),
    "a decision that is none": change("cases.3.decision", "certainly"),
    "a known failure that passes": known,
    "a known failure without an owner": change("about.known", [KNOWN | {"case": "n=64", "owner": ""}]),
    "the required list": change("about.required list", "0.9"),
    "another contract": change("about.contract", "softmax"),
    "another name": change("about.name", "softmax"),
    "another launcher": change("about.launcher", "tests.support.told_run:adds_a_twice"),
    "another target": change("about.targets.0.name", "cuda:0"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_pack_is_rejected(name: str, made: pack.Pack) -> None:
    """Without judging anything again: what was changed shows by what is computed."""
    held = copy.deepcopy(made)
    TAMPERED[name](held)
    assert json.dumps([held.about, held.cases]) != json.dumps([made.about, made.cases])
    assert verified(held, here={}).rejections


def of_the_sources(name: str, text: str) -> Callable[[pack.Pack], None]:
    return lambda held: held.sources.update({name: text})


TAMPERED_OF_A_USER = TAMPERED | {
    "a test that is missing": lambda held: held.sources.pop("test_plus.py"),
    "a reference": of_the_sources("test_plus.py", TEST.replace("x + 1", "x + 2")),
    "sizes": of_the_sources("test_plus.py", TEST.replace("33", "32")),
    "a path out of the folder": of_the_sources("../outside.py", ""),
    "an address elsewhere": change("cases.3.case.contract", f"{__file__}:test_an_honest_pack"),
    "a launcher elsewhere": change("cases.3.case.launcher", f"{__file__}:test_an_honest_pack"),
}


@pytest.mark.parametrize("name", TAMPERED_OF_A_USER)
def test_a_tampered_pack_of_a_user_is_rejected(name: str, of_a_user: pack.Pack, placed: Callable) -> None:
    held = copy.deepcopy(of_a_user)
    TAMPERED_OF_A_USER[name](held)
    assert held != of_a_user
    try:
        assert verified(placed(held), here={}).rejections
    except UsageError as error:
        reasons = ("must be a relative path", "is no file of the pack's sources", "is of no kernel of the pack")
        assert any(reason in str(error) for reason in reasons)


@pytest.mark.parametrize(
    "name", ["torch.py", "json.py", "itertools.py", "rich/console.py", "bitverdict/harness.py", "harness/x.py", "_pytest.py"]
)
def test_no_source_stands_for_a_module_that_is_installed(name: str, of_a_user: pack.Pack, placed: Callable) -> None:
    held = copy.deepcopy(of_a_user)
    held.sources[name] = "raise SystemExit(0)"
    with pytest.raises(UsageError, match="is a module of Python's, of this project's or of an installed package"):
        placed(held)


@pytest.mark.parametrize("name", ["/".join("x" * 3000) + ".py", "a\0b.py"])
def test_a_path_that_no_file_has_is_refused(name: str, of_a_user: pack.Pack, placed: Callable) -> None:
    held = copy.deepcopy(of_a_user)
    held.sources[name] = ""
    with pytest.raises(UsageError, match="must be a relative path"):
        placed(held)


def zeroed(held: pack.Pack) -> None:
    for record in held.cases:
        record["got"] = dict.fromkeys(record["got"], "0" * 16)
        for each in record["expected"].values():
            each |= {"digest": "0" * 64} | ({"words": "0" * 16} if "words" in each else {})


def by_command(held: pack.Pack, path: Path, capsys: pytest.CaptureFixture) -> tuple[int, str]:
    pack.write(path, held)
    return main(["verify", str(path), "--share", "0"]), capsys.readouterr().out


def test_a_pack_of_a_shipped_kernel_runs_none_of_its_sources(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """With zeroed digests, and a `torch.py` that has everything verified; and with any other source."""
    source = CaseSource("softmax", target(SM_90))
    honest = certify_sources([replace(source, only=tuple(source.required()[:2]))], Here())
    for name in ("torch.py", "mine.py"):
        held = copy.deepcopy(honest)
        zeroed(held)
        held.sources[name] = f"open({str(tmp_path / 'ran')!r}, 'w')"
        status, said = by_command(held, tmp_path / "pack.zip", capsys)
        assert status == 1 and "is of no kernel of the pack" in said and not (tmp_path / "ran").exists()


def test_a_pack_of_which_nothing_was_computed_is_not_verified(made: pack.Pack) -> None:
    held = copy.deepcopy(made)
    held.cases = []
    held.about |= {"counts": counts([]), "clauses": [], "targets": []}
    found = verified(held)
    assert found.rejections == [] and not found.is_verified
    assert found.sentence.startswith("NOT VERIFIED, nothing of it could be computed here")


def test_a_pack_that_is_not_there_is_a_usage_error(capsys: pytest.CaptureFixture) -> None:
    assert main(["verify", "nothere.zip"]) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_deep_json_is_no_pack(made: pack.Pack, tmp_path: Path) -> None:
    whole = tmp_path / "add.zip"
    pack.write(whole, made)
    with zipfile.ZipFile(whole) as packed:
        members = {each: packed.read(each) for each in packed.namelist()} | {pack.MANIFEST: b"[" * 100_000}
    with zipfile.ZipFile(whole, "w") as packed:
        for name, data in members.items():
            packed.writestr(name, data)
    with pytest.raises(UsageError, match="is no pack"):
        pack.read(whole)


def test_a_users_kernel_changed_in_the_pack_shows_when_judged_again(of_a_user: pack.Pack, placed: Callable) -> None:
    held = copy.deepcopy(of_a_user)
    held.sources["packed_ops/plus.py"] = KERNEL.replace("+ 1, mask", "+ 2, mask")
    for name in [name for name in sys.modules if name.partition(".")[0] == "packed_ops"]:
        del sys.modules[name]  # as in a process of its own
    assert any("pass in the pack, fail here" in said for said in verified(placed(held)).rejections)


def test_a_result_without_elements_passes_without_a_word(made: pack.Pack) -> None:
    """An empty product of operands that have elements is no tampered record; a result with elements and no word is one."""
    source = CaseSource("matmul", target(SM_90))
    empty = next(case for case in source.required() if case.problem.m == 0 and case.problem.k and case.problem.n)
    said = verified(certify_sources([replace(source, only=(empty,))], Here()), here={}).rejections
    assert said and not any("without a word" in each for each in said)
    held = copy.deepcopy(made)
    held.cases[3]["words"] = 0
    assert any("without a word" in each for each in verified(held, here={}).rejections)


class Other(Here):
    """Judges another kernel than the one in the pack."""

    def judge(self, case: Case, where: Target) -> Verdict:
        return super().judge(replace(case, launcher="tests.support.told_run:adds_a_twice"), where)


def test_what_is_another_verdict_here_than_in_the_pack_is_rejected(made: pack.Pack) -> None:
    """Every record is consistent: only judging again shows it."""
    found = verify.verify_pack(made, Other(), {SM_90: target(SM_90)}, seed=3)
    assert any("pass in the pack, fail here" in said for said in found.rejections)


def test_a_pack_with_a_member_changed_or_added_is_none(made: pack.Pack, tmp_path: Path) -> None:
    whole, changed = tmp_path / "add.zip", tmp_path / "changed.zip"
    pack.write(whole, made)
    with zipfile.ZipFile(whole) as packed, zipfile.ZipFile(changed, "w") as other:
        for each in packed.namelist():
            other.writestr(each, packed.read(each).replace(b'"pass"', b'"fail"'))
    with pytest.raises(UsageError, match="not those of its manifest"):
        pack.read(changed)
    with zipfile.ZipFile(whole, "a") as packed:
        packed.writestr("more.txt", "x")
    with pytest.raises(UsageError, match="not those of its manifest"):
        pack.read(whole)
    changed.write_text("no zip")
    with pytest.raises(UsageError, match="is no pack"):
        pack.read(changed)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed (Debian's openssh-client)")
def test_a_signature_holds_for_its_signer_and_its_pack_alone(made: pack.Pack, tmp_path: Path) -> None:
    for name in ("kim", "lee"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(tmp_path / name)]
        subprocess.run(words, check=True)
    signers = tmp_path / "signers"
    signers.write_text("".join(f"{name} {(tmp_path / f'{name}.pub').read_text()}" for name in ("kim", "lee")))
    pack.write(tmp_path / "add.zip", made, key=tmp_path / "kim")
    held = pack.read(tmp_path / "add.zip")
    assert pack.signature_holds(held, signers, "kim") == ""
    assert "is not that of lee" in pack.signature_holds(held, signers, "lee")
    held.manifest += b" "
    assert "is not that of kim" in pack.signature_holds(held, signers, "kim")
    held.signature = b""
    assert pack.signature_holds(held, signers, "kim") == "the pack has no signature"


def test_a_triton_built_in_place_is_no_file_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engineers of Triton import it from their checkout, which lies outside of what is installed, as their own files do."""
    built = tmp_path / "checkout"
    for package in ("triton", "mine"):
        (built / package).mkdir(parents=True)
        (built / package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(built))
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    kernel = tmp_path / "kernel.py"
    kernel.write_text("import mine\nimport triton\n")
    assert set(own_files([kernel])) == {"kernel.py", "mine/__init__.py"}


def test_a_known_failure_has_an_owner_and_an_unexpected_pass_is_loud() -> None:
    source = CaseSource("tests.support.vector_add:WRONG", target(SM_90))
    held = certify_sources([source], Here())
    failing = [record for record in held.cases if record["decision"] == "fail"]
    assert len(failing) == 3 and len(open_points(held)) == 3
    assert f"which no line of --known owns: {failing[0]['message']}" in open_points(held)[0] and failing[0]["message"]
    held.about["known"] = [KNOWN | {"case": record["line"]} for record in failing]
    assert open_points(held) == []
    held.about["known"].append(KNOWN | {"case": held.cases[1]["line"]})
    assert [said.partition(":")[0] for said in open_points(held)] == ["UNEXPECTED PASS"]


def test_a_changed_required_list_is_told_and_a_new_version_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest frozen list is that of this checkout; where it is not, a new version is due: `required_lists.COMMAND`."""
    newest = required_lists.versions()[-1]
    now = required_lists.lists(required_lists.frozen_kernels())
    changed = required_lists.differences(newest, now)
    assert not changed, "\n".join([*changed, f"a new version is due (the same one before a release): {required_lists.COMMAND}"])
    now["softmax"][SM_90][1] = "0" * 64
    assert "and they differ" in required_lists.differences(newest, now)[0]
    (tmp_path / "1.0.json").write_text(json.dumps({"required": {}}))
    (tmp_path / "1.10.json").write_text(json.dumps({"required": {}}))
    (tmp_path / "1.9.json").write_text(json.dumps({"required": {}}))
    monkeypatch.setattr(required_lists, "FOLDER", tmp_path)
    assert required_lists.versions() == ["1.0", "1.9", "1.10"]
    assert "has none" in required_lists.differences("1.10", now)[0]
