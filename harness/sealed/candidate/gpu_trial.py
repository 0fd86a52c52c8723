"""What a confined process does once, before a run, to see whether the GPU's driver works under its protections."""

from __future__ import annotations

import socket


def run_gpu_trial(connection: socket.socket) -> None:
    """Add two vectors on the first GPU with torch and with Triton. Sends b"launched", or one line that says why it cannot."""
    try:
        _add()
    except BaseException as error:
        line = f"{type(error).__name__}: {error}".splitlines()[0]
        connection.sendall(line.encode()[:400])
    else:
        connection.sendall(b"launched")


def _add() -> None:
    import torch

    from bitverdict.harness.sealed.candidate.gpu_trial_kernel import add_kernel

    x, y, z = (torch.full((100,), value, device="cuda") for value in (1.0, 2.0, 0.0))  # (100,) each
    add_kernel[(1,)](x, y, z, 100, BLOCK=128)
    if not bool((z == x + y).all()):
        raise RuntimeError("the sum of two vectors is wrong")
