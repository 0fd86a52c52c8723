"""Sampling: a running service keeps one in N of its launches as files, those first whose arguments are unlike earlier ones.

A launch that is kept costs copies of its tensors on its GPU, before and after it, in the order of its stream. A thread writes them.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import math
import queue
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from bitverdict.harness.emulator.compiled_kernel import CompiledKernel, EmulatedKernel
from bitverdict.harness.model.paths import state_directory
from bitverdict.harness.model.torch_internals import FunctionModesOff
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.report.launch_replay.launch_file import MOST_BYTES, SUFFIX, LaunchImage, SkippedLaunch, bytes_in, decode

BEFORE_ARGUMENTS = 9  # what a launcher is given first: grid, stream, function, metadata, hooks
MOST_FORMS = 4096  # of a kernel's launches, that are known to be like earlier ones
ALIGNMENTS = {low: f"aligned to {low or 256} bytes" for low in (0, 1, 2, 4, 8, 16, 32, 64, 128)}
T = TypeVar("T")
_active_samplers: list[LaunchSampler] = []
_start_lock = threading.Lock()


class _KernelSampler:
    """A kernel and specialisation, in place of its `launcher`: what its launches were like, and which is drawn next."""

    def __init__(self, sampler: LaunchSampler, kernel: CompiledKernel, launcher: Callable[..., object]) -> None:
        self.sampler, self.kernel, self.launcher, self.launches = sampler, kernel, launcher, 0
        self.signature = dict(kernel.src.signature)
        names = [str(name) if kind != "constexpr" else "" for name, kind in self.signature.items()]
        self.names = {place: name for place, name in enumerate(["grid x", "grid y", "grid z", *[""] * 6, *names]) if name}
        self.numbers = random.Random(f"{sampler.seed} {kernel.name} {kernel.hash}")
        self.drawn = self.numbers.randrange(sampler.every)
        self.known_forms, self.known_parts = set[object](), set[str]()  # parts: of forms and of values, by parameter
        self.lock = threading.Lock()

    def __call__(self, *words: object) -> object:
        protect = self.sampler.protect
        image = protect(self._image, words) if self.sampler.is_active else None
        if image is None:
            return self.launcher(*words)
        result = self.launcher(*words)
        protect(self.sampler.keep, self, image)
        return result

    def _image(self, words: tuple[object, ...]) -> LaunchImage | None:
        """The launch and copies of its tensors, where it is to be kept. An outlier that cannot wait now is one the next time."""
        form, every, kernel = tuple([_form(words[place]) for place in self.names]), self.sampler.every, self.kernel
        with self.lock:
            is_drawn = self.launches == self.drawn
            self.launches += 1
            if self.launches % every == 0:
                self.drawn = self.launches + self.numbers.randrange(every)
            if form in self.known_forms and not is_drawn:
                return None
            parts = [f"{name}[{place}] of 2^{abs(part) - 1} or more" if isinstance(part, int) else f"{name} {part}"
                     for name, argument in zip(self.names.values(), form) for place, part in enumerate(argument)]  # fmt: skip
            reason = ", ".join(part for part in parts if part not in self.known_parts)
            if (is_drawn or reason) and (self.sampler.waiting_bytes > MOST_BYTES or torch.cuda.is_current_stream_capturing()):
                raise SkippedLaunch("in a graph, or while others wait to be written")
            reason = reason if self.known_forms else "the first launch of its specialisation"
            self.known_parts.update(parts)  # before the copies: where they fail they are not tried in each launch
            self.known_forms = {form, *(self.known_forms if len(self.known_forms) < MOST_FORMS else ())}
            if not is_drawn and not reason:
                return None
        with FunctionModesOff():
            image = LaunchImage(self.signature, kernel.metadata, words[:3], words[BEFORE_ARGUMENTS:], torch.clone)
        machine = f"{'emulated ' * isinstance(kernel, EmulatedKernel)}{image.record['arch']}"
        image.record |= {"language": kernel.src.language.name.lower(), "reason": reason, "sampled_on": machine}
        return image

    def reason_of_values(self, image: LaunchImage, memory: list[torch.Tensor]) -> str:
        """What tensors hold that those of samples before did not: NaN, infinities, numbers of another magnitude."""
        kinds: list[str] = []
        for name, value in zip(self.signature, image.record["values"]):
            if isinstance(value, dict) and "view" in value and getattr(torch, value["dtype"]).is_floating_point:
                numbers = decode(value, memory).to(torch.float64).abs()
                binades = numbers[numbers.isfinite() & (numbers > 0)].log2() // 4 * 4
                kinds += [f"{name} holds NaN"] * bool(numbers.isnan().any()) + [f"{name} holds Inf"] * bool(numbers.isinf().any())
                kinds += [f"{name} holds numbers of 2^{binades.max():.0f} or more"] if binades.numel() else []
        reason = ", ".join(kind for kind in kinds if kind not in self.known_parts)
        self.known_parts.update(kinds)
        return reason


def _form(value: object) -> tuple[object, ...]:
    """What launches are compared by, of an argument: of sizes and numbers the binade, of a tensor also strides and alignment."""
    if isinstance(value, torch.Tensor):
        low = value.data_ptr() & 255
        layout = "contiguous" if value.is_contiguous() else f"strides in order {np.argsort(value.stride()).tolist()}"
        return *map(int.bit_length, value.shape), ALIGNMENTS[low & -low], layout
    if isinstance(value, int):
        return (value.bit_length() if value >= 0 else -value.bit_length(),)
    if isinstance(value, float):
        return (math.frexp(value)[1] if math.isfinite(value) else str(value),)
    if isinstance(value, tuple | list):
        return tuple(map(_form, value))
    return _form(value.base) if hasattr(value, "base") else ()


class LaunchSampler:
    """See `sample`. `counts` says what became of launches, and `failure` what failed here first, empty where nothing did."""

    def __init__(self, every: int, folder: Path, where: str, most_bytes: int, most_files: int, seed: int) -> None:
        self.every, self.folder, self.where, self.seed = every, folder, where, seed
        self.most_bytes, self.most_files = most_bytes, most_files
        self.counts: Counter[str] = Counter()
        self.failure, self.is_active, self.waiting_bytes, self._number = "", False, 0, 0
        self._queue, self._lock = queue.PriorityQueue[Any](), threading.Lock()
        self._thread: threading.Thread | None = None
        self._kernels: dict[CompiledKernel, _KernelSampler] = {}
        self._triton_property, self._property = CompiledKernel.run, property(self._launcher_of)

    def start(self) -> LaunchSampler:
        """Follow the launches of this process. UsageError where another sampler does, or the folder cannot be written."""
        with _start_lock:
            if _active_samplers:
                raise UsageError("sample: a sampler runs in this process, and one at a time can: stop it first")
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                (self.folder / ".lock").touch()
            except OSError as error:
                raise UsageError(f"sample: folder {self.folder}: cannot be written ({error}); name another") from None
            _active_samplers.append(self)
            self._triton_property, CompiledKernel.run, self.is_active = CompiledKernel.run, self._property, True
        return self

    def stop(self) -> None:
        """Launches are again as before `start`. Returns when all that wait are written."""
        with _start_lock:
            if self.is_active:
                _active_samplers.remove(self)
                CompiledKernel.run, self.is_active = self._triton_property, False
            with self._lock:
                thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put((2, 0))  # after all others
            thread.join()

    __enter__ = start

    def __exit__(self, *_: object) -> None:
        self.stop()

    def protect(self, function: Callable[..., T], *arguments: object) -> T | None:
        """What `function` gives. What fails in it is said once, and None."""
        try:
            return function(*arguments)
        except SkippedLaunch as reason:
            self.counts[f"not kept: {reason}"] += 1
        except Exception as error:
            self.counts["failed"] += 1
            if not self.failure:
                self.failure = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                print(f"note: bitverdict's sampler failed, and left the launch as it is: {self.failure}", file=sys.stderr)
        return None

    def _launcher_of(self, kernel: CompiledKernel) -> object:
        """In place of Triton's property `CompiledKernel.run`."""
        launcher = self._triton_property.__get__(kernel)
        if not self.is_active or self.where not in kernel.name:
            return launcher
        sampler = self._kernels.get(kernel)
        if sampler is None and (new := self.protect(_KernelSampler, self, kernel, launcher)) is not None:
            sampler = self._kernels.setdefault(kernel, new)  # the first of several threads
        if sampler is not None:
            sampler.launcher = launcher
        return sampler or launcher

    def keep(self, kernel_sampler: _KernelSampler, image: LaunchImage) -> None:
        """The launch of `image` was asked of its GPU: a thread writes it."""
        with FunctionModesOff():
            after = [bytes_in(each).clone() for each in image.sources]
            devices = {each.device for each in after if each.is_cuda}
            events = [torch.cuda.current_stream(device).record_event() for device in devices]
        size = sum(each.nbytes for each in image.storages)
        with self._lock:
            self.waiting_bytes += size
            self._number += 1
            self._queue.put((int(not image.record["reason"]), self._number, size, kernel_sampler, image, after, events))
            if self._thread is None or not self._thread.is_alive():  # the first time, or after a fork
                self._thread = threading.Thread(target=self._write_all, name="bitverdict sample", daemon=True)
                self._thread.start()

    def _write_all(self) -> None:
        while launch := self._queue.get()[2:]:
            with FunctionModesOff():
                self.protect(self._write, *launch[1:])
            with self._lock:
                self.waiting_bytes -= launch[0]

    def _write(self, sampler: _KernelSampler, image: LaunchImage, after: list[torch.Tensor], events: list[torch.Event]) -> None:
        for event in events:
            event.synchronize()
        kernel, before = sampler.kernel, [each.cpu() for each in image.storages]
        image.storages, image.after = [each.numpy() for each in before], [each.cpu().numpy() for each in after]
        of_values, reason = sampler.reason_of_values(image, before), image.record["reason"]
        reason = image.record["reason"] = reason or of_values
        content, kind = io.BytesIO(), "outlier" if reason else "ordinary"
        program = getattr(sampler.launcher, "program", None) or kernel.kernel
        image.write(content, *((program, "") if isinstance(kernel, EmulatedKernel) else (b"", kernel.asm["ttgir"])))
        # an outlier takes the place of the same one of an earlier process
        digest = hashlib.sha256(f"{kernel.hash} {reason}".encode() if reason else content.getbuffer()).hexdigest()[:12]
        path = self.folder / f"{image.record['name'][:80]}-{image.record['arch']}-{kind}-{digest}{SUFFIX}"
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if has_room := self._make_room(path, content.tell(), is_ordinary=not reason):
                path.with_suffix(".part").write_bytes(content.getbuffer())
                path.with_suffix(".part").replace(path)
        self.counts[f"kept {kind}" if has_room else "dropped"] += 1

    def _make_room(self, path: Path, size: int, *, is_ordinary: bool) -> bool:
        """Whether `size` bytes for `path` fit into the folder: the oldest ordinary launches are deleted for an outlier."""
        ages = sorted((file.stat().st_mtime_ns, file) for file in self.folder.glob(f"*{SUFFIX}") if file != path)
        sizes = {file: file.stat().st_size for _, file in ages}
        oldest_files = [file for _, file in ages if "-ordinary-" in file.name and not is_ordinary]
        while len(sizes) >= self.most_files or sum(sizes.values()) + size > self.most_bytes:
            if not oldest_files or size > self.most_bytes:
                return False
            oldest_files[0].unlink()
            del sizes[oldest_files.pop(0)]
            self.counts["replaced"] += 1
        return True


