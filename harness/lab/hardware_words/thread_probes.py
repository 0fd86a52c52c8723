"""Instructions by which threads of a warp, a CTA and a cluster meet, as probes: what each thread finds is one word.

Each kernel of `PROBES` takes x [2 T + T / 32] uint32, for T threads two words each and a mask of lanes for each warp, and out
[words, T]. It runs as PTX by the driver, without torch and Triton, and on the PTX machine
(`tests/ptx_machine/test_recorded_words.py`).
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bitverdict.harness.lab.hardware_words.cuda_library import CannotRecord, driver_version
from bitverdict.harness.lab.hardware_words.instruction_words import utc_date

STEM = "own_threads"
CTAS, BLOCK = 16, 128
THREADS = CTAS * BLOCK
_PREDICATE = " selp.u32 %r20, 1, 0, %p2;"

# %r4, %r5: the thread's words; %r6: lanes of its group, which all come; %r7: its lane; %p1: bit 0 of %r4. The result is %r20.
GROUP_PROBES = {
    "vote.sync.ballot.b32": "vote.sync.ballot.b32 %r20, %p1, %r6;",
    "vote.sync.all.pred": "vote.sync.all.pred %p2, %p1, %r6;" + _PREDICATE,
    "vote.sync.any.pred": "vote.sync.any.pred %p2, %p1, %r6;" + _PREDICATE,
    "vote.sync.uni.pred": "vote.sync.uni.pred %p2, %p1, %r6;" + _PREDICATE,
    "match.any.sync.b32": "and.b32 %r21, %r5, 3; match.any.sync.b32 %r20, %r21, %r6;",
    "match.any.sync.b64": "and.b32 %r21, %r5, 1; and.b32 %r22, %r4, 2; mov.b64 %rd4, {%r21, %r22}; "
    "match.any.sync.b64 %r20, %rd4, %r6;",
    "match.all.sync.b32": "and.b32 %r21, %r6, %r5; and.b32 %r21, %r21, 1; match.all.sync.b32 %r20|%p2, %r21, %r6;",
    "match.all.sync.b32, predicate": "and.b32 %r21, %r6, %r5; and.b32 %r21, %r21, 1; match.all.sync.b32 %r20|%p2, %r21, %r6;"
    + _PREDICATE,
    "match.all.sync.b64": "and.b32 %r21, %r4, 1; mov.b64 %rd4, {%r6, %r21}; match.all.sync.b64 %r20|%p2, %rd4, %r6;",
    **{
        f"redux.sync.{name}": f"redux.sync.{name} %r20, %r4, %r6;"
        for name in ("add.u32", "add.s32", "min.u32", "max.u32", "min.s32", "max.s32", "and.b32", "or.b32", "xor.b32")
    },
    "shfl.sync.idx.b32 of the first lane": "brev.b32 %r21, %r6; clz.b32 %r21, %r21; shfl.sync.idx.b32 %r20, %r4, %r21, 31, %r6;",
    "activemask.b32": "activemask.b32 %r20;",
    "elect.sync": "elect.sync %r20|%p2, %r6; selp.u32 %r21, 64, 0, %p2; or.b32 %r20, %r20, %r21;",
}
_SEGMENT = "and.b32 %r21, %r5, 31; shr.u32 %r22, %r5, 5; and.b32 %r22, %r22, 0x1F1F;"
WARP_PROBES = {
    **{
        f"shfl.sync.{name}.b32": f"{_SEGMENT} shfl.sync.{name}.b32 %r20, %r4, %r21, %r22, -1;"
        for name in ("up", "down", "bfly", "idx")
    },
    **{
        f"shfl.sync.{name}.b32, predicate": f"{_SEGMENT} shfl.sync.{name}.b32 %r23|%p2, %r4, %r21, %r22, -1;{_PREDICATE}"
        for name in ("up", "down", "bfly", "idx")
    },
}
_PLACE = "mov.u32 %r23, words; shl.b32 %r24, %r0, 2; add.u32 %r25, %r23, %r24;"  # of the thread in shared memory
_HALF = "shr.u32 %r21, %r0, 6; add.u32 %r22, %r21, 1;"  # two warps, at a barrier of their own
_COUNTER = "mov.u32 %r23, words; @%p3 st.shared.b32 [%r23], {first}; bar.sync 0;"
_COUNTER_READ = "bar.sync 0; ld.shared.b32 %r20, [%r23]; bar.sync 0;"
CTA_PROBES = {
    "bar.red.popc.u32": "bar.red.popc.u32 %r20, 0, %p1;",
    "bar.red.and.pred": "setp.ge.u32 %p4, %r4, 0x2000000; bar.red.and.pred %p2, 0, %p4;" + _PREDICATE,
    "bar.red.or.pred": "setp.ge.u32 %p4, %r4, 0x2000000; bar.red.or.pred %p2, 0, !%p4;" + _PREDICATE,
    "bar.red.popc.u32 of two warps": f"{_HALF} bar.red.popc.u32 %r20, %r22, 64, %p1;",
    "bar.sync of two warps": f"{_HALF} {_PLACE} st.shared.b32 [%r25], %r4; "
    "bar.sync %r22, 64; xor.b32 %r24, %r24, 128; add.u32 %r25, %r23, %r24; ld.shared.b32 %r20, [%r25]; bar.sync 0;",
    "bar.arrive": f"{_PLACE} setp.lt.u32 %p2, %r0, 64; mov.u32 %r20, %r5;\n"
    "    @!%p2 bra TAKE;\n    st.shared.b32 [%r25], %r4; bar.arrive 5, 128; bra MET;\n"
    "TAKE:\n    bar.sync 5, 128; ld.shared.b32 %r20, [%r25+-256];\nMET:\n    bar.sync 0;",
    **{
        f"atom.shared.{name}": f"{_COUNTER.format(first=first)} atom.shared.{name} %r24, [%r23], {operand}; {_COUNTER_READ}"
        for name, first, operand in (
            ("add.u32", 7, "%r4"), ("min.s32", 5, "%r4"), ("max.u32", 5, "%r4"), ("inc.u32", 3, "99"), ("dec.u32", 3, "99"),
            ("and.b32", -1, "%r8"), ("or.b32", 0, "%r8"), ("xor.b32", 0, "%r4"),
        )
    },
}  # fmt: skip
_PEER = f"add.u32 %r21, %r10, %r4; and.b32 %r21, %r21, 3; {_PLACE}"  # any rank of the four
MEET = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
CLUSTER_PROBES = {
    "mapa.shared::cluster.u32, ld.shared::cluster": f"{_PEER} st.shared.b32 [%r25], %r5; {MEET} "
    f"mapa.shared::cluster.u32 %r26, %r25, %r21; ld.shared::cluster.b32 %r20, [%r26]; {MEET}",
    "mapa.u64, ld of a generic address": f"{_PEER} st.shared.b32 [%r25], %r4; {MEET} cvt.u64.u32 %rd4, %r25; "
    f"cvta.shared.u64 %rd4, %rd4; mapa.u64 %rd5, %rd4, %r21; ld.b32 %r20, [%rd5]; {MEET}",
    "getctarank": f"{_PEER} mapa.shared::cluster.u32 %r26, %r25, %r21; getctarank.shared::cluster.u32 %r20, %r26;",
    "st.shared::cluster": f"{_PLACE} add.u32 %r21, %r10, 3; "
    f"and.b32 %r21, %r21, 3; mapa.shared::cluster.u32 %r26, %r25, %r21; {MEET} st.shared::cluster.b32 [%r26], %r4; {MEET} "
    f"ld.shared.b32 %r20, [%r25]; {MEET}",
    "atom.shared::cluster.add.u32": f"mov.u32 %r23, words; @%p3 st.shared.b32 [%r23], 0; {MEET} add.u32 %r21, %r10, %r4; "
    "and.b32 %r21, %r21, 3; mapa.shared::cluster.u32 %r26, %r23, %r21; atom.shared::cluster.add.u32 %r24, [%r26], %r5; "
    f"{MEET} ld.shared.b32 %r20, [%r23]; {MEET}",
    "%cluster_ctarank, %clusterid": "mov.u32 %r20, %clusterid.x; shl.b32 %r20, %r20, 8; or.b32 %r20, %r20, %r10;",
    "mbarrier.arrive of a peer": f"{_PLACE} mov.u32 %r27, full; xor.b32 %r21, "
    "%r10, 1;\n    @%p3 mbarrier.init.shared::cta.b64 [%r27], 128; @%p3 fence.mbarrier_init.release.cluster;\n    "
    f"{MEET} mapa.shared::cluster.u32 %r26, %r25, %r21; mapa.shared::cluster.u32 %r28, %r27, %r21; "
    "st.shared::cluster.b32 [%r26], %r5; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r28];\n"
    "WAIT:\n    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r27], 0; @!%p2 bra WAIT;\n"
    f"    ld.shared.b32 %r20, [%r25]; {MEET}",
}


@dataclass(frozen=True)
class Kernel:
    """A kernel of probes: PTX for `arch`, and what each word of `out` is."""

    arch: str
    text: str
    words: tuple[str, ...]


def _kernel(arch: str, parts: dict[str, str], *, directive: str = "", groups: dict[str, str] | None = None) -> Kernel:
    """`groups`: also run by the lanes of a mask and by the others apart, behind a branch."""
    lines, words = [], []

    def store(code: str) -> None:
        lines.append(f"    {code}\n    st.global.b32 [%rd3], %r20; add.s64 %rd3, %rd3, {4 * THREADS};")

    for name, code in parts.items():
        store(code)
        words.append(name)
    if groups:
        lines.append("    selp.b32 %r6, %r8, %r9, %p5;\n    @%p5 bra INSIDE;")
        for label in ("", "INSIDE:\n"):
            lines.append(label)
            for code in groups.values():
                store(code)
            lines.append("    bra APART;" if not label else "APART:")
        words += [f"{name}, of a group" for name in groups]
    text = f"""// {arch}
