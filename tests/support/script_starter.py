"""Starts scripts of `benchmarks/` for a test: `python -m tests.support.script_starter` reads a job a line, and answers with a line.

A job is `{"script", "arguments", "log", "seconds"}` in JSON, the answer `{"status", "text"}`: the status is negative for a signal.
Torch, Triton and the workers' code are imported once, and each script runs in a fork: it costs what it does, not what it imports.
Workers of all scripts come from one server.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
import threading
import traceback
from pathlib import Path

from bitverdict.harness.workers.forkserver import (
    FIRST_WHEN_IDLE,
    PRELOADED_MODULES,
    WHEN_IDLE,
    ask_the_parents_server,
    collect_again,
    start_early,
)

IMPORTED = (*PRELOADED_MODULES, *FIRST_WHEN_IDLE, WHEN_IDLE, "bitverdict.harness.session.case_source")


def run(script: str, arguments: list[str]) -> int:
    """The exit status of ``python -m benchmarks.<script>`` with `arguments`, in this process."""
    sys.argv = [script, *arguments]
    try:
        runpy._run_module_as_main(f"benchmarks.{script}", alter_argv=False)  # type: ignore[attr-defined]  # what python -m calls
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def status_of_fork(script: str, arguments: list[str], log: Path, seconds: float) -> int:
    """The status of the script in a fork of this process, which is killed with all that it started after `seconds`."""
    process = os.fork()
    if process == 0:
        os.setsid()
        to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        os.dup2(to, 1)
        os.dup2(to, 2)
        status = 1
        try:
            ask_the_parents_server()
            status = run(script, arguments)
            sys.stdout.flush()
        finally:
            os._exit(status)
    alarm = threading.Timer(seconds, os.killpg, (process, signal.SIGKILL))
    alarm.start()
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    alarm.cancel()
    try:
        os.killpg(process, signal.SIGKILL)  # a forkserver, which would go by itself a little later
    except ProcessLookupError:
        pass
    return status


def main() -> None:
    start_early()
    for module in IMPORTED:
        importlib.import_module(module)
    collect_again()  # `uncollected` had switched it off
    for line in sys.stdin:
        job = json.loads(line)
        status = status_of_fork(job["script"], job["arguments"], Path(job["log"]), job["seconds"])
        print(json.dumps({"status": status, "text": Path(job["log"]).read_text(errors="replace")}), flush=True)


if __name__ == "__main__":
    main()
