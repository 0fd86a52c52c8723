"""Contract under test: under pytest the same judge holds each node, prints the line that replays, and nodes draw for themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest

from bitverdict.harness.frontends import pytest_shards
from bitverdict.harness.frontends.main import main
from bitverdict.harness.frontends.pytest_nodes import Node, NodeJudge
from bitverdict.harness.frontends.pytest_shards import shards_of
from bitverdict.harness.frontends.pytest_summary import certificate_lines, lines, tally_row, tally_text, time_lines
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.lab.pytest_large import large_nodes
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.profiles import PROFILES
from bitverdict.harness.session.shrink import KernelFailed
from tests.support import forked
from tests.support.vector_add import HOST, case

CHECKOUT = Path(__file__).resolve().parents[2]
ADD = "tests.support.vector_add"


def test_a_right_kernel_is_held_and_its_words_are_counted(node_judge: NodeJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    properties: list[tuple[str, object]] = []
    monkeypatch.setattr(node_judge, "profile", replace(node_judge.profile, draws=4, node_seconds=None))
    node_judge.hold(Node(f"{ADD}:CONTRACT", "emulated:sm_90"), properties)
    assert dict(properties)["cases"] > 5 and dict(properties)["words"] > 190


@pytest.mark.share(4)
def test_a_node_judges_the_cases_that_an_expression_keeps(node_judge: NodeJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    properties: list[tuple[str, object]] = []
    monkeypatch.setattr(node_judge, "expression", "n=63 and stride=1 and data_seed=0 and eager")
    node_judge.hold(Node(f"{ADD}:CONTRACT", "emulated:sm_90"), properties)
    assert dict(properties)["cases"] == 1 and dict(properties)["words"] == 63
    monkeypatch.setattr(node_judge, "expression", "n=2")
    with pytest.raises(pytest.skip.Exception, match="holds for none of 5 required cases"):
        node_judge.hold(Node(f"{ADD}:CONTRACT", "emulated:sm_90"), [])


def test_a_wrong_kernel_fails_with_its_report_and_its_replay_line(
    node_judge: NodeJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path))
    properties: list[tuple[str, object]] = []
    with pytest.raises(KernelFailed, match="wrong words") as raised:
        node_judge.hold(Node(f"{ADD}:WRONG", "emulated:sm_90"), properties)
    (stored,) = (tmp_path / "failures").iterdir()
    assert ("replay", f"bitverdict replay {stored}") in properties
    assert reproducers.read(stored).case["problem"]["n"] == 5 and "n=5" in str(raised.value)


def test_a_feature_a_target_lacks_is_a_skip_that_names_it(node_judge: NodeJudge, tmp_path: Path) -> None:
    needy = tmp_path / "needy.py"
    imports = f"from {ADD} import VectorAdd\nfrom bitverdict.kernels.features import Feature\n"
    needy.write_text(imports + "CONTRACT = VectorAdd(requires=frozenset({Feature.TCGEN05}))\n")
    with pytest.raises(pytest.skip.Exception, match=r"emulated:sm_90 lacks tcgen05\.mma"):
        node_judge.hold(Node(f"{needy}:CONTRACT", "emulated:sm_90"), [])


ZEROS = """
from dataclasses import replace
from tests.support.vector_add import VectorAdd

class Zeros(VectorAdd):
    def operands(self, case):
        return [replace(each, codes=each.codes * 0) for each in super().operands(case)]

