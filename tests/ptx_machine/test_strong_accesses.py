"""Contract under test: between the threads of a CTA a release that is acquired orders what lies around it; a twin of each kernel
whose lock or flag is relaxed, weak or out of place is a race."""

from __future__ import annotations

import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault
from tests.ptx_machine.test_ptx_machine import kernel, launch, replaced_once

TAKE, GIVE = "atom.cas.acquire.cta.global.b32 %r21, [%rd10+4], 0, 1;", "atom.exch.release.cta.global.b32 %r22, [%rd10+4], 0;"
COUNT = "ld.global.u32 %r23, [%rd10]; add.u32 %r23, %r23, 1; st.global.u32 [%rd10], %r23;"
LOCK = kernel(f"TAKE: {TAKE} setp.ne.u32 %p1, %r21, 0; @%p1 bra TAKE;\n    {COUNT}\n    {GIVE}", "u64")
BY_FENCES = replaced_once(
    replaced_once(LOCK, TAKE, TAKE.replace("acquire", "relaxed")),
    f"{COUNT}\n    {GIVE}",
    f"fence.acq_rel.cta; {COUNT} fence.acq_rel.gpu; {GIVE.replace('release', 'relaxed')}",
)
IN_SHARED = (
    LOCK.replace(".visible", ".shared .align 8 .b8 held[8];\n.visible").replace(".global", ".shared").replace("%rd10+4", "%r24+4")
)
IN_SHARED = (
    IN_SHARED.replace("[%rd10]", "[%r24]")
    .replace("TAKE: ", "mov.u32 %r24, held; bar.sync 0;\nTAKE: ", 1)
    .replace("    ret;", "    bar.sync 0; ld.shared.u32 %r25, [%r24]; st.global.u32 [%rd10], %r25;\n    ret;")
)


@pytest.mark.parametrize("text", [LOCK, BY_FENCES, IN_SHARED], ids=["acquire and release", "fences", "shared memory"])
def test_a_lock_orders_the_threads_of_a_cta(text: str) -> None:
    out = torch.zeros(2, dtype=torch.int32)
    launch(text, out, block=96)
    assert out.tolist() == [96, 0]


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (LOCK, "cas.acquire", "cas.relaxed"),
        (LOCK, "exch.release", "exch.relaxed"),
        (LOCK, f"{COUNT}\n    {GIVE}", f"{GIVE}\n    {COUNT}"),
        (LOCK, GIVE, GIVE.replace("+4", "+8") + GIVE.replace("release", "relaxed")),
        (BY_FENCES, "fence.acq_rel.cta; ", ""),
        (BY_FENCES, "fence.acq_rel.gpu; ", ""),
        (BY_FENCES, f"{COUNT} fence.acq_rel.gpu;", f"fence.acq_rel.gpu; {COUNT}"),
        (IN_SHARED, "exch.release", "exch.relaxed"),
    ],
    ids=["takes relaxed", "gives relaxed", "gives early", "gives another", "no fence behind", "no fence before", "fence too early",
         "gives relaxed in shared memory"],
)  # fmt: skip
def test_a_lock_that_orders_nothing_is_a_race(text: str, before: str, after: str) -> None:
    with pytest.raises(EmulatedFault, match=r"race: thread .* nothing orders the two"):
        launch(replaced_once(text, before, after), torch.zeros(3, dtype=torch.int32), block=96)


STORE, LOAD = "st.release.cta.global.u32 [%rd10+4], 1;", "ld.acquire.cta.global.u32 %r20, [%rd10+4];"
FLAG = kernel(
    f"""
    mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd10, %rd1; setp.eq.u32 %p1, %r0, 0; @!%p1 bra POLL;
    st.global.u32 [%rd10], 7; {STORE} bra DONE;
POLL:
    {LOAD} setp.eq.u32 %p2, %r20, 0; @%p2 bra POLL;
    ld.global.u32 %r21, [%rd10]; st.global.u32 [%rd2+8], %r21;
DONE:""",
    "u64",
)


def test_a_flag_that_is_released_and_acquired_orders_what_lies_before_it() -> None:
    out = torch.zeros(98, dtype=torch.int32)
    launch(FLAG, out, block=96)
    assert out.tolist() == [7, 1, 0, *[7] * 95]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("st.release.cta", "st.relaxed.cta", "byte 0 of p0"),
        ("ld.acquire.cta", "ld.relaxed.cta", "byte 0 of p0"),
        ("st.release.cta.global", "st.global", "byte 4 of p0"),
        ("ld.acquire.cta.global", "ld.global", "byte 4 of p0"),
        (f"st.global.u32 [%rd10], 7; {STORE}", f"{STORE} st.global.u32 [%rd10], 7;", "byte 0 of p0"),
        ("bra DONE;", f"{STORE.replace('release', 'relaxed')} bra DONE;", "byte 0 of p0"),
    ],
    ids=["stored relaxed", "loaded relaxed", "stored weakly", "loaded weakly", "stored first", "replaced by a relaxed store"],
)  # fmt: skip
def test_a_flag_that_tells_nothing_is_a_race(before: str, after: str, said: str) -> None:
    with pytest.raises(EmulatedFault, match=f"race: .*{said}.*nothing orders the two"):
        launch(replaced_once(FLAG, before, after), torch.zeros(98, dtype=torch.int32), block=96)
