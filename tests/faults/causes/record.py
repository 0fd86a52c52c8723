"""A deliberate bug with its true cause beside it: what a failure must say of it, if it says anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.faults.mutants import Mutant


@dataclass(frozen=True, kw_only=True)
class Explained:
    """`mutant` fails, because of what `causes` say: regular expressions, each of which names the true cause in a sentence.

    `contract` judges it ("described": the test beside the kernel; "alone": the test that the kernel's own file holds); `launcher`
    names the function of the edited file where a user's launcher is edited, else the file is a kernel with its own contract.
    `cases`: fields of Problem, where the required cases are not those to show it; `on`: targets.
    """

    mutant: Mutant
    causes: tuple[str, ...]
    contract: str = "matmul"
    launcher: str = ""
    cases: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    regime: str = "normal"
    on: str = "emulated:sm_90"

    def names_it(self, sentence: str) -> bool:
        return any(re.search(cause, sentence) for cause in self.causes)
