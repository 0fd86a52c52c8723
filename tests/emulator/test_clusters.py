"""Contract under test: a cluster of CTAs computes what one program on whole tensors computes; what reaches into another CTA's
memory must be ordered with that CTA, and each twin that differs by one text fails by name under every schedule."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler import CompiledKernel
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, TensorMemoryScalesLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.releases import RELEASES, installed_release
from bitverdict.harness.judge.classify import outcome_of
from bitverdict.reference import tensor_core
from tests.faults.mutants import replaced_once
from tests.support import cluster_kernels as kernels
from tests.support.emulated_launches import load

SCHEDULES = ("eager", "latest", "drawn:1")


def multicast_rows(module: Any, device: str = "cpu") -> None:
    table, out = torch.randn(96, 32).to(device), torch.empty(96, 32, device=device)
    layout = gl.NVMMASharedLayout.get_default_for([32, 32], gl.float32, cga_layout=[[0, 0]])
    held = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], cga_layout=[[0, 0]])
    module.multicast_rows[(1,)](TensorDescriptor.from_tensor(table, [32, 32], layout), out, 3, held, num_ctas=2)
    assert torch.equal(out, table)


def product(module: Any, ctas: tuple[int, int], *, two: bool, rows: int = 128) -> None:
    """CTAs `ctas` (along M, along N) with `rows` each, of which two along M make one product together if `two`."""
    m, n, k = rows * ctas[0], 64 * ctas[1], 96
    down = [[1 << bit, 0] for bit in range(ctas[0].bit_length() - 1)]
    across = [[0, 1 << bit] for bit in range(ctas[1].bit_length() - 1)]
    of_a = down + [[0, 0]] * len(across)
    of_b = ([[0, 1]] if two else [[0, 0]] * len(down)) + [[0, basis[1] * (2 if two else 1)] for basis in across]
    a, b = (torch.randn(shape, generator=torch.Generator().manual_seed(i)).half() for i, shape in enumerate([(m, k), (k, n)]))
    out = torch.empty(m, n)
    boxes = [
        TensorDescriptor.from_tensor(each, box, gl.NVMMASharedLayout.get_default_for(box, gl.float16, cga_layout=cga))
        for each, box, cga in ((a, [m, 32], of_a), (b, [32, n], of_b))
    ]
    sums = TensorMemoryLayout([rows, 64], col_stride=1, cga_layout=down + across, two_ctas=two)
    held = gl.BlockedLayout([1, 2], [2, 16], [4, 1], [1, 0], cga_layout=down + across)
    module.product[(1,)](*boxes, out, 3, sums, held, two, num_ctas=ctas[0] * ctas[1])
    model = tensor_core.instruction("sm_100", "tcgen05", "fp16", "fp16", "fp32")
    words = [each.view(torch.int16).numpy().view("uint16") for each in (a, b)]
    expected = tensor_core.product(model, *words, torch.zeros(m, n).numpy().view("uint32"))
    assert (out.numpy().view("uint32") == expected).all()


def scaled_product(module: Any) -> None:
    """Operands in e4m3 with scales from 2^-7 to 2^6."""
    draw, rows = torch.Generator().manual_seed(3), [[1, 0]]
    a, b = (torch.randn(count, 128, generator=draw).to(torch.float8_e4m3fn) for count in (256, 128))
    scales = [torch.randint(120, 134, (count, 4), generator=draw, dtype=torch.uint8) for count in (256, 128)]
    out = torch.empty(256, 128)
    boxes = [
        TensorDescriptor.from_tensor(
            each, list(each.shape), gl.NVMMASharedLayout.get_default_for(list(each.shape), gl.float8e4nv, cga_layout=rows)
        )
        for each in (a, b)
    ]
    sums = TensorMemoryLayout([128, 128], col_stride=1, cga_layout=rows, two_ctas=True)
    of_scales = [TensorMemoryScalesLayout(cga_layout=bases) for bases in (rows, [[0, 0]])]
    held = gl.BlockedLayout([1, 2], [2, 16], [4, 1], [1, 0], cga_layout=rows)
    module.scaled_product[(1,)](*boxes, *scales, out, sums, *of_scales, held, num_ctas=2)
    model = tensor_core.instruction("sm_100", "tcgen05", "e4m3", "e4m3", "fp32", scale="e8m0", kind="mxf8f6f4")
    left, right = (each.view(torch.uint8).numpy() for each in (a, b))
    expected = tensor_core.scaled_product(model, left, scales[0].numpy(), right.T, scales[1].numpy())
    assert (out.numpy().view("uint32") == expected).all()


RIGHT = {
    "multicast_rows": ("sm_90", multicast_rows),
    "product": ("sm_100", lambda module: product(module, (2, 2), two=True)),
    "product of one CTA each": ("sm_100", lambda module: product(module, (1, 2), two=False)),
    "product of two CTAs": ("sm_100", lambda module: product(module, (2, 1), two=True)),
    "scaled_product": ("sm_100", scaled_product),
    "product of two CTAs with 64 rows": ("sm_100", lambda module: product(module, (2, 1), two=True, rows=64)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_cluster_gives_the_words_of_whole_tensors(name: str) -> None:
    arch, run = RIGHT[name]
    for schedule in SCHEDULES:
        with emulated(arch, schedule) as device:
            run(kernels)
        assert not device.findings


CLUSTER_WAIT = "        gl.barrier(cluster=True)  # every CTA has read its copy\n"
OVER_THERE = "in other CTAs of the cluster"
TWINS = [
    # a multicast load and a barrier of the cluster
    ("multicast_rows", CLUSTER_WAIT, "", "race", OVER_THERE),
    ("multicast_rows", "gl.barrier(cluster=True)  # every", "gl.barrier()  # every", "race", OVER_THERE),
    ("multicast_rows", "gl.barrier(cluster=True)  # every", "hopper.cluster.barrier(relaxed=True)  # every", "race", OVER_THERE),
    ("multicast_rows", "        values = tile.load(LAYOUT)\n" + CLUSTER_WAIT, CLUSTER_WAIT + "        values = tile.load(LAYOUT)\n",
     "race", OVER_THERE),
    ("multicast_rows", "table.nbytes_per_cta)", "table.nbytes_per_cta // 2)", "barrier misuse", "more arrived"),
    ("multicast_rows", "table.nbytes_per_cta)", "2 * table.nbytes_per_cta)", "deadlock", "bytes missing"),
    ("multicast_rows", "        mbarrier.wait(arrived, step & 1)\n", "", "race", "TMA load"),
    ("multicast_rows", "mbarrier.init(arrived, count=1)", "mbarrier.init(arrived, count=2)", "deadlock", "arrivals"),
    # products of two CTAs, and commits that are multicast
    ("product", "two_ctas=TWO)\n    multiplied", "two_ctas=False)\n    multiplied", "race", OVER_THERE),
    ("product", "        mbarrier.wait(loaded, step & 1)\n", "", "race", "TMA load"),
    ("product", "        mbarrier.wait(multiplied, step & 1)\n", "", "race", "tcgen05.mma"),
    ("product", "a.nbytes_per_cta + b.nbytes_per_cta)", "2 * (a.nbytes_per_cta + b.nbytes_per_cta))", "deadlock", "bytes missing"),
    ("product", "[a_tile, b_tile], True, TWO)", "[a_tile, b_tile], False, TWO)", "barrier misuse", "arrivals at a barrier"),
    ("product", "use_acc=step > 0, multicast=True", "use_acc=step > 0, multicast=False", "deadlock", "arrivals"),
    ("product", "[a_tile, b_tile], True, TWO))\n    sums", "[a_tile, b_tile], False, TWO))\n    sums", "barrier misuse",
    "arrivals"),
]  # fmt: skip
BOTH = (
    ("[a_tile, b_tile], True, TWO)", "[a_tile, b_tile], False, TWO)"),
    ("use_acc=step > 0, multicast=True", "use_acc=step > 0, multicast=False"),
)


def twin_of(name: str, edits: tuple[tuple[str, str], ...], directory: Path) -> Any:
    head, found, body = Path(kernels.__file__).read_text().partition(f"def {name}(")
    own, end, rest = body.partition("\n\n\n")
    for text, by in edits:
        own = replaced_once(own, text, by, name)
    path = directory / "twin.py"
    path.write_text(head + found + own + end + rest)
    return load(path)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin[0]}-{TWINS.index(twin)}")
def test_its_twin_fails_by_name_under_every_schedule(twin: tuple[str, str, str, str, str], tmp_path: Path) -> None:
    name, text, by, outcome, said = twin
    module = twin_of(name, ((text, by),), tmp_path)
    arch, run = RIGHT[name]
    for schedule in SCHEDULES:
        with emulated(arch, schedule), pytest.raises(EmulatedFault, match=said) as raised:
            run(module)
        assert raised.value.outcome == outcome


def test_a_commit_to_the_own_pair_frees_no_tile_that_others_share(tmp_path: Path) -> None:
    """Each CTA waits for its own product only, and the next load overwrites what the other pair may still multiply."""
    module = twin_of("product", BOTH, tmp_path)
    for schedule in SCHEDULES:
        with emulated("sm_100", schedule), pytest.raises(EmulatedFault, match=OVER_THERE) as raised:
            product(module, (2, 2), two=True)
        assert raised.value.outcome == "race" and "tcgen05_mma(" in line_at(raised.value.details["other location"])
        assert "another CTA" not in raised.value.message and "multicast to all of them" in raised.value.details["rule"]
    with emulated("sm_100"):
        product(module, (2, 1), two=True)  # of one pair nobody else shares a tile


def stored_product(module: Any) -> None:
    drawn = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-4, 4, shape, generator=drawn).half() for shape in ((256, 32), (32, 64)))
    out = torch.empty(256, 64)
    sums = TensorMemoryLayout([128, 64], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)
    held = gl.BlockedLayout([1, 2], [2, 16], [4, 1], [1, 0], cga_layout=[[1, 0]])
    boxes = [
        gl.NVMMASharedLayout.get_default_for(shape, gl.float16, cga_layout=cga)
        for shape, cga in (([256, 32], [[1, 0]]), ([32, 64], [[0, 1]]))
    ]
    module.stored_product[(1,)](a, b, out, sums, held, *boxes, num_ctas=2)
    assert torch.equal(out, a.float() @ b.float())


def test_what_ctas_store_themselves_both_may_multiply_when_they_have_met(tmp_path: Path) -> None:
    """Before the product the compiler lets them meet too, but at a relaxed barrier: to rely on it is an advice."""
    with emulated("sm_100") as device:
        stored_product(kernels)
    assert not device.advice
    missing = twin_of("stored_product", (("    gl.barrier(cluster=True)\n", ""),), tmp_path)
    with emulated("sm_100") as device:
        stored_product(missing)
    assert any("relaxed barrier of the cluster that the compiler inserts" in said for said in device.advice)
    unmet = LaunchOptions(rewrite=lambda text: re.sub(r'\n *"ttng.cluster_barrier"[^\n]*relaxed = true[^\n]*', "", text))
    with emulated("sm_100", options=unmet), pytest.raises(EmulatedFault, match=OVER_THERE) as raised:
        stored_product(missing)
    assert raised.value.outcome == "race" and "_tile = " in line_at(raised.value.details["other location"])


def line_at(location: str) -> str:
    file, _, line = location.rpartition(":")
    return Path(file).read_text().splitlines()[int(line) - 1]


def take_over(module: Any) -> None:
    """40 programs on two multiprocessors: those that do not fit are taken over by those that run, each of them once."""
    done, by = torch.zeros(40, dtype=torch.int32), torch.full((40,), -1, dtype=torch.int32)
    module.take_over[(40,)](done, by, 16)
    assert (done == 1).all() and 0 < len(set(by.tolist())) < 40


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_program_takes_over_those_that_have_not_begun(schedule: str) -> None:
    with emulated("sm_100", f"{schedule} on 2"):
        take_over(kernels)
    with emulated("sm_90"), pytest.raises(EmulatedFault, match=r"refused: ttng.clc_try_cancel .* which sm_90 has not"):
        take_over(kernels)


CANCELS = [
    ("        mbarrier.wait(come, phase)\n", "", "race", "try_cancel"),
    ("mbarrier.expect(come, BYTES)", "mbarrier.expect(come, BYTES // 2)", "barrier misuse", "more arrived"),
    ("mbarrier.expect(come, BYTES)", "mbarrier.expect(come, 2 * BYTES)", "deadlock", "bytes missing"),
    ("        mbarrier.expect(come, BYTES)\n", "", "deadlock", "arrivals"),
    ("more = found.is_canceled()", "more = found.is_canceled() | (at >= 0)", "illegal instruction", "a request failed"),
]


@pytest.mark.parametrize("twin", CANCELS, ids=lambda twin: f"{twin[2]}-{CANCELS.index(twin)}".replace(" ", "-"))
def test_a_twin_that_takes_over_wrongly_fails_by_name(twin: tuple[str, str, str, str], tmp_path: Path) -> None:
    text, by, outcome, said = twin
    module = twin_of("take_over", ((text, by),), tmp_path)
    for schedule in SCHEDULES:
        with emulated("sm_100", f"{schedule} on 2"), pytest.raises(EmulatedFault, match=said) as raised:
            take_over(module)
        assert raised.value.outcome == outcome


def test_an_arrival_for_other_ctas_is_refused_by_name(tmp_path: Path) -> None:
    module = twin_of("multicast_rows", (("table.nbytes_per_cta)", "table.nbytes_per_cta, from_cta=0)"),), tmp_path)
    with emulated("sm_90"), pytest.raises(EmulatedFault, match=r"not modelled: ttng.barrier_expect: an arrival from another CTA"):
        multicast_rows(module)


def test_one_partition_cannot_wait_for_the_cluster() -> None:
    with (
        emulated("sm_90"),
        pytest.raises(EmulatedFault, match=r"deadlock: ttng.cluster_(barrier|wait) in partition 0 waits for all threads"),
    ):
        kernels.waits_in_a_partition[(1,)](num_ctas=2)


@triton.jit
def plain(a, b, out, counts, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, steps = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    left, right = tl.load(a + rows * K + steps[None, :]), tl.load(b + steps[:, None] * N + columns)  # (M, K), (K, N)
    tl.store(out + rows * N + columns, tl.dot(left, right) + tl.program_id(0))
    tl.store(counts + steps, tl.sum((left > 0).to(tl.int32), 0))


def launch_plain(m: int, n: int, k: int, ctas: int, device: str = "cpu") -> CompiledKernel:
    a = torch.randint(-8, 8, (m, k), generator=torch.Generator().manual_seed(0)).half().to(device)
    b = torch.randint(-8, 8, (k, n), generator=torch.Generator().manual_seed(1)).half().to(device)
    out, counts = torch.empty(m, n, device=device), torch.empty(k, dtype=torch.int32, device=device)
    compiled = plain[(1,)](a, b, out, counts, m, n, k, num_ctas=ctas)
    assert torch.equal(out, a.float() @ b.float()) and torch.equal(counts, (a > 0).sum(0).int())
    return compiled


def plain_launch(m: int, n: int, k: int, ctas: int) -> CompiledKernel:
    with emulated("sm_90") as device:
        compiled = launch_plain(m, n, k, ctas)
    assert device.launches[-1].metadata["num_ctas"] == ctas
    return compiled


@pytest.mark.parametrize("ctas", [1, 2, 4])
def test_a_triton_kernel_gives_the_same_words_with_any_num_ctas(ctas: int) -> None:
    compiled = plain_launch(256, 16, 16, ctas)
    if ctas == 4:
        assert "wgmma.mma_async" in compiled.asm["ptx"], "the whole compiler takes it"


@gluon.jit
def hands_over(out, APART: gl.constexpr):
    """out (128) = what other threads stored to shared memory, between the two halves of a barrier of the cluster or behind both."""
    wide: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[0]])
    places = gl.arange(0, 128, layout=wide)
    held = gl.allocate_shared_memory(gl.int32, [128], gl.SwizzledSharedLayout(1, 1, 1, [0], cga_layout=[[0]]))
    held.store(places)
    hopper.cluster.arrive()
    if APART:
        gl.store(out + places, places)
    hopper.cluster.wait()
    gl.store(out + places, held.load(wide))


def test_a_clusters_arrival_and_wait_are_one_barrier() -> None:
    if not hasattr(hopper.cluster, "wait"):
        with emulated("sm_90"), pytest.raises(Exception) as caught:
            hands_over[(1,)](torch.zeros(128, dtype=torch.int32), False, num_ctas=2)
        assert outcome_of(caught.value).message.endswith("lacks cluster.arrive, which 3.9.x removed")
        return
    out = torch.zeros(128, dtype=torch.int32)
    with emulated("sm_90") as device:
        hands_over[(1,)](out, False, num_ctas=2)
    assert torch.equal(out, torch.arange(128, dtype=torch.int32)) and '"ttng.cluster_wait"' in device.launches[-1].program
    with emulated("sm_90"), pytest.raises(EmulatedFault, match="with something between it and its wait"):
        hands_over[(1,)](out, True, num_ctas=2)


def test_a_cluster_that_the_compiler_cannot_convert_is_refused_as_by_it(capfd: pytest.CaptureFixture) -> None:
    """Triton 3.9 has an assertion fail where wgmma's operands are split so: on a GPU nothing would be launched. 3.8 takes it."""
    if installed_release().numbers != RELEASES[-1].numbers:
        assert "wgmma.mma_async" in plain_launch(64, 64, 64, 2).asm["ptx"]
        return
    with pytest.raises(RuntimeError, match="PassManager::run failed"):
        plain_launch(64, 64, 64, 2)
    assert "getReps" in capfd.readouterr().err
