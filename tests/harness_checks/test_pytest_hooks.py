"""Contract under test: under pytest the same judge holds each node, prints the line that replays, and nodes draw for themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

from harness import seed_files
from harness.docket import PROFILES
from harness.judge import judge
from harness.lease import lease
from harness.pytest_hooks import Court, Node, base_seed, pytest_xdist_auto_num_workers
from harness.shrinking import Convicted
from tests.harness_checks.vector_add import HOST, case

CHECKOUT = Path(__file__).resolve().parents[2]
ADD = "tests.harness_checks.vector_add"


def test_a_right_kernel_is_held_and_its_words_are_counted(court: Court) -> None:
    properties: list[tuple[str, object]] = []
    court.hold(Node(f"{ADD}:CONTRACT", "emulated:sm_90"), properties)
    assert dict(properties)["cases"] > 5 and dict(properties)["words"] > 190


def test_a_wrong_kernel_fails_with_its_report_and_its_replay_line(
    court: Court, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_STATE", str(tmp_path))
    properties: list[tuple[str, object]] = []
    with pytest.raises(Convicted, match="wrong words") as raised:
        court.hold(Node(f"{ADD}:WRONG", "emulated:sm_90"), properties)
    (stored,) = (tmp_path / "failures").iterdir()
    assert ("replay", f"python -m harness replay {stored}") in properties
    assert seed_files.read(stored).case["problem"]["n"] == 5 and "n=5" in str(raised.value)


def test_a_feature_a_target_lacks_is_a_skip_that_names_it(court: Court, tmp_path: Path) -> None:
    needy = tmp_path / "needy.py"
    imports = f"from {ADD} import VectorAdd\nfrom kernels.features import Feature\n"
    needy.write_text(imports + "CONTRACT = VectorAdd(requires=frozenset({Feature.TCGEN05}))\n")
    with pytest.raises(pytest.skip.Exception, match=r"emulated:sm_90 lacks tcgen05\.mma"):
        court.hold(Node(f"{needy}:CONTRACT", "emulated:sm_90"), [])


def test_our_profiles_have_no_database_and_no_deadline_even_where_ci_is_set() -> None:
    for name in PROFILES:
        profile = hypothesis.settings.get_profile(f"harness-{name}")
        assert (profile.database, profile.deadline, profile.derandomize) == (None, None, False)


def run_pytest(*words: str, **variables: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *words]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CI"))}
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, env=environment | variables)


def test_nodes_are_named_by_contract_and_target() -> None:
    listed = run_pytest("--collect-only", "tests/kernel_contracts/test_contracts.py", "--harness-target", "emulated:sm_90").stdout
    assert "test_contracts.py::test_a_kernel_keeps_its_contract[matmul-emulated:sm_90]" in listed and "sm_80" not in listed


def test_a_directory_of_seed_files_is_judged_and_each_failure_prints_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = case(9, fault="wrong")
    path = seed_files.write(seed_files.seed_of(failing, "emulated:sm_90", judge(failing, HOST)), tmp_path)
    done = run_pytest(
        "tests/kernel_contracts/test_seeds.py", "-k", path.name, "--replay", str(tmp_path), HARNESS_STATE=str(tmp_path / "state")
    )
    assert done.returncode == 1 and f"replay: python -m harness replay {path}" in done.stdout, done.stdout


def test_a_replay_directory_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    done = run_pytest("--replay", str(tmp_path / "none"))
    assert done.returncode == 4 and "must be a directory of seed files" in done.stderr


def test_the_number_of_workers_is_given_or_the_cores(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "3")
    assert pytest_xdist_auto_num_workers(pytestconfig) == 3
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS")
    assert pytest_xdist_auto_num_workers(pytestconfig) >= 1
    assert base_seed(pytestconfig) == int(pytestconfig.getoption("--hypothesis-seed") or 0)


def test_leases_fill_the_gpus_evenly_and_come_back_when_their_holder_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_GPU_SLOTS", "2")
    taken = [lease(["GPU-a", "MIG-b"], directory=tmp_path) for _ in range(4)]
    assert [(one.index, one.slot) for one in taken] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    with pytest.raises(TimeoutError, match="no slot free on GPU-a, MIG-b"):
        lease(["GPU-a", "MIG-b"], wait=0, directory=tmp_path)
    taken[2].release()
    take = (
        "import os; from pathlib import Path; from harness.lease import lease; "
        f"print(lease(['GPU-a', 'MIG-b'], wait=0, directory=Path({str(tmp_path)!r})).slot, flush=True); os.kill(os.getpid(), 9)"
    )
    holder = subprocess.run([sys.executable, "-c", take], cwd=CHECKOUT, capture_output=True, text=True)
    assert holder.stdout.strip() == "1" and holder.returncode == -9
    assert lease(["GPU-a", "MIG-b"], wait=0, directory=tmp_path).index == 0


@pytest.mark.parametrize("given", ["0", "many", "-1"])
def test_a_bad_number_of_slots_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("HARNESS_GPU_SLOTS", given)
    with pytest.raises(ValueError, match="must be a positive integer"):
        lease(["0"])
