"""The candidate's process: the only one that imports the candidate's file. It has no contract, and nothing that is expected."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any

from bitverdict.harness.judge.classify import outcome_of
from bitverdict.harness.judge.instrumentation import own_instrumentation
from bitverdict.harness.judge.remedies import remedy_for
from bitverdict.harness.model.addresses import add_search_path, load, load_afresh
from bitverdict.harness.sealed.remote.candidate import serve_candidate
from bitverdict.harness.sealed.remote.channel import Channel


def serve(connected: socket.socket) -> None:
    """Do what the executor asks for, until it closes its end."""
    served = LoadedCandidate()
    serve_candidate(Channel(connected), load=served.load, describe_error=served.describe_error)


class LoadedCandidate:
    """The candidate at one address."""

    def __init__(self) -> None:
        self.address = ""
        self._mode = ExitStack()

    def load(self, address: str, reimport: bool, folders: list[str]) -> Any:
        """The object at `address`. The instrumentation that its file sets holds for all that follows."""
        if not self.address:
            self._mode.enter_context(own_instrumentation(address))
        self.address = address
        add_search_path(folders)
        return load_afresh(address) if reimport else load(address)

    def describe_error(self, error: BaseException) -> dict[str, Any]:
        """What `error`, which the candidate raised, is called: what is believed of it is the executor's to decide."""
        seen = outcome_of(error)
        if seen.layer == "launcher":
            seen.details |= remedy_for(error, self.address)
        outcome = "" if seen.outcome is None else str(seen.outcome)
        return {name: getattr(seen, name) for name in ("layer", "message", "location", "details")} | {"outcome": outcome}