def sample(
    rate: float, folder: str | Path = "", *, where: str = "", most_bytes: int = 1 << 30, most_files: int = 1000, seed: int = 0
) -> LaunchSampler:
    """Keep one in N of this process's launches as files, outliers first, for `bitverdict replay` (docs/replay.md).

        with bv.sample(1e-4, "samples"):  # or sampler = bv.sample(1e-4, "samples").start() and, later, sampler.stop()
            serve()

    - `rate`: the share of the launches of each kernel and specialisation, above 0 and at most 1: one of each 1 / `rate`.
    - `folder`: of the files; empty: "samples" in the state directory. `where`: only kernels with this text in their name.
    - `most_bytes`, `most_files`: what the files in the folder may come to, those of other processes too. `seed`: of the draw.

    Outliers are kept beside that share: the first launch of a specialisation; a size, number or grid in a new power of two; new
    strides or alignment; and drawn launches whose tensors hold NaN, infinities or magnitudes that are new.

    What fails in the sampler is said once on standard error and kept as `failure`; the launch goes on. `counts` says what became of
    launches. UsageError (value, rule, remedy) for arguments that do not fit, and from `start`.
    """
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1:
        raise UsageError(f"sample: rate {rate!r}: must be above 0 and at most 1; write 1e-3 for one launch in a thousand")
    for name, value in (("most_bytes", most_bytes), ("most_files", most_files)):
        if type(value) is not int or value < 1:
            raise UsageError(f"sample: {name} {value!r}: must be a whole number above 0; leave it out for the default")
    return LaunchSampler(round(1 / rate), Path(folder or state_directory() / "samples"), where, most_bytes, most_files, seed)


__all__ = ["LaunchSampler", "sample"]
