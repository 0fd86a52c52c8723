"""Contract under test: no cheat of `tests/faults/cheats/` is believed; each is a whole file, and names whose pattern it follows."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.kernels.matmul import Problem
from tests.faults.cheats.handed_in import HERE, candidate, write_candidate
from tests.faults.cheats.records import CHEATS, DECIDED, MATMUL, NOT_OURS, SAID, SOURCES, Cheat
from tests.support.shares import in_this_run

FAMILIES = sorted({cheat.family for cheat in CHEATS})


def _defined(family: str) -> set[str]:
    """Names that the file of `family` defines at its top level."""
    found: set[str] = set()
    for each in ast.parse(candidate(family)).body:
        if isinstance(each, ast.FunctionDef | ast.ClassDef):
            found.add(each.name)
        elif isinstance(each, ast.Assign):
            found |= {name.id for name in each.targets if isinstance(name, ast.Name)}
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_of_cheats_is_whole_and_has_no_other_cheat(family: str) -> None:
    """A candidate imports nothing of the tests. Each public function of a file of launchers is a cheat with a record."""
    named = {cheat.name for cheat in CHEATS if cheat.family == family}
    assert "tests.faults" not in candidate(family)
    assert named <= _defined(family)
    tree = ast.parse((HERE / f"{family}.py").read_text())
    launchers = {
        each.name
        for each in tree.body
        if isinstance(each, ast.FunctionDef)
        and [argument.arg for argument in each.args.args] == ["a", "b"]
        and not each.name.startswith("_")
    }
    assert launchers == (named & launchers)


CHECKOUT = HERE.parents[2]
_PROBLEM = CHECKOUT / "tests/support/kernelbench/problems/softmax.py"
_BY_TEXT = ("getattr", "hasattr", "setattr", "object.__setattr__", "type.__setattr__")
_MODULE = re.compile(r"bitverdict\.harness[\w.]*")


@functools.cache
def _of_the_harness() -> tuple[set[str], set[str], tuple[set[str], ...]]:
    """(identifiers, classes, variables of each function of the judge) in the sources that a cheat may look into."""
    identifiers, classes, variables = set[str](), set[str](), list[set[str]]()
    for file in (_PROBLEM, *(CHECKOUT / "harness").rglob("*.py")):
        text = file.read_text()
        identifiers |= set(re.findall(r"\w+", text))
        for node in ast.walk(ast.parse(text)) if "lab" not in file.parts else ():
            if isinstance(node, ast.ClassDef):
                classes.add(node.name)
            elif isinstance(node, ast.FunctionDef) and file.parent.name == "judge":
                arguments = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
                stored = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
                variables.append(arguments | stored)
    return identifiers, classes, tuple(variables)


def _led_to(dotted: str, imported: dict[str, Any]) -> bool:
    """Whether `dotted` leads somewhere, from a name that was `imported`; what begins with another name is not asked."""
    first, *attributes = dotted.split(".")
    there = imported.get(first, attributes)
    for attribute in attributes if first in imported else ():
        if not hasattr(there, attribute):
            return False
        there = getattr(there, attribute)
    return True


def names_that_are_gone(text: str) -> list[str]:
    """Names that the file `text` of cheats imports, replaces, or seeks in a process or a checkout, and that nothing has."""
    identifiers, classes, variables = _of_the_harness()
    gone: list[str] = []
    imported: dict[str, Any] = {}
    nodes = list(ast.walk(ast.parse(text)))
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom) and getattr(node, "module", "") != "__future__":
            try:
                exec(ast.unparse(node), imported)
            except ImportError:
                gone.append(ast.unparse(node))
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("sys.modules.get('bitverdict."):
            module = ast.literal_eval(node.value.args[0])  # type: ignore[attr-defined]
            imported |= {target.id: importlib.import_module(module) for target in node.targets if isinstance(target, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            gone += [ast.unparse(node)] * (not _led_to(ast.unparse(node), imported))
        elif isinstance(node, ast.Call):
            function = ast.unparse(node.func)
            texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            if function == "_patched":
                try:
                    module = importlib.import_module(texts[0])
                    gone += [f"{texts[0]}.{each.arg}" for each in node.keywords if not hasattr(module, str(each.arg))]
                except ImportError:
                    gone.append(texts[0])
            elif function == "_frames" and not any(set(texts) <= each for each in variables):
                gone.append(f"a function with {', '.join(texts)}")
            elif function == "_objects":
                gone += [each for each in texts if each not in classes]
            elif function in _BY_TEXT:
                gone += [each for each in texts if each not in identifiers and not hasattr(types.ModuleType, each)]
        elif isinstance(node, ast.Compare) and ast.unparse(node.left).endswith(".__name__"):
            sought = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            gone += [str(each) for each in sought if each not in classes]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            gone += _gone_in_text(node.value)
    return list(dict.fromkeys(gone))


def _gone_in_text(text: str) -> list[str]:
    """The same in a text of a cheat: the name of a module, of a file of the checkout, or a module that it plants."""
    if re.search(r"^ *(from|import) bitverdict", text, re.MULTILINE):
        return names_that_are_gone(text)
    if text.startswith("harness/") and not (CHECKOUT / text).exists():
        return [text]
    if _MODULE.fullmatch(text):
        try:
            importlib.import_module(text.rstrip("."))
        except ImportError:
            return [text]
    return []


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_cheat_patches_exists(family: str) -> None:
    """A cheat that replaces a name that is gone attacks nothing, and its failure would say nothing of the seal."""
    assert names_that_are_gone(candidate(family)) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("import torch\ntorch.nowhere = 1\n", "torch.nowhere"),
        ("from bitverdict.harness.judge import nowhere\n", "from bitverdict.harness.judge import nowhere"),
        ("from bitverdict.harness.judge import decide\ndecide.nowhere = None\n", "decide.nowhere"),
        ("_patched('bitverdict.harness.judge.judge', nowhere=None)\n", "bitverdict.harness.judge.judge.nowhere"),
        ("list(_frames('contract', 'nowhere'))\n", "a function with contract, nowhere"),
        ("list(_objects('Nowhere'))\n", "Nowhere"),
        ("hasattr(each, 'no_such_name')\n", "no_such_name"),
        ("type(each).__name__ in ('Verdict', 'Nowhere')\n", "Nowhere"),
        ("sys.modules.pop('bitverdict.harness.judge.explain', None)\n", "bitverdict.harness.judge.explain"),
        ("HOOK = 'from bitverdict.harness.judge import compare as c\\nc.nowhere = 1\\n'\n", "c.nowhere"),
        ("judge = sys.modules.get('bitverdict.harness.judge.judge')\njudge.nowhere = 1\n", "judge.nowhere"),
        ("Path('harness/judge/explain.py').write_text('')\n", "harness/judge/explain.py"),
    ],
)
def test_a_name_that_is_gone_is_told(text: str, named: str) -> None:
    assert names_that_are_gone(text) == [named]


def test_cheats_name_their_sources_and_how_they_may_end() -> None:
    assert len({cheat.id for cheat in CHEATS}) == len(CHEATS) >= 40
    used = {source for cheat in CHEATS for source in cheat.sources} | {source for _, sources, _ in NOT_OURS for source in sources}
    assert used == set(SOURCES)
    assert all(cheat.sources and cheat.ends and set(cheat.ends) <= set(DECIDED) for cheat in CHEATS)
    assert not [cheat.id for cheat in CHEATS if not cheat.says]
    assert set(SAID) <= {cheat.family for cheat in CHEATS} | {f"{cheat.family}: {cheat.name}" for cheat in CHEATS}


ALONE = {
    "resources",
    "files_changed",
    "claimed_little",
    "guessed_operands",
}  # benchmarks/cheats.py judges them in runs of their own
SMALL = {"host_steered"}  # a launch a word, or sixteen: of few words
ONE_CASE = [
    cheat for cheat in CHEATS if (cheat.task == MATMUL or cheat.family in SMALL) and cheat.family not in ALONE and not cheat.seconds
]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    with WorkerPool(timeout=600, journal=Journal(tmp_path_factory.mktemp("journal") / "run.jsonl")) as pool:
        yield pool


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: candidates of one folder share what is imported for them."""
    return tmp_path_factory.mktemp("candidates")


