"""Contract under test: every script of `benchmarks/` starts, and does a tiny piece of its work.

A script that nobody starts breaks unseen: what it imports inside of a function is renamed, and its figures cannot be measured
again. So each is started here with arguments that make little work, and every name that any of them imports from the
project must exist.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.mma_sim_page import BEGIN, END
from bitverdict.harness.model.paths import ROOT

FOLDER = ROOT / "benchmarks"
SECONDS = 300.0  # a script that waits for ever ends then


@dataclass(frozen=True)
class Tiny:
    """One start of a script: its arguments, and what shows that it did its work."""

    script: str
    arguments: str
    """As a shell has them; OUT is an empty folder."""
    says: str
    """A pattern in what it prints."""
    statuses: tuple[int, ...] = (0,)
    """(0, 1) where a goal of seconds is missed on a busy machine."""
    needs: str = ""
    """A package that is no dependency of the tests; without it the script must end at its import."""
    files: tuple[tuple[str, str], ...] = ()
    """Files that are in OUT before: name and text."""


TINY = (
    Tiny("block_scaled_matmul", "", "needs a CUDA GPU", (2,)),
    Tiny("cheats", "-k no_such", "0 in 0 s; 0 pass without a seal"),
    Tiny("cheats", "--page --results OUT/none.json", "# "),
    Tiny("corpus", "OUT --list", "torch: scatter_mm"),
    Tiny("corpus_replay", "OUT --on emulated:sm_90 --what clusters --only im2col --jobs 1", "5 launches of 1 kernels"),
    Tiny("releases", "softmax --cases 1 --seconds 1 --jobs 1", "softmax"),
    Tiny("pyptx_kernels", "--package OUT --largest 32", "", (0,)),
    Tiny("short_rings", "--target emulated:sm_90 --programs 1 --launches 1 --depth 256", "race the compiler of Triton"),
    Tiny("ptx_speed", "", r"gelu \| [0-9,]+ \|", (0, 1)),
    Tiny("driver_calls", "--device cpu", ": works"),
    Tiny("emulator", "1", "tma_gather 128x128", (0, 1)),
    Tiny("figures", "", r"\d+ figures on \d+ pages", (0, 1)),
    Tiny("fleet_campaigns", "--out OUT --only none", ""),
    Tiny("fleet_kills", "--kills 0 --cases 1 --out OUT", '"wrong": 0', needs="ray"),
    Tiny("fusion_probes", "--kind scan --share 1000000", "PTX: 1 launches, .* 0 differ"),
    Tiny("gpu_oracle",
         "hold --words 1 --defined 1 --jobs 1 --target emulated:sm_90 --only 'sm_80 mma.sync fp16 x fp16 -> fp32'",
         "1 instructions"),
    Tiny("injected_faults", "pytest --faults 1 --workers 0 --out OUT", "wrong: 0"),
    Tiny("inner_loop", "--runs 1 --saves 1 --pause 0", "beside the kernel: "),
    Tiny("interpreter_speed", "--only softmax --rounds 1", "1 kernels: ", (0, 1)),
    Tiny("invariance", "--target emulated:sm_100 --out OUT/lines --seconds 0 small_mma", r"0 of \d+ cases, 0 fail"),
    Tiny("jail", "--starts 1 --gigabytes 0.01", "output of 0.01 GiB"),
    Tiny("kernel_words", "--words 1 --jobs 1 softmax", "0 cases do not pass"),
    Tiny("kernelbench", "--cases 1 argmax_over_dimension", "1 problems on emulated:sm_90, .*; 0 not as they must be"),
    Tiny("mma_sim", "--words 16 --only gfx942", "| instruction | words |", needs="mmasim"),
    Tiny("mma_sim_doubles", "--words 16", "| instruction | words |", needs="mmasim"),
    Tiny("mma_sim_page", "OUT OUT/page.md", "", (1,), files=(
        *((name, "") for name in ("words.txt", "deep.txt", "doubles.txt")),
        ("page.md", f"{BEGIN}\n{END}\n"),
    )),
    Tiny("mutants", "small_mma --mutants 1 --jobs 1", "median of 1 kernels"),
    Tiny("mutants_on_a_gpu", "--table OUT", "0 mutants, 0 launches", files=(("pairs.jsonl", ""),)),
    Tiny("mutation", "--out OUT --count 1 --seconds 0", "left for mutants", needs="cosmic_ray"),
    Tiny("mutation_fixed_list", "--out OUT --into OUT/list.json", "", files=(("results.jsonl", ""),)),
    Tiny("mutation_run", "OUT/plan.json", '"end": "survived"', files=(
        ("plan.json", '{"tests": [], "seconds": {}, "passed": 0, "flaky": [], "until": 0}'),
    )),
    Tiny("mutation_score", "--out OUT --kernels softmax --programs 1 --sources 0 --jobs 1", "1 judged now"),
    Tiny("named_causes", "--collection launchers --only transposed", "2 faults, 2 right cause"),
    Tiny("numba_tests", "--only test_idiv", "2 kernels of 2 tests pass", needs="numba filecheck"),
    Tiny("one_wrong_word", "--target emulated:sm_100 --size 64 blocked_matmul", "1 found|[2-9] found"),
    Tiny("order_of_sums", "--launchers sequential --jobs 1", "1 launchers, 0 wrong"),
    Tiny("pages", "OUT", "# What the GPUs said"),
    Tiny("product_faults", "--cases 1 --types fp16 --jobs 1", "fp16"),
    Tiny("promoted_sums", "--words 1 --side 16 --target emulated:sm_90", "256 words, 0 differ"),
    Tiny("real_values", "--only softmax --rounds 1", r"\d+ kernels: median", (0, 1)),
    Tiny("reduction_order", "--cases 2", "2 cases .* 0 differ"),
    Tiny("right_launchers", "--cases 1 --target emulated:sm_90 --jobs 1 pairs", "1 cases of right launchers: 0 failed"),
    Tiny("sealed_honest", "--cases 1 --jobs 1 nothing", "1 of 1 launchers are judged alike"),
    Tiny("sealed_overhead", "--cases 1 --turns 1 nothing", "ratio of the sums", (0, 1)),
    Tiny("special_functions", "1000", "tanh.approx.bf16x2", (0, 1)),
    Tiny("suites", "page OUT --results OUT/none.jsonl", "`--emulate` finds 0 of 0"),
    Tiny("targets", "--cases 1 small_mma", r"small_mma.*1 passes|\| small_mma"),
    Tiny("throughput", "--target emulated:sm_90 --out OUT --sizes 64 --parts small --rounds 1 --no-judge", "matmul"),
    Tiny("throughput", "--dry", "autotuned"),
    Tiny("two_gpus", "--out OUT", "0 GPUs are visible", (2,)),
    Tiny("untrusted_operators", "1 0 aten.add.Tensor", "1 operators, 1 calls each, .* 0 end their process"),
    Tiny("untrusted_programs", "0 17 small_mma", r"\d programs of 1 kernels"),
    Tiny("upstream_tests", "OUT test_none.py", "", files=(("test_none.py", ""),)),
    Tiny("upstream_tutorials", "OUT", "# "),
    Tiny("your_kernels", "--cases 1 --target emulated:sm_90 --jobs 1 softmax", "1 generated cases of right kernels: pass 1"),
)  # fmt: skip


def scripts() -> set[str]:
    return {path.stem for path in FOLDER.glob("*.py") if '\nif __name__ == "__main__":' in path.read_text()}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Tiny], tuple[int | None, str]]]:
    """Starts a script; gives its exit status, None where none came, and what it printed."""
    place = tmp_path_factory.mktemp("scripts")
    variables = os.environ | {"PYTHONPATH": str(ROOT), "BITVERDICT_STATE": str(place / "state"), "PYTHONWARNINGS": "ignore"}
    starter = subprocess.Popen([sys.executable, "-m", "tests.support.script_starter"], cwd=ROOT, env=variables, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert starter.stdin is not None and starter.stdout is not None

    def started(tiny: Tiny) -> tuple[int | None, str]:
        out = tmp_path_factory.mktemp(tiny.script)
        for name, text in tiny.files:
            (out / name).write_text(text)
        arguments = [word.replace("OUT", str(out)) for word in shlex.split(tiny.arguments)]
        job = {"script": tiny.script, "arguments": arguments, "log": str(place / "log"), "seconds": SECONDS}
        starter.stdin.write(json.dumps(job) + "\n")
        starter.stdin.flush()
        answer = json.loads(starter.stdout.readline())
        return answer["status"], answer["text"]

    yield started
    starter.stdin.close()
    starter.wait(300)


@pytest.mark.share(5)
@pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: f"{tiny.script} {tiny.arguments}".strip())
def test_a_script_does_a_tiny_piece_of_its_work(tiny: Tiny, start: Callable[[Tiny], tuple[int | None, str]]) -> None:
    status, text = start(tiny)
    if lacking := [name for name in tiny.needs.split() if importlib.util.find_spec(name) is None]:
        assert any(f"No module named '{name}" in text for name in lacking), text
        return
    assert status in tiny.statuses and "Traceback" not in text, f"status {status}: {text[-3000:]}"
    assert re.search(tiny.says, text), text[-3000:]


def test_every_script_is_started() -> None:
    listed = {tiny.script for tiny in TINY}
    assert listed == scripts(), f"add to TINY: {sorted(scripts() - listed)}; is no script: {sorted(listed - scripts())}"


def unresolved(text: str) -> list[str]:
    """Names that `text` imports from the project, inside functions too, and that are not there."""
    wrong = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] not in ("benchmarks", "bitverdict", "tests"):
            continue
        for alias in node.names:
            try:
                __import__(str(node.module), fromlist=[alias.name]).__dict__[alias.name]
            except (ImportError, KeyError):
                wrong.append(f"line {node.lineno}: {node.module}.{alias.name}")
    return wrong


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_every_name_that_a_script_imports_is_there(path: Path) -> None:
    assert not unresolved(path.read_text())


def test_a_name_that_is_gone_is_seen_inside_a_function() -> None:
    text = "def main():\n    from bitverdict.harness.judge.launch import {}, launch\n"
    assert not unresolved(text.format("own_cache"))
    assert unresolved(text.format("_own_cache")) == ["line 2: bitverdict.harness.judge.launch._own_cache"]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sh")), ids=lambda path: path.stem)
def test_a_shell_script_names_scripts_that_are_there(path: Path) -> None:
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
    text = path.read_text().replace("docs/benchmarks.md", "")
    assert set(re.findall(r"\bbenchmarks[./](\w+)", text)) <= {each.stem for each in FOLDER.iterdir()}
