"""What a confined process prints: kept up to a limit, counted beyond it, and never waited for."""

from __future__ import annotations

import contextlib
import os

READ_BYTES = 1 << 16  # bytes; what a pipe holds


class BoundedLog:
    """The reading end of a pipe that a process prints to. What it reads is written to `file`, a descriptor, up to `limit` bytes.

    The process prints as fast as this end reads, and never fails at it: an honest one prints more than is kept without harm.
    """

    def __init__(self, file: int, limit: int) -> None:
        self.reading, self.writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.writing, True)
        self.printed, self.kept = 0, 0
        self._file, self._limit, self._left = file, limit, limit

    def renew_limit(self) -> None:
        """Another case begins: as much again is kept of what it prints."""
        self._left = self._limit

    def drain(self, rounds: int = 16) -> bool:
        """Take what is there, at most `rounds` pipes full; whether somebody may still print."""
        for _ in range(rounds):
            try:
                text = os.read(self.reading, READ_BYTES)
            except BlockingIOError:
                return True
            if not text:
                return False
            self.printed += len(text)
            self._keep(text[: self._left])
        return True

    def _keep(self, text: bytes) -> None:
        while text:
            try:
                byte_count = os.write(self._file, text)
            except OSError:  # the disk of the log is full: counted as not kept
                self._left = 0
                return
            self.kept += byte_count
            self._left -= byte_count
            text = text[byte_count:]

    def close(self) -> None:
        """The reading end and the file; the writing end is its process's."""
        for descriptor in (self.reading, self._file):
            with contextlib.suppress(OSError):
                os.close(descriptor)
