"""Contract under test: a regime and a seed make the same codes everywhere, in the regime's range, and each regime can show what
it is for."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from bitverdict.harness.contracts.base.row_indices import ROW_KINDS, SPAN_KIND, row_numbers
from bitverdict.harness.contracts.inputs import block_scaled_inputs
from bitverdict.harness.contracts.inputs.block_scaled_inputs import ONE_CODES, REACHES
from bitverdict.harness.contracts.inputs.exact_inputs import generator
from bitverdict.harness.contracts.inputs.regimes import REGIMES, TENTH, decisive_codes, draw, special_codes
from bitverdict.harness.model.case import Case
from bitverdict.reference import scale_layout
from bitverdict.reference.formats import E4M3, FORMATS, decode

FLOATS = ("fp16", "bf16", "e4m3", "fp32", "tf32", "e5m2")
SHAPE = (37, 53)


def drawn(name: str, regime: str, data_seed: int = 5, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return draw(name, shape, regime, generator(data_seed, "a"))


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", [*FLOATS, "int8", "int32"])
def test_each_regime_draws_codes_of_the_format_in_its_storage(name: str, regime: str) -> None:
    codes = drawn(name, regime)
    assert codes.shape == SHAPE
    assert codes.dtype == (FORMATS[name].storage if name in FORMATS else np.dtype(name))
    assert np.array_equal(codes, drawn(name, regime)), "the same seed draws the same codes"
    assert not np.array_equal(codes, drawn(name, regime, data_seed=6))


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1)])
def test_empty_and_single_operands_are_drawn(regime: str, shape: tuple[int, int]) -> None:
    assert drawn("fp16", regime, shape=shape).shape == shape


def test_operands_of_one_case_are_independent() -> None:
    a, b = (draw("fp16", SHAPE, "normal", generator(5, name)) for name in "ab")
    assert not np.array_equal(a, b)


def test_the_stream_is_pinned() -> None:
    """A reproducer holds a seed, not data: another stream would replay another case."""
    digest = hashlib.sha256(b"".join(drawn("e4m3", regime).tobytes() for regime in ("integers", "wide", "subnormals"))).hexdigest()
    assert digest[:16] == "e7a73cfeaa64206f"


@pytest.mark.parametrize("name", FLOATS)
def test_integers_are_small_and_finite_regimes_are_finite(name: str) -> None:
    fmt = FORMATS[name]
    assert set(np.unique(decode(fmt, drawn(name, "integers")))) <= {-2.0, -1.0, 0.0, 1.0, 2.0}
    for regime in ("normal", "wide", "subnormals", "largest"):
        assert np.isfinite(decode(fmt, drawn(name, regime))).all(), regime


@pytest.mark.parametrize("name", FLOATS)
def test_subnormals_and_the_largest_are_there(name: str) -> None:
    fmt = FORMATS[name]
    tiny = np.abs(decode(fmt, drawn(name, "subnormals")))
    assert 0.3 < (tiny < fmt.smallest_normal).mean() < 0.7
    assert (np.abs(decode(fmt, drawn(name, "largest"))) > fmt.largest / 2.01).all()


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32"])
def test_wide_exponents_span_half_the_format(name: str) -> None:
    exponents = np.frexp(decode(FORMATS[name], drawn(name, "wide")))[1]
    assert np.ptp(exponents) >= (1 << FORMATS[name].exponent_bits) // 2 - 3


@pytest.mark.parametrize("name", ["fp16", "bf16", "e4m3", "fp32"])
def test_every_special_is_mutated_and_few_of_them_decide_whole_rows(name: str) -> None:
    fmt = FORMATS[name]
    seen: set[int] = set()
    for data_seed in range(24):
        codes = drawn(name, "planted", data_seed)
        decisive = np.isin(codes, list(decisive_codes(fmt).values()))
        assert decisive.sum() <= 2
        seen |= set(codes.ravel().tolist())
    assert set(special_codes(fmt).values()) <= seen
    assert set(decisive_codes(fmt).values()) <= seen


def test_specials_are_what_they_are_called() -> None:
    codes = special_codes(E4M3)
    values = {name: float(decode(E4M3, np.array([code], np.uint8))[0]) for name, code in codes.items()}
    assert values["largest"] == 448
    assert values["smallest subnormal"] == 2.0**-9
    assert values["-smallest normal"] == -(2.0**-6)
    assert np.isnan(decode(E4M3, np.array([decisive_codes(E4M3)["nan"]], np.uint8))).all()
    assert "inf" not in decisive_codes(E4M3)


@pytest.mark.parametrize(("name", "regime", "said"), [("fp16", "gaussian", "regime"), ("fp13", "normal", "format")])
def test_an_unknown_regime_or_format_is_refused_with_the_known_ones(name: str, regime: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"{said} '.*': unknown; use one of"):
        drawn(name, regime)


def test_the_integers_regime_shows_no_rounding_and_the_wide_one_does() -> None:
    """Why there is more than one regime: half-precision accumulation is exact on small integers."""
    for regime, same in (("integers", True), ("wide", False)):
        a, b = (decode(FORMATS["fp16"], draw("fp16", (8, 40), regime, generator(1, name))) for name in "ab")
        rounded = np.zeros((8, 8))
        for k in range(40):
            with np.errstate(over="ignore", invalid="ignore"):
                rounded = (rounded + a[:, k, None] * b[None, :, k]).astype(np.float16).astype(np.float64)
        assert np.array_equal(rounded, a @ b.T) is same


def numbered(kind: str, rows: int, block: int, count: int = 600) -> np.ndarray:
    case = Case(contract="x", problem=None, regime=f"normal/{kind}", data_seed=rows)
    return row_numbers(case, "rows", count, rows, scattered_in_blocks_of=block).codes


@pytest.mark.parametrize("rows", [1, 2, 40, 500, 700])
def test_row_numbers_are_of_the_kind_that_the_regime_names(rows: int) -> None:
    permuted, anywhere, repeated, edges = (numbered(kind, rows, 0) for kind in ROW_KINDS)
    assert len(set(permuted.tolist())) == 600 and (permuted >= 0).all() and permuted.max() < max(600, rows)
    assert -rows - 3 <= anywhere.min() < 0 and rows <= anywhere.max() < 2 * rows + 3
    assert ((anywhere >= 0) & (anywhere < rows)).any()
    assert 0 <= repeated.min() and repeated.max() < rows and len(set(repeated.tolist())) <= max(rows // 3, 1)
    assert set(edges.tolist()) == {0, rows - 1, rows, rows + 1, 2**31 - 1, -1, -2, -(2**31)}


@pytest.mark.parametrize("kind", ROW_KINDS)
def test_row_numbers_of_a_scatter_are_named_again_in_one_block_alone(kind: str) -> None:
    for rows in (1, 40, 700):
        codes = numbered(kind, rows, 32)
        assert (codes >= 0).all()
        blocks: dict[int, set[int]] = {}
        for place, code in enumerate(codes.tolist()):
            blocks.setdefault(code, set()).add(place // 32)
        assert all(len(met) == 1 for code, met in blocks.items() if code < rows)


def test_wide_block_scales_reach_to_either_side_of_one() -> None:
    exponents = block_scaled_inputs.draw("wide", "e2m1", "e8m0", 32, 400, 2048, 3, "a").scales.astype(int) - ONE_CODES["e8m0"]
    assert (exponents.min(), exponents.max()) == (-max(REACHES), max(REACHES))
    reach = np.abs(exponents).max(axis=1)  # (rows,)
    assert all((reach == most).sum() > 50 for most in REACHES[:3])


@pytest.mark.parametrize("zeros", [False, True])
def test_the_padding_of_packed_scales_holds_every_byte_or_zeros(zeros: bool) -> None:
    side = block_scaled_inputs.draw("normal", "e2m1", "e8m0", 32, 40, 32 * 130, 3, "a")
    packed = block_scaled_inputs.scale_operand("a_scale", "e8m0", side, 3, row_pad=0, tile_pad=0, zero_padding=zeros).codes
    padding = scale_layout.padding_mask(*side.scales.shape)
    assert set(packed[padding].tolist()) == ({0} if zeros else set(range(256)))
    assert np.array_equal(packed[~padding], scale_layout.pack(side.scales)[~padding])


def test_the_tenth_is_the_normal_regime_at_a_tenth_of_its_width() -> None:
    for name in ("bf16", "fp16"):
        wide, narrow = (decode(FORMATS[name], drawn(name, regime, shape=(200, 100))) for regime in ("normal", TENTH))
        assert 0.98 < wide.std() < 1.02 and 0.098 < narrow.std() < 0.102
        assert np.allclose(narrow, wide / 10, rtol=2.0**-6), "the same deviates"


def test_spanned_rows_reach_from_below_the_table_to_past_it_shuffled() -> None:
    gathered, scattered = (numbered(SPAN_KIND, 1024, block, 128) for block in (0, 128))
    assert (gathered.min(), gathered.max(), scattered.min(), scattered.max()) == (-1024, 2048, 0, 2048)
    for codes in (gathered, scattered):
        steps = np.diff(np.sort(codes))
        assert np.ptp(steps) <= 1 and len(set(codes.tolist())) == 128
        assert not np.array_equal(codes, np.sort(codes))


@pytest.mark.parametrize(("element", "scale", "block"), [("e2m1", "e8m0", 32), ("e2m1", "ue4m3", 16), ("e4m3", "e8m0", 32)])
def test_uniform_operands_are_the_tutorials(element: str, scale: str, block: int) -> None:
    """Values of e2m1, alike often; scales in (0, 1]: an e8m0 one rounded down, so a half of them is 1/2 and a quarter 1/4."""
    side = block_scaled_inputs.draw(block_scaled_inputs.UNIFORM, element, scale, block, 256, 1024, 3, "a")
    values = decode(FORMATS[element], side.codes)
    assert set(np.abs(values).ravel().tolist()) == {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0}
    assert 0.11 < (np.abs(values) == 6.0).mean() < 0.14
    scales = decode(FORMATS[scale], side.scales)
    assert scales.min() >= 0 and scales.max() <= 1
    if scale == "e8m0":
        assert 0.48 < (scales == 0.5).mean() < 0.52 and 0.23 < (scales == 0.25).mean() < 0.27
    else:
        assert 0.48 < scales.mean() < 0.52
