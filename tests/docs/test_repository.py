"""Contract under test: what README, tox and CI promise is what they run."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PASSED = {
    "CI",
    "CUDA_*",
    "TRITON_*",
    "BITVERDICT_*",
    "HYPOTHESIS_*",
    "TORCH_*",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "TENSOR_CORE_WORDS",
}
PASSED |= {"PYTEST_XDIST_AUTO_NUM_WORKERS"}
README_LINES = 90  # one reads it in three minutes


@pytest.mark.compiles
def test_tox_passes_the_variables_that_decide_what_is_judged() -> None:
    pytest.importorskip("tox", reason="tox is not installed")
    command = [sys.executable, "-m", "tox", "config", "-e", "cpu,ampere,hopper,blackwell", "-k", "pass_env"]
    told = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    blocks = re.split(r"^\[testenv:", told, flags=re.MULTILINE)[1:]
    assert len(blocks) == 4
    for block in blocks:
        assert set(block.split()) >= PASSED, block


def test_the_gpu_environments_judge_their_python_and_install_nothing() -> None:
    """It is the Python that they are given."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(CHECKOUT / "tox.ini")
    gpu = tox["testenv:{ampere,ada,hopper,blackwell,cdna}"]
    assert "deps" not in gpu and "BITVERDICT_PYTHON" in tox["gpu"]["judge"]
    asked = [line.split("--bv-target ")[1].split()[0] for line in gpu["commands"].split("\n") if line]
    assert asked == ["cuda:ampere", "cuda:ada", "cuda:hopper", "cuda:blackwell", "cuda:cdna"]


@pytest.mark.share(4)
@pytest.mark.compiles
def test_a_run_for_an_architecture_that_is_not_there_fails() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bitverdict", "selftest", "--arch", "sm_999"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "target 'cuda:sm_999': no such GPU is visible" in done.stderr


def readme_commands() -> list[str]:
    text = (CHECKOUT / "README.md").read_text()
    return [
        line
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
        if line and not line.startswith("#")
    ]


def test_readme_has_two_lines_that_do_all_the_set_up() -> None:
    judging, testing = [line for line in readme_commands() if "-m venv" in line]
    assert "pip install -q . " in judging and judging.endswith("bin/bitverdict selftest")
    assert "requirements.txt" in testing and testing.endswith("-m pytest -n auto")


def test_ci_runs_the_fast_gate_and_then_the_test_command_of_readme() -> None:
    """The pinned torch is installed first."""
    script = (CHECKOUT / ".ci" / "run").read_text()
    order = [script.index(text) for text in ('"torch==2.13.0"', "-r requirements.txt\n", "\n.ci/fast\n", "-m pytest -n auto")]
    assert order == sorted(order) and "TENSOR_CORE_WORDS" in script


