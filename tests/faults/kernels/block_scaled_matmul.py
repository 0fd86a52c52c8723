"""The mutants of `kernels/block_scaled_matmul.py`: what a person gets wrong between packed scales and a ragged product.

The first group passes the tutorial's own check (its data, its tolerance, whole tiles, equal sizes, 2D loads, fp16 output), the
second does not; `test_mutants_of_block_scaled_matmul` runs it on each of them."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

WRONG, STRAY_READ, NOT_REFUSED = "wrong words", "stray read", "not refused"
SM_90, SM_100 = "emulated:sm_90", "emulated:sm_100"


def _mutant(name: str, replace: str, by: str, *expected: str, on: str = SM_90, **shows_in: str) -> Mutant:
    classes = tuple((dimension.replace("_", " "), member) for dimension, member in shows_in.items())
    return Mutant(kernel="block_scaled_matmul", name=name, edits=once(replace, by), expected=expected, on=(on,), shows_in=classes)


_B_LOAD = "load_scales(b_scale, n, columns, b_strides[0], b_strides[1],"
_WHOLE = 'meta["WHOLE_BLOCKS"] = triton.cdiv(p.k, f.block_size) % (c.block_k // f.block_size) == 0'
_SELECT = "tl.where((column < columns)[None, :], scales.to(tl.uint8, bitcast=True), ONE_CODE)"
_DOT = "tl.dot_scaled(a, scale_a, A, b, scale_b, B, accumulator)"
_STORED = "accumulator.to(c_desc.dtype))"
_PLACES_5D = "+ lane[None, None, :, None, None] * 16 + four[None, None, None, :, None] * 4"
_FLAT_TILES = "packed_scales = packed_scales.reshape(TILES, STEPS, 32, 4, 4)"
_UNPACKED = "packed_scales.trans(0, 3, 2, 1, 4).reshape(TILES * 128, STEPS * 4)"
_COLUMNS = "columns = tl.cdiv(k, BLOCK_SIZE)"
_THERE = "tile_mask = tile < tl.cdiv(rows, 128)"
_ALONG_N = "b_desc.load([block * BLOCK_K, column * BLOCK_N])"
_GRID = "triton.cdiv(p.m, c.block_m) * triton.cdiv(p.n, c.block_n)"

UNSEEN_BY_ITS_OWN_TEST = (
    _mutant("strides of A for scales of B", _B_LOAD, _B_LOAD.replace("b_strides", "a_strides"), WRONG, STRAY_READ,
           scale_strides="of their own"),
    _mutant("rows of A bound scales of B", _B_LOAD, _B_LOAD.replace(" n,", " m,"), WRONG, STRAY_READ, scale_tile_rows="more of B"),
    _mutant("rows for tiles in the bound", _THERE, "tile_mask = tile < rows", STRAY_READ, config="256x128x128 s3 w4 2D device"),
    _mutant("rows modulo themselves for a bound", _THERE, "tile = tile % rows\n    tile_mask = tile < rows", STRAY_READ,
           config="256x128x128 s3 w4 2D device"),
    _mutant("tiles rounded down", _THERE, "tile_mask = tile < rows // 128", WRONG, scale_tiles_of_K="ragged"),
    _mutant("last ragged tile of K", _WHOLE, 'meta["WHOLE_BLOCKS"] = True', WRONG, STRAY_READ, scale_tiles_of_K="ragged"),
    _mutant("padding used as scales", _SELECT, "scales.to(tl.uint8, bitcast=True)", WRONG, scale_tiles_of_K="ragged"),
    _mutant("scale after the end is NaN", _SELECT, _SELECT.replace("ONE_CODE", "0x7F + 0x80 * (ONE_CODE == 0x7F)"), WRONG,
           scale_tiles_of_K="ragged"),
    _mutant("short block without a scale", _COLUMNS, "columns = k // BLOCK_SIZE", WRONG, last_block="short"),
    _mutant("VEC_SIZE of 32 for all", _COLUMNS, "columns = tl.cdiv(k, 32)", WRONG, dtype="nvfp4", scale_tiles_of_K="ragged"),
    _mutant("32x4x4 read as 32x4x4 transposed", _PLACES_5D, _PLACES_5D.replace("16", "32").replace("4", "1"), WRONG, STRAY_READ,
           scale_tiles_of_K="whole", loads="5D host"),
    _mutant("quarters before lanes", _PLACES_5D, _PLACES_5D.replace("4", "lanes").replace("16", "4").replace("lanes", "16"),
           WRONG, STRAY_READ, loads="5D host"),
    _mutant("tiles as if contiguous", "tile_column.to(tl.int64) * stride_tile", "tile_column.to(tl.int64) * 512", WRONG, STRAY_READ,
           config="128x256x128 s3 w8 5D host"),
    _mutant("E8M0 NaN ignored", _FLAT_TILES, f"{_FLAT_TILES}\n        if base.dtype.element_ty == tl.uint8:\n"
           "            packed_scales = tl.minimum(packed_scales, 254).to(tl.uint8)", WRONG,
           on=SM_100, dtype="mxfp4", regime="cover b"),
    _mutant("output through half precision", _STORED, "accumulator.to(tl.float16).to(c_desc.dtype))", WRONG, out="fp32"),
    _mutant("output saturates", _STORED, "tl.clamp(accumulator, -65504.0, 65504.0).to(c_desc.dtype))", WRONG, out="fp32",
           regime="ends"),
    _mutant("e5m2 for e4m3", "dtype=out.torch, device", "dtype=torch.float8_e5m2 if p.out == 'e4m3' else out.torch, device",
           "wrong shape or dtype", out="e4m3"),
    _mutant("grid rounded down", _GRID, "max(p.m // c.block_m, 1) * max(p.n // c.block_n, 1)", WRONG),
    _mutant("rows of C not aligned", "(p.m, triton.cdiv(p.n, unit) * unit)", "(p.m, p.n)", "launcher error", "race", WRONG,
           n_mod_16="2"),
    _mutant("rows of a spread B not checked", "p.k % SPREAD_UNIT == 0", "p.k % 2 == 0", NOT_REFUSED, dtype="mixed"),
    _mutant("warps not checked", "c.num_warps in (4, 8)", "c.num_warps in (2, 4, 8)", NOT_REFUSED,
           config="128x128x128 s3 w2 2D host"),
    _mutant("B along N read at its transposed place", _ALONG_N, "b_desc.load([column * BLOCK_N, block * BLOCK_K])", WRONG,
            B="along N"),
    _mutant("B along N read one block of K on", _ALONG_N, "b_desc.load([(block + 1) * BLOCK_K, column * BLOCK_N])", WRONG,
            B="along N"),
    _mutant("B along N turned by nobody", 'b = b.T if p.b_order == "row" else b', "b = b", WRONG, STRAY_READ, "refused",
            "launcher error", B="along N"),
    _mutant("nibbles along N not refused", 'p.b_order == "column" or FORMATS[p.format].b == "e4m3"', "True", NOT_REFUSED, "refused",
            B="along N"),
)  # fmt: skip

SEEN_BY_ITS_OWN_TEST = (
    _mutant("scale axes swapped", _UNPACKED, _UNPACKED.replace("(0, 3, 2, 1, 4)", "(0, 2, 3, 1, 4)"), WRONG),
    _mutant("quarter and column swapped", _UNPACKED, _UNPACKED.replace("(0, 3, 2, 1, 4)", "(0, 4, 2, 1, 3)"), WRONG),
    _mutant("scale of A for B", _B_LOAD, _B_LOAD.replace("b_scale", "a_scale"), WRONG, STRAY_READ),
    _mutant("the same tile of scales always", "row * (BLOCK_M // 128), block * STEPS,", "row * (BLOCK_M // 128), 0 * block,",
           WRONG),
    _mutant("nibbles of A in the other order", f"accumulator = {_DOT}",
           'a = a if A != "e2m1" else (a << 4) | (a >> 4)\n        accumulator = ' + _DOT, WRONG, dtype="mxfp4"),
    _mutant("accumulator in half precision", f"accumulator = {_DOT}",
           f"accumulator = {_DOT}.to(tl.float16).to(tl.float32)", WRONG),
)  # fmt: skip

MUTANTS = UNSEEN_BY_ITS_OWN_TEST + SEEN_BY_ITS_OWN_TEST
