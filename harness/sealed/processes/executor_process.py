"""The executor's process: it confines itself, and serves the judge."""

from __future__ import annotations

import socket
from functools import partial

from bitverdict.harness.judge import hang_report
from bitverdict.harness.sealed.candidate import executor
from bitverdict.harness.sealed.jail.policy import COMPILER
from bitverdict.harness.sealed.jail.zygote import Confinement


def serve(connected: socket.socket, handed: socket.socket, confinement: Confinement) -> None:
    """Serve a judge (`bitverdict.harness.sealed.candidate.executor`) until it closes its end."""
    hang_report.install()
    own = executor.Confinement(lambda others: confinement.take_hold(may_signal=others), partial(confinement.take_hold, COMPILER))
    executor.serve(connected, handed, confinement=own)
