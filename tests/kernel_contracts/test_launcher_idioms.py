"""Contract under test: an ordinary launcher may ask for its GPU in any way; what is wrong on a GPU is wrong here, by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bitverdict.harness.model.verdict import Decision, Outcome
from tests.support.judged_launcher import judged, launcher

PASS = {
    'device="cuda"': {"result": 'c = torch.empty((M, N), device="cuda", dtype=a.dtype)'},
    'device="cuda:0"': {"result": 'c = torch.zeros((M, N), device="cuda:0", dtype=a.dtype)'},
    ".cuda()": {"result": "c = torch.empty((M, N), dtype=a.dtype).cuda()"},
    '.to("cuda")': {"result": 'c = torch.empty((M, N)).to("cuda", a.dtype)'},
    "a default device": {
        "module": 'torch.set_default_device("cuda")',
        "result": "c = torch.empty((M, N), dtype=a.dtype)",
        "after": "torch.set_default_device(None)",
    },
    "with torch.device": {"result": 'with torch.device("cuda"):\n    c = torch.empty((M, N), dtype=a.dtype)'},
    "asserts on its operands": {
        "before": 'assert a.is_cuda and b.is_cuda and not a.is_cpu and a.get_device() == 0\nassert a.device.type == "cuda" == '
        'b.device.type\nassert a.device == b.device == torch.device("cuda", 0)\nassert isinstance(a, torch.Tensor)\n'
        'assert a.type() == "torch.cuda.HalfTensor" and a.T.is_cuda and a[1:].is_cuda and (a + a).is_cuda'
    },
    "what the GPU is": {
        "module": "assert torch.cuda.is_available() and torch.cuda.device_count() == 1",
        "before": "from triton.runtime import driver\n"
        "seen = torch.cuda.get_device_properties(a.device)\n"
        "assert (seen.major, seen.minor) == torch.cuda.get_device_capability() == (9, 0)\n"
        'assert seen.name == torch.cuda.get_device_name(0) and "H100" in seen.name and seen.warp_size == 32\n'
        "found = driver.active.utils.get_device_properties(torch.cuda.current_device())\n"
        'assert found["multiprocessor_count"] == seen.multi_processor_count > 0\n'
        'assert found["max_shared_mem"] == seen.shared_memory_per_block_optin == 232448',
    },
    "Triton's device, at the top of the file": {
        "module": "DEVICE = triton.runtime.driver.active.get_active_torch_device()\n"
        "SIZE = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)",
        "result": "c = torch.empty((M, N), device=DEVICE, dtype=a.dtype)",
    },
    "streams and events": {
        "before": "stream = torch.cuda.Stream()\nbegin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))\n"
        "stream.wait_stream(torch.cuda.current_stream())\nbegin.record()",
        "after": "with torch.cuda.stream(stream):\n    assert torch.cuda.current_stream() == stream\n    c = c + 0\n"
        "c.record_stream(stream)\nend.record()\ntorch.cuda.synchronize()\nassert end.query() and begin.elapsed_time(end) > 0",
    },
    "memory": {
        "before": "free, total = torch.cuda.mem_get_info()\nassert 0 < free <= total and torch.cuda.memory_allocated() >= 0\n"
        "torch.cuda.reset_peak_memory_stats()\ntorch.cuda.empty_cache()"
    },
    "selecting the device": {
        "before": "torch.cuda.set_device(a.device)",
        "after": "with torch.cuda.device(a.device), torch.cuda.device_of(b):\n    c = c.clone()",
    },
    "a benchmark": {
        "after": "took = triton.testing.do_bench(lambda: matmul_kernel[grid](a, b, c, M, N, K, a.stride(0), a.stride(1), "
        "b.stride(0), b.stride(1), c.stride(0), c.stride(1), BLOCK_M=64, BLOCK_N=64, BLOCK_K=32))\nassert took > 0"
    },
    "numbers": {
        "before": 'noise = torch.rand(4, device="cuda", generator=torch.Generator(device="cuda").manual_seed(1))\n'
        "torch.cuda.manual_seed(0)\nassert noise.is_cuda and 0 <= noise.max().item() < 1 and f'{noise.min():.3f}'\n"
        "assert noise.cpu().numpy().shape == (4,) and len(noise.tolist()) == 4"
    },
    "what was compiled": {
        "handle": "h",
        "after": 'assert ".target sm_90" in h.asm["ptx"] and "ttgir" in h.asm\n'
        "assert 0 < h.n_regs <= 255 and h.n_spills == 0 and 0 < h.metadata.shared < 232448 and h.metadata.num_warps == 4",
    },
    "torch's older names": {
        "before": "assert isinstance(a, torch.cuda.HalfTensor) and not isinstance(a, (torch.HalfTensor, torch.cuda.FloatTensor))\n"
        'assert torch.ones(3).type("torch.cuda.HalfTensor").is_cuda and not a.type(torch.FloatTensor).is_cuda\n'
        "assert a.type(torch.cuda.FloatTensor).dtype == torch.float32 and torch.cuda.LongTensor([1, 2]).tolist() == [1, 2]",
        "result": "c = torch.cuda.HalfTensor(M, N)",
    },
    "torch.compile": {
        "module": "@torch.compile\ndef half(x):\n    return x * 0.5\n\n\n"
        "@torch.compile(fullgraph=True)\ndef twice(x):\n    return x + x",
        "after": "c = half(twice(c))",
    },
    "a profile of the CPU": {"before": "with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):\n    pass"},
    "a module's weights": {"before": "layer = torch.nn.Linear(3, 2).to('cuda')\nassert layer(torch.ones(1, 3).cuda()).is_cuda"},
}


@pytest.mark.share(3)
@pytest.mark.parametrize("idiom", PASS)
def test_a_launcher_that_asks_for_its_gpu_is_right(idiom: str, tmp_path: Path) -> None:
    verdict = judged(launcher(**PASS[idiom]), tmp_path)
    assert verdict.decision is Decision.PASS, (verdict.outcome, verdict.message, verdict.location)
    assert not torch.cuda.is_available() or torch.version.cuda, "nothing is left behind"


WRONG = {
    "a result on the CPU": (
        {"result": "c = torch.empty((M, N), dtype=a.dtype)"},
        Outcome.REFUSED,
        "Pointer argument (at 2) cannot be accessed from Triton (cpu tensor?)",
    ),
    "a sum of two devices": (
        {"before": "a = a + torch.zeros((M, K), dtype=a.dtype)"},
        Outcome.LAUNCHER_ERROR,
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    ),
    "NumPy of a GPU's tensor": (
        {"before": "a.numpy()"},
        Outcome.LAUNCHER_ERROR,
        "can't convert cuda:0 device type tensor to numpy",
    ),
    "a second GPU": (
        {"result": 'c = torch.empty((M, N), device="cuda:1", dtype=a.dtype)'},
        Outcome.LAUNCHER_ERROR,
        "invalid device ordinal",
    ),
    "a GPU that it is not": (
        {"before": "assert torch.cuda.get_device_capability() >= (10, 0), 'needs Blackwell'"},
        Outcome.LAUNCHER_ERROR,
        "AssertionError: needs Blackwell",
    ),
    "an instruction that its machine code has not": (
        {"handle": "h", "after": "assert 'tcgen05.mma' in h.asm['ptx'], 'no tcgen05'"},
        Outcome.LAUNCHER_ERROR,
        "AssertionError: no tcgen05",
    ),
    "a shape of torch's own": ({"before": "a + a[:, :-1]"}, Outcome.LAUNCHER_ERROR, "The size of tensor a"),
    "an element type that has no name": ({"before": "a.type('torch.cuda.QuarterTensor')"}, Outcome.REFUSED, "invalid type"),
    "a property that no GPU has": (
        {"before": "torch.cuda.get_device_properties(0).cores"},
        Outcome.LAUNCHER_ERROR,
        "object has no attribute 'cores'",
    ),
    "a compiled function that is wrong": (
        {"module": "@torch.compile\ndef half(x):\n    return x * 0.5", "after": "c = half(c)"},
        Outcome.WRONG_MATHEMATICS,
        "before any rounding",
    ),
    "an event that was not recorded": (
        {"before": "torch.cuda.Event(enable_timing=True).elapsed_time(torch.cuda.Event(enable_timing=True))"},
        Outcome.REFUSED,
        "Both events must be recorded",
    ),
    "a result that leaves the GPU unfinished": (
        {"after": "c = c.cpu() * 0"},  # read on the host: what it then makes of it has no real values
        Outcome.OUTSIDE_BOUND,
        "outside the bound",
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_fails_on_a_gpu_fails_here_by_its_name(fault: str, tmp_path: Path) -> None:
    changed, outcome, said = WRONG[fault]
    verdict = judged(launcher(**changed), tmp_path)
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, outcome), verdict.message
    assert said in verdict.message and "harness" not in verdict.location


UNANSWERED = {
    "torch.cuda.utilization": "torch.cuda.utilization()",
    "torch.cuda.cudart": "torch.cuda.cudart()",
    "Tensor.__dlpack__": "torch.from_dlpack(a)",
    "torch.cuda.get_device_properties().uuid": "torch.cuda.get_device_properties(0).uuid",
    "torch.profiler.profile of the GPU": "torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])",
    "torch.set_default_tensor_type of the GPU": "torch.set_default_tensor_type(torch.cuda.FloatTensor)",
}


@pytest.mark.parametrize("call", UNANSWERED)
def test_a_call_that_has_no_answer_is_an_error_that_names_it(call: str, tmp_path: Path) -> None:
    verdict = judged(launcher(before=UNANSWERED[call]), tmp_path)
    assert (verdict.decision, verdict.outcome) == (Decision.ERROR, Outcome.ERROR)
    assert verdict.message.startswith(f"{call}: the emulated GPU does not answer this call")


@pytest.mark.parametrize(("arch", "capability"), [("sm_80", (8, 0)), ("sm_100", (10, 0))])
def test_each_emulated_gpu_answers_for_itself(arch: str, capability: tuple[int, int], tmp_path: Path) -> None:
    text = launcher(module=f"assert torch.cuda.get_device_capability() == {capability}")
    assert judged(text, tmp_path, arch=arch).decision is Decision.PASS
