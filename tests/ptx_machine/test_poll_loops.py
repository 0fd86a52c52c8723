"""Contract under test: a loop that reads until another thread has changed a word ends where one does, and is a deadlock at its line
where none will, whatever loops and barriers the others are in."""

from __future__ import annotations

import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault
from bitverdict.harness.ptx_machine import threads
from tests.ptx_machine.test_ptx_machine import kernel, launch, replaced_once

PLACES = "mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd10, %rd1; setp.eq.u32 %p1, %r0, 0; mov.u32 %r22, 0;\n"
SHARED = ".shared .align 8 .b64 come; .shared .align 4 .b32 word; .shared .align 4 .b8 buf[512];"


def polling(body: str) -> str:
    text = kernel(PLACES + body, "u64", shared=SHARED)
    return text.replace(".address_size 64", '.address_size 64\n.file 1 "user.cu"').replace("POLL:", ".loc 1 7 0\nPOLL:")


MBARRIER = polling("""
    mov.u32 %r20, come; @!%p1 bra MADE; mbarrier.init.shared.b64 [%r20], 1;
MADE:
    bar.sync 0;
    setp.ge.u32 %p2, %r0, 32; @%p2 bra ARRIVE;
POLL:
    add.u32 %r22, %r22, 1; mbarrier.test_wait.parity.shared.b64 %p3, [%r20], 0; @!%p3 bra POLL;
    st.global.u32 [%rd2], 7; bra END;
ARRIVE:
    setp.ne.u32 %p4, %r0, 33; @%p4 bra END;
    mbarrier.arrive.shared.b64 %rd5, [%r20];
    st.global.u32 [%rd10+1020], %r22;
END:""")  # %r22 counts attempts, and decides nothing

FLAG = polling("""
    mov.u32 %r20, 0; setp.eq.u32 %p2, %r1, 0; @!%p1 bra END; @%p2 bra FIRST;
POLL:
    ld.acquire.gpu.global.u32 %r21, [%rd10+512];
    setp.eq.u32 %p3, %r21, 0;
    nanosleep.u32 20;
    @%p3 bra POLL;
    st.global.u32 [%rd2], 7; bra END;
FIRST:
    add.u32 %r20, %r20, 1; setp.lt.u32 %p4, %r20, 9000; @%p4 bra FIRST;
    st.release.gpu.global.u32 [%rd10+512], 3;
END:""")  # the block of the loop comes first; the other one takes its time

MEETINGS = polling("""
POLL:
    bar.sync 0; ld.volatile.shared.u32 %r23, [word]; setp.ne.u32 %p3, %r23, 0; bar.sync 0; @%p3 bra END;
    setp.ne.u32 %p4, %r0, 33; @%p4 bra POLL;
    add.u32 %r22, %r22, 1; and.b32 %r22, %r22, 7; setp.ne.u32 %p5, %r22, 5; @%p5 bra POLL;
    st.volatile.shared.u32 [word], 1; bra POLL;
END:
    st.global.u32 [%rd2], 7;""")  # all meet in each turn; one of them stores in its fifth

LOCK = polling("""
    bar.sync 0;
POLL:
    atom.cas.acquire.gpu.global.b32 %r21, [%rd10+512], 0, 1; setp.ne.u32 %p3, %r21, 0; @%p3 bra POLL;
    st.global.u32 [%rd2], 7;
    atom.exch.release.gpu.global.b32 %r21, [%rd10+512], 0;""")


@pytest.mark.parametrize(
    ("text", "before", "after", "instruction", "grid"),
    [
        (MBARRIER, "mbarrier.arrive.shared.b64 %rd5, [%r20];", "", "mbarrier.test_wait", 1),
        (MBARRIER, "mbarrier.init.shared.b64 [%r20], 1;", "mbarrier.init.shared.b64 [%r20], 2;", "mbarrier.test_wait", 1),
        (FLAG, "st.release.gpu.global.u32 [%rd10+512], 3;", "", "ld.acquire", 3),
        (FLAG, "st.release.gpu.global.u32 [%rd10+512]", "st.release.gpu.global.u32 [%rd10+516]", "ld.acquire", 3),
        (MEETINGS, "st.volatile.shared.u32 [word], 1;", "", "ld.volatile", 1),
        (LOCK, "atom.exch.release.gpu.global.b32 %r21, [%rd10+512], 0;", "", "atom.cas", 1),
    ],
    ids=["no arrival", "one arrival of two", "no store", "another word", "no store between barriers", "no release of the lock"],
)  # fmt: skip
def test_a_loop_that_nothing_ends_is_a_deadlock(text: str, before: str, after: str, instruction: str, grid: int) -> None:
    out = torch.zeros(256, dtype=torch.int32)
    launch(text, out, grid=grid)
    assert (out == 7).any()
    with pytest.raises(EmulatedFault, match=r"deadlock: thread .* loops for ever") as seen:
        launch(replaced_once(text, before, after), torch.zeros(256, dtype=torch.int32), grid=grid)
    assert instruction in seen.value.details["instruction"] and seen.value.location == "user.cu:7"


def test_a_loop_that_waits_for_later_ctas_is_no_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A volatile load tells nothing of other CTAs; where those have not begun the machine cannot know."""
    text = replaced_once(FLAG, "setp.eq.u32 %p2, %r1, 0;", "setp.eq.u32 %p2, %r1, 2;")
    text = text.replace("ld.acquire.gpu", "ld.volatile").replace("st.release.gpu", "st.volatile")
    monkeypatch.setattr(threads, "LANES", 256)
    with pytest.raises(EmulatedFault, match=r"not modelled: .* for what a CTA may do that has not begun"):
        launch(text, torch.zeros(256, dtype=torch.int32), grid=4)
    monkeypatch.undo()
    with pytest.raises(EmulatedFault, match="race"):
        launch(text, torch.zeros(256, dtype=torch.int32), grid=4)


HALVES = kernel(
    """
    mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd10, %rd1; and.b32 %r20, %r0, 31; setp.lt.u32 %p1, %r20, 16;
    mov.u32 %r5, buf; shl.b32 %r6, %r0, 2; add.u32 %r7, %r5, %r6; xor.b32 %r8, %r6, 64; add.u32 %r8, %r5, %r8;
    @%p1 bra FIRST;
    st.shared.u32 [%r7], %r0;
    bar.warp.sync 0xffffffff;
    bra MET;
FIRST:
    add.u32 %r21, %r0, 100; st.shared.u32 [%r7], %r21;
    bar.warp.sync -1;
MET:
    ld.shared.u32 %r9, [%r8]; st.global.u32 [%rd2], %r9;""",
    "u64",
    shared=".shared .align 4 .b8 buf[256];",
)


def test_halves_of_a_warp_meet_at_its_barrier() -> None:
    out = torch.zeros(64, dtype=torch.int32)
    launch(HALVES, out, block=64)
    lane = torch.arange(64) ^ 16
    assert torch.equal(out, (lane + 100 * (lane % 32 < 16)).int())


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("bar.warp.sync -1;", "", r"race: thread .* reads byte"),
        ("bar.warp.sync -1;", "bar.sync 1, 64;", r"deadlock: thread .* waits at "),
    ],
    ids=["one half does not wait", "one half waits elsewhere"],
)
def test_halves_of_a_warp_that_do_not_meet_are_told(before: str, after: str, said: str) -> None:
    with pytest.raises(EmulatedFault, match=said):
        launch(replaced_once(HALVES, before, after), torch.zeros(64, dtype=torch.int32), block=64)