CONTRACT = Zeros()
CONTRACT.address = __file__ + ":CONTRACT"
"""


def test_a_node_says_what_its_cases_told_apart_and_fails_where_none_does(
    node_judge: NodeJudge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "zeros.py").write_text(ZEROS)
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(node_judge, "profile", replace(node_judge.profile, draws=1, node_seconds=None))
    with pytest.raises(pytest.fail.Exception, match=r"none of 4 cases of zeros.py:CONTRACT on emulated:sm_90 tells anything apart"):
        node_judge.hold(Node(f"{tmp_path / 'zeros.py'}:CONTRACT", "emulated:sm_90"), [])
    monkeypatch.setattr(node_judge, "expression", "n=63 and stride=1 and data_seed=0 and eager")
    told: dict[str, list[tuple[str, object]]] = {"": [], "contracts": [], "cases": []}
    for asked, properties in told.items():
        monkeypatch.setattr(node_judge, "certificate", asked)
        node_judge.hold(Node(f"{ADD}:CONTRACT", "emulated:sm_90"), properties)
    assert not list(certificate_lines([SimpleNamespace(user_properties=told[""])]))
    shown = list(certificate_lines([SimpleNamespace(user_properties=told[asked]) for asked in ("contracts", "cases")]))
    assert shown[1].startswith("    fp32 out, 63 words: movement: a axis 0, b axis 0; mask: a axis 0")
    assert "exposed on emulated:sm_90 by 2 cases: movement in 2 of 2 dimensions" in shown
    assert len([line for line in shown if f"{ADD}:CONTRACT" in line and "a axis 0 2/2" in line]) == 1


POLICY = """
from tests.support.vector_add import VectorAdd

class Policy(VectorAdd):
    def required(self, target):
        return super().required(target)[:{required}]
    def expected(self, case, target, operands, recorded):
        if {when}:
            {then}
        return super().expected(case, target, operands, recorded)

