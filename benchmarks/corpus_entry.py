"""What an entry of the corpus is: a package and its version, a call of its launcher, and the reference it is held to."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Tolerance = Callable[[torch.Tensor], tuple]  # of a result: (rtol, atol), a ratio, a mean
TORCHS = "torch.testing.assert_close's default for the type"


@dataclass(frozen=True)
class Package:
    """A published package: `name` and `version` at the registry, and what is installed beside it, without their dependencies.

    `environment` is set before the package is imported; {folder} in it is the folder of what the corpus writes.
    """

    name: str
    version: str
    needs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    tolerance: str = TORCHS
    prepare: Callable[[], None] = lambda: None

    @property
    def installed(self) -> tuple[str, ...]:
        """What pip is given; nothing for a package of the environment's own."""
        return (f"{self.name}=={self.version}", *self.needs) if self.version else ()


@dataclass(frozen=True)
class Compared:
    """A result beside its reference (float64 on the CPU, or the exact value), and how far apart they may be: element by element,
    or in the root mean square of the difference over that of the reference, where a `ratio` is given, or in the `mean` of the
    absolute differences."""

    name: str
    got: torch.Tensor
    expected: torch.Tensor
    rtol: float
    atol: float
    ratio: float | None = None
    mean: float | None = None


class Given:
    """What an entry draws its operands from: the same for the same entry, on the GPU that is emulated."""

    def __init__(self, entry: str, device: str = "cuda") -> None:
        self.generator = torch.Generator(device="cpu").manual_seed(zlib.crc32(entry.encode()))
        self.device = device

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
        return self.place((torch.randn(*shape, generator=self.generator, device="cpu") * scale).to(dtype))

    def uniform(self, low: float, high: float, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        drawn = torch.rand(*shape, generator=self.generator, device="cpu")
        return self.place((low + (high - low) * drawn).to(dtype))

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return self.place(torch.randint(low, high, shape, generator=self.generator, device="cpu").to(dtype))

    def flags(self, *shape: int) -> torch.Tensor:
        return self.place(torch.rand(*shape, generator=self.generator, device="cpu") < 0.5)

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.device)


@dataclass(frozen=True)
class Entry:
    """One operation of a package. `run` calls the launcher and yields what is to be compared."""

    package: Package
    name: str
    run: Callable[[Given], Iterator[Compared]]

    @property
    def key(self) -> tuple[str, str]:
        return self.package.name, self.name


def on_cpu(value: Any) -> Any:
    """`value` with each tensor in it on the CPU, and floats as float64: operands of a reference."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return value.double() if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return type(value)(map(on_cpu, value))
    return value


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in `value`, which may be one, or a sequence of some, with other things among them."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [found for each in value for found in tensors(each)] if isinstance(value, list | tuple) else []


def by_type(got: torch.Tensor) -> tuple[float, float]:
    """(rtol, atol) of `torch.testing.assert_close` for the type of `got`; zeros for integers and bool."""
    if not got.is_floating_point() and not got.is_complex():
        return 0.0, 0.0
    return torch.testing._comparison.default_tolerances(got.dtype)


def compared(got: Any, expected: Any, tolerance: Tolerance = by_type, names: Sequence[str] = ()) -> Iterator[Compared]:
    """Each tensor of `got` beside the one of `expected`."""
    results, references = tensors(got), tensors(expected)
    if len(results) != len(references):
        raise ValueError(f"{len(results)} results and {len(references)} references")
    for place, (result, reference) in enumerate(zip(results, references, strict=True)):
        name = names[place] if place < len(names) else f"result {place}"
        yield Compared(name, result, reference, *tolerance(result))


def wrong(each: Compared) -> str:
    """ "" where the result is right, else what is wrong with it. The reference is rounded to the result's type first."""
    got, expected = each.got.detach().cpu(), each.expected.detach().cpu()
    if got.is_complex():
        got, expected = torch.view_as_real(got), torch.view_as_real(expected)
    if got.shape != expected.shape:
        return f"{each.name}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    if not got.is_floating_point():
        unequal = got != expected.to(got.dtype)
        return f"{each.name}: {int(unequal.sum())} of {got.numel()} elements differ" if unequal.any() else ""
    exact, result = expected.to(got.dtype).double(), got.double()
    if each.ratio is not None:
        found = float((result - exact).square().mean().sqrt() / (exact.square().mean().sqrt() + 1e-8))
        return "" if found < each.ratio else f"{each.name}: the root mean square of the error is {found:.2g} of the reference's"
    if each.mean is not None:
        far_off = float((result - exact).abs().mean())
        return "" if far_off < each.mean else f"{each.name}: the mean of the absolute error is {far_off:.2g}"
    far = ~torch.isclose(result, exact, rtol=each.rtol, atol=each.atol, equal_nan=True)
    if not far.any():
        return ""
    error = float((result - exact).abs()[far].nan_to_num(float("inf")).max())
    return f"{each.name}: {int(far.sum())} of {got.numel()} elements, off by {error:.2g} at most"


def with_gradients(
    package: Package,
    name: str,
    operands: Callable[[Given], Sequence[Any]],
    launcher: Callable[..., Any],
    reference: Callable[..., Any],
    tolerance: Tolerance = by_type,
) -> list[Entry]:
    """Two entries: `launcher(*operands)` against `reference`, and its gradients in each float operand against autograd's.

    The reference gets float64 operands on the CPU. Gradients are of drawn gradients of the results."""

    def forward(given: Given) -> Iterator[Compared]:
        drawn = operands(given)
        expected = reference(*on_cpu(drawn))
        with torch.no_grad():
            got = launcher(*drawn)
        yield from compared(got, expected, tolerance)

    def backward(given: Given) -> Iterator[Compared]:
        drawn = [_leaf(each) for each in operands(given)]
        exact = [_leaf(each) for each in on_cpu(drawn)]
        expected = [each for each in tensors(reference(*exact)) if each.requires_grad]
        seeds = [torch.randn(each.shape, generator=given.generator, device="cpu") for each in expected]
        wanted = torch.autograd.grad(expected, _leaves(exact), [each.double() for each in seeds], allow_unused=True)
        results = [each for each in tensors(launcher(*drawn)) if each.requires_grad]
        placed = [given.place(seed.to(each.dtype)) for seed, each in zip(seeds, results, strict=True)]
        got = torch.autograd.grad(results, _leaves(drawn), placed, allow_unused=True)
        told = [place for place, each in enumerate(got) if each is not None]  # some operands get no gradient
        names = [f"gradient {place}" for place in told]
        yield from compared([got[place] for place in told], [wanted[place] for place in told], tolerance, names)

    return [Entry(package, name, forward), Entry(package, f"{name}, backward", backward)]


def _leaf(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().clone().requires_grad_()
    return value


def _leaves(values: Sequence[Any]) -> list[torch.Tensor]:
    return [each for each in tensors(list(values)) if each.requires_grad]