def judged(pool: WorkerPool, family: str, name: str, directory: Path) -> Verdict:
    """One case, which calls the launcher three times, sealed."""
    launcher = write_candidate(family, name, directory)
    problem = Problem(m=3, n=5, k=19) if family in SMALL else Problem(m=33, n=17, k=19)
    case = Case(contract="matmul", problem=problem, data_seed=3, launcher=launcher, calls=3, sealed=True)
    return pool.judge(case, target("emulated:sm_90"))


@pytest.mark.share(4)
def test_the_wrong_kernel_fails_without_a_cheat_and_a_right_one_passes(pool: WorkerPool, directory: Path) -> None:
    assert judged(pool, "matmuls", "wrong_matmul", directory).decision is Decision.FAIL
    assert judged(pool, "matmuls", "right_matmul", directory).decision is Decision.PASS


@pytest.mark.parametrize("cheat", [cheat for cheat in ONE_CASE if in_this_run(cheat.id, 30, in_ci=6)], ids=lambda cheat: cheat.id)
def test_no_cheat_is_believed(cheat: Cheat, pool: WorkerPool, directory: Path) -> None:
    """The profile quick judges a thirtieth, ci a fourth, each commit the next. `benchmarks.cheats` judges all."""
    verdict = judged(pool, cheat.family, cheat.name, directory)
    assert verdict.decision in (Decision.FAIL, Decision.INCONCLUSIVE, Decision.ERROR), verdict
    said = f"{verdict.outcome}: {verdict.message}"
    assert any(text in said for text in cheat.says), said