CONTRACT = Policy()
CONTRACT.address = __file__ + ":CONTRACT"
"""
SAME = [  # required cases; when a case is not judged as it should be, and how; status; what is said
    (5, "False", "pass", 0, ""),
    (5, "case.problem.n == 64", "raise KeyError('c')", 3, "the contract raised KeyError: 'c'"),
    (5, "case.problem.n == 64", "raise MemoryError('as asked')", 3, "1 of them of the required cases"),
    (0, "case.problem.n % 2", "raise MemoryError('as asked')", 3, " inconclusive"),
]


@pytest.mark.parametrize(("required", "when", "then", "status", "said"), SAME)
def test_a_node_passes_where_the_command_line_ends_with_status_0(
    node_judge: NodeJudge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    required: int,
    when: str,
    then: str,
    status: int,
    said: str,
) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    mine = tmp_path / "policy.py"
    mine.write_text(POLICY.format(required=required, when=when, then=then))
    assert main(["run", "--contract", f"{mine}:CONTRACT", "--target", "emulated:sm_90", "--jobs", "1"]) == status
    assert said in capsys.readouterr().out
    node = Node(f"{mine}:CONTRACT", "emulated:sm_90")
    if status == 0:
        node_judge.hold(node, [])
        return
    properties: list[tuple[str, object]] = []
    with pytest.raises(pytest.fail.Exception) as failed:
        node_judge.hold(node, properties)
    assert said in str(failed.value)
    stored = list((tmp_path / "state" / "failures").glob("*")) if "KeyError" in then else []
    assert [value for name, value in properties if name == "replay"] == [f"bitverdict replay {path}" for path in stored]


@pytest.mark.parametrize("accepted", [False, True])
def test_known_faults_of_the_compiler_fail_a_node_unless_accepted(
    accepted: bool, node_judge: NodeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = node_judge.pool.judge
    fault = Verdict(decision=Decision.INCONCLUSIVE, outcome=Outcome.COMPILER_FAULT, message="made by it", details={"known": True})
    monkeypatch.setattr(node_judge.pool, "judge", lambda case, on: fault if case.problem.n == 64 else judged(case, on))
    monkeypatch.setattr(node_judge, "profile", replace(node_judge.profile, draws=0))
    monkeypatch.setattr(node_judge, "accepts_known_faults", accepted)
    properties: list[tuple[str, object]] = []
    with nullcontext() if accepted else pytest.raises(pytest.fail.Exception, match="is inconclusive, 1 of them of the required"):
        node_judge.hold(Node(f"{ADD}:CONTRACT", "emulated:sm_90"), properties)
    assert accepted == any("1 OF THEM NOT JUDGED" in str(value) for name, value in properties if name == "not_run")


def test_our_profiles_have_no_database_and_no_deadline_even_in_ci() -> None:
    for name in PROFILES:
        profile = hypothesis.settings.get_profile(f"harness-{name}")
        assert (profile.database, profile.deadline, profile.derandomize) == (None, None, False)


WORDS = ("-p", "no:cacheprovider", "-q")


def variables_of_a_person() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CI"))}


def run_pytest(*words: str, **variables: str) -> subprocess.CompletedProcess:
    return forked.run_pytest([*WORDS, *words], CHECKOUT, variables_of_a_person() | variables)


def test_nodes_are_named_by_contract_and_target() -> None:
    listed = run_pytest("--collect-only", "tests/kernel_contracts/test_contracts.py", "--bv-target", "emulated:sm_90").stdout
    assert "test_contracts.py::test_a_kernel_keeps_its_contract[matmul-emulated:sm_90]" in listed and "sm_80" not in listed


def test_each_shard_of_a_node_has_a_name_of_its_own() -> None:
    assert [str(Node("add", "cuda:0", shard, 2)) for shard in range(2)] == ["add-cuda:0-1of2", "add-cuda:0-2of2"]
    assert str(Node("add", "cuda:0")) == "add-cuda:0"


@pytest.mark.share(4)
def test_a_session_that_compiled_gluon_ends_below_its_report() -> None:
    words = [*WORDS, "-rs", "tests/emulator/memory/test_proxy_fences.py", "-k", "refill_without_a_fence and eager"]
    command = [sys.executable, "-m", "pytest", *words]
    whole = variables_of_a_person() | {"BITVERDICT_PROFILE": "exhaustive"}  # no share of a commit leaves the test out
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, env=whole, check=False)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout
    assert "leaked" not in done.stdout + done.stderr  # the page that Triton's bindings print when the interpreter ends


def test_a_directory_of_reproducers_is_judged_and_failures_print_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = case(9, fault="wrong")
    path = reproducers.write(reproducers.reproducer_of(failing, "emulated:sm_90", judge(failing, HOST)), tmp_path)
    done = run_pytest(
        "tests/kernel_contracts/test_reproducers.py",
        "-k",
        path.name,
        "--replay",
        str(tmp_path),
        BITVERDICT_STATE=str(tmp_path / "state"),
    )
    assert done.returncode == 1 and f"replay: bitverdict replay {path}" in done.stdout, done.stdout


def test_a_replay_directory_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    done = run_pytest("--replay", str(tmp_path / "none"))
    assert done.returncode == 4 and "must be a directory of reproducers" in done.stderr


@pytest.mark.share(4)
def test_a_gpu_that_is_not_here_is_a_usage_error_that_names_those_here() -> None:
    here = {"visible": "0", "gpus": [{"arch": "sm_80", "model": "one", "uuid": "u", "free": 1, "total": 1}]}
    none: dict = {"visible": "0", "gpus": []}
    for name, gpus, workers in (("cuda", none, "0"), ("cuda:sm_90", here, "0"), ("cuda:sm_90", here, "auto")):
        found = {"BITVERDICT_GPUS_SEEN": json.dumps(gpus), "CUDA_VISIBLE_DEVICES": "0"}
        done = run_pytest("--collect-only", "-n", workers, "--bv-target", name, **found)
        assert done.returncode == 4 and f"target '{name}': no such GPU is visible" in done.stderr
        assert ("cuda:0 (sm_80)" in done.stderr) == (gpus is here) and "Traceback" not in done.stderr


def test_a_gpu_node_has_a_shard_for_each_few_cases_and_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """One node of 128 cases would be judged, and compiled, for minutes after all others."""
    monkeypatch.setattr(pytest_shards, "gpus_called", lambda name: [replace(target("emulated:sm_90"), name="cuda:0")])
    found = {stem: shards_of(stem, "cuda:sm_90", 15) for stem in ("matmul", "softmax", "grouped_matmul", "tmem_copy")}
    assert found == {"matmul": 15, "softmax": 7, "grouped_matmul": 2, "tmem_copy": 1}
    assert shards_of("matmul", "cuda:sm_90", 1) == shards_of("matmul", "emulated:sm_90", 15) == 1


def test_a_family_without_a_chip_here_is_a_usage_error() -> None:
    here = {"visible": "0", "gpus": [{"arch": "sm_86", "model": "one", "uuid": "u", "free": 1, "total": 1}]}
    found = {"BITVERDICT_GPUS_SEEN": json.dumps(here), "CUDA_VISIBLE_DEVICES": "0"}
    node = "tests/kernel_contracts/test_contracts.py"
    assert "[matmul-cuda:ampere]" in run_pytest("--collect-only", node, "--bv-target", "cuda:ampere", **found).stdout
    done = run_pytest("--collect-only", node, "--bv-target", "cuda:hopper", **found)
    assert done.returncode == 4 and "target 'cuda:hopper': no such GPU is visible; GPUs here: cuda:0 (sm_86)" in done.stderr


def test_an_emulated_target_that_is_misspelt_is_a_usage_error() -> None:
    done = run_pytest("--collect-only", "--bv-target", "emulated:sm90", "tests/kernel_contracts/test_contracts.py")
    assert done.returncode == 4 and "did you mean 'emulated:sm_90'?" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.share(4)
def test_the_gpu_line_alone_collects_large_products() -> None:
    here = {"visible": "0", "gpus": [{"arch": "sm_90", "model": "one", "uuid": "u", "free": 1, "total": 1}]}
    both = ["--collect-only", "tests/kernel_contracts/test_contracts.py", "tests/kernel_contracts/test_large.py"]
    found = {"BITVERDICT_GPUS_SEEN": json.dumps(here), "CUDA_VISIBLE_DEVICES": "0"}
    found |= {"BITVERDICT_PROFILE": "exhaustive"}  # no share of a commit leaves the large ones out
    listed = run_pytest(*both, "--bv-target", "cuda:sm_90", **found).stdout
    assert "[matmul-cuda:sm_90]" in listed and "[hopper_matmul-e5m2-0-8192x8192x8192-cuda:sm_90]" in listed
    assert "8192" not in run_pytest(*both, "--bv-target", "emulated:sm_90").stdout


def test_a_large_product_is_judged_in_a_worker_or_told_as_not_run(node_judge: NodeJudge) -> None:
    nodes = large_nodes("48x40x64", 1, ["emulated:sm_90"])
    ampere = next(node for node in nodes if node.case.contract == "ampere_gemm")
    told: list[tuple[str, object]] = []
    node_judge.hold_large(ampere, told)
    assert json.loads(str(dict(told)["tally"])) == [["ampere_gemm", ampere.kind, 1, 48 * 40, 0]]
    wrong = replace(ampere, case=replace(ampere.case, contract="no_such_kernel"))
    with pytest.raises(ValueError, match="no_such_kernel"):
        node_judge.hold_large(wrong, [])
    blackwell, told = next(node for node in nodes if node.case.contract == "blocked_matmul"), []
    with pytest.raises(pytest.skip.Exception, match="lacks"):
        node_judge.hold_large(blackwell, told)
    assert str(dict(told)["not_run"]).startswith("blocked_matmul large fp16: emulated:sm_90 lacks") and "tally" not in dict(told)


def test_a_wrong_large_product_fails_and_its_words_are_not_counted(node_judge: NodeJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    node = large_nodes("48x40x64", 1, ["emulated:sm_90"])[-8]
    wrong = Verdict(decision=Decision.FAIL, outcome=Outcome.WRONG_WORDS, message="3 of 9 words differ", words=9)
    monkeypatch.setattr(node_judge.pool, "judge", lambda task, where: wrong)
    monkeypatch.setattr("bitverdict.harness.lab.pytest_large.missing_features", lambda case, where: [])
    told: list[tuple[str, object]] = []
    with pytest.raises(pytest.fail.Exception, match="3 of 9 words differ"):
        node_judge.hold_large(node, told)
    assert "tally" not in dict(told) and "bitverdict lab large" in str(dict(told)["replay"])


def test_a_large_product_that_was_not_run_is_told_so(node_judge: NodeJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker finds what the compiler lacks: which features the GPU has does not say it."""
    node = large_nodes("48x40x64", 1, ["emulated:sm_90"])[0]
    lacking = Verdict(decision=Decision.NOT_RUN, outcome=Outcome.NOT_RUN, message="triton 3.7.1 lacks async_copy.async_load")
    monkeypatch.setattr(node_judge.pool, "judge", lambda task, where: lacking)
    told: list[tuple[str, object]] = []
    with pytest.raises(pytest.skip.Exception, match="lacks async_copy"):
        node_judge.hold_large(node, told)
    assert str(dict(told)["not_run"]).endswith("triton 3.7.1 lacks async_copy.async_load") and "tally" not in dict(told)


