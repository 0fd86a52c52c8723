"""Whether the head of a Ray cluster still listens. Ray ends each process that finds its head silent for `LIMIT` seconds, without a
word to it: a run must stop before that, with its results written and told."""

from __future__ import annotations

import os
import socket
import threading
import time

from bitverdict.harness.judge.machine_faults import MachineFault

LIMIT = "RAY_gcs_rpc_server_reconnect_timeout_s"  # Ray's variable, and
BY_DEFAULT = 60.0  # seconds: Ray's own default of it
LOOK_INTERVAL = 1.0  # seconds between two looks
ANSWERED_WITHIN = 1.0  # seconds


class Head:
    """The head at `address` (HOST:PORT). It may be silent for half of Ray's own limit: it may be started again at its address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.patience = float(os.environ.get(LIMIT) or BY_DEFAULT) / 2
        self._heard = self._looked = time.monotonic()
        self._lock = threading.Lock()

    def check(self) -> None:
        """MachineFault once nothing has listened at the address for `patience` seconds. Cheap: it looks once in `LOOK_INTERVAL`
        seconds, whichever thread asks."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            now = time.monotonic()
            if now - self._looked >= LOOK_INTERVAL:
                self._looked = now
                self._heard = now if self.listens() else self._heard
            silent = self._looked - self._heard
        finally:
            self._lock.release()
        if silent >= self.patience:
            raise self.end_fault()

    def listens(self) -> bool:
        """Whether anything takes a connection at the address now."""
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWERED_WITHIN).close()
        except OSError:
            return False
        return True

    def end_fault(self) -> MachineFault:
        return MachineFault(
            f"the head of the Ray cluster, {self.address}, does not answer; start a cluster (`ray start --head`), "
            "set RAY_ADDRESS to it, then run --resume --on ray"
        )
