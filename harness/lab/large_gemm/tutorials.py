"""The sizes at which the tutorials time or validate kernels that have large cases, all of whose words are compared on a GPU."""

from __future__ import annotations

from bitverdict.harness.lab.large_gemm.cases import cases, kind_of
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target

_SCALED_K = {"mxfp4": range(512, 8193, 512), "mxfp8": range(8192, 16385, 2048), "nvfp4": (512, 8192), "mixed": (8192,)}
TUTORIALS: dict[tuple[str, str], list[tuple[int, int, int]]] = {
    ("matmul", "fp16"): [(1024,) * 3, (2048,) * 3, (4096,) * 3, (8192,) * 3, (9728, 8192, 65536)],
    ("ampere_gemm", "bf16"): [(4096,) * 3],
    ("blocked_matmul", "fp16"): [(8192, 8192, 16384)],
    ("blocked_matmul_pipelined", "fp16"): [(8192, 8192, 16384)],
    **{("block_scaled_matmul", kind): [(8192, 8192, k) for k in depths] for kind, depths in _SCALED_K.items()},
}


def tutorial_cases(target: Target) -> list[Case]:
    """Each size of each kernel in the types that a tutorial names, as `tests/tutorial_parameters.json` has them; of `matmul` the
    autotuned launcher, as there."""
    found = []
    for (contract, kind), sizes in TUTORIALS.items():
        of_kernel = [case for case in cases(sizes, target) if case.contract == contract and kind_of(case.problem) == kind]
        found += [case for case in of_kernel if contract != "matmul" or case.config is None]
    return found
