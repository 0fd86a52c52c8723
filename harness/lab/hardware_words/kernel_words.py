"""Words of a whole kernel: one case of a contract launched once, every operand and every output kept with the case.

The same layout repeats it: the case rebuilds the launch, the kept operands are compared with those it draws, the kept words with
those that come out. A case that expects no result, or whose launch came to anything else, is not recorded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.launch import launch
from bitverdict.harness.lab.hardware_words.cuda_library import CannotRecord
from bitverdict.harness.model.addresses import load, resolve
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError

UNSIGNED_TYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def chosen_cases(address: str, target: Target, count: int) -> list[tuple[str, Case]]:
    """The first `count` cases of the contract's required cases that expect a result on `target`, as (stem, case). ValueError for
    none."""
    contract = resolve(address)
    owing = [case for case in contract.required(target) if contract.expected_outcome(case, target).result]
    if not owing:
        raise UsageError(
            f"{address} on {target.name}: its required cases have no case that expects a result; name another kernel or target"
        )
    return [(f"own_kernel_{contract.stem or 'kernel'}_{index}", case) for index, case in enumerate(owing[:count])]


def record_case(case: Case, target: Target, contract: Contract | None = None) -> dict[str, np.ndarray]:
    """`operand_<name>` (codes), `output_<name>` (words) and `meta`. Raises CannotRecord where the launch gave no result."""
    contract = contract if contract is not None else resolve(case.contract)
    operands = {operand.name: operand for operand in contract.operands(case)}
    outputs, launch_record = _outputs(case, target, contract, operands)
    about = {
        "gpu": target.model or target.name,
        "arch": target.arch,
        "family": "kernel",
        "kernel": contract.stem,
        "case": case.to_json(),
        "operands": {name: {"format": o.format, "strides": o.strides, "offset": o.offset} for name, o in operands.items()},
        "recorded": launch_record,
        "triton": _version("triton"),
        "torch": _version("torch"),
    }
    arrays = {f"operand_{name}": _bits(operand.codes) for name, operand in operands.items()}
    arrays |= {f"output_{name}": words for name, words in outputs.items()}
    return arrays | {"meta": np.array(json.dumps(about))}


def repeat_case(archive: Mapping[str, np.ndarray], target: Target) -> tuple[int, int]:
    """(words, words that differ) of the kept case launched again on `target`.

    Raises CannotRecord where the case no longer draws the kept operands (a generator changed) or gives no result.
    """
    about = json.loads(str(archive["meta"]))
    contract = resolve(about["case"]["contract"])
    case = contract.case_from_json(about["case"])
    operands = {operand.name: operand for operand in contract.operands(case)}
    for name, operand in operands.items():
        if not np.array_equal(_bits(operand.codes), archive[f"operand_{name}"]):
            raise CannotRecord(
                f"{about['kernel']}: operand {name} is drawn otherwise than when the words were kept; record them anew"
            )
    outputs, _ = _outputs(case, target, contract, operands)
    differing = sum(int((words != archive[f"output_{name}"]).sum()) for name, words in outputs.items())
    return sum(words.size for words in outputs.values()), differing


def _outputs(case: Case, target: Target, contract: Contract, operands: Mapping[str, Operand]) -> tuple[dict[str, np.ndarray], dict]:
    seen = launch(case, target, contract, load(case.launcher) if case.launcher else None, dict(operands), Clock())
    if seen.outcome is not None:
        raise CannotRecord(f"{contract.stem} on {target.name}: {seen.outcome}: {seen.message}")
    return seen.outputs, seen.launch_record


def _bits(codes: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(codes).view(UNSIGNED_TYPES[codes.dtype.itemsize])


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)