.version 8.7
.target {arch}
.address_size 64
.shared .align 16 .b8 words[512];
.shared .align 8 .b64 full;
.visible .entry kernel(.param .u64 x, .param .u64 out)
{directive}{{
    .reg .pred %p<8>; .reg .b32 %r<40>; .reg .b64 %rd<12>;
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.s32 %r3, %r1, %r2, %r0; mov.u32 %r7, %laneid;
    ld.param.u64 %rd0, [x]; ld.param.u64 %rd1, [out];
    mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %rd1, %rd2; add.s64 %rd2, %rd0, %rd2; ld.global.b32 %r4, [%rd2];
    ld.global.b32 %r5, [%rd2+{4 * THREADS}]; shr.u32 %r8, %r3, 5; mul.wide.u32 %rd2, %r8, 4; add.s64 %rd2, %rd0, %rd2;
    ld.global.b32 %r8, [%rd2+{8 * THREADS}]; not.b32 %r9, %r8; mov.u32 %r6, -1; shr.u32 %r20, %r8, %r7; and.b32 %r20, %r20, 1;
    setp.ne.u32 %p5, %r20, 0; and.b32 %r20, %r4, 1; setp.ne.u32 %p1, %r20, 0; setp.eq.u32 %p3, %r0, 0;
    {"mov.u32 %r10, %cluster_ctarank;" if directive else ""}
"""
    return Kernel(arch, text + "\n".join(lines) + "\n    ret;\n}\n", tuple(words))


PROBES = {
    "warp": _kernel("sm_90", GROUP_PROBES | WARP_PROBES, groups=GROUP_PROBES),
    "cta": _kernel("sm_80", CTA_PROBES),
    "cluster": _kernel("sm_90", CLUSTER_PROBES, directive=".explicitcluster\n.reqnctapercluster 4\n"),
}


def inputs(data_seed: int) -> np.ndarray:
    """x of each kernel. Masks of one lane, of all, of half of a warp and of any lanes; some warps have few different words."""
    drawn = np.random.default_rng(data_seed)
    x = drawn.integers(0, 1 << 32, 2 * THREADS, np.uint64).astype(np.uint32)
    warps = x.reshape(-1, 32)
    warps[::5] = warps[::5, :1] ^ (drawn.random((len(warps[::5]), 32)) < 0.05)
    warps[::7] |= 1
    masks = drawn.integers(1, 1 << 32, THREADS // 32, np.uint64).astype(np.uint32)
    masks[::8], masks[1::8], masks[2::8] = 0xFFFFFFFF, 1 << drawn.integers(0, 32, len(masks[1::8])), 0x0000FFFF
    return np.concatenate([x, masks])


class Driver:
    """The first GPU, by libcuda alone. CannotRecord where a call of it fails."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._cuda, name)(*arguments)
        if status:
            raise CannotRecord(f"{name}: CUresult {status}")

    def launch(self, kernel: Kernel, x: np.ndarray) -> np.ndarray:
        """out [words, THREADS] uint32."""
        out = np.zeros((len(kernel.words), THREADS), np.uint32)
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), kernel.text.encode())
        self._call("cuModuleGetFunction", ctypes.byref(function), module, b"kernel")
        places = [ctypes.c_uint64(), ctypes.c_uint64()]
        for place, array in zip(places, (x, out), strict=True):
            self._call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(array.nbytes))
            self._call("cuMemcpyHtoD_v2", place, array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes))
        arguments = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.byref(place), ctypes.c_void_p) for place in places))
        self._call("cuLaunchKernel", function, CTAS, 1, 1, BLOCK, 1, 1, 0, None, arguments, None)
        self._call("cuMemcpyDtoH_v2", out.ctypes.data_as(ctypes.c_void_p), places[1], ctypes.c_size_t(out.nbytes))
        for place in places:
            self._call("cuMemFree_v2", place)
        return out


