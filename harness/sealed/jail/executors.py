"""Executors: forks of the run's forkserver, which has all imported that they need, confined by what they do to themselves.

No bubblewrap: an executor runs trusted code. It is confined because what it executes is not trusted: should that take it over, it
finds no network, no writable file, no other process, no expected result.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from typing import Any

from bitverdict.harness.sealed.jail.confine import dies_with_parent
from bitverdict.harness.sealed.jail.jail import GONE_WITHIN, Watch, clean_environment, listening_at, new_address
from bitverdict.harness.sealed.jail.places import places
from bitverdict.harness.sealed.jail.policy import EXECUTOR, Policy
from bitverdict.harness.sealed.jail.protections import LANDLOCK, SECCOMP, Protections, protections
from bitverdict.harness.sealed.jail.zygote import Setting, serve
from bitverdict.harness.workers.forkserver import _forkserver, _start_lock


class Executors:
    """A fork of the forkserver that forks executors: `address` is for `start_process`, in this process and in its workers.

    Only the process that has the forkserver can make it. The function of an executor gets, after its channels and arguments, the
    argument ``confinement``: it calls ``confinement.take_hold()`` before it reads what is not trusted. A compiler that it forks
    before calls ``confinement.take_hold(COMPILER)``. `scratch` is the directory in which that compiler may write.
    """

    def __init__(
        self,
        *,
        policy: Policy = EXECUTOR,
        preload: Sequence[str] = (),
        folders: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        machine_protections: Protections | None = None,
    ) -> None:
        machine_protections = machine_protections or protections()
        self.scratch = tempfile.mkdtemp(prefix="bitverdict-scratch-")
        setting = Setting(
            policy=policy,
            scratch=self.scratch,
            preload=tuple(preload),
            places=places(folders, self.scratch),
            seccomp=machine_protections.has(SECCOMP),
            landlock=machine_protections.has(LANDLOCK),
            environment=clean_environment(self.scratch, variables or {}),
            confines_itself=True,
        )
        self.address = new_address()
        self._lifeline, theirs = multiprocessing.Pipe()
        with _start_lock, _forkserver() as context:
            self._process = context.Process(target=_serve, args=(theirs, self.address, json.dumps(setting.to_json())), daemon=True)
            self._process.start()
        theirs.close()
        with contextlib.suppress(EOFError):
            self._lifeline.recv_bytes()  # it listens
        self._watch = Watch(self.address)

    def alive(self) -> bool:
        return self._watch.alive()

    def end(self) -> None:
        """End every executor."""
        self._lifeline.close()
        self._watch.end()
        self._process.join(GONE_WITHIN)
        if self._process.is_alive():
            self._process.kill()
        shutil.rmtree(self.scratch, ignore_errors=True)


def _serve(lifeline: Any, address: str, setting: str) -> None:
    os.setsid()
    dies_with_parent()
    alive: int | None = getattr(forkserver._forkserver, "_forkserver_alive_fd", None)
    if alive is not None:  # a copy of it would keep the forkserver alive after the run was killed
        os.close(alive)
    listening = listening_at(address)
    lifeline.send_bytes(b"listening")
    serve(listening, lifeline.fileno(), Setting.from_json(json.loads(setting)))
