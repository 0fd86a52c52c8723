"""The pages of docs/ that are printed: from the code and stored answers, which takes seconds, or by runs of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bitverdict.harness.model.paths import IS_CHECKOUT, ROOT
from bitverdict.harness.model.usage import UsageError, did_you_mean

DOCS = ROOT / "docs"
INVARIANCE = "tests/hardware_words/invariance.json"
SANITIZERS = "tests/hardware_words/sanitizers_h200.json"


@dataclass(frozen=True)
class Page:
    """`text` prints docs/`name` from `source`."""

    name: str
    source: str
    text: Callable[[], str]


def _kernels() -> str:
    from bitverdict.harness.lab.pages.kernels import page

    return page()


def _tutorials() -> str:
    from bitverdict.harness.lab.pages.tutorials import page

    return page()


def _outcomes() -> str:
    from bitverdict.harness.model.outcome_pages import PAGES

    lines = ["# Outcomes", "", "What came of a case. `bitverdict explain OUTCOME` prints one of these.", ""]
    lines += ["| outcome | what was observed |", "| --- | --- |"]
    lines += [f"| [{outcome}](#{str(outcome).replace(' ', '-')}) | {text.meaning} |" for outcome, text in PAGES.items()]
    for outcome, text in PAGES.items():
        lines += ["", f"## {outcome}", "", text.meaning, ""]
        lines += [f"*Usual cause.* {text.usual_cause}", "", f"*What to do.* {text.remedy}"]
    return "\n".join([*lines, ""])


def _reference(page: str) -> Callable[[], str]:
    def text() -> str:
        from bitverdict.harness.lab.pages import public_reference

        return getattr(public_reference, page)()

    return text


def _matmul_support() -> str:
    from bitverdict.harness.lab.pages.matmul_support import page

    return page()


def _arithmetic() -> str:
    """The page as it is, with the table of evidence printed anew."""
    from bitverdict.harness.lab.pages import instruction_evidence

    return instruction_evidence.page((DOCS / "arithmetic.md").read_text())


def _sanitizers() -> str:
    from bitverdict.harness.lab.sanitizers import page

    return page.page(page.read(ROOT / SANITIZERS))


def _invariance() -> str:
    """The page as it is, with the table of all kernels printed anew."""
    from bitverdict.harness.lab.pages import invariance

    return invariance.page((DOCS / "invariance.md").read_text(), invariance.read(ROOT / INVARIANCE))


PAGES = (
    Page("kernels.md", "the clauses in kernels/", _kernels),
    Page("tutorials.md", "tests/tutorial_parameters.json", _tutorials),
    Page("matmul_support.md", "the rule in harness/contracts/oracle/matmul_support.py", _matmul_support),
    Page("outcomes.md", "the table in harness/model/outcome_pages.py", _outcomes),
    Page("api.md", "the docstrings of bitverdict's public names", _reference("api_page")),
    Page("command_line.md", "the parsers in harness/frontends/", _reference("command_line_page")),
    Page("xp.md", "the operations in reference/tracing/", _reference("xp_page")),
    Page("sanitizers.md", SANITIZERS, _sanitizers),
    Page("invariance.md", f"{INVARIANCE}, its table alone", _invariance),
    Page("arithmetic.md", "the records in reference/tensor_core, its table of evidence alone", _arithmetic),
)
BY_RUNS = {
    "tma_limits.md": "bitverdict lab tma-limits --merge tests/hardware_words/tma_limits_h200.json --page docs/tma_limits.md",
    "benchmarks.md": "python -m benchmarks.pages DIRECTORY > docs/benchmarks.md",
    "upstream_tutorials.md": "python -m benchmarks.upstream_tutorials",
    "cheats.md": "python -m benchmarks.cheats --page --results FILE > docs/cheats.md",
    "mutation_score.md": "python -m benchmarks.mutation_score --out DIR --page docs/mutation_score.md",
    "coverage.md": "python -m benchmarks.corpus FOLDER --results FILE --tests FILE --page",
    "releases.md": "python -m benchmarks.releases --into docs/releases.md",
    "suites.md": "python -m benchmarks.suites page FOLDER --results FILE > docs/suites.md",
}
"""Page -> the command whose measurements it holds. It says when and where they were made, so it is not printed here."""


def select_pages(names: list[str]) -> list[Page]:
    """The pages called `names` (all where none is), UsageError for one that is not printed here."""
    if not IS_CHECKOUT:
        raise UsageError(f"pages: docs/ is part of a checkout, and {ROOT} is none; run it in a checkout")
    pages_by_name = {page.name: page for page in PAGES}
    for name in names:
        if name in BY_RUNS:
            raise UsageError(f"page {name!r}: holds what runs measured; make it with: {BY_RUNS[name]}")
        if name not in pages_by_name:
            raise UsageError(
                f"page {name!r}: is not printed{did_you_mean(name, pages_by_name)}; printed: {', '.join(pages_by_name)}"
            )
    return [pages_by_name[name] for name in names] if names else list(PAGES)


def stale_pages(names: list[str], directory: Path = DOCS) -> list[tuple[Page, str]]:
    """Of the pages `names` those whose file in `directory` is not what is printed now, each with that text."""
    if not directory.is_dir():
        raise UsageError(f"--directory {directory}: must be a directory that exists; make it first")
    found = [(page, directory / page.name, page.text()) for page in select_pages(names)]
    return [(page, text) for page, path, text in found if not path.is_file() or path.read_text() != text]
