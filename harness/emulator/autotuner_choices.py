"""Which configuration an autotuner takes, where nothing is timed: on an emulated GPU, and on a real one when a case says so.

    with tuned("config 3") as told:
        kernel[grid](...)               # the fourth of its configurations that are left after pruning, or the next one that fits

The first launch on a GPU makes tuning runs, all later ones take the winner, and only the first resets what `reset_to_zero` and
`restore_value` name. So there are two kinds of launches to judge: "runs" is the first, everything else is a later one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from triton.runtime.autotuner import Autotuner

from bitverdict.harness.emulator.faults import BadArgument
from bitverdict.harness.model.protocols import for_the_launcher

if TYPE_CHECKING:
    import triton
    from triton.runtime.jit import KernelInterface

FITS, FIRST_CONFIG, RUNS = "", "first", "runs"
_CONFIG = re.compile(r"config (\d+)")
RUNS_OF_EACH = 2  # of a tuning run on an emulated GPU: enough to see what adds up from one to the next


@dataclass(frozen=True)
class TuningChoice:
    """What one autotuned launch took: the kernel, how many configurations were left to it, the place of its choice among them, the
    choice as Triton prints it, and the places of those that did not fit before it."""

    kernel: str
    remaining_configs: int
    took: int
    choice: str
    unfit: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As verdicts and the processes of a sealed run have it."""
        counts = {"of": self.remaining_configs, "took": self.took}
        return {"kernel": self.kernel, **counts, "choice": self.choice, "unfit": list(self.unfit)}


def check_tuning(tuning: str) -> str:
    """`tuning`, if it says something: "" for the first configuration that fits, "first" for the first whatever it is, "config <n>"
    for that one (modulo their number) or the next that fits, "runs" for tuning runs. ValueError otherwise."""
    if tuning not in (FITS, FIRST_CONFIG, RUNS) and not _CONFIG.fullmatch(tuning):
        raise BadArgument(f"tuning {tuning!r}: must be '', 'first', 'runs' or 'config <n>'")
    return tuning


class _KernelWarmup:
    """A kernel that is compiled and held to the device's resources where it would be launched."""

    def __init__(self, kernel: KernelInterface) -> None:
        self.kernel = kernel

    def run(self, *args: Any, **kwargs: Any) -> Any:
        compiled = for_the_launcher(self.kernel.run, *args, **kwargs | {"warmup": True})
        if compiled is not None:
            compiled._init_handles()
        return compiled


@contextmanager
def apply_tuning(tuning: str, benchmarker: Callable[..., list[float]] | None = None) -> Iterator[list[TuningChoice]]:
    """Autotuners take what `tuning` says until the end of the block; yields what they took, launch by launch.

    `benchmarker` makes the runs of "runs"; None leaves them to Triton's, which times. What a tuner remembers is as before
    afterwards, and nothing is read from or written to the disk.
    """
    check_tuning(tuning)
    choices: list[TuningChoice] = []
    winners: dict[int, dict] = {}  # of tuning runs, by tuner: kept for the launches of this block
    fitting_arguments: dict[int, Any] = {}  # tuner with a `run` of its own -> the arguments for which one configuration fits
    run, pool, prune = Autotuner.run, Autotuner._bench, Autotuner.prune_configs
    asked = _CONFIG.fullmatch(tuning)

    def prune_configurations(self: Autotuner, kwargs: dict) -> list:
        self._left = left = prune(self, kwargs)
        begin = int(asked[1]) % len(left) if asked else 0
        return left[:1] if tuning == FIRST_CONFIG else left[begin:] + left[:begin]

    def bench_configuration(self: Autotuner, *args: object, config: triton.Config, **meta: object) -> list[float]:
        if tuning == RUNS:
            return for_the_launcher(pool, self, *args, config=config, **meta)
        own = "_fits" not in self.__dict__  # a class below Triton's with a `run` of its own: the choice is made there
        if fitting_arguments.get(id(self)) is self.nargs if own else self._fits:
            return [2.0, 2.0, 2.0]  # all take equally long, so what comes after the first that fits is not compiled
        kernel, self.fn = self.fn, _KernelWarmup(self.fn)
        try:
            times = for_the_launcher(pool, self, *args, config=config, **meta)
        finally:
            self.fn = kernel
        if own:
            if times[0] != float("inf"):
                fitting_arguments[id(self)] = self.nargs
            return times
        self._fits = times[0] != float("inf")
        if not self._fits:
            self._unfit.append(self._left.index(config))
        return times

    def tuning_run(self: Autotuner, *args: object, **kwargs: object) -> Any:
        tuner_state: dict[str, Any] = {"cache_results": False, "_left": None, "_unfit": [], "_fits": False}
        if tuning == RUNS:
            tuner_state["cache"] = winners.setdefault(id(self), {})
            tuner_state |= {"do_bench": benchmarker} if benchmarker is not None else {}
        else:  # as every launch after the first: nothing is reset before it
            tuner_state |= {"cache": {}, "do_bench": _run_once, "pre_hook": _skip_hook, "post_hook": _skip_hook}
        before = {name: self.__dict__[name] for name in tuner_state if name in self.__dict__}
        self.__dict__.update(tuner_state)
        try:
            launched = for_the_launcher(run, self, *args, **kwargs)
            if (left := self._left) is not None:
                best = self.best_config
                choices.append(TuningChoice(self.base_fn.__name__, len(left), left.index(best), str(best), tuple(self._unfit)))
            return launched
        finally:
            for name in tuner_state:
                self.__dict__.pop(name, None)
            self.__dict__.update(before)

    Autotuner.run, Autotuner._bench, Autotuner.prune_configs = tuning_run, bench_configuration, prune_configurations
    try:
        yield choices
    finally:
        Autotuner.run, Autotuner._bench, Autotuner.prune_configs = run, pool, prune


def several(call: Callable[[], object], **_: object) -> list[float]:
    """The tuning runs of one configuration on an emulated GPU; all take equally long, so the first that fits wins."""
    for _each in range(RUNS_OF_EACH):
        for_the_launcher(call)
    return [1.0, 1.0, 1.0]


def _run_once(call: Callable[[], object], **_: object) -> list[float]:
    for_the_launcher(call)
    return [1.0, 1.0, 1.0]


def _skip_hook(*_: object, **__: object) -> None:
    """The hooks of a tuning run, in a launch that makes none."""


__all__ = ["TuningChoice", "apply_tuning", "check_tuning", "several"]
