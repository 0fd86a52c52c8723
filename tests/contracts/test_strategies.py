"""Contract under test: sizes are drawn around the tile and in every residue, within their specialisation and the budget."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st

from bitverdict.harness.contracts.inputs import strategies
from bitverdict.harness.contracts.inputs.strategies import KINDS, cycle_value, edges, kind_of, pool_seed, schedules, sizes, within
from bitverdict.harness.contracts.matmul import BUDGET, CONTRACT, HARDWARE_BUDGET
from bitverdict.harness.contracts.softmax import CONTRACT as SOFTMAX
from bitverdict.harness.emulator.execution.async_ops import Schedule
from bitverdict.harness.model.targets import Target, target
from bitverdict.kernels.matmul import CONFIGS

GFX942 = target("emulated:gfx942")


def drawn(strategy: st.SearchStrategy, count: int) -> list:
    found: list = []

    @seed(0)
    @settings(max_examples=count, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value) -> None:
        found.append(value)

    collect()
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tile", [16, 32, 64, 256])
def test_a_size_is_of_its_kind_and_no_larger_than_its_tiles(tile: int, kind: str) -> None:
    for size in drawn(sizes(tile, 3, kind), 60):
        assert kind_of(size) == kind
        assert 0 <= size <= 3 * tile + 1


@pytest.mark.parametrize("tile", [32, 128])
def test_every_residue_and_every_edge_of_the_tile_is_drawn(tile: int) -> None:
    seen = {kind: Counter(drawn(sizes(tile, 2, kind), 1200)) for kind in KINDS}
    residues = {size % 16 for counts in seen.values() for size in counts}
    assert residues == set(range(16))
    assert set(edges(tile, 2)) <= {size for counts in seen.values() for size in counts}


def test_edges_are_the_sizes_that_off_by_one_faults_show_at() -> None:
    assert edges(32, 2) == (0, 1, 2, 31, 32, 33, 63, 64, 65)


@given(
    asked=st.tuples(*[st.integers(0, 1300)] * 3),
    tile=st.tuples(*[st.sampled_from((16, 32, 64, 128, 256))] * 3),
    budget=st.integers(1 << 18, 1 << 24),
)
@example(asked=(17, 0, 0), tile=(16, 64, 256), budget=1 << 18)
@settings(deadline=None, database=None, max_examples=200)
def test_a_budget_takes_whole_tiles_and_leaves_residues(asked, tile, budget) -> None:
    got = within(asked, tile, budget)
    tiles = [max(-(-size // t), 1) for size, t in zip(got, tile, strict=True)]
    work = tiles[0] * tiles[1] * tiles[2] * tile[0] * tile[1] * tile[2]
    least = [count == 1 or size == 17 for count, size in zip(tiles, got, strict=True)]  # 17 - 16 would be of the class of 1
    assert work <= budget or all(least)
    assert all(0 <= after <= before for after, before in zip(got, asked, strict=True))
    assert [after % 16 for after in got] == [before % 16 for before in asked]
    assert [after in (0, 1) for after in got] == [before in (0, 1) for before in asked]


def test_schedules_are_drawn_for_emulated_targets_only() -> None:
    assert set(drawn(schedules(False), 20)) == {"eager"}
    kinds = Counter(re.sub(r":\d+", "", schedule) for schedule in drawn(schedules(True), 200))
    assert set(kinds) == {kind + count for kind in ("eager", "latest", "drawn") for count in ("", " on 2")}
    assert all(Schedule(schedule).multiprocessors in (None, 2) for schedule in drawn(schedules(True), 20))


def test_the_pool_covers_every_configuration_and_type_and_follows_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    where = target("emulated:sm_90")
    pool = CONTRACT.pool(where, 0)
    pairs = {(special["types"]["dtype"], special["types"]["precision"], special["config"]) for special in pool}
    assert len(pairs) == len(pool) == 6 * len(CONFIGS["cuda"])
    assert CONTRACT.pool(where, 0) == pool
    assert CONTRACT.pool(where, 1) != pool
    monkeypatch.setenv("BITVERDICT_POOL_SEED", "7")
    assert pool_seed() == 7
    monkeypatch.setenv("BITVERDICT_POOL_SEED", "seven")
    with pytest.raises(ValueError, match="BITVERDICT_POOL_SEED='seven': must be an integer"):
        pool_seed()


def test_a_pool_keeps_compilations_few() -> None:
    """What Triton specialises on (sizes and strides that are 1 or multiples of 16, EVEN_K, constexprs): classes, not cases."""
    classes = set()
    cases = drawn(CONTRACT.cases(target("emulated:sm_90")), 600)
    for case in cases:
        p = case.problem
        numbers = (p.m, p.n, p.k, *p.a.strides(p.m, p.k), *p.b.strides(p.k, p.n))
        classes.add(
            (case.config, p.dtype, p.out, p.precision, p.activation, p.k % case.config.block_k == 0, tuple(map(kind_of, numbers)))
        )
    assert len(cases) == 600
    assert len(classes) < len(cases) / 3


@pytest.mark.parametrize(("name", "budget"), [("emulated:sm_80", BUDGET), ("hardware", HARDWARE_BUDGET)])
def test_drawn_cases_keep_within_the_budget_of_their_target(name: str, budget: int) -> None:
    where = target(name) if name != "hardware" else Target("cuda:0", "sm_90", index=0)
    for case in drawn(CONTRACT.cases(where), 100):
        p, c = case.problem, case.config
        tile = (c.block_m, c.block_n, c.block_k) if where.emulated else (16, 16, 16)
        work = 1
        for size, t in zip((p.m, p.n, p.k), tile, strict=True):
            work *= max(-(-size // t), 1) * t
        assert work <= max(budget, tile[0] * tile[1] * tile[2])
        assert where.emulated or case.schedule == "eager"


def test_a_cycle_with_a_coprime_stride_meets_every_value() -> None:
    assert {cycle_value(range(16), place, 5) for place in range(16)} == set(range(16))
    assert strategies.DIVISOR == 16


def test_a_bound_decides_some_word_of_each_drawn_case() -> None:
    """Softmax on AMD's targets, where planted infinities can leave all words of one row open."""
    assert all(SOFTMAX.decides(case, GFX942) for case in drawn(SOFTMAX.cases(GFX942), 400))
