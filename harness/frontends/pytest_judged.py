"""Tests of the public functions under pytest: each is one test for each target, ``test_rms_norm[emulated:sm_90]``.

The hooks of `bitverdict.harness.frontends.pytest_options` call this where a function was made by `bitverdict.judged` or
`bitverdict.test`; without one nothing of it is imported. A test that fails has the report of the command line as its text.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from bitverdict.harness.frontends.pytest_nodes import NodeJudge
from bitverdict.harness.frontends.pytest_targets import check_targets, target_names
from bitverdict.harness.model.addresses import is_importing
from bitverdict.harness.model.paths import HOME, state_directory_of
from bitverdict.harness.model.targets import Target
from bitverdict.harness.session.case_source import CaseSource

TARGET = "bitverdict_target"
_judges = pytest.StashKey[NodeJudge]()


def parametrize(metafunc: pytest.Metafunc) -> None:
    """One test for each target that is asked for."""
    check_targets(metafunc.config)
    if TARGET not in metafunc.fixturenames:
        metafunc.fixturenames.append(TARGET)
    metafunc.parametrize(TARGET, target_names(metafunc.config))


def hold(item: Any, source: Callable[[Target], CaseSource]) -> None:
    """Judge the test `item` on its target, by the worker pool of this pytest process."""
    __tracebackhide__ = True
    if is_importing():
        return
    config: pytest.Config = item.config
    if _judges not in config.stash:
        if config.rootpath != HOME:
            os.environ.setdefault("BITVERDICT_STATE", str(state_directory_of(config.rootpath)))
        from bitverdict.harness.judge import devices  # noqa: F401  (what torch.cuda says to a user's file)

        config.stash[_judges] = NodeJudge(config)
        config.add_cleanup(config.stash[_judges].close)
    config.stash[_judges].hold_test(source, item.callspec.params[TARGET], item.user_properties)
