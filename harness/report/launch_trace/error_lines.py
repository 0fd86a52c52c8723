"""What each line of a kernel adds to the error of one element, of a launch that was traced: it is launched again for each line."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bitverdict.harness.emulator.cuda_runtime import entered_device
from bitverdict.harness.emulator.device_probe import LaunchRun
from bitverdict.harness.emulator.faults import BadArgument
from bitverdict.harness.emulator.frontend.arguments import bytes_of
from bitverdict.harness.emulator.frontend.local_errors import MOST_LINES, LocalErrors, line_text, ranked_shares
from bitverdict.harness.report.launch_trace.trace import Trace


class LineError(NamedTuple):
    """What a line adds, relative to the exact value of `element`; `text` is the line and its source."""

    relative: float
    text: str
    element: tuple[int, ...]


class _OutputErrors(LocalErrors):
    """Local errors of `line`, and what the launch of the number `launch` left in its argument of the number `place`."""

    def __init__(self, line: str, launch: int, place: int) -> None:
        super().__init__(line)
        self.launch, self.place, self.launches = launch, place, 0
        self.words = self.exact = np.zeros(0)

    def end(self, run: LaunchRun) -> None:
        if self.launches == self.launch:
            value: Any = run.values[self.place]
            tensor = bytes_of("tensor", value.base if hasattr(value, "block_shape") else value)
            real = entered_device().real_values(tensor)
            self.words = tensor.double().numpy().copy()
            self.exact = np.array(self.words if real is None else real.value)
        self.launches += 1


def error_lines(trace: Trace, name: str) -> list[LineError]:
    """See `Trace.errors`."""
    floats = [key for key, value in trace.tensors.items() if value.is_floating_point()]
    if name not in floats:
        raise BadArgument(f"errors of {name!r}: no tensor of floats of the launch; there are {', '.join(floats) or 'none'}")
    if trace.relaunch is None:
        raise BadArgument("errors: the launch cannot be made again; trace it by bv.trace or bitverdict trace")

    def launch_with(line: str) -> _OutputErrors:
        probe = _OutputErrors(line, len(trace.earlier_launches), trace.places[name])
        assert trace.relaunch is not None
        trace.relaunch(probe)
        return probe

    plain_errors = launch_with("")
    if len(plain_errors.lines) > MOST_LINES:
        raise BadArgument(f"errors: {len(plain_errors.lines)} lines of the kernel round, and at most {MOST_LINES} are launched for")
    with np.errstate(invalid="ignore", divide="ignore"):
        is_usable = np.isfinite(plain_errors.words) & np.isfinite(plain_errors.exact) & (plain_errors.exact != 0)
        relative = np.where(is_usable, np.abs(plain_errors.words - plain_errors.exact) / np.abs(plain_errors.exact), -1.0)
    if not relative.size or relative.max() <= 0:
        return []
    index = tuple(int(at) for at in np.unravel_index(int(relative.argmax()), relative.shape))
    exact = float(plain_errors.exact[index])

    def share_of(line: str) -> float:
        return float(np.nan_to_num(launch_with(line).exact[index] - exact))

    shares = ranked_shares(plain_errors, float(plain_errors.words[index]) - exact, share_of)
    return [LineError(abs(share / exact), line_text(line), index) for line, share in shares]
