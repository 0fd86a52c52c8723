"""Where the error of a word enters: of each line of the kernel what its own roundings add to it.

The case is launched once more for each line, on the emulated GPU, with real values that take in the roundings of that line alone
(`bitverdict.harness.emulator.frontend.local_errors`). What all lines leave of the error is that of products whose operands lie in
shared memory, or of no line that is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.harness.emulator.frontend.local_errors import MOST_LINES, LocalErrors, line_text, ranked_shares
from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.compare import compare_words
from bitverdict.harness.judge.devices import launched_with
from bitverdict.harness.judge.diagnose import values
from bitverdict.harness.model.contract import ExpectedOutput


def error_budget(expected: ExpectedOutput, first: LaunchResult, launch: Callable[[], LaunchResult]) -> dict[str, str | list[str]]:
    """Details of lost precision: what is allowed of the worst element, and the lines that add to its error, the largest first."""
    probe = LocalErrors()
    plain = _launch_with(launch, probe)
    words, real = plain.outputs.get(expected.name), plain.real_values.get(expected.name)
    if real is None or words is None or not np.array_equal(words, first.outputs[expected.name]) or len(probe.lines) > MOST_LINES:
        return {}
    differs, _, _, _ = compare_words(expected, words)
    word_values, exact = values(expected.format, words), np.asarray(real.value)
    with np.errstate(invalid="ignore", divide="ignore"):
        usable = differs & np.isfinite(word_values) & np.isfinite(exact) & (exact != 0)
        size = np.where(usable, np.abs(word_values - exact) / np.abs(exact), -1.0)
    if not size.size or size.max() <= 0:
        return {}
    index = tuple(int(place) for place in np.unravel_index(int(size.argmax()), size.shape))
    error = float(word_values[index] - exact[index])

    def share_of(line: str) -> float:
        with_line = _launch_with(launch, LocalErrors(line)).real_values.get(expected.name)
        return 0.0 if with_line is None else float(np.nan_to_num(with_line.value[index] - exact[index]))

    shares = ranked_shares(probe, error, share_of)
    name = f"{expected.name}{list(index)}"
    worst = line_text(shares[0][0]).partition("  ")[2] if shares else ""
    return {
        "summary": f"the mathematics is right, the rounding is not{f': most is lost by {worst}' if worst else ''}",
        "allowed": [_allowed_text(expected, name, index, word_values, exact)],
        "error by line": [f"{abs(share / exact[index]):.1e}  {line_text(line)}" for line, share in shares],
    }


def _launch_with(launch: Callable[[], LaunchResult], errors: LocalErrors) -> LaunchResult:
    with launched_with(edited_programs=errors):
        return launch()


def _allowed_text(expected: ExpectedOutput, name: str, index: tuple[int, ...], word_values: np.ndarray, exact: np.ndarray) -> str:
    """What element `name` may be, and how far outside of it the word lies."""
    if expected.low is not None and expected.high is not None:
        low, high = (float(values(expected.format, end[index].reshape(1))[0]) for end in (expected.low, expected.high))
    elif expected.value is not None and expected.bound is not None:
        low, high = float(expected.value[index] - expected.bound[index]), float(expected.value[index] + expected.bound[index])
    else:
        return f"{name} is {word_values[index]:.9g}; it is {exact[index]:.9g} without rounding"
    outside = max(low - float(word_values[index]), float(word_values[index]) - high)
    interval = f"{low:.9g}" if low == high else f"{low:.9g} to {high:.9g}"
    off = f"{name} is {word_values[index]:.9g}, which is {outside:.2g} off what is allowed"
    return f"{off}: {interval}; it is {exact[index]:.9g} without rounding"
