"""How far the words that a launch leaves are from what its program computes without rounding, from the words that it was given.

The device must carry real values (`LaunchOptions.real_values`). Each launch begins with nothing but words, so what earlier ones
rounded is not counted again. A distance is what is certain of it: the bound of the real value is taken off. Where a launch leaves a
word that is worse than all before it, it is executed again from the same bytes, once for each line that rounds, to find which line
adds most to the error of that word (`LocalErrors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from bitverdict.harness.emulator.device_probe import DeviceProbe, LaunchRun, WordAccess
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.frontend.arguments import bytes_of
from bitverdict.harness.emulator.frontend.local_errors import MOST_LINES, LocalErrors, line_text, ranked_shares
from bitverdict.harness.emulator.memory.real_memory import storage_of, words_of
from bitverdict.harness.emulator.memory.real_shadows import value_of
from bitverdict.harness.model.paths import source_line

if TYPE_CHECKING:
    from bitverdict.harness.emulator.device import Device

MOST_ELEMENTS = 1 << 32  # that one word's relaunches may compute, about 12 s of a quiet core
_PRECISIONS = {"f32": (23, -126), "f64": (52, -1022), "f16": (10, -14), "bf16": (7, -126), "f8E4M3FN": (3, -6), "f8E5M2": (2, -14)}
"""Bits of a fraction behind the point, and the exponent of the smallest normal number."""


@dataclass(frozen=True)
class WordDistance:
    """Of the words that launches of `kernel` left in the tensor of a parameter: the worst, its element in the tensor, the line that
    stored it; how many words have a real value, and of how many none is known. `error_line` adds most to the error of the worst,
    `error_share` of it; where none was looked for or found, `no_error_line` says why."""

    kernel: str
    tensor: str
    units: float  # in the last place
    relative: float
    element: tuple[int, ...]
    location: str
    words: int
    unknown_words: int
    error_line: str = ""
    error_share: float = 0.0
    no_error_line: str = ""

    def sentence(self) -> str:
        """As a person reads it."""
        unknown = f", {self.unknown_words:,} more are not known" if self.unknown_words else ""
        added = f"; which line adds most is not known: {self.no_error_line}" if self.no_error_line else ""
        added = f"; {self.error_share:.0%} of it is added by {line_text(self.error_line)}" if self.error_line else added
        return (
            f"{self.kernel}, {self.tensor}: {self.units:.3g} ulp, relative {self.relative:.2g}, at {list(self.element)} "
            f"({source_line(*self.location.rsplit(':', 1))}), the worst of {self.words:,} words{unknown}{added}"
        )


class WordDistances(DeviceProbe):
    """Rides on the launches of `device`, and keeps the worst distance of each tensor that they leave floats in."""

    device: Device

    def __init__(self) -> None:
        self.worst: dict[tuple[str, str], WordDistance] = {}
        self._lines: dict[tuple[int, int], np.ndarray] = {}  # by storage and size of a word: what stored each, by number
        self._places: list[str] = [""]
        self._names: list[str] = []
        self._bytes_before: dict[int, np.ndarray] = {}  # by where a region begins

    def take(self) -> list[dict[str, Any]]:
        """What was found since the last call."""
        taken, self.worst = self.worst, {}
        return [asdict(found) for found in taken.values()]

    def on_request(self, source: object, metadata: object, grid: tuple[int, int, int], values: Sequence[object]) -> None:
        self._forget()
        self._names = list(cast("Any", source).signature)

    def begin(self, run: LaunchRun) -> None:
        self._bytes_before = {region.base: region.raw.copy() for region in run.regions if region.changes}

    def on_store(self, access: WordAccess) -> None:
        if access.op.location not in self._places:
            self._places.append(access.op.location)
        key, count = (access.region.base, access.size), access.region.raw.size // access.size
        lines = self._lines.setdefault(key, np.zeros(count, np.uint16))
        lines[access.written_places] = self._places.index(access.op.location)

    def end(self, run: LaunchRun) -> None:
        if run.is_complete:
            tensors = {
                name: bytes_of(name, value)
                for name, value in zip(self._names, run.values, strict=False)
                if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel()
            }
            worse = {name: tensor for name, tensor in tensors.items() if self._compare(run.launch.name, name, tensor)}
            why_not = self._find_error_lines(run, worse) if worse else ""
            for name in worse if why_not else ():
                self.worst[run.launch.name, name] = replace(self.worst[run.launch.name, name], no_error_line=why_not)
        self._forget()

    def on_failure(self, error: BaseException) -> None:
        self._forget()

    def _forget(self) -> None:
        self.device.reals.storages.clear()
        self.device.reals.is_lost = False
        self._lines, self._places, self._bytes_before = {}, [""], {}

    def _find_error_lines(self, run: LaunchRun, worse: dict[str, torch.Tensor]) -> str:
        """Which line adds most to the error of the worst word of each tensor, which this launch left. Why none was found, or ""."""
        if run.launch.elements * MOST_LINES > MOST_ELEMENTS:
            return f"the launch computes {run.launch.elements:,} elements, and at most {MOST_ELEMENTS // MOST_LINES:,} are repeated"
        changed_regions = [region for region in run.regions if region.base in self._bytes_before]
        words_after = {region.base: region.raw.copy() for region in changed_regions}
        elements = {name: self.worst[run.launch.name, name].element for name in worse}

        def exact_values(probe: LocalErrors) -> dict[str, float]:
            for region in changed_regions:
                region.raw[:] = self._bytes_before[region.base]
            reals = run.repeat(frozenset(), probe)(run.values).reals
            return {name: float(reals.values_of(tensor).value[elements[name]]) for name, tensor in worse.items()}

        probe = LocalErrors()
        try:
            exact = exact_values(probe)
            is_repeated = all(np.array_equal(region.raw, words_after[region.base]) for region in changed_regions)
            if len(probe.lines) > MOST_LINES:
                return f"{len(probe.lines)} lines round, and at most {MOST_LINES} are tried"
            if not is_repeated:
                return "executed again, the launch left other words"
            words = {name: float(value_of(*words_of(tensor))[elements[name]]) for name, tensor in worse.items()}
            by_line = {line: exact_values(LocalErrors(line)) for line in probe.lines}
        except EmulatedFault as fault:  # of an edited program; the launch itself came to its end
            return f"executed again without its rounding, it ends in {fault.outcome}"
        finally:
            for region in changed_regions:
                region.raw[:] = words_after[region.base]
        for name in worse:
            error = words[name] - exact[name]
            if not np.isfinite(error) or not error:
                continue
            shares = {line: float(np.nan_to_num(value[name] - exact[name])) for line, value in by_line.items()}
            line, share = max(ranked_shares(probe, error, shares.__getitem__), key=lambda each: abs(each[1]))
            worst = self.worst[run.launch.name, name]
            self.worst[run.launch.name, name] = replace(worst, error_line=line, error_share=abs(share / error))
        return ""

    def _compare(self, kernel: str, name: str, tensor: torch.Tensor) -> bool:
        """Whether `tensor` holds a word that is worse than all before it, which is kept then."""
        size = tensor.element_size()
        stored = self._lines.get((storage_of(tensor)[0], size))
        words, element = words_of(tensor)
        if stored is None or element not in _PRECISIONS:
            return False
        strides = tuple(2 * stride for stride in tensor.stride())
        lines = np.ndarray(tuple(tensor.shape), np.uint16, stored, 2 * tensor.storage_offset(), strides)
        real = self.device.reals.values_of(tensor)
        is_known = (lines > 0) & np.isfinite(real.error)
        value = value_of(words, element)
        with np.errstate(all="ignore"):
            alike = (value == real.value) | (np.isnan(value) & np.isnan(real.value))
            distance = np.where(alike, 0.0, np.maximum(np.abs(value - real.value) - real.error, 0.0))
            distance = np.where(is_known, np.where(np.isnan(distance), np.inf, distance), -1.0)
            bits, least = _PRECISIONS[element]
            exponent = np.frexp(np.where(np.isfinite(real.value), real.value, 1.0))[1] - 1
            units = distance / np.ldexp(1.0, np.maximum(exponent, least) - bits)
            relative = np.where(distance > 0, distance / np.abs(real.value), 0.0)
        place, before = np.unravel_index(int(units.argmax()), units.shape), self.worst.get((kernel, name))
        known_words, stores = int(is_known.sum()), int((lines > 0).sum())
        worst_relative = float(relative[is_known].max(initial=0.0))
        if before is not None:
            known_words, stores = known_words + before.words, stores + before.words + before.unknown_words
            worst_relative = max(worst_relative, before.relative)
        most_units = max(float(units[place]), 0.0)
        is_worse = most_units > (0.0 if before is None else before.units)
        if before is not None and not is_worse:
            worst = replace(before, relative=worst_relative, words=known_words, unknown_words=stores - known_words)
        else:
            index, location = tuple(map(int, place)), self._places[lines[place]]
            worst = WordDistance(kernel, name, most_units, worst_relative, index, location, known_words, stores - known_words)
        self.worst[kernel, name] = worst
        return is_worse
