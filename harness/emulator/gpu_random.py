"""The random numbers that torch draws on an NVIDIA GPU: Philox 4x32-10 by seed, thread and offset, as ATen's kernels deal them
out.

A test's operands are `torch.randn(..., device="cuda")`, and whether a tight tolerance holds depends on which they are. Uniform
numbers and integers are those of a GPU, bit for bit; normal ones differ in the last bits, because a GPU takes a fast sine. What is
not of fp32, fp16, bf16 or an integer type, and what none of the operators below draws, comes from the CPU's generator.

Source: cuRAND's `curand_init`, `curand4`, `curand_uniform4` and `curand_normal4`; ATen's `calc_execution_policy`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bitverdict.harness.emulator.cuda_tensors import Watches
from bitverdict.harness.model.torch_internals import OpOverload, identity_of, name_of

_MULTIPLIERS, _WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
_THREADS_OF_BLOCK = 256
_BLOCK = 1 << 13  # threads drawn for at once: the temporaries stay in the second-level cache
_LOW = np.uint64(0xFFFFFFFF)
_UNIT, _TURN = np.float32(2.0**-32), np.float32(2.0**-32 * 6.2831855)
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_LONG_RANGE = 1 << 28  # from here on `random_` takes 64 bits a number
_FUNCTIONS = {
    "randn": "normal_",
    "randn_like": "normal_",
    "normal": "normal_",
    "rand": "uniform_",
    "rand_like": "uniform_",
    "randint": "random_",
    "randint_like": "random_",
}
"""Torch's functions that allocate and draw, by the operator that draws."""


def philox(seed: int, threads: np.ndarray, counter: int) -> np.ndarray:
    """(n, 4) words (uint32): the block number `counter` of each of `threads` (n,), as cuRAND's subsequences are."""
    words = np.empty((threads.size, 4), np.uint32)
    for start in range(0, threads.size, _BLOCK):
        some = slice(start, start + _BLOCK)
        words[some].T[:] = _philox_block(seed, threads[some], counter)
    return words


def _philox_block(seed: int, threads: np.ndarray, counter: int) -> tuple[np.ndarray, ...]:
    """The four words of each of `threads`."""
    word0, word1 = (np.full(threads.shape, part, np.uint32) for part in (counter & 0xFFFFFFFF, counter >> 32))
    word2, word3 = (part.astype(np.uint32) for part in (threads & _LOW, threads >> np.uint64(32)))
    keys = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        products = [
            np.multiply(word, np.uint64(factor), dtype=np.uint64).view(np.uint32)
            for word, factor in zip((word0, word2), _MULTIPLIERS, strict=True)
        ]
        (low0, low2), (high0, high2) = ([each[half::2] for each in products] for half in (0, 1))
        word0, word1 = high2 ^ word1 ^ np.uint32(keys[0]), low2
        word2, word3 = high0 ^ word3 ^ np.uint32(keys[1]), low0
        keys = [(key + step) & 0xFFFFFFFF for key, step in zip(keys, _WEYL, strict=True)]
    return word0, word1, word2, word3


