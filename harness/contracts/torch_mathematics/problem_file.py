"""A KernelBench problem: its file, the whole numbers that its shapes hang on, and what it is at other numbers.

A problem's file has a class `Model`, a function `get_inputs()` and a function `get_init_inputs()`. Its sizes stand at the top
level, `batch_size = 128` for one. The file is executed anew with other numbers there. What its own `Model` refuses is no case.
"""

from __future__ import annotations

import ast
import contextlib
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from bitverdict.harness.model.usage import UsageError

WEIGHT = "weight "  # before the name of a parameter or a buffer: the name of its operand
NAMES = ("Model", "get_inputs", "get_init_inputs")
Numbers = tuple[tuple[str, int], ...]
"""The whole numbers of a problem by name, in the order of the file."""


@dataclass(frozen=True)
class ProblemFile:
    """The text of a problem at `path`, and the whole numbers that it defines."""

    path: str
    text: str
    numbers: Numbers

    @classmethod
    def read(cls, path: str) -> ProblemFile:
        """UsageError where there is no such file, where it is no Python, or where it lacks one of `NAMES`."""
        try:
            text = Path(path).read_text()
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError) as error:
            raise UsageError(f"{path}: cannot be read as Python ({error}); give the file of a KernelBench problem") from None
        defined = {each.name for each in tree.body if isinstance(each, ast.ClassDef | ast.FunctionDef)}
        if missing := [name for name in NAMES if name not in defined]:
            raise UsageError(f"{path}: has no {', '.join(missing)}; a KernelBench problem has {', '.join(NAMES)}")
        return cls(path, text, tuple(_numbers(tree)))

    def with_numbers(self, numbers: Mapping[str, int]) -> Problem:
        """The problem with `numbers` in the place of its own."""
        return _execute_file(self, tuple((name, numbers.get(name, value)) for name, value in self.numbers))


def _numbers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and type(value.value) is int and value.value > 0:
            yield target.id, value.value


class Problem:
    """A problem whose numbers are fixed. `model` and `inputs` are made on the CPU, as the file's own functions make them."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module

    def init_inputs(self, seed: int) -> list[Any]:
        """What `Model` and `ModelNew` are constructed with."""
        with seed_torch(seed):
            return list(self.module.get_init_inputs())

    def model(self, seed: int) -> torch.nn.Module:
        given = self.init_inputs(seed)
        with seed_torch(seed + 1):
            return self.module.Model(*given).eval()

    def drawn_state(self, seed: int) -> dict[str, torch.Tensor]:
        """What stands for those parameters, and statistics of batches, that `Model` begins with at one value: up to half of it
        more or less, or of 1 where it is 0."""
        model = self.model(seed)
        fixed = {f"{WEIGHT}{name}" for name, _ in model.named_buffers() if not name.endswith(("running_mean", "running_var"))}
        with seed_torch(seed + 3):
            return {
                name: each + (torch.rand(each.shape) - 0.5).to(each.dtype) * torch.where(each == 0, 1, each)
                for name, each in state_of(model).items()
                if name not in fixed and each.is_floating_point() and each.numel() and bool((each == each.flatten()[0]).all())
            }

    def inputs(self, seed: int) -> list[Any]:
        """Tensors and other values that `forward` is called with."""
        with seed_torch(seed + 2):
            return list(self.module.get_inputs())


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by the names of their operands."""
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {f"{WEIGHT}{name}": each.detach() for name, each in held.items()}


@contextlib.contextmanager
def seed_torch(seed: int) -> Iterator[None]:
    """torch's generator of the CPU begins at `seed`, and is afterwards as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@lru_cache(maxsize=64)
def _execute_file(file: ProblemFile, numbers: Numbers) -> Problem:
    module = types.ModuleType(f"_problem_{Path(file.path).stem}")
    module.__file__ = file.path
    tree, wanted = ast.parse(file.text), dict(numbers)
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in wanted:
            node.value = ast.copy_location(ast.Constant(wanted[node.targets[0].id]), node.value)
    exec(compile(ast.fix_missing_locations(tree), file.path, "exec"), vars(module))
    return Problem(module)
