"""Contract under test: a launcher in another process gives what it gives in this one, and what it does is kept here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from bitverdict.harness.emulator import Device, EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.sealed.remote.candidate_service import CandidateService
from bitverdict.harness.sealed.remote.errors import CandidateGone, CandidateRaised
from bitverdict.harness.sealed.remote.executor import Candidate, RemoteLauncher
from tests.support import remote_launchers
from tests.support.forked_candidate import forked_candidate

OPTIONS = LaunchOptions(takes_cpu_tensors=False)


@pytest.fixture(scope="module")
def candidate() -> Iterator[Candidate]:
    with forked_candidate() as found:
        yield found


@pytest.fixture
def device() -> Iterator[Device]:
    with emulated("sm_90", options=OPTIONS) as entered:
        yield entered


def of(candidate: Candidate, name: str) -> RemoteLauncher:
    return candidate.launcher(f"tests.support.remote_launchers:{name}")


def operand(device: Device) -> torch.Tensor:
    return device.place(torch.arange(100.0))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["scaled", "tuned", "unread", "by_the_host"])
def test_a_launcher_gives_what_it_gives_in_this_process(candidate: Candidate, device: Device, name: str) -> None:
    x, launcher = operand(device), of(candidate, name)
    here = getattr(remote_launchers, name)(x)
    before = [(done.name, done.grid, done.program, done.constants) for done in device.launches]
    chosen = list(device.tuned)
    device.launches.clear(), device.tuned.clear()
    there = launcher(x)
    assert torch.equal(here.cpu(), there.cpu()) and torch.equal(there.cpu(), 2 * x.cpu())
    assert [(done.name, done.grid, done.program, done.constants) for done in device.launches] == before
    assert device.tuned == chosen


def test_a_tensor_may_be_handed_over_again_and_again(candidate: Candidate, device: Device) -> None:
    """Each time it has a handle over there, and each is released by itself."""
    launcher, x = of(candidate, "scaled"), operand(device)
    for _ in range(4):
        assert torch.equal(launcher(x).cpu(), 2 * x.cpu())


def test_views_of_what_was_allocated_at_import_stay_views(device: Device) -> None:
    with forked_candidate() as found:  # which imports the file itself
        y = found.launcher("tests/support/remote_launchers.py:two_views")(device.place(torch.arange(1.0, 5.0)))
    assert y.cpu().tolist() == [0.0] * 4 + [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(("tuning", "launches"), [("first", 1), ("config 1", 1), ("runs", 7)])
def test_an_autotuner_takes_what_the_case_says(candidate: Candidate, tuning: str, launches: int) -> None:
    told = []
    for launcher in (remote_launchers.tuned, of(candidate, "tuned")):
        with emulated("sm_90", tuning=tuning, options=OPTIONS) as device:
            x = operand(device)
            assert torch.equal(launcher(x).cpu(), 2 * x.cpu())
        told.append((device.tuned, [done.grid for done in device.launches]))
    assert told[0] == told[1] and len(told[0][1]) == launches and told[0][0]


def test_random_numbers_go_on_from_where_they_were(candidate: Candidate, device: Device) -> None:
    x = operand(device)
    torch.manual_seed(7)
    here = [remote_launchers.noisy(x).cpu(), torch.rand(3)]
    torch.manual_seed(7)
    there = [of(candidate, "noisy")(x).cpu(), torch.rand(3)]
    assert all(map(torch.equal, here, there))


def test_a_launcher_tells_its_signature_claims_and_limits(candidate: Candidate) -> None:
    import inspect

    launcher = of(candidate, "scaled")
    assert (launcher.__name__, launcher.kind, launcher.claims) == ("scaled", "function", ["strides"])
    assert list(inspect.signature(launcher).parameters) == ["x", "factor"]
    assert list(inspect.signature(launcher.requires).parameters) == ["m", "n"]
    assert launcher.requires.ask([{"m": 4, "n": 2}, {"m": 3, "n": 2}]) == [True, False]
    assert "ZeroDivisionError" in str(launcher.requires.ask([{"m": 4, "n": 0}])[0])


@pytest.mark.parametrize("name", ["caught", "blamed"])
def test_a_fault_that_the_launcher_catches_is_raised(candidate: Candidate, device: Device, name: str) -> None:
    with pytest.raises(EmulatedFault, match="stray write"):
        of(candidate, name)(operand(device))
    assert [fault.outcome for fault in device.findings] == ["stray write"]


def test_views_and_launches_are_asked_for_without_a_wait(candidate: Candidate, device: Device, monkeypatch: Any) -> None:
    asked, answer = list[str](), CandidateService._answer

    def counted(own: CandidateService, frame: dict[str, Any], buffers: list[bytearray]) -> None:
        asked.append(frame["ask"] + (" told" if frame.get("told") else ""))
        answer(own, frame, buffers)

    monkeypatch.setattr(CandidateService, "_answer", counted)
    x = operand(device)
    of(candidate, "viewed")(x)  # where an allocation begins in its storage is known from the first one on
    asked.clear()
    there = of(candidate, "viewed")(x)
    here = remote_launchers.viewed(x)
    assert (there.shape, there.stride(), there.storage_offset()) == (here.shape, here.stride(), here.storage_offset())
    assert torch.equal(there.cpu(), here.cpu()) and torch.equal(here.cpu()[:, 0], 2 * torch.arange(3.0, 100, 10))
    assert asked == ["construct told", "operate", "launch told", "launch told", "launch told"]  # one `reshape` copies


def test_an_allocation_that_was_not_waited_for_lies_where_it_is_said_to(candidate: Candidate, device: Device) -> None:
    """A kernel is specialised for the alignment of a view of it, and who asks for its address is told that of the executor."""
    launcher, x = of(candidate, "addressed"), operand(device)
    for _ in range(2):
        y, told = launcher(x)
        assert told == [y.data_ptr(), y.storage_offset(), y.untyped_storage().nbytes(), y[1:].data_ptr(), y[4:].data_ptr()]
        assert torch.equal(y.cpu()[4:], 2 * torch.arange(96.0))
    remote_launchers.addressed(x)
    *_, aligned, other, aligned_here, other_here = [done.program for done in device.launches]
    assert (aligned, other) == (aligned_here, other_here) and aligned != other


@pytest.mark.parametrize("name", ["scaled", "carries_on"])
def test_an_allocation_that_fails_is_told_where_it_is_used(
    candidate: Candidate, device: Device, monkeypatch: Any, name: str
) -> None:
    launcher, x = of(candidate, name), operand(device)
    launcher(x)
    construct = CandidateService.construct

    def short(own: CandidateService, *given: Any) -> dict[str, Any]:
        monkeypatch.setattr(CandidateService, "construct", construct)
        raise EmulatedFault("out of memory", "no room for it")

    monkeypatch.setattr(CandidateService, "construct", short)
    with pytest.raises(EmulatedFault, match="no room for it"):
        launcher(x)
    assert torch.equal(launcher(x).cpu(), 2 * x.cpu())


def test_a_fault_of_a_launch_ends_what_follows_and_is_seen_at_a_read(candidate: Candidate, device: Device) -> None:
    with pytest.raises(EmulatedFault, match="stray write") as raised:
        of(candidate, "goes_on")(operand(device))
    assert "seen at the read: stray write" in str(raised.value.__cause__)
    assert len(device.launches) == 2 and len(device.findings) == 1  # the one that faulted, and that after it was told


@pytest.mark.parametrize(
    ("name", "outcome", "said"),
    [
        ("refused", "refused", "100 elements: must be none"),
        ("mismatched", "launcher error", "must match the size of tensor b"),
        ("lying", "launcher error", "claims 'race'"),
    ],
)
def test_what_a_launcher_raises_is_told_as_its_own(
    candidate: Candidate, device: Device, name: str, outcome: str, said: str
) -> None:
    with pytest.raises(CandidateRaised, match=said) as raised:
        of(candidate, name)(operand(device))
    assert raised.value.fields["outcome"] == outcome and not device.findings


def test_gradients_are_those_of_the_launchers_own_backward(candidate: Candidate, device: Device) -> None:
    x = operand(device).requires_grad_()
    y = of(candidate, "differentiated")(x)
    (found,) = torch.autograd.grad([y], [x], [device.place(torch.ones(100))])
    assert torch.equal(y.detach().cpu(), 3 * x.detach().cpu()) and torch.equal(found.cpu(), torch.full((100,), 3.0))
    assert len(device.launches) == 2


def test_gradients_are_followed_where_the_caller_follows_them(candidate: Candidate, device: Device) -> None:
    launcher, x = of(candidate, "follows_gradients"), operand(device)
    assert launcher(x) is True
    with torch.no_grad():
        assert launcher(x) is False


def test_a_model_is_constructed_moved_filled_and_called(candidate: Candidate, device: Device) -> None:
    x = operand(device)
    model = of(candidate, "Model")(100).to(x.device).eval()
    with torch.no_grad():
        for name, held in dict(model.named_parameters()).items():
            assert name == "weight"
            held.copy_(device.place(torch.full((100,), 5.0)))
        assert torch.equal(model(x).cpu(), 10 * torch.arange(100.0))


def test_what_is_asked_after_the_return_is_told_and_not_done(candidate: Candidate, device: Device) -> None:
    import time

    launcher = of(candidate, "scaled")
    launcher(operand(device))
    assert launcher.after_return() == ""
    launcher = of(candidate, "late")
    y = launcher(operand(device))
    time.sleep(0.1)
    assert launcher.after_return() == "operate aten.zero_.default"
    assert torch.equal(y.cpu(), 2 * torch.arange(100.0))


def test_a_process_that_dies_ends_the_call() -> None:
    with forked_candidate() as found, emulated("sm_90", options=OPTIONS) as device:
        with pytest.raises(CandidateGone) as raised:
            of(found, "dying")(operand(device))
        assert raised.value.died


def test_where_words_come_from_is_told_by_the_launcher_s_lines(candidate: Candidate) -> None:
    """What a contract hands to a backward pass is no input that the host computed; what the launcher uploads is."""
    with emulated("sm_90", options=LaunchOptions(takes_cpu_tensors=False, provenance=True)) as device:
        x = operand(device).requires_grad_()
        torch.autograd.grad([of(candidate, "differentiated")(x)], [x], [device.place(torch.ones(100)) * 1])
        assert device.origins is not None and not device.origins.inputs and not device.origins.reads
        y = of(candidate, "by_the_host")(operand(device))
        (origin,) = device.provenance(y).counts()  # type: ignore[union-attr]
        (read,) = device.origins.reads
    assert origin.line.startswith("tests/support/remote_launchers.py:") and read.line == origin.line and read.call == "tolist"
