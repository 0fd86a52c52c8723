"""The launcher of a case: imported here, or one that another process calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext

from bitverdict.harness.judge.classify import for_the_launcher
from bitverdict.harness.judge.devices import target_device
from bitverdict.harness.judge.remote_launcher import RemoteLauncher
from bitverdict.harness.model.addresses import load, load_afresh
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.feature_table import REMOTE_LAUNCHERS, resolve_feature
from bitverdict.harness.model.targets import Target


def launcher_of_case(case: Case, target: Target, *, afresh: bool = False) -> Callable | RemoteLauncher | None:
    """`launcher_of`, or what has another process launch: then this one never imports its file."""
    for flag, address in REMOTE_LAUNCHERS.items():
        if getattr(case, flag):
            return resolve_feature(address)(afresh)
    return launcher_of(case, target, fresh_import=afresh)


def launcher_of(case: Case, target: Target, *, fresh_import: bool = False) -> Callable | None:
    """The user's launcher, imported where its file finds `target` when it asks for its GPU. None: the kernel's own. `afresh`: one
    that remembers no earlier call.

    It is called through `for_the_launcher`: where it does not take what it is given, the TypeError counts against it.
    """
    if not case.launcher:
        return None
    with target_device(target) if target.emulated else nullcontext():
        launcher = load_afresh(case.launcher) if fresh_import else load(case.launcher)
    return functools.update_wrapper(functools.partial(for_the_launcher, launcher), launcher)
