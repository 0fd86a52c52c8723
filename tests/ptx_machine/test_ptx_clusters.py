"""Contract under test: the CTAs of a cluster reach each other's shared memory and mbarriers where PTX orders them, multicast copies
land in all of them; a twin of each kernel that lacks a barrier, a fence or a wait, or names another rank, ends by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.releases import RELEASES, installed_release
from bitverdict.harness.model.targets import target
from bitverdict.harness.ptx_machine import bulk_copies
from bitverdict.harness.ptx_machine.below_the_tile_program import PtxResult, PtxTwin
from bitverdict.harness.ptx_machine.launch import ptx_kernel
from bitverdict.harness.ptx_machine.shared_space import ASYNC_PEERS, SharedSpace
from bitverdict.harness.ptx_machine.thread_order import Order
from tests.emulator import test_clusters
from tests.emulator.memory import test_im2col_loads
from tests.ptx_machine.test_below_the_tile_program import required_case, results
from tests.ptx_machine.test_ptx_machine import kernel, replaced_once
from tests.support import cluster_kernels

MEET = "barrier.cluster.arrive.release.aligned;\n    barrier.cluster.wait.acquire.aligned;"


def launch(text: str, *values: object, grid: object = 4, cluster: str = "2", block: int = 64) -> None:
    of_cluster = replaced_once(
        text.replace("sm_80", "sm_90").replace(".version 8.5", ".version 8.7"),
        ")\n{",
        f")\n.explicitcluster\n.reqnctapercluster {cluster}\n{{",
    )
    with emulated("sm_90"):
        ptx_kernel(of_cluster, "kernel")[grid, block](*values)  # type: ignore[index]


EXCHANGE = kernel(
    f"""
    mov.u32 %r4, %cluster_ctarank; xor.b32 %r5, %r4, 1;
    mov.u32 %r6, tile; shl.b32 %r7, %r0, 2; add.u32 %r8, %r6, %r7;
    st.shared.b32 [%r8], %r3;
    {MEET}  // all have stored
    mapa.shared::cluster.u32 %r9, %r8, %r5;
    ld.shared::cluster.b32 %r20, [%r9];
    {MEET}  // all have read
    mul.wide.u32 %rd1, %r3, 4; add.s64 %rd2, %rd10, %rd1;
    st.global.b32 [%rd2], %r20;""",
    "u64",
    shared=".shared .align 16 .b8 tile[256];",
)


def test_a_cta_reads_the_shared_memory_of_its_peer() -> None:
    out = torch.zeros(256, dtype=torch.int32)
    launch(EXCHANGE, out)
    assert torch.equal(out.view(2, 2, 64), torch.arange(256, dtype=torch.int32).view(2, 2, 64).flip(1))


def test_generic_addresses_and_ranks_of_a_peer() -> None:
    text = replaced_once(EXCHANGE, "mapa.shared::cluster.u32 %r9, %r8, %r5;\n    ld.shared::cluster.b32 %r20, [%r9];",
                         "cvt.u64.u32 %rd3, %r8; cvta.shared.u64 %rd3, %rd3; mapa.u64 %rd4, %rd3, %r5; ld.b32 %r20, [%rd4];\n"
                         "    getctarank.u64 %r21, %rd4; mov.u64 %rd5, tile; cvt.u32.u64 %r22, %rd5;\n"
                         "    getctarank.shared::cluster.u32 %r23, %r22; shl.b32 %r21, %r21, 8; or.b32 %r21, %r21, %r23;\n"
                         "    shl.b32 %r21, %r21, 16; or.b32 %r20, %r20, %r21;")  # fmt: skip
    out = torch.zeros(256, dtype=torch.int32)
    launch(text, out)
    ranks = torch.tensor([1 << 24, 1 << 16] * 2, dtype=torch.int32)[:, None]
    assert torch.equal(out.view(4, 64), torch.arange(256, dtype=torch.int32).view(2, 2, 64).flip(1).reshape(4, 64) | ranks)


FIRST, LAST = f"{MEET}  // all have stored", f"{MEET}  // all have read"
RELAXED = "barrier.cluster.arrive.relaxed.aligned;\n    barrier.cluster.wait.aligned;"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (FIRST, "bar.sync 0;", r"race: ld\.shared::cluster.* rank 1 of its cluster, which may not have begun"),
        (FIRST, RELAXED, "race: thread .* reads byte .* which thread .* wrote: nothing orders the two"),
        (LAST, "", r"race: ld\.shared::cluster.* which may have ended: nothing orders its end"),
        (LAST, RELAXED, "race: .* which may have ended"),
        (FIRST, f"{MEET}\n    setp.eq.u32 %p1, %r4, 1;\n    @%p1 ret;", "race: .* rank 1 of its cluster, which has ended"),
        ("ld.shared::cluster", "ld.shared", r"illegal address: .* whose shared memory needs \.shared::cluster"),
        ("%r8, %r5;", "%r8, 2;", "illegal address: .* of the CTA of rank 2, which is none of its cluster"),
        ("barrier.cluster.wait.acquire.aligned;  // all have read", "barrier.cluster.arrive;", "barrier misuse: .* arrives twice"),
        ("barrier.cluster.arrive.release.aligned;\n    barrier.cluster.wait.acquire.aligned;  // all have read",
         "barrier.cluster.wait;", "barrier misuse: .* waits without having arrived"),
        (LAST, f"setp.eq.u32 %p1, %r3, 70;\n    @%p1 bar.sync 1, 64;\n    {MEET}", "deadlock: thread 70 waits at barrier 1"),
        ("mov.u32 %r6, tile;", "mov.u32 %r6, tile; and.b32 %r6, %r6, 0xFEFFFFFF;", "illegal address: .* of the CTA of rank 0"),
    ],
    ids=["no barrier", "relaxed", "ends early", "ends behind a relaxed one", "has ended", "own space", "no such rank",
         "arrives twice", "does not arrive", "never comes", "even CTA"],
)  # fmt: skip
def test_a_fault_between_ctas_of_a_cluster_is_seen(before: str, after: str, said: str) -> None:
    with pytest.raises(EmulatedFault, match=said):
        launch(replaced_once(EXCHANGE, before, after), torch.zeros(256, dtype=torch.int32))


@pytest.mark.parametrize("meeting", [FIRST, LAST])
def test_a_fence_makes_up_for_a_relaxed_arrival(meeting: str) -> None:
    """Behind the store or the load, and not before it."""
    out = torch.zeros(256, dtype=torch.int32)
    fence = "fence.acq_rel.cluster;"
    launch(replaced_once(EXCHANGE, meeting, f"{fence} {RELAXED}"), out)
    assert torch.equal(out.view(2, 2, 64), torch.arange(256, dtype=torch.int32).view(2, 2, 64).flip(1))
    access = "    st.shared.b32 [%r8], %r3;" if meeting == FIRST else "    ld.shared::cluster.b32 %r20, [%r9];"
    early = replaced_once(replaced_once(EXCHANGE, meeting, RELAXED), access, f"    {fence}\n{access}")
    with pytest.raises(EmulatedFault, match="race: "):
        launch(early, out)


def test_the_wrong_rank_gives_other_words() -> None:
    out = torch.zeros(256, dtype=torch.int32)
    launch(replaced_once(EXCHANGE, "%r8, %r5;", "%r8, %r4;"), out)
    assert torch.equal(out, torch.arange(256, dtype=torch.int32))


THROUGH_GLOBAL = kernel(
    f"""
    mul.wide.u32 %rd1, %r3, 4; add.s64 %rd2, %rd10, %rd1; add.s64 %rd3, %rd11, %rd1;
    st.global.b32 [%rd2], %r3;
    {MEET}
    xor.b32 %r4, %r3, 64; mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %rd10, %rd4;
    ld.global.b32 %r5, [%rd5]; st.global.b32 [%rd3], %r5;""",
    "u64",
    "u64",
)


def test_a_barrier_of_the_cluster_orders_global_memory() -> None:
    """Thread t of the grid reads what t + 64 or t - 64 stored, in the other CTA of its cluster, or one in another cluster."""
    x, y = torch.zeros(2, 256, dtype=torch.int32)
    launch(THROUGH_GLOBAL, x, y)
    assert torch.equal(y.view(2, 2, 64), torch.arange(256, dtype=torch.int32).view(2, 2, 64).flip(1))
    for before, after in ((MEET, RELAXED), (MEET, "bar.sync 0;"), ("%r3, 64;", "%r3, 128;")):
        with pytest.raises(EmulatedFault, match=r"race: thread .* of p0, which thread .* nothing orders the two"):
            launch(replaced_once(THROUGH_GLOBAL, before, after), torch.zeros_like(x), y)


def test_a_cta_that_ends_counts_as_arrived_at_the_clusters_barrier() -> None:
    """Rank 1 ends at once, and nobody uses its memory."""
    text = kernel(f"mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %p1, %r4, 1;\n    @%p1 bra DONE;\n    {MEET}\nDONE:", "u64")
    launch(text, torch.zeros(1))


NUMBERS = kernel(
    """
    mov.u32 %r4, %cluster_ctaid.x; mov.u32 %r5, %cluster_ctaid.y; mov.u32 %r6, %clusterid.x; mov.u32 %r7, %clusterid.y;
    mov.u32 %r20, %ctaid.x; mov.u32 %r21, %ctaid.y; mov.u32 %r22, %cluster_ctarank; mov.u32 %r23, %cluster_nctarank;
    mov.u32 %r24, %nclusterid.x; mov.u32 %r25, %cluster_nctaid.y; mov.u32 %r26, %nctaid.x;
    mad.lo.u32 %r8, %r21, %r26, %r20; mul.wide.u32 %rd1, %r8, 32; add.s64 %rd2, %rd10, %rd1;
    shl.b32 %r24, %r24, 8; or.b32 %r24, %r24, %r25; shl.b32 %r23, %r23, 16; or.b32 %r24, %r24, %r23;
    st.global.v4.b32 [%rd2], {%r4, %r5, %r6, %r7}; st.global.v4.b32 [%rd2+16], {%r20, %r21, %r22, %r24};""",
    "u64",
)


def test_a_cluster_of_two_axes_numbers_its_ctas() -> None:
    out = torch.zeros(4, 6, 8, dtype=torch.int32)
    launch(NUMBERS, out, grid=(6, 4), cluster="3, 2, 1", block=1)
    for y in range(4):
        for x in range(6):
            expected = [x % 3, y % 2, x // 3, y // 2, x, y, x % 3 + 3 * (y % 2), 2 << 8 | 2 | 6 << 16]
            assert out[y, x].tolist() == expected
    with pytest.raises(ValueError, match=r"clusters of 3 x 2 x 1 CTAs divide it"):
        launch(NUMBERS, out, grid=(6, 3), cluster="3, 2, 1", block=1)


HAND_OVER = kernel(
    """
    mov.u32 %r4, %cluster_ctarank; mov.u32 %r5, tile; mov.u32 %r6, full; shl.b32 %r7, %r0, 2; add.u32 %r8, %r5, %r7;
    setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r4, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r6], 64;
    @%p1 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.relaxed; barrier.cluster.wait;
    @!%p2 bra TAKE;
    mapa.shared::cluster.u32 %r20, %r8, 1; mapa.shared::cluster.u32 %r21, %r6, 1;
    st.shared::cluster.b32 [%r20], %r3;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r21];
    bra DONE;
