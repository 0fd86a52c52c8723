"""The worker that a tool starts: ``python -m bitverdict.harness.workers.program ADDRESS``, where ADDRESS is the run's socket."""

from __future__ import annotations

import sys

from bitverdict.harness.model import trusted_imports
from bitverdict.harness.workers.process import serve
from bitverdict.harness.workers.start import connect_program

if __name__ == "__main__":
    trusted_imports.begin()
    trusted_imports.forget_safe_path()
    connection = connect_program(sys.argv[1])
    serve(connection, *connection.recv())
