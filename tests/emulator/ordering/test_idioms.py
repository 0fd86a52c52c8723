"""Contract under test: what is legal but looks wrong passes on the emulated GPU under every schedule; its twin, which
differs by one text, fails by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from bitverdict.harness.emulator import EmulatedFault, emulated
from tests.faults.mutants import replaced_once
from tests.support.emulated_launches import SCHEDULES, described, load, matrix
from tests.support.tutorial_facts import holds

IDIOMS = Path(__file__).resolve().parents[2] / "faults" / "idioms"
SOURCES = [IDIOMS / f"gluon_{kind}_idioms.py" for kind in ("copy", "product", "partition")]
# idiom, what its twin replaces, by what, failed as
TWINS = [
    ("copy_waits_twice", "    mbarrier.wait(arrived, 0)  # the phase", "    mbarrier.wait(arrived, 1)  # the phase", "deadlock"),
    ("copy_waits_twice", "tma.async_load(a, [0, 0]", "tma.async_load(a, [0, 4]", "illegal instruction"),  # 8 bytes, not 16
    ("copy_waits_twice", "tma.async_store(out, [0, 0]", "tma.async_store(out, [0, 4]", "illegal instruction"),
    ("copy_loads_before_it_expects", "    mbarrier.expect(arrived, a.nbytes_per_cta)\n",
     "    mbarrier.expect(arrived, 64)\n", "barrier misuse"),
    ("copy_expects_in_two_parts", "barrier_of(2)", "barrier_of(1)", "barrier misuse"),
    ("copy_counts_what_lies_outside", "2 * a.nbytes_per_cta", "a.nbytes_per_cta", "race"),
    ("copy_counts_what_lies_outside", "tma.async_store(out, [4096, 0], outside)",
     "tma.async_store(out, [-4096, 0], outside)", "illegal instruction"),
    ("copy_reuses_the_source_of_the_older_store", "arrived, first)\n    mbarrier.wait(arrived, 1)",
     "arrived, second)\n    mbarrier.wait(arrived, 1)", "race"),
    ("copy_reuses_the_source_of_the_older_store", "tma.store_wait(pendings=1)", "tma.store_wait(pendings=2)", "race"),
    ("copy_skips_a_wait_by_predicate", "pred=False", "pred=True", "deadlock"),
    ("copy_counts_arrivals_of_two_kinds", "count=2", "count=3", "race"),
    ("copy_counts_arrivals_of_two_kinds", "barrier_of(3)", "barrier_of(4)", "deadlock"),
    ("product_commits_once_for_two",
     "    tcgen05_mma(a_tile, b_tile, sums, use_acc=False)\n    tcgen05_commit(done)  # covers both\n",
     "    tcgen05_commit(done)\n    tcgen05_mma(a_tile, b_tile, sums, use_acc=False)\n", "race"),
    ("product_accumulates_without_a_wait", "    tcgen05_mma(a_tile, b_tile, sums, use_acc=False)  # behind",
     "    stored(out, sums)  # behind", "race"),
    ("product_accumulates_without_a_wait", "    tcgen05_mma(a_tile, b_tile, sums, use_acc=False)\n",
     "    tcgen05_mma(a_tile, b_tile, sums)\n", "uninitialised read"),
    ("product_allocates_over_what_is_in_flight",
     "    mbarrier.wait(done, 0)\n    mbarrier.invalidate(done)\n    tile.store(sums.load().to(out.dtype))\n",
     "    tile.store(gl.zeros([128, 64], out.dtype, gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])))\n"
     "    mbarrier.wait(done, 0)\n", "race"),
    ("product_signals_without_a_commit", ", mbarriers=[done]", "", "deadlock"),
    ("product_commits_to_two_barriers", "    mbarrier.wait(second, 0)  # either will do\n", "", "race"),
    ("product_refills_while_the_sum_is_read", "    mbarrier.wait(done, 0)\n", "", "race"),
    ("product_refills_while_the_sum_is_read", "    mbarrier.wait(done, 1)\n", "    mbarrier.wait(done, 0)\n", "race or deadlock"),
    ("copy_is_read_by_two_partitions_at_once", "    value = a_tile.load(layout)  # (M, K), read only\n",
     "    value = a_tile.load(layout)\n    a_tile.store(value)\n", "race"),
    ("copy_is_read_by_two_partitions_at_once", "barrier_of(2)  # of", "barrier_of(3)  # of", "deadlock"),
    ("copy_is_fenced_by_the_partition_that_sends", "    mbarrier.wait(stored, 0)\n    fence_async_shared()",
     "    fence_async_shared()\n    mbarrier.wait(stored, 0)", "race"),
    ("copy_is_refilled_behind_the_fence_of_its_reader", "    fence_async_shared()  # between", "    # between", "race"),
    ("copy_is_refilled_behind_the_fence_of_its_loader", "    mbarrier.wait(seen, 0)\n    fence_async_shared()",
     "    fence_async_shared()\n    mbarrier.wait(seen, 0)", "race"),
    ("copy_is_refilled_by_the_partition_that_read_it",
     "    mbarrier.expect(arrived, a.nbytes_per_cta)\n    tma.async_load(a, [0, 0], arrived, a_tile)  # the",
     "    mbarrier.expect(arrived, a.nbytes_per_cta)\n    a_tile.store(value)  # the", "deadlock"),
    ("copy_is_sent_when_the_partitions_have_ended", "(a_tile, b_tile, spare)", "(b_tile, a_tile, spare)", "uninitialised read"),
    ("copy_is_made_by_partitions_that_began_before", "handed, True", "handed, False", "race"),
    ("copy_commits_empty_groups", "wait_group(2)", "wait_group(3)", "race"),
    ("copy_waits_for_the_phase_before_the_first", "mbarrier.wait(arrived, 1)  # parity",
     "mbarrier.wait(arrived, 0)  # parity", "deadlock"),
    ("copy_waits_for_the_phase_before_the_first", "mbarrier.wait(arrived, 1)  # parity",
     "mbarrier.wait(arrived, 3)  # parity", "barrier misuse"),
    ("copy_loads_ahead_while_there_is_more", "turn < 1", "turn < 2", "race"),
    ("copy_names_a_buffer_before_the_first", "pred=turn > 0", "pred=turn >= 0", "illegal address"),
    ("copy_gives_a_barrier_a_second_life", "    mbarrier.invalidate(arrived)\n    mbarrier.init(",
     "    mbarrier.init(", "barrier misuse"),
    ("copy_is_stored_twice_from_one_tile", "    seen = tile.load(layout)  # (M, K), while",
     "    seen = tile.load(layout)\n    tile.store(seen)  # while", "race"),
    ("product_reads_a_tile_that_both_operands_share", "    seen = b_tile.load(layout)  # (K, N), and",
     "    seen = b_tile.load(layout)\n    b_tile.store(seen)  # and", "race"),
    ("product_replaces_what_nobody_wrote", "use_acc=turn > 1", "use_acc=turn < 1", "uninitialised read"),
    ("copy_mixes_a_gather_and_a_tile_on_one_barrier", "ROWS * rows_of_a.nbytes_per_cta + b.nbytes_per_cta",
     "ROWS * rows_of_a.nbytes_per_cta", "barrier misuse or race"),
    ("copy_scatters_rows_beyond_the_end", "numbers + ROWS", "numbers - ROWS", "illegal instruction"),
    ("copy_scatters_rows_beyond_the_end", "    seen = tile.load(layout)  # (M, K), while",
     "    seen = tile.load(layout)\n    tile.store(seen)  # while", "race"),
    ("copy_asks_for_a_program_while_it_copies", "    mbarrier.wait(come, 0)\n", "", "race"),
    ("copy_adds_nothing_twice_to_what_it_stored", "tma.store_wait(pendings=0)", "pass", "race"),
    ("copy_adds_nothing_twice_to_what_it_stored", "pendings=0, read_only=False", "pendings=0, read_only=True", "race"),
    ("copy_adds_nothing_twice_to_what_it_stored", "tma.async_atomic_add(out, [0, 0], zeros)  # reads",
     "zeros.store(tile.load(gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])))  # reads", "race"),
    ("product_accumulates_on_a_copy_without_a_wait", "    tcgen05_mma(a_tile, b_tile, sums)  # behind the copy",
     "    stored(out, sums)  # behind the copy", "race"),
    ("product_chains_wgmma_without_a_wait", "    sums = warpgroup_mma_wait(0, deps",
     "    sums = warpgroup_mma_wait(1, deps", "race"),
]  # fmt: skip
IDIOMS = sorted({name for name, *_ in TWINS})


def source_of(idiom: str) -> Path:
    (found,) = (path for path in SOURCES if f"def {idiom}(" in path.read_text())
    return found


def arch_of(idiom: str) -> str:
    return "sm_90" if "wgmma" in idiom else "sm_100"


def run(module, idiom: str) -> None:
    """Launch the idiom and hold its result to what its name promises."""
    a, b, out = matrix(128, 64), matrix(64, 64, 1), torch.full((128, 64), float("nan"), dtype=torch.float16)
    if idiom == "copy_scatters_rows_beyond_the_end":
        rows = TensorDescriptor.from_tensor(out, [1, 64], gl.NVMMASharedLayout.get_default_for([128, 64], gl.float16))
        boxes = described(a, [128, 64]), described(b, [64, 64]), described(out, [128, 64])
        module.copy_scatters_rows_beyond_the_end[(1,)](*boxes, rows, 128, num_warps=4)
    elif idiom == "copy_commits_empty_groups":
        module.copy_commits_empty_groups[(1,)](a, 128, out, num_warps=4)
    elif idiom == "copy_mixes_a_gather_and_a_tile_on_one_barrier":
        swizzled = gl.NVMMASharedLayout.get_default_for([128, 64], gl.float16)
        rows = TensorDescriptor.from_tensor(a, [1, 64], swizzled)
        boxes = described(a, [128, 64]), described(b, [64, 64]), described(out, [128, 64])
        module.copy_mixes_a_gather_and_a_tile_on_one_barrier[(1,)](*boxes, rows, 128, num_warps=4)
    else:
        getattr(module, idiom)[(1,)](described(a, [128, 64]), described(b, [64, 64]), described(out, [128, 64]), num_warps=4)
    if idiom.startswith("copy"):
        assert torch.equal(out, a)
    else:
        assert ((out.double() - a.double() @ b.double()).abs() < 0.1).all()


@holds("order of products")
@pytest.mark.parametrize("idiom", IDIOMS)
def test_what_is_legal_but_looks_wrong_passes_under_every_schedule(idiom):
    module = load(source_of(idiom))
    for schedule in SCHEDULES:
        with emulated(arch_of(idiom), schedule) as device:
            run(module, idiom)
        assert not device.findings


@pytest.mark.share(2)
@pytest.mark.parametrize("twin", TWINS, ids=lambda t: f"{t[0]}-{TWINS.index(t)}")
def test_its_twin_fails_by_name_under_every_schedule(twin, tmp_path):
    idiom, replace, by, outcome = twin
    head, found, body = source_of(idiom).read_text().partition(f"def {idiom}(")
    if replace not in body.partition("\n\n\n")[0]:  # it is in a partition's function, which only this idiom uses
        text = replaced_once(head + found + body, replace, by, idiom)
    else:
        own, end, rest = body.partition("\n\n\n")
        text = head + found + replaced_once(own, replace, by, idiom) + end + rest
    path = tmp_path / "twin.py"
    path.write_text(text)
    module = load(path)
    said = {}
    for schedule in SCHEDULES:
        try:
            with emulated(arch_of(idiom), schedule):
                run(module, idiom)
            said[schedule] = "passed"
        except EmulatedFault as raised:
            said[schedule] = raised.outcome
    assert set(said.values()) <= set(outcome.split(" or ")), said  # a wait for another phase returns at once or never
