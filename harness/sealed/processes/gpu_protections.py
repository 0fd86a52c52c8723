"""Which protections a candidate's process has on a real GPU: all under which the GPU's driver starts.

What a driver asks of the system differs from release to release. So a confined process launches a kernel once, before anything is
judged. Where it cannot, protections are left out, the fewest that help, and the run says which and why.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable
from dataclasses import replace

from bitverdict.harness.sealed.jail.jail import Jail, JailDied, start_process
from bitverdict.harness.sealed.jail.policy import CANDIDATE_ON_A_GPU
from bitverdict.harness.sealed.jail.protections import BUBBLEWRAP, LANDLOCK, NAMESPACES, SECCOMP, SIGNALS, Protections, protections

TRIAL = "bitverdict.harness.sealed.candidate.gpu_trial:run_gpu_trial"
VISIBLE = "CUDA_VISIBLE_DEVICES"
ANSWERED_WITHIN = 90.0  # seconds; Triton builds its launcher with the host's compiler meanwhile
OMISSIONS = ((), (LANDLOCK,), (SECCOMP,), (SECCOMP, LANDLOCK), (BUBBLEWRAP,), (BUBBLEWRAP, SECCOMP, LANDLOCK))
"""What is tried, in this order."""
_DEPENDENTS = {LANDLOCK: (SIGNALS,), BUBBLEWRAP: NAMESPACES}


@functools.cache
def gpu_protections() -> Protections:
    """Those of this machine that let its first visible GPU launch a kernel; tried once in a process. All of them where none does:
    then each case says what its process was refused."""
    return choose_protections(protections(), _trial)


def choose_protections(machine_protections: Protections, trial: Callable[[Protections], str]) -> Protections:
    """`machine_protections` less the fewest without which `trial` is silent. What it says of all of them is why."""
    why = ""
    for names in OMISSIONS:
        if not all(map(machine_protections.has, names)):
            continue
        said = trial(left := omit_protections(machine_protections, names, why))
        if not said:
            return left
        why = why or said
    return machine_protections


def omit_protections(found: Protections, names: tuple[str, ...], why: str) -> Protections:
    """`found` less the protections `names`, and those that rest on them."""
    gone = {name: each for each in names for name in (each, *_DEPENDENTS.get(each, ()))}
    lacking = dict.fromkeys(names, f"a kernel cannot be launched on the GPU under it: {why}")
    return replace(found, names=tuple(name for name in found.names if name not in gone), remedies=found.remedies | lacking)


def _trial(found: Protections) -> str:
    """Why a process confined with `found` cannot launch a kernel on the GPU; empty where it can."""
    return run_trial(Jail((), policy=CANDIDATE_ON_A_GPU, machine_protections=found), TRIAL)


def run_trial(jail: Jail, function: str) -> str:
    """What a process of `jail` that calls `function` says, which is nothing where all is well; the jail ends with it."""
    ours, theirs = socket.socketpair()
    ours.settimeout(ANSWERED_WITHIN)
    try:
        variables = {VISIBLE: os.environ[VISIBLE]} if VISIBLE in os.environ else {}
        process = start_process(jail.address, function, (theirs,), variables=variables)
        theirs.close()
        try:
            said = ours.recv(1 << 12)
        except TimeoutError:
            said = f"no answer within {ANSWERED_WITHIN:g} s".encode()
        ended = process.end()
        return "" if said == b"launched" else said.decode(errors="replace").strip() or ended
    except JailDied as error:
        return f"{error}: {jail.last_lines()[-200:]}".strip(": ")
    finally:
        ours.close()
        theirs.close()
        jail.end()