class PhiloxState:
    """A generator of the GPU: its seed, and how many words each thread has taken."""

    def __init__(self, seed: int) -> None:
        self.start(seed)

    def start(self, seed: int) -> None:
        self.seed, self.offset = seed & (1 << 64) - 1, 0

    def take(self, count: int, most_threads: int, numbers: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """`count` numbers, of which `numbers` makes some from the four words of a thread: each block of threads takes its first
        ones, then its second ones, and so on, then the next block of the generator."""
        threads = min(most_threads, -(-count // _THREADS_OF_BLOCK) * _THREADS_OF_BLOCK)
        parts, taken, counter = [], 0, self.offset // 4
        while taken < count:
            part = numbers(philox(self.seed, np.arange(min(threads, count - taken), dtype=np.uint64), counter))
            parts += list(part.T)
            taken, counter = taken + threads * part.shape[-1], counter + 1
        self.offset = 4 * counter
        return np.concatenate(parts)[:count]

    def bytes(self) -> torch.Tensor:
        """What `torch.cuda.get_rng_state` gives."""
        return torch.tensor([self.seed, self.offset], dtype=torch.uint64).view(torch.uint8)

    def restore(self, state: torch.Tensor) -> None:
        self.seed, self.offset = state.view(torch.uint64).tolist()


GENERATORS: dict[int, PhiloxState] = {}  # of `torch.Generator`s of the device, by torch's address of them


def uniform(words: np.ndarray) -> np.ndarray:
    """Numbers in (0, 1]."""
    return words.astype(np.float32) * _UNIT + _UNIT / 2


def normal(words: np.ndarray) -> np.ndarray:
    """Pairs by Box and Muller."""
    size, angle = np.sqrt(-2 * np.log(uniform(words[:, ::2]))), words[:, 1::2].astype(np.float32) * _TURN + _TURN / 2
    return np.stack([size * np.sin(angle), size * np.cos(angle)], -1).reshape(words.shape)


def long_words(words: np.ndarray) -> np.ndarray:
    """Two words of 64 bits of four of 32, the first one's bits the high ones."""
    return words[:, ::2].astype(np.uint64) << np.uint64(32) | words[:, 1::2]


class GpuRandom(Watches):
    """`torch.manual_seed` and what draws on the device, whose `multiprocessors` hold so many `threads` each at once."""

    draws_numbers = True

    def __init__(self, multiprocessors: int, threads: int) -> None:
        self.most_threads = multiprocessors * (threads // _THREADS_OF_BLOCK) * _THREADS_OF_BLOCK
        self.state = PhiloxState(torch.default_generator.initial_seed())

    def on_allocation(self, tensor: torch.Tensor, function: str, args: tuple, kwargs: dict) -> None:
        if function in _FUNCTIONS:
            takes_numbers = function.startswith(("randint", "normal"))  # numbers that `randn` is given are sizes
            given = [value for value in args if takes_numbers and isinstance(value, int | float)]
            given += [kwargs[name] for name in ("low", "high", "mean", "std") if name in kwargs]
            self._draw(_FUNCTIONS[function], tensor, given, kwargs.get("generator"))

    def run(
        self, function: OpOverload, args: tuple, kwargs: dict, written_tensors: list[torch.Tensor], call: Callable[[], object]
    ) -> Any:
        name = name_of(function)
        if not written_tensors or name not in {*_FUNCTIONS.values(), "bernoulli_"}:
            return call()
        given = list(args[1:]) + [kwargs[key] for key in ("from", "mean", "to", "std", "p") if key in kwargs]
        return written_tensors[0] if self._draw(name, written_tensors[0], given, kwargs.get("generator")) else call()

    def _draw(self, name: str, tensor: torch.Tensor, parameters: list[Any], generator: Any) -> bool:
        """Fill `tensor` by the operator `name` with the numbers `parameters`. Whether that could be done."""
        count = tensor.numel()
        state = self.state if generator is None else GENERATORS.get(identity_of(generator))
        if state is None:
            return False
        if tensor.dtype not in (*_FLOATS, *_INTEGERS) or not all(isinstance(number, int | float) for number in parameters):
            return False
        if name == "random_":
            low, high = ([0, *parameters] if len(parameters) == 1 else parameters) or (0, 0)
            if not low < high:
                return False
            words = (lambda some: some) if high - low < _LONG_RANGE else long_words
            samples = (state.take(count, self.most_threads, words) % (high - low)).astype(np.int64) + low if count else np.zeros(0)
        elif tensor.dtype not in _FLOATS:
            return False
        else:
            numbers = normal if name == "normal_" else uniform
            samples = state.take(count, self.most_threads, numbers) if count else np.zeros(0, np.float32)
            if name == "bernoulli_":
                samples = (samples <= (parameters[0] if parameters else 0.5)).astype(np.float32)
            else:
                bounds = [*parameters, *[0.0, 1.0][len(parameters) :]]
                shift, scale = bounds[0], bounds[1]
                factor = np.float32(scale if name == "normal_" else scale - shift)
                samples = (samples.astype(np.float64) * factor + np.float32(shift)).astype(np.float32)  # fused: rounded once
        order = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))  # a GPU goes by places in memory
        flat = torch.from_numpy(np.ascontiguousarray(samples)).to(tensor.dtype)
        if name == "uniform_":
            flat[flat == scale] = shift  # the end belongs to the other side
        tensor.detach().permute(order).copy_(flat.view([tensor.shape[axis] for axis in order]))
        return True


__all__ = ["GENERATORS", "GpuRandom", "PhiloxState", "long_words", "normal", "philox", "uniform"]