def test_every_requirement_says_what_it_is_for() -> None:
    lines = [line for line in (CHECKOUT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert lines and all(re.match(r"[a-z0-9_-]+>=[\d.]+(,<[\d.]+)? +# \S", line) for line in lines)


def test_every_command_of_readme_that_names_the_harness_is_one_it_takes() -> None:
    from bitverdict.harness.frontends.main import parser

    for line in readme_commands():
        for words in re.findall(r"bin/bitverdict ((?:[^&|#\n])+)", line):
            parser().parse_args(words.split())


def test_readme_is_short_and_the_page_of_commands_has_every_command() -> None:
    from bitverdict.harness.frontends.main import parser

    assert len((CHECKOUT / "README.md").read_text().splitlines()) <= README_LINES
    page = (CHECKOUT / "docs" / "commands.md").read_text()
    (commands,) = (action.choices for action in parser()._actions if isinstance(action.choices, dict))
    missing = [name for name in commands if not re.search(rf"`bitverdict (lab )?{name}\b|, `{name}\b|, `?{name} ", page)]
    assert not missing, f"docs/commands.md lacks {missing}"


def cited(text: str) -> list[tuple[str, str]]:
    """(page, heading or "") of each page of docs that `text` cites, as in: docs/arithmetic.md, "The block step"."""
    plain = re.sub(r"\s*\n[ #]*", " ", text)
    return [(m[1], m[2] or "") for m in re.finditer(r'docs/([\w]+\.md)\)?(?:, (?:section )?"([^"]+)")?', plain)]


def test_citations_of_docs_lead_to_a_page_and_a_heading() -> None:
    found = {}
    for room in ("harness", "reference", "kernels", "tests", "benchmarks"):
        for path in {*(CHECKOUT / room).rglob("*.py")} - {Path(__file__)}:
            found |= dict.fromkeys(cited(path.read_text()), path)
    assert ("arithmetic.md", "The block step") in found
    for (page, heading), path in found.items():
        place = CHECKOUT / "docs" / page
        assert place.is_file(), f"{path.name} cites docs/{page}"
        assert not heading or re.search(rf"^#+ {re.escape(heading)}$", place.read_text(), re.MULTILINE), f"{path.name}: {heading}"


def test_a_citation_is_found_over_the_end_of_a_line() -> None:
    assert cited('(docs/a.md,\n    "The block\n    step", 2)') == [("a.md", "The block step")]
    assert cited("see docs/b.md.") == [("b.md", "")]


def test_no_tracked_file_names_a_place_of_one_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.split()
    place = re.compile(r"(^|[^a-zA-Z0-9_.])/(work|root|home/[a-z]+)/")
    wrong = []
    for name in listed:
        path = CHECKOUT / name
        if path.is_file() and path.stat().st_size < 1 << 20:
            text = path.read_text(errors="ignore")
            wrong += [f"{name}:{number}" for number, line in enumerate(text.splitlines(), 1) if place.search(line)]
    assert not wrong, wrong


@pytest.mark.parametrize(("said", "status"), [("", 2), ("0", 2), ("1", 1)])
def test_ci_fails_without_hardware_words_unless_told_otherwise(said: str, status: int, tmp_path: Path) -> None:
    """Told so, it goes on to its first step, which the interpreter given here does not survive."""
    words = {"TENSOR_CORE_WORDS": str(tmp_path), "BITVERDICT_WITHOUT_WORDS": said, "PYTHON": "false"}
    done = subprocess.run([".ci/run"], cwd=CHECKOUT, env=os.environ | words, capture_output=True, text=True, check=False)
    assert done.returncode == status and "no hardware words (*.npz) there" in done.stderr
    assert ("BITVERDICT_WITHOUT_WORDS=1 to skip" in done.stderr) == (status == 2) and ("== install" in done.stdout) == (status == 1)


LONGEST_NAME = 70
OF_TRITON = ("upstream_tutorials.md", "coverage.md", "emulator.md")


def long_names(source: str) -> list[str]:
    """Names of tests that nobody can type after `-k` or read in a column: `test_` included."""
    return [name for name in re.findall(r"^\s*(?:async )?def (test_\w+)", source, re.MULTILINE) if len(name) > LONGEST_NAME]


def test_no_test_has_a_name_of_more_than_70_characters() -> None:
    """The second half of a long sentence goes into the docstring."""
    assert {path.name: names for path in (CHECKOUT / "tests").rglob("*.py") if (names := long_names(path.read_text()))} == {}


def unknown_tests(page: str, sources: str) -> list[str]:
    """Tests that a page names in backquotes and that are not there."""
    known = set(re.findall(r"\bdef (\w+)", sources))
    return [name for name in re.findall(r"`(test_\w+)`", page) if name not in known]


def test_each_test_that_a_page_names_is_there() -> None:
    """A name may also be a file's. Three pages name Triton's own tests."""
    paths = sorted((CHECKOUT / "tests").rglob("*.py"))
    sources = "\n".join([*(path.read_text() for path in paths), *(f"def {path.stem}(" for path in paths)])
    pages = [page for page in (*(CHECKOUT / "docs").glob("*.md"), *CHECKOUT.glob("*.md")) if page.name not in OF_TRITON]
    assert unknown_tests("\n".join(page.read_text() for page in pages), sources) == []
    assert unknown_tests("see `test_a` and `test_ab`", "def test_ab() -> None:") == ["test_a"]


def test_a_name_of_71_characters_is_found() -> None:
    fits, long = f"test_{'a' * 65}", f"test_{'a' * 66}"
    assert long_names(f"def {fits}() -> None:\n    pass\n\n\ndef {long}(\n") == [long]


OF_OTHERS = frozenset(
    "ModelNew TENSOR_CORE_WORDS TRITON_MAX_TENSOR_NUMEL TensorDescriptor can_reorder create_function_from_signature "
    "cu_seqlens cvt enable_fp_fusion enable_reflect_ftz flex_attention forward getBin ieee make_llir native_batch_norm "
    "optimize_module printf reproduce_failure requires simplifyFAddInst tl v_readlane vprintf warpReduce xf32 xp".split()
)
"""Names of Triton, LLVM, PTX, torch and users that docstrings quote."""


def unknown_names(source: str, project: frozenset[str]) -> list[str]:
    """Names in backticks, in docstrings of functions and classes, that neither the code of `source` has nor `project`."""
    docstrings = re.findall(r'^ +"""(.*?)"""', source, re.DOTALL | re.MULTILINE)
    known = set(re.findall(r"\w+", re.sub(r'""".*?"""', "", source, flags=re.DOTALL))) | project | OF_OTHERS
    quoted = [name for text in docstrings for name in re.findall(r"(?<!`)`([A-Za-z_]\w*)`(?!`)", text)]
    return [name for name in quoted if name not in known and not name.startswith("__")]


def test_docstrings_name_what_is_there() -> None:
    """A parameter that was renamed and keeps its old name in the docstring is found, unless the project has another thing of it."""
    sources = {path: path.read_text() for room in ("harness", "kernels", "reference") for path in (CHECKOUT / room).rglob("*.py")}
    defined = re.findall(r"^ *(?:class|def) (\w+)|^([A-Z]\w+)\b.*=", "\n".join(sources.values()), re.MULTILINE)
    project = frozenset(name for pair in defined for name in pair) | {path.stem for path in sources}
    found = [f"{path.name}: {each}" for path, text in sources.items() for each in unknown_names(text, project)]
    assert not found, "\n".join(found)


def test_a_parameter_of_another_name_is_found() -> None:
    source = 'def widen(bits: int) -> int:\n    """`{}` and one, as `fold` has it."""\n    return bits + 1\n'
    assert unknown_names(source.format("width"), frozenset({"fold"})) == ["width"]
    assert not unknown_names(source.format("bits"), frozenset({"fold"}))
