"""``bitverdict mcp``: a server of the Model Context Protocol over standard input and output, for an agent that writes kernels.

Each tool is a command of its own process, so that what a kernel prints or breaks never meets the protocol.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bitverdict.harness.model.extras import require_extra

if TYPE_CHECKING:
    from mcp.server import MCPServer

MOST_FAILURES = 5  # verdicts of one answer: one a bug, the smallest case of each


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Serve judge, explain and trace to an agent, over standard input and output (docs/public.md)"


def run(arguments: argparse.Namespace) -> int:
    """Serve until standard input ends."""
    require_extra("mcp", "mcp")
    server().run()
    return 0


def server() -> MCPServer:
    """The server with its tools."""
    from mcp.server import MCPServer

    from bitverdict import __version__

    found = MCPServer(
        "bitverdict", version=__version__, instructions="Judges Triton and Gluon kernels on emulated GPUs. No GPU is needed."
    )
    for tool in (judge, explain, trace):
        found.tool(structured_output=False)(tool)
    return found


def judge(what: str = ".", target: str = "sm_90", max_cases: int = 200) -> str:
    """Judge a kernel on an emulated GPU; the file is imported and launched. `what`: FILE, FILE::TEST, FILE:LAUNCHER or a folder.
    The answer is a summary, and of each bug the smallest case with its outcome, line, values and the file that replays it."""
    words = ["run", what, "--target", target, "--max-cases", str(max_cases)]
    events, errors = _events(*words)
    bugs = [
        json.loads(Path(each["path"]).read_text()) | {"replay": each["path"]} for each in events if each["event"] == "reproducer"
    ]
    told = [{name: bug[name] for name in ("target", "case", "verdict", "replay")} for bug in bugs[:MOST_FAILURES]]
    summary = [{name: each[name] for name in ("status", "sentence")} for each in events if each["event"] == "summary"]
    return json.dumps((summary[0] if summary else {"status": 2, "sentence": errors.strip()[-2000:]}) | {"bugs": told})


def explain(outcome: str) -> str:
    """What an outcome of `judge` means, how a kernel comes to it, and what to do: for example "race" or "stray read"."""
    events, errors = _events("explain", outcome)
    return json.dumps(events[0] if events else {"status": 2, "sentence": errors.strip()})


def trace(what: str, target: str = "sm_90", tile: str = "", program: int = 0) -> str:
    """What a launch computes, right or wrong: a line for each variable of a program, or the elements of one `tile`. `what`:
    FILE:FUNCTION that launches, FILE::TEST, or FILE:LAUNCHER."""
    done = _command("trace", what, "--target", target, "--program", str(program), *(["--tile", tile] if tile else []))
    return json.dumps({"status": done.returncode, "text": done.stdout, "errors": done.stderr.strip()[-2000:]})


def _events(*words: str) -> tuple[list[dict], str]:
    """The events of a command, and what it wrote to standard error."""
    done = _command(*words, "--format", "json")
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def _command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bitverdict", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