def record_threads(device_name: str, arch: str, data_seed: int) -> dict[str, np.ndarray]:
    """x, `output_<kernel>` of each kernel, and `meta`. CannotRecord where a second launch gives another word."""
    driver, x = Driver(), inputs(data_seed)
    arrays = {"x": x}
    for name, kernel in PROBES.items():
        first, second = (driver.launch(kernel, x) for _ in range(2))
        if not np.array_equal(first, second):
            raise CannotRecord(f"{name}: two launches differ in {int((first != second).sum())} words")
        arrays[f"output_{name}"] = first
    about: dict[str, object] = {
        "gpu": device_name,
        "arch": arch,
        "family": "threads",
        "driver": driver_version(),
        "date": utc_date(),
    }
    about |= {"data_seed": data_seed, "words": {name: kernel.words for name, kernel in PROBES.items()}}
    return arrays | {"meta": np.array(json.dumps(about))}


def repeat_threads(archive: Mapping[str, np.ndarray]) -> tuple[int, int]:
    """(words, words that differ) of the kept x launched again."""
    driver = Driver()
    pairs = [(driver.launch(kernel, archive["x"]), archive[f"output_{name}"]) for name, kernel in PROBES.items()]
    return sum(kept.size for _, kept in pairs), sum(int((again != kept).sum()) for again, kept in pairs)