TAKE:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r6], 0;
    ld.shared.b32 %r22, [%r8];
    mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd10, %rd1; st.global.b32 [%rd2], %r22;
DONE:""",
    "u64",
    shared=".shared .align 16 .b8 tile[256];\n.shared .align 8 .b64 full;",
)


def test_a_cta_stores_to_its_peer_and_arrives_at_its_mbarrier() -> None:
    out = torch.zeros(64, dtype=torch.int32)
    launch(HAND_OVER, out, grid=2)
    assert torch.equal(out, torch.arange(64, dtype=torch.int32))


STORE, ARRIVAL = "st.shared::cluster.b32 [%r20], %r3;", "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r21];"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("    @%p1 fence.mbarrier_init.release.cluster;\n", "", "race: .* uses the barrier at byte"),
        (f"{STORE}\n    {ARRIVAL}", f"{ARRIVAL}\n    {STORE}", "race: "),
        ("arrive.release.cluster.shared::cluster", "arrive.relaxed.cluster.shared::cluster", "race: "),
        ("_, [%r21];", "_, [%r6];", "deadlock: .* waits at an mbarrier"),
        (ARRIVAL, f"{ARRIVAL} {ARRIVAL}", r"deadlock: .*phase 2"),
        ("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r6], 0;", "", "race: "),
        ("[%r6], 64;", "[%r6], 32;", "barrier misuse|race"),
        ("try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r6], 0",
         "try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r6], 1", "deadlock: .*phase 1"),
    ],
    ids=["init not fenced", "stores late", "relaxed", "own mbarrier", "arrives twice", "no wait", "count", "parity"],
)  # fmt: skip
def test_a_fault_at_a_peers_mbarrier_is_seen(before: str, after: str, said: str) -> None:
    with pytest.raises(EmulatedFault, match=said):
        launch(replaced_once(HAND_OVER, before, after), torch.zeros(64, dtype=torch.int32), grid=2)


SEND = replaced_once(
    replaced_once(
        replaced_once(HAND_OVER, "[%r6], 64;", "[%r6], 1;\n    @%p1 mbarrier.expect_tx.shared::cta.b64 [%r6], 256;"),
        f"{STORE}\n    {ARRIVAL}\n",
        """st.shared.b32 [%r8], %r3; fence.proxy.async.shared::cta; bar.sync 0;
    mapa.shared::cluster.u32 %r20, %r5, 1;
    @!%p1 bra SENT;
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r20], [%r5], 256, [%r21];
SENT:
    barrier.cluster.arrive; barrier.cluster.wait;
