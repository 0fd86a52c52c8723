"""Convert the published words of [TB] (reference/SOURCES.md) to the files that `TENSOR_CORE_WORDS` names.

    git clone https://github.com/north-numerical-computing/MATLAB-tensor-core CHECKOUT
    git -C CHECKOUT checkout b12b5a700957655375a1b0c1d0c26e76065da015
    python -m bitverdict.harness.lab.hardware_words.public_words CHECKOUT --out DIRECTORY

A word is taken over as it is: a value that is none of its format is refused. Every file is held to its digest, so another state of
the source is refused too. The words of [SF] are not converted: they stand in that source as code.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bitverdict.harness.model.usage import UsageError
from bitverdict.reference.formats import FORMATS, decode, encode

SOURCE = "github.com/north-numerical-computing/MATLAB-tensor-core, BSD-2-Clause"
ARCHITECTURE = {"A100": "sm_80", "Ada": "sm_89", "L40S": "sm_89", "H100": "sm_90", "H200": "sm_90", "B200": "sm_100"}
FORMATS_OF = {
    gpu: ("fp16", "bf16", "tf32") + (("e4m3", "e5m2") if gpu != "A100" else ()) for gpu in ARCHITECTURE
}  # A100 has no fp8
WMMA = "wmma (mma.sync), K zero-padded to the instruction's K"
DIGESTS: dict[str, str] = {
    "a100_fp16": "8bf346ec24a18d2bbdf020eebf1b10db5a5d7b64719ea8e1d2ee4cb87de248f1",
    "a100_bf16": "7ee27178e9ae05ab684a125fc76df0cda0c858a029ec59bae968ad26195e6795",
    "a100_tf32": "cf3769e2549e0692d3282495a9742745f9f31cd860bb72aa0274e453e8d11de8",
    "ada_fp16": "54ec153083bdb9236faa6c41d72a57f71f8be6f0f70322fe7cae35437fddf9d7",
    "ada_bf16": "ab66e8596a1244ee6cd98195d79c5308c5ebc96eaff58fb10b03ec3f8cbff763",
    "ada_tf32": "145edaf986f930d456b852fb7115e2a863aa43a6dc7c20726ea2a31941af2c0b",
    "ada_e4m3": "122874706898423446a31aa07b0f8fc300d199c9d086f0bddd97db2534878eec",
    "ada_e5m2": "73980985911048f0ce36afd9ba93a908546b238e116380896d6393e2500bf125",
    "l40s_fp16": "54ec153083bdb9236faa6c41d72a57f71f8be6f0f70322fe7cae35437fddf9d7",
    "l40s_bf16": "ab66e8596a1244ee6cd98195d79c5308c5ebc96eaff58fb10b03ec3f8cbff763",
    "l40s_tf32": "145edaf986f930d456b852fb7115e2a863aa43a6dc7c20726ea2a31941af2c0b",
    "l40s_e4m3": "75194add6a789dcfc2a9b1863a49d033301d49c87a9e8d1578edf61eff7d6485",
    "l40s_e5m2": "9bd736f8b98f4a7eea6163aa182b53735e692ec9e4e70a3f341d51b6b3676d8a",
    "h100_fp16": "01d058b6f2c81696c72119e17018abd39c2ff0eb27b10df1005ca3c0ba3a33f5",
    "h100_bf16": "1a34bd5de7096ddfbd689b053eb5ff18d3d10380c62eedd781b6b82e0398614e",
    "h100_tf32": "b4e369cee9bc31d15b8a1e827c372dfe75c08d581e9c8d057073a4ecf99915f1",
    "h100_e4m3": "228c00fd729f4c83ac47eb0ca8f68b94d7c43f66733f2c879730ffde61515834",
    "h100_e5m2": "e88c0d8c8e52844ae1f88c08b9ab44d9258de81f2be5c84c9d8d3045d48a59f7",
    "h200_fp16": "e3b4fc75b68b0664e153933367b7075e0e608d12666e20fb0529d0bdd78cdcda",
    "h200_bf16": "9dc4bf25cf7b7406b985db6d0708111f2ec0c011100319320bc08f64d66b178d",
    "h200_tf32": "dd900d7ff75a9784621fdd63948df6e4326588ebd26459282fa3649253cc9489",
    "h200_e4m3": "d54e4234cd3f978d25b2c56b868bff8ef90a59efb248cc2499d2ca0d313ed1b6",
    "h200_e5m2": "aa3f57b3f4257ee88330c6c29f9a82d412294c0fea6e62b4092fa9723e2ac231",
    "b200_fp16": "b5aad92da6b8c43af22c07c74bbe74f4158dbe5263292f373d8838fe1bc393d3",
    "b200_bf16": "eab40032d7aec61036cf1809f6247c9ce81f3ac78550f9b80c16f09822405821",
    "b200_tf32": "ce492773adba3bd4b486000869fe72a6bfc4a228d859fda303fde11bcc12fd17",
    "b200_e4m3": "7ab37c337e592e7fa8990e36bf88f203e7dbfe7f4d26722513b415b7f10b0737",
    "b200_e5m2": "de4b7afe89c6dd628654167f47722a59bb50d65812d08348275b15575a1ca01d",
}
"""sha256 of the arrays of each file, in the order of their names."""


def files(checkout: Path) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Name and arrays of every file. UsageError where `checkout` is no such checkout, or holds other words."""
    for gpu, formats in FORMATS_OF.items():
        for name in formats:
            stem = f"{gpu.lower()}_{name}"
            arrays = convert_folder(checkout / "model_validation" / gpu / (name.upper() if name[0] == "e" else name), gpu, name)
            if digest(arrays) != DIGESTS[stem]:
                raise UsageError(f"{checkout}: {stem} has other words than commit b12b5a7; check that commit out")
            yield stem, arrays | {"meta": np.array(json.dumps(about(gpu, name, arrays)))}


