"""Contract under test: bad input is refused with its value, the rule and a remedy, before any launch, and leaves no file behind."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import bitverdict.kernels.matmul
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.contracts.matmul import CONTRACT
from bitverdict.harness.emulator import emulated
from bitverdict.harness.model.addresses import load, resolve
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.case_fields import check_case
from bitverdict.harness.model.contract import ExpectedOutcome, ExpectedOutput, case_from_record
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import target, targets
from bitverdict.harness.session import reproducers
from bitverdict.kernels.matmul import matmul, matmul_configured


def half(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.float16)


A, B = half(4, 8), half(8, 4)
SMALL = bitverdict.kernels.matmul.CONFIGS["cuda"][-1]

LAUNCHER_ROWS: dict[str, tuple[Callable, str, str, str]] = {
    # row: (call, value, rule, remedy), each a part of the message
    "not a tensor": (lambda: matmul([[1.0]], B), "a is a list", "must be a torch.Tensor", "torch.as_tensor"),
    "rank 1": (lambda: matmul(half(4), B), "shape (4,)", "must have 2 dimensions", "reshape"),
    "rank 3": (lambda: matmul(A, half(2, 8, 4)), "b has shape (2, 8, 4)", "must have 2 dimensions", "once a batch"),
    "layout": (lambda: matmul(A, B.to_sparse()), "sparse", "must be strided", ".to_dense()"),
    "K": (lambda: matmul(A, half(7, 4)), "8 columns and b has 7 rows", "must be the rows of b", "transpose or slice"),
    "element type": (lambda: matmul(A.double(), B.double()), "float64", "must be one of fp16, bf16", "convert"),
    "element type of 8 bits": (
        lambda: matmul(A.to(torch.float8_e5m2), B.to(torch.float8_e5m2)),
        "e5m2",
        "must be one of",
        "convert",
    ),
    "types differ": (lambda: matmul(A, B.bfloat16()), "a is fp16 and b is bf16", "same element type", "convert one"),
    "devices differ": (lambda: matmul(A, B.to("meta")), "a is on cpu and b on meta", "one device", ".to(...)"),
    "device is not the target's": (
        lambda: matmul(A.to("meta"), B.to("meta")),
        "a is on meta",
        "takes operands on cuda",
        "move a and b",
    ),
    "activation": (lambda: matmul(A, B, "gelu"), "activation 'gelu'", "must be one of '', 'leaky_relu'", "apply another function"),
    "activation of integers": (
        lambda: matmul(A.to(torch.int8), B.to(torch.int8), "leaky_relu"),
        "with int8 operands",
        "is a fraction",
        "torch.int32",
    ),
    "output type": (lambda: matmul(A, B, out_dtype=torch.int8), "out_dtype int8", "float operands give", "convert afterwards"),
    "output type of integers": (
        lambda: matmul(A.to(torch.int8), B.to(torch.int8), out_dtype=torch.float16),
        "out_dtype fp16 for operands in int8",
        "int8 operands give int8",
        "convert afterwards",
    ),
    "output is no type": (lambda: matmul(A, B, out_dtype="half"), "out_dtype 'half'", "must be a torch.dtype", "torch.float32"),
    "precision": (
        lambda: matmul(A.float(), B.float(), precision="bf16x3"),
        "precision 'bf16x3'",
        "must be one of 'tf32', 'ieee'",
        "leave it out",
    ),
    "size": (lambda: matmul(half(1, 8).expand(2**31 - 1, 8), B), "m=2147483647", "no size may be above", "in parts"),
    "configured, K": (
        lambda: matmul_configured(A, half(9, 4), "", None, SMALL),
        "b has 9 rows",
        "must be the rows of b",
        "transpose or slice",
    ),
    "backend": (
        lambda: bitverdict.kernels.matmul.configurations("xpu"),
        "backend 'xpu'",
        "no list of configurations",
        "one of cuda, hip",
    ),
}


def no_file(directory: Path) -> bool:
    return not list(directory.iterdir())


@pytest.mark.parametrize("row", LAUNCHER_ROWS)
def test_the_launcher_refuses_before_any_launch(row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call, value, rule, remedy = LAUNCHER_ROWS[row]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    with emulated("sm_90") as device, pytest.raises(ValueError) as refusal:
        call()
    for part in (value, rule, remedy):
        assert part in str(refusal.value)
    assert not device.launches
    assert no_file(tmp_path)


HARNESS_ROWS: dict[str, tuple[Callable[[Path], object], str, str, str]] = {
    "target": (lambda d: target("emulated:sm_70"), "emulated:sm_70", "", "emulated:sm_80"),
    "target of another kind": (lambda d: target("tpu:0"), "tpu:0", "", "emulated:sm_80"),
    "contract": (lambda d: resolve("matmull"), "matmull", "no such kernel", "matmul"),
    "launcher's file": (lambda d: load(f"{d}/mine.py:matmul"), "mine.py", "there is no file", "existing Python file"),
    "launcher's module": (lambda d: load("nowhere.mine:matmul"), "nowhere.mine", "cannot import", "path/file.py:NAME"),
    "launcher's name": (lambda d: load("bitverdict.kernels.matmul:matmull"), "matmull", "has no matmull", "it has"),
    "launcher without a name": (lambda d: load("mine.py"), "mine.py", "must be", "path/file.py:NAME"),
    "reproducer": (lambda d: reproducers.read(d / "none.json"), "none.json", "cannot be read", "give a file"),
    "regime": (lambda d: regimes.draw("fp16", (1, 1), "gauss", regimes.generator(0, "a")), "'gauss'", "unknown", "use one of"),
    "format": (lambda d: regimes.draw("fp12", (1, 1), "normal", regimes.generator(0, "a")), "'fp12'", "unknown", "use one of"),
    "version of a case": (
        lambda d: CONTRACT.case_from_json({"version": 0}),
        "version 0",
        "reads version",
        "checkout that wrote it",
    ),
    "fields of a case": (
        lambda d: CONTRACT.case_from_json({"version": 1, "problem": {}}),
        "matmul",
        "must have the fields",
        "Case.to_json",
    ),
}


@pytest.mark.parametrize("row", HARNESS_ROWS)
def test_the_harness_refuses_an_address_or_a_record_that_leads_nowhere(row: str, tmp_path: Path) -> None:
    call, value, rule, remedy = HARNESS_ROWS[row]
    with pytest.raises(ValueError) as refusal:
        call(tmp_path)
    for part in (value, rule, remedy):
        assert part in str(refusal.value)
    assert no_file(tmp_path)


@pytest.mark.parametrize(("text", "said"), [("{", "JSON"), ("[]", ""), ('{"version": 999}', "999"), ("{}", "")])
def test_a_broken_reproducer_is_refused_and_left_alone(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(ValueError) as refusal:
        reproducers.read(path)
    assert "broken.json" in str(refusal.value)
    assert said in str(refusal.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["broken.json"]
    assert path.read_text() == text


def test_without_any_gpu_the_launcher_says_where_a_kernel_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        @property
        def active(self):
            raise RuntimeError("0 active drivers ([]). There should only be one.")

    monkeypatch.setattr(bitverdict.kernels.matmul, "driver", Nothing())
    with pytest.raises(ValueError, match=r"a is on cpu and Triton finds no GPU here.*move them to a GPU, or run under"):
        matmul(A, B)


def test_the_launcher_accepts_what_it_should() -> None:
    """A refusal of everything would pass the rows above."""
    with emulated("sm_90") as device:
        assert matmul_configured(A, B, "leaky_relu", torch.float32, SMALL).shape == (4, 4)
    assert len(device.launches) == 1


WHOLE = {"contract": "matmul", "problem": {}, "config": None, "regime": "normal", "data_seed": 0, "schedule": "eager"}


@pytest.mark.parametrize(
    "fields",
    [
        *({"calls": calls} for calls in (1, 2)),
        *({"schedule": schedule} for schedule in ("latest", "immediate", "drawn:7", "drawn:-7", "eager on 2", "drawn:0 on 132")),
        *({"tuning": tuning} for tuning in ("", "first", "runs", "config 0", "config 12")),
        {"data_seed": 1 << 40},
        {"config": {"num_warps": 4}},
    ],
    ids=str,
)
def test_a_file_may_hold_every_way_to_launch_a_case(fields: dict) -> None:
    check_case(WHOLE | fields)


@pytest.mark.parametrize("kind", [Case, ExpectedOutput, Operand, ExpectedOutcome], ids=lambda kind: kind.__name__)
def test_the_records_of_a_contract_take_their_fields_by_name_alone(kind: type) -> None:
    """A contract of a user's goes on to mean the same where a field is added or moved."""
    with pytest.raises(TypeError, match="positional argument"):
        kind(*(None for _ in dataclasses.fields(kind)))


@pytest.mark.parametrize("stem", kernels_with_a_contract())
def test_every_required_case_is_one_that_its_file_may_hold(stem: str) -> None:
    """Negative columns among them: a rule on fields that refused a kernel's own case would refuse its reproducer."""
    contract, seen = resolve(stem), 0
    for machine in targets():
        for case in contract.required(machine):
            record = json.loads(json.dumps(case.to_json()))
            check_case(record)
            assert case_from_record(contract, record) == case
            seen += 1
    assert seen
