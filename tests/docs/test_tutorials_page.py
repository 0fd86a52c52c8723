"""Contract under test: docs/tutorials.md has each kernel and each row of the register, with what holds it and where it differs."""

from __future__ import annotations

from copy import deepcopy

from bitverdict.harness.lab.pages.tutorials import page, text
from tests.kernel_contracts.tutorial_rows import CHECKOUT, DOCUMENTS, ROWS


def test_each_row_and_kernel_has_one_line_that_names_its_holder() -> None:
    lines = [line for line in page().splitlines() if line.startswith("| ")]
    heads = 2 * 2 * len(DOCUMENTS)
    assert len(lines) == heads + len(ROWS) + sum(len(record["kernels"]) for record in DOCUMENTS.values())
    for row in ROWS:
        (held,) = row["held"].values()
        if isinstance(held, dict):
            assert any(f"`{held['kernel']}`" in line and row.get("fact", row["id"]) in line for line in lines), row["id"]


def test_each_kernel_says_where_it_differs_and_lies_where_the_link_leads() -> None:
    for record in DOCUMENTS.values():
        assert set(record["differs"]) == set(record["kernels"].values())
        assert all((CHECKOUT / "kernels" / f"{kernel}.py").is_file() and record["differs"][kernel] for kernel in record["differs"])


def test_a_dropped_row_or_another_reason_changes_the_page() -> None:
    assert text(DOCUMENTS, ROWS) == page() and text(DOCUMENTS, ROWS[1:]) != page()
    changed = deepcopy(ROWS)
    next(row for row in changed if "choice" in row["held"])["held"]["choice"] = "another reason"
    assert "another reason" in text(DOCUMENTS, changed)