def convert_folder(folder: Path, gpu: str, name: str) -> dict[str, np.ndarray]:
    """a, b (R, K) codes in the format `name`; c32, d32 (R,) uint32 and d16 (R,) uint16 where there are such; row (R,) uint16."""
    arrays = {}
    for side in ("a", "b"):
        rows = _text(folder / f"{side}_{gpu}_{folder.name}.txt").splitlines()
        words = np.array([[int(word, 16) for word in row.split()] for row in rows if row.strip()], np.uint32)  # (R, K)
        arrays[side] = words if name == "tf32" else _encode_words(words, name)
    for key, side, of in (("c32", "c", "fp32"), ("d32", "d", "fp32"), ("d16", "d", "fp16")):
        place = folder / f"{side}_{gpu}_{of}.txt"
        if key != "d16" or place.exists():
            words = np.array([int(row, 2) for row in _text(place).split()], np.uint32)  # (R,)
            arrays[key] = words if of == "fp32" else _encode_words(words, of)
    arrays["row"] = np.arange(len(arrays["a"]), dtype=np.uint16)
    return arrays


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give a checkout of {SOURCE.partition(',')[0]}") from None


def _encode_words(words: np.ndarray, name: str) -> np.ndarray:
    """fp32 `words` as codes of the format `name`, same shape. UsageError for a value that is none of its values."""
    values = words.view(np.float32)
    codes = encode(FORMATS[name], values)
    if not np.array_equal(decode(FORMATS[name], codes), values.astype(np.float64)):
        wrong = values[decode(FORMATS[name], codes) != values][0]
        raise UsageError(f"{wrong!r} is no value of {name}: this is no file of that format")
    return codes


def about(gpu: str, name: str, arrays: dict[str, np.ndarray]) -> dict:
    """Which instruction wrote d32 and d16, and which c it had (`model_validation` of the source)."""
    fp8, wgmma = name[0] == "e", gpu in ("H100", "H200")
    record: dict = {"gpu": gpu, "sm": ARCHITECTURE[gpu], "format": name, "K": arrays["a"].shape[1], "source": SOURCE}
    if fp8 and wgmma:
        record["d32"] = {"instruction": "wgmma m64nNk32", "c": "+0, c32 was not used"}
    else:
        record["d32"] = {"instruction": "mma.sync m16n8k32 f32" if fp8 else WMMA, "c": "c32"}
    if "d16" in arrays:
        instruction = "mma.sync m16n8k32 f16" if fp8 else "wmma (mma.sync), fp16 accumulator"
        record["d16"] = {"instruction": instruction, "c": "c32 rounded to fp16, nearest even"}
    return record


def digest(arrays: dict[str, np.ndarray]) -> str:
    made = hashlib.sha256()
    for name in sorted(arrays):
        made.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return made.hexdigest()


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="a checkout of the source")
    parser.add_argument("--out", type=Path, required=True, metavar="DIRECTORY", help="what TENSOR_CORE_WORDS is to name")
    options = parser.parse_args(words)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        count = 0
        for stem, arrays in files(options.checkout):
            np.savez_compressed(options.out / f"{stem}.npz", **arrays)  # type: ignore[arg-type]
            count += sum(arrays[name].size for name in ("d32", "d16") if name in arrays)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{count:,} words in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
