"""Contract under test: tests on an emulated GPU draw the numbers that a GPU draws, and the CPU's own go on as
without them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator.gpu_random import PhiloxState, normal, philox, uniform
from bitverdict.harness.frontends.emulated_session import EmulatedSession

PI = (0x85A308D3_243F6A88, 0x03707344_13198A2E, 0x299F31D0_A4093822)


@pytest.mark.parametrize(("counter", "thread", "seed", "words"), [
    (0, 0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (2**64 - 1, 2**64 - 1, 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (*PI, "d16cfe09 94fdcceb 5001e420 24126ea1"),
])  # fmt: skip
def test_philox_gives_the_known_answers_of_its_authors(counter: int, thread: int, seed: int, words: str) -> None:
    """Salmon, Moraes, Dror and Shaw, 2011: `kat_vectors` of Random123, philox4x32 10."""
    (made,) = philox(seed, np.array([thread], np.uint64), counter)
    assert " ".join(f"{word:08x}" for word in made) == words


@pytest.fixture
def gpu() -> Iterator[None]:
    session = EmulatedSession(["sm_90"])
    with torch.random.fork_rng(devices=[]):
        session.enter()
        try:
            yield
        finally:
            session.close()


def drawn(text: str) -> list[float]:
    return [float(word) for word in text.split()]


def test_seeded_numbers_are_those_that_torch_prints_on_a_gpu(gpu: None) -> None:
    """What `torch.rand(8, device="cuda")` and `randn` print on NVIDIA's GPUs after `torch.manual_seed(0)`."""
    torch.manual_seed(0)
    assert torch.rand(8, device="cuda").tolist() == pytest.approx(
        drawn("0.3990 0.5167 0.0249 0.9401 0.9459 0.7967 0.4150 0.8203"), abs=5e-5
    )
    assert torch.rand(3).tolist() == pytest.approx(drawn("0.4963 0.7682 0.0885"), abs=5e-5)
    torch.manual_seed(0)
    assert torch.randn(8, device="cuda").tolist() == pytest.approx(
        drawn("-0.9247 -0.4253 -2.6438 0.1452 -0.1209 -0.5797 -0.6229 -0.3284"), abs=5e-5
    )


def test_the_default_generator_of_the_device_has_its_state(gpu: None) -> None:
    """As FlagGems takes seed and offset from it, and puts the next offset back."""
    torch.manual_seed(9)
    (generator,) = torch.cuda.default_generators
    state = generator.get_state()
    assert state.view(torch.int64).tolist() == [9, 0] and generator.device.type == "cuda" and generator.initial_seed() == 9
    first = torch.rand(300, device="cuda")
    assert torch.equal(generator.get_state(), torch.cuda.get_rng_state()) and not torch.equal(generator.get_state(), state)
    generator.set_state(state)
    assert torch.equal(torch.rand(300, device="cuda", generator=generator), first)
    own = torch.Generator(device="cuda").manual_seed(4)
    assert own.get_state().view(torch.int64).tolist() == [4, 0] and own.set_state(state).initial_seed() == 9
    host = torch.Generator().manual_seed(4)
    assert host.device.type == "cpu" and host.initial_seed() == 4 and host.get_state().numel() > 1000


def test_each_draw_goes_on_where_the_one_before_ended(gpu: None) -> None:
    torch.cuda.manual_seed(5)
    first, state, second = torch.rand(300, device="cuda"), torch.cuda.get_rng_state(), torch.rand(300, device="cuda")
    assert state.view(torch.uint64).tolist() == [5, 4] and not torch.equal(first, second)
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(300, device="cuda"), second)
    assert second.tolist() == uniform(philox(5, np.arange(300, dtype=np.uint64), 1))[:, 0].tolist()
    with torch.random.fork_rng():
        forked = torch.empty(7, device="cuda").uniform_()
    assert torch.equal(forked, torch.empty(7, device="cuda").uniform_())


def test_threads_take_their_words_in_turn() -> None:
    """Of 512 threads each takes four numbers of a block, 512 places apart, then four of the next one."""
    state = PhiloxState(1)
    made = state.take(5000, 512, uniform)
    words = [uniform(philox(1, np.arange(512, dtype=np.uint64), counter)) for counter in range(3)]
    places = np.arange(5000)
    expected = [words[place // 2048][place % 512, place // 512 % 4] for place in places]
    assert made.tolist() == [float(number) for number in expected] and state.offset == 12


def test_a_generator_of_the_device_and_each_operator_draw(gpu: None) -> None:
    generator = torch.Generator(device="cuda").manual_seed(0)
    reference = normal(philox(0, np.arange(40, dtype=np.uint64), 0))[:, 0]
    narrow = torch.randn(5, 8, device="cuda", dtype=torch.bfloat16, generator=generator)
    assert torch.equal(narrow.cpu(), torch.from_numpy(reference.reshape(5, 8)).bfloat16())
    transposed = torch.empty(8, 5, device="cuda").t().normal_(2.0, 0.5, generator=generator.manual_seed(0))
    assert torch.equal(transposed.cpu().t().flatten(), torch.from_numpy(np.float32(reference * np.float64(0.5) + 2)))
    torch.manual_seed(0)
    assert torch.randint(3, 10, (4,), device="cuda").tolist() == [
        3 + int(word) % 7 for word in philox(0, np.arange(4, dtype=np.uint64), 0)[:, 0]
    ]
    torch.manual_seed(0)
    assert torch.empty(8, device="cuda").bernoulli_(0.5).tolist() == [1, 0, 1, 0, 0, 0, 1, 0]
    assert torch.randn(3, device="cuda", dtype=torch.float64).dtype is torch.float64
    leaf = torch.randn(3, device="cuda", requires_grad=True)
    (2 * leaf).sum().backward()
    assert leaf.is_leaf and leaf.grad is not None and leaf.grad.tolist() == [2.0] * 3
