"""A candidate's process that is a fork of the test's, without a jail: for tests of what goes over the channel."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bitverdict.harness.judge.classify import outcome_of
from bitverdict.harness.model import addresses
from bitverdict.harness.sealed.remote.candidate import serve_candidate
from bitverdict.harness.sealed.remote.channel import Channel
from bitverdict.harness.sealed.remote.executor import Candidate

FIELDS = ("outcome", "layer", "message", "location", "details")


def load(address: str, afresh: bool, folders: list[str]) -> Any:
    addresses.add_search_path(folders)
    return addresses.load_afresh(address) if afresh else addresses.load(address)


def told(error: BaseException) -> dict[str, Any]:
    seen = outcome_of(error)
    return {name: getattr(seen, name) for name in FIELDS}


def honest(connected: socket.socket) -> None:
    serve_candidate(Channel(connected), load, told)


@contextmanager
def forked_candidate(serve: Callable[[socket.socket], None] = honest) -> Iterator[Candidate]:
    """The executor's end of a channel to a fork that does `serve`, until the end of the block."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        try:
            serve(theirs)
        finally:
            os._exit(0)
    theirs.close()
    try:
        yield Candidate(Channel(ours))
    finally:
        ours.close()
        os.waitpid(child, 0)