def test_the_last_lines_count_words_of_passed_nodes_and_name_the_rest() -> None:
    def report(outcome: str, **told: object) -> SimpleNamespace:
        return SimpleNamespace(passed=outcome == "passed", failed=outcome == "failed", user_properties=list(told.items()))

    first, second = tally_text([tally_row("matmul", "fp16", 1, 70, 8192)]), tally_text([tally_row("matmul", "fp16", 2, 30, 64)])
    reports = [report("passed", tally=first, judged=1), report("passed", tally=second, judged=1)]
    reports += [report("failed", tally=first, judged=1), report("skipped", not_run="tmem_copy: cuda:0 lacks tensor memory")]
    said = list(lines(reports))
    assert "matmul" in said[1] and "3 cases" in said[1] and "100 words (70)" in said[1]
    assert said[2].startswith("100 words compared and equal, 70 of them") and said[2].endswith("1 nodes failed")
    assert said[3:] == ["not run: tmem_copy: cuda:0 lacks tensor memory"]
    assert list(lines([report("passed")])) == []


def test_the_last_lines_count_required_and_drawn_cases() -> None:
    def report(**told: object) -> SimpleNamespace:
        return SimpleNamespace(passed=True, failed=False, user_properties=list(told.items()))

    few = "test_x.py:test_x on emulated:sm_90: 3 of 10 cases drawn: they took 12.0 s of the processor, and 10 s are enough"
    said = list(lines([report(cases=20, drawn=10), report(cases=13, drawn=3, **{"few drawn": few})]))
    assert said == ["2 nodes that passed judged 20 required cases and 13 drawn ones", f"few drawn: {few}"]


