"""The command line: ``bitverdict``, or ``python -m bitverdict``."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # before the other imports: Ctrl-C ends them at once, without a traceback

from bitverdict.harness.frontends.main import entry

if __name__ == "__main__":
    entry()
