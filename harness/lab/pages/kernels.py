"""docs/kernels.md: what each kernel asks, and what a launch that ignored it would cost, printed from the clauses themselves."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.paths import kernels_with_a_contract

_HEAD = """# The kernels, and what their launchers require

Each launcher takes the device from its operands and refuses what is listed here with a ValueError that carries the value, the rule
and the remedy, before anything is compiled. "Noticed by" says what would stop a launch that ignored the rule; *nothing* means a
wrong result.

Printed from the clauses in `kernels/` by `bitverdict lab pages`.
"""


def page() -> str:
    """The whole page."""
    modules = {stem: importlib.import_module(f"bitverdict.kernels.{stem}") for stem in kernels_with_a_contract()}
    return "\n".join([_HEAD, *(section(module, stem) for stem, module in modules.items())])


def section(module: Any, stem: str) -> str:
    """One kernel: its equation, its launcher, what it needs, its clauses."""
    signature = inspect.signature(getattr(module, stem))
    parameters = ", ".join(re.sub(r": [^=]+?(?= =|$)", "", str(p)) for p in signature.parameters.values())
    needs = ", ".join(sorted(resolve(stem).requires))
    lines = [
        f"## {stem}",
        "",
        *(module.__doc__ or "").splitlines()[:1],
        "",
        f"`{stem}({parameters})`, on {f'a GPU with {needs}' if needs else 'any GPU'}.",
        "",
        "| clause | rule | remedy | cost when broken | noticed by |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [f"| {clause.name} | {clause.rule} | {clause.remedy} | {clause.cost} | {clause.layer} |" for clause in module.CLAUSES]
    return "\n".join(lines) + "\n"