@pytest.mark.parametrize(
    ("test", "said"),
    [
        (
            "contiguous_rows",
            [
                "the launcher excludes x with padded rows: ValueError: x must be contiguous",
                "the launcher excludes x with rows more than 2^31 elements apart: ValueError: x must be contiguous",
            ],
        ),
        ("three_rows", ["no case has x far apart: it never has 4 to 1,024 lines before its last axis"]),
        ("any_rows", []),
    ],
)
def test_the_last_lines_name_once_what_a_described_kernel_is_not_asked(
    node_judge: NodeJudge, monkeypatch: pytest.MonkeyPatch, test: str, said: list[str]
) -> None:
    monkeypatch.setattr(node_judge, "profile", replace(node_judge.profile, draws=0))
    address = f"tests.support.default_tests:test_{test}"
    nodes = []
    for where in ("emulated:sm_90", "emulated:sm_80"):
        properties: list[tuple[str, object]] = []
        node_judge.hold(Node(address, where), properties)
        nodes.append(SimpleNamespace(passed=True, failed=False, user_properties=properties))
    told = list(lines(nodes))
    assert [line for line in told if line.startswith("not tested")] == [f"not tested: {address}: {each} (2 nodes)" for each in said]
    assert not any(line.startswith("not run") for line in told)


def test_a_long_session_says_where_its_time_went_and_a_short_one_nothing() -> None:
    def report(file: str, duration: float, when: str = "call", **told: str) -> SimpleNamespace:
        return SimpleNamespace(nodeid=f"tests/{file}::test_it", duration=duration, when=when, user_properties=list(told.items()))

    node = {"seconds": '{"compile": 20.0, "launch": 5.5, "total": 30.0}'}
    reports = [report("test_contracts.py", 50.0, **node), report("test_contracts.py", 10.0, "setup", **node)]
    reports.append(report("test_a.py", 40.0))
    said = list(time_lines(reports))
    assert said[0].startswith("where 100 s") and said[1].split() == ["test_contracts.py", "60.0", "s", "60%"]
    assert said[-2] == "judged cases, 30 s: compile 20.0 s, launch 5.5 s"
    assert said[-1].split(":")[1] == " compile 20.0 s, launch 5.5 s", "the slowest node"
    assert list(time_lines(reports[2:])) == [] and len(list(time_lines(reports[2:], least=0))) == 2
