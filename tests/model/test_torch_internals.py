"""Contract under test: what the product uses of torch beside its public functions is taken by one module, `torch_internals`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
import torch

from bitverdict.harness.model.paths import HARNESS, KERNELS, REFERENCE

PUBLIC = {"overrides", "reductions", "Library", "BackwardCFunction"}
INSIDE = re.compile(rf"torch(\.\w+)*\.(_[^_.]\w*|{'|'.join(PUBLIC)})(\.|$)")
"""Names below torch that begin with an underscore, and what modes, storages and operators are made of."""
OWNERS = (torch.Tensor, torch.UntypedStorage, torch.Generator, torch.library.Library, torch._ops.OpOverload)
HIDDEN = {name for owner in OWNERS for name in dir(owner)} | {*vars(torch.ops.aten.add.Tensor)}  # with public ones
ALLOWED = HARNESS / "model" / "torch_internals.py"


def internals(source: str) -> Iterator[str]:
    """Torch's internals that a module takes: by import, by a name below torch, of an object of torch's."""
    if not re.search(r"torch|_cdata|_schema|_op_dk", source):
        return  # parsing it all takes seconds
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = (f"{getattr(node, 'module', '')}.{alias.name}".removeprefix(".") for alias in node.names)
            yield from (name for name in names if INSIDE.match(name))
        elif isinstance(node, ast.Attribute):
            yield from taken(node.value, node.attr)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "setattr") and len(node.args) > 1:
            yield from taken(node.args[0], str(getattr(node.args[1], "value", "")))


def taken(owner: ast.expr, name: str) -> Iterator[str]:
    if re.match("_[^_]", name) or name in PUBLIC:
        whole = f"{ast.unparse(owner)}.{name}"
        if INSIDE.match(whole) or (name in HIDDEN - PUBLIC and not re.match(r"(self|cls)\.\w+$", whole)):
            yield whole


def test_one_module_takes_them() -> None:
    product = [path for folder in (HARNESS, KERNELS, REFERENCE) for path in folder.rglob("*.py") if path != ALLOWED]
    assert [f"{path}: {name}" for path in product for name in internals(path.read_text())] == []
    assert {"torch.utils._python_dispatch.TorchDispatchMode", "operator._schema"} <= {*internals(ALLOWED.read_text())}


SOURCES = """import torch._dynamo|from torch import _C|from torch.overrides import TorchFunctionMode|getattr(torch, '_C')
from torch.utils._python_dispatch import TorchDispatchMode|from torch.multiprocessing.reductions import StorageWeakRef
torch._C.DisableTorchFunction()|torch.autograd._engine_run_backward = f|f._schema.name|x.y()._cdata|getattr(s, '_cdata')"""


@pytest.mark.parametrize("source", re.split(r"[|\n]", SOURCES))
def test_a_name_inside_torch_is_refused(source: str) -> None:
    assert [*internals(source)]


def test_public_names_and_own_ones_are_not() -> None:
    own = "torch.__version__; torch.cuda.Stream(); self._base; x.__torch_dispatch__; torch_internals.schema_of(f); import triton._C"
    assert [*internals(own.replace("; ", "\n"))] == []
