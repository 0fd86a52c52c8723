"""The mutants of `kernels/matmul.py`: what a person gets wrong in a tiled product, one text each.

The first group compiles to the very program of the right kernel for every launch of the tutorial's own test (whole tiles,
contiguous fp16, EVEN_K, no activation), so that no tolerance, size or luck lets that test see them: `test_mutants_of_matmul`
compares the programs."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

WRONG, STRAY_READ, STRAY_WRITE, NOT_REFUSED = "wrong words", "stray read", "stray write", "not refused"

UNGROUPED, GROUPS_OF_4 = "32x64x32 g1 w2 s5", "32x64x32 g4 w2 s5"


def _mutant(name: str, replace: str, by: str, *expected: str, on: tuple[str, ...] = (), **shows_in: str) -> Mutant:
    return Mutant(kernel="matmul", name=name, edits=once(replace, by), expected=expected, on=on, shows_in=tuple(shows_in.items()))


_A_TAIL = "a = tl.load(a_ptrs, mask=steps[None, :] < left, other=0.0)"
_B_TAIL = "b = tl.load(b_ptrs, mask=steps[:, None] < left, other=0.0)"
_BOTH_TAILS = f"{_A_TAIL}\n            {_B_TAIL}"
_DOT = "accumulator = tl.dot(a, b, accumulator, input_precision=PRECISION, out_dtype=ACCUMULATOR)"
_ROUNDED = "c = accumulator.to(c_ptr.dtype.element_ty)"
_STORE = "tl.store(c_ptrs, c, mask=(rows[:, None] < m) & (columns[None, :] < n))"
_RELU = "return tl.where(y >= 0, y, 0.01 * y)"
_GRID = 'triton.cdiv(problem.m, meta["BLOCK_M"])'

NO_FILL = _mutant(
    "tail without a fill", _BOTH_TAILS, _BOTH_TAILS.replace(", other=0.0", ""), "pass"
)  # zeros, as compiled: an advice
UNSEEN_BY_ITS_OWN_TEST = (
    _mutant("tail of A unmasked", _A_TAIL, "a = tl.load(a_ptrs)", STRAY_READ, WRONG),
    _mutant("tail of B unmasked", _B_TAIL, "b = tl.load(b_ptrs)", STRAY_READ, WRONG),
    _mutant("tails unmasked", _BOTH_TAILS, "a = tl.load(a_ptrs)\n            b = tl.load(b_ptrs)", STRAY_READ, WRONG),
    _mutant("tail mask one too long", _BOTH_TAILS, _BOTH_TAILS.replace("< left", "<= left"), STRAY_READ, WRONG),
    _mutant("tail mask one too short", _BOTH_TAILS, _BOTH_TAILS.replace("< left", "< left - 1"), WRONG),
    _mutant("tail filled with ones", _BOTH_TAILS, _BOTH_TAILS.replace("other=0.0", "other=1.0"), WRONG),
    _mutant("tail counted from the first block", "left = k - block * BLOCK_K", "left = k", STRAY_READ, WRONG),
    _mutant("tail counted in blocks of 16", "left = k - block * BLOCK_K", "left = k - block * 16", STRAY_READ, WRONG),
    _mutant("EVEN_K for multiples of 16", '% args["BLOCK_K"] == 0',
            "% 16 == 0", STRAY_READ, WRONG, **{"k mod 16": "0", "EVEN_K": "False"}),
    _mutant("EVEN_K for one block", '% args["BLOCK_K"] == 0',
            '% args["BLOCK_K"] == 0 or args["k"] == 1', STRAY_READ, WRONG, **{"k mod 16": "1"}),
    _mutant("A advances by columns", "a_ptrs += a_advance * stride_ak", "a_ptrs += a_advance", WRONG, STRAY_READ),
    _mutant("A taken as contiguous", "a_steps[None, :] * stride_ak", "a_steps[None, :]", WRONG, STRAY_READ),
    _mutant("B taken as contiguous", "b_columns[None, :] * stride_bn", "b_columns[None, :]", WRONG, STRAY_READ),
    _mutant("strides of a contiguous copy", "*a.stride(), *b.stride()", "*a.contiguous().stride(), *b.stride()", WRONG, STRAY_READ),
    _mutant("activation without its one", "    y = x + 1", "    y = x", WRONG),
    _mutant("activation with a steep slope", _RELU, _RELU.replace("0.01", "0.1"), WRONG),
    _mutant("activation on the wrong side", _RELU, _RELU.replace(">=", "<"), WRONG),
    _mutant("activation scales what it should shift", _RELU, _RELU.replace("0.01 * y", "0.01 * x"), WRONG),
    _mutant("activation in half precision", _RELU, "return tl.where(y >= 0, y, (0.01 * y).to(tl.float16).to(tl.float32))", WRONG),
    _mutant("activation never applied", 'if ACTIVATION == "leaky_relu":', 'if ACTIVATION == "leaky":', WRONG),
    _mutant("result rounded to half first", _ROUNDED, "c = accumulator.to(tl.float16).to(c_ptr.dtype.element_ty)", WRONG),
    _mutant("output type ignored", "dtype=ELEMENT_TYPES[problem.out].torch)", "dtype=a.dtype)", "wrong shape or dtype", WRONG),
    _mutant("precision ignored", "input_precision=PRECISION", 'input_precision="tf32"', WRONG, dtype="fp32 ieee"),
    _mutant("chain cut at every block", _DOT, "accumulator += tl.dot(a, b, input_precision=PRECISION, out_dtype=ACCUMULATOR)",
            WRONG, on=("emulated:sm_90",), dtype="e4m3"),
    _mutant("empty K left unwritten", "if c.numel() == 0:",
            "if c.numel() == 0 or problem.k == 0:", WRONG, **{"k at tile": "below", "EVEN_K": "True"}),
    _mutant("types not compared", 'holds=lambda p, c: p.dtype_of_b in ("", p.dtype)',
            "holds=lambda p, c: True", NOT_REFUSED, "refused", clause="same element type"),
    _mutant("K not compared", "holds=lambda p, c: p.k_of_b in (None, p.k)",
            "holds=lambda p, c: True", NOT_REFUSED, STRAY_READ, WRONG, clause="same K"),
    _mutant("ungrouped tiles counted down the rows", "tile_row = program // tile_columns", "tile_row = program // tile_rows", WRONG,
            config=UNGROUPED),
    _mutant("ungrouped tile taken for its transpose", "tile_column = program % tile_columns", "tile_column = program % tile_rows",
            WRONG, STRAY_WRITE, config=UNGROUPED),
    _mutant("ungrouped tiles one column over", "tile_column = program % tile_columns",
            "tile_column = (program + 1) % tile_columns + 1", WRONG, config=UNGROUPED),
    _mutant("groups of eight rows whatever is asked", "group_rows = min(tile_rows - first_row, GROUP_M)",
            "group_rows = min(tile_rows - first_row, 8)", WRONG, "race", config=GROUPS_OF_4),
    _mutant("groups eight rows apart whatever is asked", "(program // group_tiles) * GROUP_M", "(program // group_tiles) * 8",
            WRONG, STRAY_WRITE, config=GROUPS_OF_4),
)  # fmt: skip

OTHERS = (
    _mutant("rows not wrapped", "a_rows = rows % m", "a_rows = rows", STRAY_READ),
    _mutant("columns not wrapped", "b_columns = columns % n", "b_columns = columns", STRAY_READ),
    _mutant("rows wrapped at the columns", "a_rows = rows % m", "a_rows = rows % n", WRONG, STRAY_READ),
    _mutant("rows of the result unmasked", _STORE, "tl.store(c_ptrs, c, mask=columns[None, :] < n)", STRAY_WRITE),
    _mutant("columns of the result unmasked", _STORE, "tl.store(c_ptrs, c, mask=rows[:, None] < m)", STRAY_WRITE, WRONG, "race"),
    _mutant("one row too many", _STORE, _STORE.replace("< m", "<= m"), STRAY_WRITE),
    _mutant("one row too few", _STORE, _STORE.replace("< m", "< m - 1"), WRONG),
    _mutant("a word after the result", _STORE, _STORE + "\n    tl.store(c_ptr + m * stride_cm, 0.0)", STRAY_WRITE, "race"),
    _mutant("last group taken as whole", "group_rows = min(tile_rows - first_row, GROUP_M)",
            "group_rows = GROUP_M", WRONG, STRAY_WRITE),
    _mutant("groups one row apart", "(program // group_tiles) * GROUP_M", "program // group_tiles", WRONG, groups="several"),
    _mutant("row of the tile from the whole number", "tile_row = first_row + in_group % group_rows",
            "tile_row = in_group % group_rows", WRONG, groups="several"),
    _mutant("columns of tiles transposed", "tile_column = in_group // group_rows",
            "tile_column = in_group % tile_columns", WRONG, tiles="a grid"),
    _mutant("tail block left out", "range(tl.cdiv(k, BLOCK_K))", "range(k // BLOCK_K)", WRONG),
    _mutant("first block left out", "range(tl.cdiv(k, BLOCK_K))", "range(1, tl.cdiv(k, BLOCK_K))", WRONG),
    _mutant("ragged rows not launched", _GRID, 'problem.m // meta["BLOCK_M"]', WRONG),
    _mutant("accumulator rounded to half", _DOT,
            _DOT.replace("out_dtype=ACCUMULATOR)", "out_dtype=ACCUMULATOR).to(tl.float16).to(ACCUMULATOR)"), WRONG),
    _mutant("accumulation in half precision", "else tl.float32,", "else tl.float16,", WRONG, "refused", dtype="fp16"),
    _mutant("result truncated", _ROUNDED,
            "c = (accumulator.to(tl.int32, bitcast=True) & -8192).to(ACCUMULATOR, bitcast=True).to(c_ptr.dtype.element_ty)", WRONG),
    _mutant("stride of A for B", "b_steps[:, None] * stride_bk", "b_steps[:, None] * stride_am", WRONG, STRAY_READ),
    _mutant("B advances by columns", "b_ptrs += b_advance * stride_bk", "b_ptrs += b_advance * stride_bn", WRONG, STRAY_READ),
)  # fmt: skip

MUTANTS = UNSEEN_BY_ITS_OWN_TEST + OTHERS
