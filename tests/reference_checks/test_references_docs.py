"""Contract under test: docs/references.md runs, and says of the extensions what there is."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from bitverdict.reference.tracing.namespace import Namespace
from bitverdict.reference.tracing.state import Trace

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "references.md"


def test_the_examples_of_the_page_run() -> None:
    result = doctest.testfile(str(DOCUMENT), module_relative=False)
    assert result.failed == 0 and result.attempted > 15


def test_each_name_that_the_page_gives_to_xp_is_there() -> None:
    named = set(re.findall(r"\bxp\.([a-z_]+)", DOCUMENT.read_text())) - {"linalg"}
    assert {"round_to", "kept_in", "matmul", "unchanged", "philox", "random_uniform", "bits", "from_bits"} <= named
    assert named <= set(dir(Namespace(Trace())))
