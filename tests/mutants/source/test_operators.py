"""Contract under test: each operator edits what its name says, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.mutants.source.generate import of_function
from bitverdict.harness.mutants.source.operators import OPERATORS
from bitverdict.harness.mutants.source.places import File, reachable_functions

DEVICE = '''
@gluon.jit
def kernel(x, y, n, stride_am, stride_ak, a_layout: gl.constexpr, b_layout: gl.constexpr):
    """A docstring with a mask < 3."""
    pid_m, pid_n, acc, phase = 1, 2, 3, 4
    {}
'''
HOST = """
def launcher(a, b, m, n):
    {}
"""


def edits(statement: str, operator: str, frame: str) -> list[str]:
    """The texts that `operator` makes of `statement`, in order."""
    file = File(Path("k.py"), "k.py", frame.format(statement))
    (function,) = file.functions.values()
    line = frame[: frame.index("{}")].count("\n") + 1
    return [each.after for each in of_function("k", function) if each.operator == operator and each.line >= line]


ON_THE_DEVICE = {
    "mask dropped": [
        ("v = gl.load(x, mask=at < n, other=0.0)", ["v = gl.load(x)"]),
        ("gl.store(x, 1, mask=at < n)", ["gl.store(x, 1)"]),
        ("v = gl.where(at < n, x, 0)", []),
    ],
    "mask off by one": [
        ("inside = at < n", ["inside = at <= n"]),
        ("inside = at >= n", ["inside = at > n"]),
        ("inside = at == n", []),
    ],
    "bound off by one": [("inside = at < n - k", ["inside = at < (n - k - 1)"]), ("inside = at < 3", [])],
    "condition of a mask dropped": [("m = (a < n) & b", ["m = (a < n)", "m = b"]), ("m = a & 7", [])],
    "other value changed": [
        ("v = gl.load(x, mask=m, other=0.0)", ["v = gl.load(x, mask=m, other=1)"]),
        ('v = gl.load(x, other=-float("inf"))', ["v = gl.load(x, other=0)"]),
    ],
    "other value dropped": [("v = gl.load(x, mask=m, other=0.0)", ["v = gl.load(x, mask=m)"])],
    "bounds check dropped": [("v = tl.load(p, boundary_check=(0, 1))", ["v = tl.load(p)"])],
    "predicate dropped": [("tma.copy(a, b, pred=p)", ["tma.copy(a, b)"])],
    "predicate negated": [("tma.copy(a, b, pred=p)", ["tma.copy(a, b, pred=((p) == 0))"])],
    "where branches swapped": [("v = gl.where(c, a, b)", ["v = gl.where(c, b, a)"])],
    "where dropped": [("v = gl.where(c, a, b)", ["v = (a)", "v = (b)"])],
    "wait dropped": [
        ("mbarrier.wait(bar, phase)", ["pass"]),
        ("async_copy.wait_group(0)", ["pass"]),
        ("acc = warpgroup_mma_wait(0, deps=[acc])", ["acc = acc"]),
        ("acc, v = warpgroup_mma_wait(0, deps=(acc, v))", ["acc, v = (acc, v)"]),
        ("waiting(3)", []),
    ],
    "wait count changed": [("cp.wait_group(stages - 2)", ["cp.wait_group(stages - 2 + 1)"]), ("mbarrier.wait(bar, 0)", [])],
    "phase flipped": [("mbarrier.wait(bar, k & 1, pred=p)", ["mbarrier.wait(bar, ((k & 1) ^ 1), pred=p)"])],
    "phase kept": [("phase = phase ^ 1", ["phase = phase"]), ("phase ^= 1", ["pass"])],
    "byte count changed": [
        ("mbarrier.expect(bar, n * 2)", ["mbarrier.expect(bar, (n * 2) + 16)", "mbarrier.expect(bar, (n * 2) - 16)"])
    ],
    "arrivals changed": [("mbarrier.init(bar, count=1)", ["mbarrier.init(bar, count=(1) + 1)"])],
    "expect dropped": [("mbarrier.expect(bar, 64)", ["pass"])],
    "arrive dropped": [("mbarrier.arrive(bar, count=1)", ["pass"])],
    "fence dropped": [("fence_async_shared()", ["pass"])],
    "commit dropped": [("tcgen05_commit(bar)", ["pass"]), ("async_copy.commit_group()", ["pass"])],
    "barrier dropped": [("gl.barrier()", ["pass"])],
    "initialisation dropped": [("mbarrier.init(bar, count=1)", ["pass"])],
    "barrier index changed": [
        ("b = bars.index(0)", ["b = bars.index(1)"]),
        ("b = bars.index(i % 2)", ["b = bars.index(((i % 2) ^ 1))"]),
    ],
    "semantics relaxed": [
        ('gl.atomic_add(p, v, sem="acq_rel")', ['gl.atomic_add(p, v, sem="relaxed")']),
        ("gl.atomic_add(p, v)", ['gl.atomic_add(p, v, sem="relaxed")']),
    ],
    "another atomic": [("gl.atomic_add(p, v)", ["gl.atomic_max(p, v)"])],
    "atomic to store": [
        ('gl.atomic_add(p, v, mask=m, sem="relaxed")', ["gl.store(p, v, mask=m)"]),
        ("o = gl.atomic_add(p, v)", []),
    ],
    "index off by one": [("at = gl.arange(0, 16)", ["at = (gl.arange(0, 16) + 1)"])],
    "program axis changed": [("i = gl.program_id(0)", ["i = gl.program_id(1)"])],
    "stride dropped": [("p = x + i * stride_am", ["p = x + i"])],
    "stride swapped": [("p = x + i * stride_am", ["p = x + i * stride_ak"])],
    "tile index swapped": [("at = pid_m * 16", ["at = pid_n * 16"]), ("pid_m = x", [])],
    "quotient for remainder": [("i = a // b", ["i = a % b"]), ("i = a % b", ["i = a // b"])],
    "trip count off by one": [
        ("for i in range(n): pass", ["for i in range(n - 1):", "for i in range(n + 1):"]),
        ("for i in gl.static_range(1, n): pass", ["for i in gl.static_range(1, n - 1):", "for i in gl.static_range(1, n + 1):"]),
    ],
    "loop starts late": [
        ("for i in range(n): pass", ["for i in range(1, n):"]),
        ("for i in range(0, n, 16): pass", ["for i in range(0 + 16, n, 16):"]),
    ],
    "rounded down": [("t = gl.cdiv(n, 16)", ["t = ((n) // (16))"])],
    "accumulator not added": [("acc += v", ["acc = v"])],
    "accumulator not scaled": [("acc *= v", ["pass"])],
    "accumulator dropped": [
        ("acc = tl.dot(a, b, acc)", ["acc = tl.dot(a, b)"]),
        ("acc = tl.dot(a, b, acc=acc)", ["acc = tl.dot(a, b)"]),
    ],
    "accumulator kept": [("mma(a, b, c, use_acc=u)", ["mma(a, b, c, use_acc=True)", "mma(a, b, c, use_acc=False)"])],
    "accumulator starts elsewhere": [("acc = gl.zeros([16], gl.float32, l)", ["acc = (gl.zeros([16], gl.float32, l) + 1)"])],
    "another reduction": [("t = gl.sum(v, 0)", ["t = gl.max(v, 0)"]), ("t = max(v, 0)", [])],
    "another axis": [("t = gl.sum(v, axis=1)", ["t = gl.sum(v, axis=0)"])],
    "minimum for maximum": [
        ("t = gl.minimum(v, w)", ["t = gl.maximum(v, w)", "t = (v)"]),
        ("t = min(v, w)", ["t = max(v, w)", "t = (v)"]),
        ("t = gl.max(v, 0)", []),
    ],
    "precision of the product": [('d = tl.dot(a, b, input_precision="ieee")', ['d = tl.dot(a, b, input_precision="tf32")'])],
    "store dropped": [("gl.store(x, v)", ["pass"]), ("v = gl.load(x)", [])],
    "transpose dropped": [("v = w.T", ["v = w"]), ("v = w.permute((1, 0))", ["v = w"]), ("v = gl.permute(w, (1, 0))", ["v = (w)"])],
    "operands exchanged": [("d = tl.dot(a, b.T, acc)", ["d = tl.dot(b.T, a, acc)"])],
    "layout exchanged": [("v = gl.load(x, a_layout)", ["v = gl.load(x, b_layout)"])],
    "layout turned": [
        (
            "l: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [2, 2], [1, 0])",
            [
                "l: gl.constexpr = gl.BlockedLayout([4, 1], [8, 4], [2, 2], [1, 0])",
                "l: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [2, 2], [1, 0])",
                "l: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [2, 2], [0, 1])",
            ],
        ),
        ("v = gl.SliceLayout(1, a)", ["v = gl.SliceLayout(0, a)"]),
    ],
    "layout conversion dropped": [("v = gl.convert_layout(w, a_layout)", ["v = (w)"])],
    "swizzle changed": [
        (
            "l = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16)",
            ["l = gl.NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=16)"],
        )
    ],
    "cast dropped": [("v = w.to(gl.float32)", ["v = w"]), ("v = gl.cast(w, gl.float32)", ["v = (w)"])],
    "cast to another type": [("v = w.to(gl.float32)", ["v = w.to(gl.float16)"])],
    "converted, not reinterpreted": [("v = w.to(gl.int32, bitcast=True)", ["v = w.to(gl.int32)"])],
    "another format": [('d = tl.dot_scaled(a, s, "e2m1", b, t, f)', ['d = tl.dot_scaled(a, s, "e4m3", b, t, f)'])],
    "branch forced": [("if n: x = 1", ["if True:", "if False:"]), ("while n: x = 1", ["while False:"])],
    "choice forced": [("v = a if c else b", ["v = (a)", "v = (b)"])],
    "heuristic forced": [
        ("E: gl.constexpr = n % 2 == 0", ["E: gl.constexpr = True", "E: gl.constexpr = False"]),
        ("m = a < b", []),
    ],
    "and for or": [("if a and b: x = 1", ["if a or b:"])],
    "comparison inverted": [("m = a == b", ["m = a != b"])],
    "scale dropped": [("v = w * scale", ["v = w"]), ("v = scale_a * w", ["v = w"])],
    "sign dropped": [("v = -w", ["v = w"])],
    "another operation": [("v = a + b", ["v = a - b"]), ("v = (a + b) >> 1", ["v = (a + b) << 1", "v = (a - b) >> 1"])],
    "term dropped": [("p = x + i", ["p = x"])],
    "factor dropped": [("v = (a + b) * c", ["v = (a + b)", "v = c"])],
    "another function": [("v = gl.exp(w)", ["v = gl.exp2(w)"])],
    "function dropped": [("v = gl.exp(w)", ["v = (w)"])],
    "constant changed": [
        ("v = w + 16", ["v = w + 17", "v = w + 15"]),
        ("v = w * 0.5", ["v = w * (0.5 * 2)"]),
        ("a = gl.arange(0, 16)", []),
    ],
}
ON_THE_HOST = {
    "grid too small": [
        ("kernel[(m, n)](a)", ["kernel[((m) - 1, n)](a)", "kernel[(m, (n) - 1)](a)"]),
        ("grid = lambda meta: (n,)", ["grid = lambda meta: ((n) - 1,)"]),
    ],
    "grid too large": [("kernel[(m,)](a)", ["kernel[((m) + 1,)](a)"])],
    "arguments swapped": [
        ("kernel[(1,)](a, b, m, n)", ["kernel[(1,)](b, a, m, n)", "kernel[(1,)](a, b, n, m)"]),
        ("kernel[(1,)](a, a.stride(0), a.stride(1))", ["kernel[(1,)](a, a.stride(1), a.stride(0))"]),
    ],
    "argument off by one": [("kernel[(1,)](a, m)", ["kernel[(1,)](a, m - 1)"])],
    "stride swapped": [("s = a.stride(0)", ["s = a.stride(1)"]), ("s = a.shape[1]", ["s = a.shape[0]"])],
    "output of another type": [("c = torch.empty((m, n), dtype=torch.float32)", ["c = torch.empty((m, n), dtype=torch.float16)"])],
    "initialisation of an output dropped": [("c = torch.zeros(m)", ["c = torch.empty(m)"]), ("c.zero_()", ["pass"])],
    "contiguous dropped": [("a = a.contiguous()", ["a = a"])],
    "block of another size": [
        ("d = TensorDescriptor.from_tensor(a, [16, 32])", ["d = TensorDescriptor.from_tensor(a, [32, 16])"]),
        ("n = triton.next_power_of_2(n)", ["n = (triton.next_power_of_2(n) // 2)"]),
    ],
    "heuristic forced": [("e = m % 16 == 0", ["e = True", "e = False"])],
    "constant changed": [("kernel[g](a, num_warps=4)", []), ('raise ValueError(f"{m + 1}")', []), ("assert m < 3", [])],
    "branch forced": [("if m < 3: raise ValueError(m)", [])],
}


@pytest.mark.parametrize("operator", [*ON_THE_DEVICE])
def test_an_operator_edits_device_code(operator: str) -> None:
    for statement, expected in ON_THE_DEVICE[operator]:
        assert edits(statement, operator, DEVICE) == expected


@pytest.mark.parametrize("operator", [*ON_THE_HOST])
def test_an_operator_edits_a_launcher(operator: str) -> None:
    for statement, expected in ON_THE_HOST[operator]:
        assert edits(statement, operator, HOST) == expected


def test_each_operator_is_tested() -> None:
    assert OPERATORS.keys() == ON_THE_DEVICE.keys() | ON_THE_HOST.keys()


def test_the_page_of_mutants_has_a_row_for_each_operator() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "mutants.md").read_text()
    for each in OPERATORS.values():
        assert f"| {each.family} | {each.name} | {each.says} |\n" in page


FILE = """
@triton.jit
def inner(x):
    return x + 1

@triton.jit
def kernel(x):
    tl.store(x, inner(x))

@triton.jit
def not_launched(x):
    tl.store(x, 1)

def size(a):
    return a.shape[0]

def launcher(a):
    kernel[(size(a),)](a)

def beside(a):
    return a + 1

@bv.judged(reference=f)
def test_it(draw):
    return launcher(draw)
"""


@pytest.mark.parametrize("root", ["", "launcher", "test_it"])
def test_what_a_launcher_reaches_is_edited_and_nothing_else(root: str) -> None:
    found = reachable_functions([File(Path("k.py"), "k.py", FILE)], root)
    assert [each.name for each in found] == ["inner", "kernel", "size", "launcher"]
    assert reachable_functions([File(Path("k.py"), "k.py", FILE)], "beside") == []


def test_an_edit_of_one_function_keeps_the_ids_of_others() -> None:
    def ids(text: str) -> list[str]:
        (file,) = [File(Path("k.py"), "k.py", text)]
        return [each.id for each in of_function("k", file.functions["kernel"])]

    assert ids(FILE) == ids("# é\n" + FILE.replace("x + 1", "x + 2 + 3")) != []
