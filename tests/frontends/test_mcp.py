"""Contract under test: the MCP server judges a kernel, explains an outcome and shows a tile, asked by the SDK's own client."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from bitverdict import __version__
from tests.frontends.test_events import CHECKOUT, KERNEL

pytestmark = pytest.mark.compiles
MASKED = KERNEL.replace("tl.load(x + at)", "tl.load(x + at, mask=at < n)")


def asked(folder: Path, *calls: tuple[str, dict]) -> tuple[set[str], list[dict], str]:
    """The names of the tools, what each of `calls` is answered, and the version of the server."""
    mcp = pytest.importorskip("mcp", reason="mcp is not installed")
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT), "BITVERDICT_STATE": str(folder / "state")}
    command = mcp.StdioServerParameters(command=sys.executable, args=["-m", "bitverdict", "mcp"], env=environment, cwd=folder)

    async def talk() -> tuple[set[str], list[dict], str]:
        async with mcp.Client(command) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            answers = [await client.call_tool(name, words) for name, words in calls]
            return names, [json.loads(answer.content[0].text) for answer in answers], client.server_info.version

    return asyncio.run(talk())


def test_the_server_judges_and_explains(tmp_path: Path) -> None:
    (tmp_path / "test_double.py").write_text(KERNEL)
    (tmp_path / "test_masked.py").write_text(MASKED)
    names, (wrong, right, page, unknown, tile), version = asked(
        tmp_path,
        ("judge", {"what": "test_double.py", "max_cases": 4}),
        ("judge", {"what": "test_masked.py", "max_cases": 4}),
        ("explain", {"outcome": "stray read"}),
        ("judge", {"what": "gone.py"}),
        ("trace", {"what": "test_masked.py::test_double", "tile": "at", "program": 0}),
    )
    assert names == {"judge", "explain", "trace"} and version == __version__
    assert wrong["status"] == 1 and wrong["bugs"][0]["verdict"]["outcome"] == page["outcome"] == "stray read"
    assert Path(tmp_path, wrong["bugs"][0]["replay"]).is_file()
    assert right["status"] == 0 and not right["bugs"]
    assert unknown["status"] == 2 and "there is no file gone.py" in unknown["sentence"]
    assert tile["status"] == 0 and "at after line" in tile["text"]