""",
    ),
    "    ld.shared.b32 %r22, [%r8];",
    "    ld.shared.b32 %r22, [%r8]; barrier.cluster.arrive; barrier.cluster.wait;",
)
SEND = replaced_once(SEND, "TAKE:\n", "TAKE:\n    @%p1 mbarrier.arrive.shared::cta.b64 _, [%r6];\n")


def test_a_cta_sends_bytes_to_its_peer() -> None:
    out = torch.zeros(64, dtype=torch.int32)
    launch(SEND, out, grid=2)
    assert torch.equal(out, torch.arange(64, dtype=torch.int32))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("fence.proxy.async.shared::cta;", "", r"race: .* no fence\.proxy\.async between"),
        ("[%r6], 256;", "[%r6], 128;", "barrier misuse: 128 bytes more arrived"),
        ("256, [%r21];", "256, [%r6];", "barrier misuse: .* to the CTA of rank 1 counts at the mbarrier of rank 0"),
        ("256, [%r21];", "256, [%r21]; st.shared.b32 [%r8], 7;", "race: write of .* an asynchronous copy in flight reads"),
        ("SENT:\n    barrier.cluster.arrive; barrier.cluster.wait;", "SENT:", "race: .* does not know that this is complete"),
        ("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r6], 0;", "", "race: read of .* in flight writes"),
    ],
    ids=["proxy fence", "bytes", "mbarrier of another CTA", "overwrites its source", "ends early", "no wait"],
)  # fmt: skip
def test_a_fault_of_bytes_sent_to_a_peer_is_seen(before: str, after: str, said: str) -> None:
    with pytest.raises(EmulatedFault, match=said):
        launch(replaced_once(SEND, before, after), torch.zeros(64, dtype=torch.int32), grid=2)


def twin_result(run: Callable[[LaunchOptions], object], rewrite: Callable[[str], str] = str) -> PtxResult:
    """What the PTX of the one launch of `run` comes to, changed by `rewrite`."""
    twin = PtxTwin(rewrite=rewrite)
    run(LaunchOptions(probes=(twin,)))
    (result,) = twin.results
    assert not result.not_run, result.not_run
    return result


def multicast(options: LaunchOptions) -> None:
    with emulated("sm_90", options=options):
        test_clusters.multicast_rows(cluster_kernels)


def test_ptx_of_a_multicast_leaves_the_same_words() -> None:
    assert twin_result(multicast).words and not twin_result(multicast).difference


READ = r"(ld\.shared\.v4[^;]*;\s*ld\.shared\.v4[^;]*;\s*(?:\.loc[^\n]*\n\s*)?)"
BOTH = r"barrier\.cluster\.arrive\.aligned;\s*barrier\.cluster\.wait\.aligned;"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (READ + BOTH, r"\1", "race: "),
        (READ + BOTH, r"\1bar.sync 0;", "race: "),
        (r"mov\.b16\s+(%rs\d+), 3;", r"mov.b16 \1, 1;", "deadlock: .* waits at an mbarrier .*4096 bytes missing"),
        (r"mov\.b16\s+(%rs\d+), 3;", r"mov.b16 \1, 7;", "illegal instruction: .* to the CTAs 0b111 of a cluster of 2"),
        (r"_, \[%r1\], 4096;", "_, [%r1], 2048;", "barrier misuse: 2048 bytes more arrived"),
        (r"fence\.mbarrier_init\.release\.cluster ;", "fence.acq_rel.cta;", "race: .* uses the barrier at byte"),
        (r"\.multicast::cluster (\[%r\d+\], \[.*?\}\], \[%r\d+\]), %rs\d+;", r" \1;", "deadlock: .* bytes missing"),
        ("%cluster_ctarank;", "0;", "race|barrier misuse|deadlock"),
        (r"barrier\.cluster\.arrive\.relaxed\.aligned;\s*barrier\.cluster\.wait\.aligned;", "", "race: "),
    ],
    ids=["does not meet", "meets its own CTA only", "mask", "too wide a mask", "bytes", "init not fenced", "no multicast",
         "both CTAs issue", "does not meet at first"],
)  # fmt: skip
def test_a_fault_of_a_multicast_is_seen(before: str, after: str, said: str) -> None:
    def rewrite(text: str) -> str:
        changed, count = re.subn(before, after, text)
        assert count
        return changed

    assert re.search(said, twin_result(multicast, rewrite).difference)


@pytest.mark.parametrize(("group", "counting"), [(1, [0, 1, 2, 3]), (2, [1, 1, 3, 3])])
def test_a_multicast_of_pairs_is_counted_by_the_parity_of_its_mbarrier(group: int, counting: list[int]) -> None:
    """To all of four CTAs, with the mbarrier at byte 64 of rank 1 (PTX ISA, cp.async.bulk.tensor, .cta_group)."""
    space = SharedSpace.empty(4, 1024, Order(4, 32, cluster_ctas=4), 4)
    machine = SimpleNamespace(shared=space, shape=SimpleNamespace(cluster_ctas=4), cta=np.arange(128) // 32)
    ends = np.array([0]), np.array([1 << 24 | 64])
    targets = bulk_copies._targets(machine, None, 0, ends, 0b1111, ASYNC_PEERS, group)  # type: ignore[arg-type]
    assert targets == [(rank, cta, 64) for rank, cta in enumerate(counting)]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (r"and\.b32 (.*), -16777232;", r"and.b32 \1, -16;", r"barrier misuse: .* where no barrier is initialised"),
        (r"\.cta_group::2(\.shared::cluster\.global)", r"\1", "barrier misuse: .* rank 1 counts at the mbarrier of rank 0"),
        (r"(expect_tx\S* _, \[%r\d+\]), \d+;", r"\1, 5120;", "barrier misuse: .* bytes more arrived"),
        (r"barrier\.cluster\.arrive\.relaxed\.aligned;\s*barrier\.cluster\.wait\.aligned;", "", "race: "),
    ],
    ids=["its own mbarrier", "no pair", "bytes", "does not meet"],
)  # fmt: skip
def test_a_fault_of_a_load_that_the_even_cta_counts_is_seen(before: str, after: str, said: str) -> None:
    """Both CTAs of a pair load their part, and the mbarrier of the even one counts it: its address has one bit cleared."""

    def run(options: LaunchOptions) -> None:
        with emulated("sm_100", options=options):
            test_clusters.product(cluster_kernels, (2, 1), two=True)

    to_own = lambda text: text.replace(".cta_group::2.shared::cluster.global", ".cta_group::2.shared::cta.global")
    for right in twin_result(run), twin_result(run, to_own):
        assert right.words and not right.difference
    rewrite = lambda text: re.sub(before, after, text)
    assert re.search(said, twin_result(run, rewrite).difference)


@pytest.mark.parametrize("ctas", [2, 4])
def test_ptx_of_a_product_and_a_sum_over_ctas_leaves_the_same_words(ctas: int) -> None:
    """ld.shared::cluster of what mapa found: layouts are converted across CTAs."""
    a, b = (torch.randint(-8, 8, shape, generator=torch.Generator().manual_seed(0)).half() for shape in ((256, 16), (16, 16)))
    out, counts = torch.empty(256, 16), torch.empty(16, dtype=torch.int32)

    def run(options: LaunchOptions) -> None:
        with emulated("sm_90", options=options):
            test_clusters.plain[(1,)](a, b, out, counts, 256, 16, 16, num_ctas=ctas)

    assert twin_result(run).words and not twin_result(run).difference
    counts_of_ranks = []

    def own_rank(text: str) -> str:
        changed, count = re.subn(r"(mapa[^,]*,[^,]*), %r\d+;", r"\1, %cluster_ctarank;", text)
        counts_of_ranks.append(count)
        return changed

    changed = twin_result(run, own_rank)
    if counts_of_ranks == [0] and installed_release().name != RELEASES[-1].name:
        pytest.skip(f"triton {triton.__version__} converts no layout of this kernel across CTAs")
    assert "differ" in changed.difference


SM_100 = target("emulated:sm_100")
COORDINATES = r"(4\S* (?:\[%r\d+\], )?\[%rd\d+, \{%r\d+, )(%r\d+), (%r\d+),"


@pytest.mark.parametrize("stem", ["tma_gather", "tma_scatter"])
def test_ptx_of_chosen_rows_leaves_the_same_words(stem: str) -> None:
    case = required_case(stem, SM_100)
    right, wrong = results(case, chip=SM_100), results(case, lambda text: re.sub(COORDINATES, r"\1\3, \2,", text), SM_100)
    assert all(each.words and not each.difference and not each.not_run for each in right)
    assert all("differ" in each.difference for each in wrong)


@pytest.mark.parametrize("name", test_im2col_loads.FORMS)
def test_ptx_of_a_column_of_pixels_leaves_the_same_words(name: str) -> None:
    run = lambda options: test_im2col_loads.loaded(test_im2col_loads.FORMS[name], options=options)
    assert twin_result(run).words and not twin_result(run).difference
    exchange = lambda text: re.sub(r"(\{%r\d+), (%r\d+), (%r\d+)(, %r\d+\}\])", r"\1, \3, \2\4", text)
    start = test_im2col_loads.FORMS[name].start
    assert ("differ" in twin_result(run, exchange).difference) == (start[1] != start[2])
