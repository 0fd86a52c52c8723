"""Hardware words from files: which instruction wrote them, with what operands.

Files lie in the directory named by TENSOR_CORE_WORDS (else `shared/golden` beside the checkout) and in tests/hardware_words.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bitverdict.reference.formats import FORMATS, FP16, FP32, decode, encode
from bitverdict.reference.tensor_core import Instruction, elements, instruction, scaled_elements

CHECKOUT = Path(__file__).resolve().parents[2]
OWN = CHECKOUT / "tests" / "hardware_words"
PUBLIC_NAMES = {"f16": "fp16", "f32": "fp32", "ue8m0": "e8m0"}


@dataclass(frozen=True)
class Words:
    """Results of one instruction, one inner product a row."""

    label: str
    rule: Instruction
    a: np.ndarray  # (R, K) codes
    b: np.ndarray  # (R, K) codes
    c: np.ndarray  # (R,) words of d's format
    d: np.ndarray  # (R,) words that hardware wrote
    scale_a: np.ndarray | None = None  # (R, blocks)
    scale_b: np.ndarray | None = None  # (R, blocks)

    def predicted(self, rule: Instruction | None = None) -> np.ndarray:
        """What `rule`, or the words' own, gives for the operands; (R,)."""
        rule = rule or self.rule
        if self.scale_a is None or self.scale_b is None:
            return elements(rule, self.a, self.b, self.c)
        return scaled_elements(rule, self.a, self.scale_a, self.b, self.scale_b, self.c)

    def mismatches(self, rule: Instruction | None = None) -> int:
        """Words that come out otherwise."""
        return int((self.predicted(rule) != self.d).sum())


def directories() -> list[Path]:
    """Where words may lie, the public ones first."""
    named = os.environ.get("TENSOR_CORE_WORDS")
    beside = CHECKOUT.parent / "shared" / "golden"
    return ([Path(named)] if named else [beside] if beside.is_dir() else []) + [OWN]


def required() -> bool:
    """Whether missing words are a failure: in CI, and where their directory is named, unless BITVERDICT_WITHOUT_WORDS is 1."""
    if os.environ.get("BITVERDICT_WITHOUT_WORDS") == "1":
        return False
    return bool(os.environ.get("CI") or os.environ.get("TENSOR_CORE_WORDS"))


def files() -> list[Path]:
    """Every file of products, by name; files of conversions, fp64, threads and whole kernels are held by other tests."""
    found = {path.name: path for directory in directories() for path in sorted(directory.glob("*.npz"))}
    others = ("_own_cvt", "_own_fp64", "_own_threads", "_own_kernel")
    return [path for name, path in sorted(found.items()) if not any(part in name for part in others)]


def read(path: Path) -> list[Words]:
    """The words of one file, one entry an instruction."""
    with np.load(path, allow_pickle=False) as held:
        arrays = {name: held[name] for name in held.files}
    about = json.loads(str(arrays["meta"]))
    if "fmt_a" in arrays:
        return _tcgen05(path.stem, arrays, about)
    return _own(path.stem, arrays, about) if "family" in about else _public(path.stem, arrays, about)


def _public(stem: str, arrays: dict[str, np.ndarray], about: dict) -> list[Words]:
    found = []
    for name, d in (("d32", "fp32"), ("d16", "fp16")):
        if name in arrays:
            family = "wgmma" if about[name]["instruction"].startswith("wgmma") else "mma.sync"
            c = np.zeros_like(arrays["c32"]) if about[name]["c"].startswith("+0") else arrays["c32"]  # (R,)
            c = c if d == "fp32" else encode(FP16, decode(FP32, c))  # (R,)
            rule = instruction(about["sm"], family, about["format"], about["format"], d)
            found.append(Words(f"{stem}:{name}", rule, arrays["a"], arrays["b"], c, arrays[name]))
    return found


def _own(stem: str, arrays: dict[str, np.ndarray], about: dict) -> list[Words]:
    found = []
    for name, d in about["d"].items():
        rule = instruction(about["arch"], about["family"], about["a"], about["b"], d, k=about["k"])
        a, b, c, words = arrays["a"], arrays["b"], arrays["c" + name[1:]], arrays[name]
        if d == "int32":
            rule = replace(rule, saturates=about["saturated"])
            a, b, c, words = a.view(np.int8), b.view(np.int8), c.view(np.int32), words.view(np.int32)
        found.append(Words(f"{stem}:{name}", rule, a, b, c, words))
    return found


def _tcgen05(stem: str, arrays: dict[str, np.ndarray], about: dict) -> list[Words]:
    found = []
    for row in range(len(arrays["name"])):
        text = {key: str(arrays[key][row]) for key in ("fmt_a", "fmt_b", "d_type", "scale_type")}
        text = {key: PUBLIC_NAMES.get(name, name) for key, name in text.items()}
        k, blocks = int(arrays["k"][row]), int(arrays["n_scales"][row])
        scaled = text["scale_type"] != "none"
        rule = instruction(
            about["sm"],
            "tcgen05",
            text["fmt_a"],
            text["fmt_b"],
            text["d_type"],
            kind=str(arrays["kind"][row]),
            scale=text["scale_type"] if scaled else None,
            scale_block=k // blocks if scaled else None,
        )
        a, b = (_narrowed(text[key], arrays[side][row : row + 1, :k]) for key, side in (("fmt_a", "a"), ("fmt_b", "b")))
        scales = [arrays[side][row : row + 1, :blocks] if scaled else None for side in ("scale_a", "scale_b")]
        c, d = (arrays[side][row : row + 1].astype(FORMATS[rule.d].storage) for side in ("c", "d"))
        found.append(Words(f"{stem}:{arrays['name'][row]}", rule, a, b, c, d, *scales))
    return found


def _narrowed(name: str, container: np.ndarray) -> np.ndarray:
    """Codes from the file's 32-bit containers; bf16 lies in the upper half of an fp32, whose lower half the hardware drops."""
    return (container >> np.uint32(16) if name == "bf16" else container).astype(FORMATS[name].storage)
