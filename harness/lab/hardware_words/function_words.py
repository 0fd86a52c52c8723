"""Words of special-function instructions on a GPU: digests of all arguments of each, and words of the ranges that a fit needs.

    python -m bitverdict.harness.lab.hardware_words.function_words --out DIRECTORY     record (nvcc and a GPU; about a minute)
    python -m bitverdict.harness.lab.hardware_words.function_words --repeat FILE       digests of this GPU against kept ones;
    seconds

A digest is the CRC-32 (`zlib.crc32`) of the 2^16 results of one range of arguments, as 32-bit words in ascending order, lowest byte
first. Range r of a function of one word holds the arguments r * 2^16 to r * 2^16 + 2^16 - 1, so 65,536 digests cover all words. A
function of two words takes the pairs (mixed(i), mixed(i ^ GOLDEN)) for the numbers i of a range.

Before anything is kept, digests are held to the words that the same library gives one by one, and sqrt.rn.f32, which is known
without a GPU, to NumPy.
"""

from __future__ import annotations

import argparse
import bz2
import ctypes
import hashlib
import json
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bitverdict.harness.lab.hardware_words import cuda_library as instructions
from bitverdict.harness.lab.hardware_words.cuda_library import CannotRecord, Device, Machine, compiler_version, driver_version, nvcc
from bitverdict.harness.lab.hardware_words.instruction_words import utc_date
from bitverdict.harness.model.paths import state_directory


def pack(words: np.ndarray) -> np.ndarray:
    """Bytes (uint8) from which `unpack` makes the words, uint32 of one dimension, again."""
    difference = np.diff(words, prepend=np.uint32(0)).view(np.int32)  # (n,) modulo 2^32
    zigzag = (difference << 1 ^ difference >> 31).view(np.uint32)  # (n,)
    planes = np.ascontiguousarray(zigzag).view(np.uint8).reshape(-1, 4).T  # (4, n)
    return np.frombuffer(bz2.compress(planes.tobytes()), np.uint8)


def unpack(packed: np.ndarray) -> np.ndarray:
    """The words, uint32 of one dimension."""
    planes = np.frombuffer(bz2.decompress(packed.tobytes()), np.uint8).reshape(4, -1)  # (4, n)
    zigzag = np.ascontiguousarray(planes.T).view(np.uint32).reshape(-1)  # (n,)
    difference = zigzag >> 1 ^ (0 - (zigzag & 1)).astype(np.uint32)  # (n,)
    return np.cumsum(difference, dtype=np.uint32)


FOLDER = Path(__file__).parent
SOURCES = (FOLDER / "functions.cu", *instructions.SOURCES)

RANGE = 1 << 16
RANGES = 1 << 16
PAIR_RANGES = 1 << 12  # 2^28 pairs
GOLDEN = np.uint32(0x9E3779B9)
BINADE = 1 << 23

OF_FP32 = (
    "ex2_approx_ftz_f32", "ex2_approx_f32", "lg2_approx_ftz_f32", "lg2_approx_f32", "rcp_approx_ftz_f32", "rcp_approx_f32",
    "rsqrt_approx_ftz_f32", "rsqrt_approx_f32", "sqrt_approx_ftz_f32", "sqrt_approx_f32", "sin_approx_ftz_f32", "sin_approx_f32",
    "cos_approx_ftz_f32", "cos_approx_f32", "tanh_approx_f32",
)  # fmt: skip
OF_HIGH_WORDS = ("rcp_approx_ftz_f64", "rsqrt_approx_ftz_f64")  # high word of the result for the high word of the argument
OF_FP32_PAIRS = ("div_full_f32", "div_full_ftz_f32", "div_approx_f32", "div_approx_ftz_f32")
FLUSHING_FUNCTIONS = ("mul_rn_ftz_f32", "fma_rn_ftz_f32")  # a * b, and a * b + 0: next to the smallest normal number
OF_FP64 = ("rsqrt_approx_f64_high", "rsqrt_approx_f64_low")  # one half of the result; the pair is the argument's high and low word
OF_16_BITS = ("ex2_approx_f16", "ex2_approx_ftz_bf16", "tanh_approx_f16", "tanh_approx_bf16")  # packed form: the name with x2
CONTROL = "sqrt_rn_f32"

SAMPLE_OFFSETS = (0, 1, 2, 0x5555, 0x8000, 0xAAAA, RANGE - 2, RANGE - 1)  # offsets in each range whose words are kept
PIECE = 1 << 21  # words packed together
FILE_LIMIT, TOTAL_LIMIT = 14 << 20, 56 << 20  # bytes


def ptx(name: str) -> str:
    """PTX instruction of a name: dots for underscores."""
    return name.removesuffix("_high").removesuffix("_low").replace("_", ".")


def mix_words(numbers: np.ndarray) -> np.ndarray:
    """The mixing step of MurmurHash3, a permutation of the 32-bit words; uint32 of any shape."""
    h = numbers ^ numbers >> 16
    h = h * np.uint32(0x85EBCA6B)
    h ^= h >> 13
    h = h * np.uint32(0xC2B2AE35)
    return h ^ h >> 16


def operands(name: str, number: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Operand words of range `number` of a function, (RANGE,) uint32 each; the second is None for a function of one word."""
    i = np.arange(RANGE, dtype=np.uint32) + np.uint32(number * RANGE)
    return (mix_words(i), mix_words(i ^ GOLDEN)) if name in OF_FP32_PAIRS + OF_FP64 else (i, None)


def ranges(name: str) -> int:
    """How many ranges are digested."""
    return PAIR_RANGES if name in OF_FP32_PAIRS + OF_FP64 else RANGES


def edges() -> np.ndarray:
    """fp32 words where a division can change its way: around powers of two that scale, zero, subnormals, infinity, NaN; [256]."""
    around = [0, 0x00800000, 0x01000000, 0x3F800000, 0x7E800000, 0x7F000000, 0x7F800000]
    near = [word + offset for word in around for offset in (-2, -1, 0, 1, 2) if word + offset >= 0]
    inside = [0x00000003, 0x00012345, 0x00400000, 0x007FFFF0, 0x3F812345, 0x3FFFFFFF, 0x40490FDB, 0x7E812345, 0x7F123456]
    nans = [0x7F800001, 0x7FA00000, 0x7FC00000, 0x7FFFFFFF]
    known = np.unique(np.array(near + inside + nans, np.uint32))
    drawn = mix_words(np.arange(128 - len(known), dtype=np.uint32)) & np.uint32(0x7FFFFFFF)
    positive = np.concatenate([known, drawn])
    return np.concatenate([positive, positive | np.uint32(0x80000000)])


def tiny_products() -> tuple[np.ndarray, np.ndarray]:
    """Pairs of fp32 words whose exact product lies within 2^-22 of 2^-126, relatively, mostly below; [65536] each.

    Rounding to 24 bits and rounding to a multiple of 2^-149 differ there, and with them what is flushed to zero.
    """
    number = np.arange(1 << 16, dtype=np.uint32)
    left = (mix_words(number) & np.uint32(0x7FFFFF) | np.uint32(0x800000)).astype(np.int64)  # (65536,) 2^23 to 2^24 - 1
    right = ((1 << 47) - (3 << 20)) // left + number % 4 - 1  # (65536,) left * right is near 2^47
    right = np.minimum(right, (1 << 24) - 1)
    fraction = 0x7FFFFF
    return ((left & fraction) | (127 - 63) << 23).astype(np.uint32), ((right & fraction) | (127 - 64) << 23).astype(np.uint32)


@dataclass(frozen=True)
class Run:
    """`count` neighbouring arguments of a function, from the word `first` on, whose results are kept."""

    function: str
    first_word: int
    count: int = BINADE

    @property
    def key(self) -> str:
        """Name in a file."""
        return f"{self.function}-{self.first_word:08x}"


def binades(function: str, *exponents: int, negative: bool = False) -> list[Run]:
    """Every word with one of these exponents; -127 names the subnormals."""
    return [Run(function, exponent + 127 << 23 | negative << 31) for exponent in exponents]


def kept_runs() -> list[Run]:
    """What is kept in full, the most needed first."""
    fractions = [
        *binades("rcp_approx_ftz_f32", 0), *binades("rsqrt_approx_ftz_f32", 0, 1), *binades("sqrt_approx_ftz_f32", 0, 1),
        *binades("ex2_approx_ftz_f32", 0, -1, -2), *binades("ex2_approx_ftz_f32", 0, -1, -2, negative=True),
        *binades("lg2_approx_ftz_f32", -1, 0, 1, 2, 5), *binades("lg2_approx_ftz_f32", -2, -20, 20, 127, -126),
        Run("rcp_approx_ftz_f64", 0x3FF00000, 1 << 20), Run("rsqrt_approx_ftz_f64", 0x3FE00000, 1 << 21),
        *binades("sin_approx_ftz_f32", *range(-14, 4)), *binades("cos_approx_ftz_f32", *range(-14, 4)),
        *binades("tanh_approx_f32", *range(-14, 5)),
    ]  # fmt: skip
    scaled_runs = [run for name in OF_FP32 for run in binades(name, -127)]
    scaled_runs += [
        *binades("rcp_approx_f32", 125, 126, 127), *binades("rcp_approx_ftz_f32", 125, 126, 127),
        *binades("ex2_approx_f32", 6, 7, negative=True), *binades("ex2_approx_ftz_f32", 6, -24, negative=True),
        *binades("ex2_approx_ftz_f32", 6, -24), *binades("tanh_approx_f32", -1, negative=True),
        *binades("sin_approx_ftz_f32", 0, negative=True), *binades("cos_approx_ftz_f32", 0, negative=True),
        Run("rcp_approx_ftz_f64", 0, 1 << 21), Run("rcp_approx_ftz_f64", 0x7FC00000, 1 << 22),
        Run("rsqrt_approx_ftz_f64", 0, 1 << 21), Run("rsqrt_approx_ftz_f64", 0x7FE00000, 1 << 21),
    ]  # fmt: skip
    wide = binades("tanh_approx_f32", *range(-26, -14), 5, 6)
    for name in ("sin_approx_ftz_f32", "cos_approx_ftz_f32"):
        wide += binades(name, *range(-26, -14), 4, 5, 6, 23, 26)
    return fractions + scaled_runs + wide


def build(into: Path) -> Path:
    """Compile the functions for sm_90a into the folder `into` and return the library. Raises CannotRecord with nvcc's message."""
    into.mkdir(parents=True, exist_ok=True)
    library = into / f"functions-{source_digest()}.so"
    if not library.exists():
        options = ["-std=c++17", "-O2", "-shared", "-Xcompiler", "-fPIC", "-gencode=arch=compute_90a,code=sm_90a"]
        command = [nvcc(), *options, "-o", str(library), *map(str, SOURCES)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotRecord(f"nvcc could not compile {SOURCES[0].name}:\n{done.stderr[-2000:]}")
    return library


def source_digest() -> str:
    """First 16 hexadecimal digits of the SHA-256 of the sources, one after the other."""
    return hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()[:16]


class FunctionMachine(Machine):
    """The compiled functions on device 0."""

    def __init__(self, library: Path) -> None:
        super().__init__(library)
        self._library.apply_function.argtypes = [ctypes.c_char_p] + [ctypes.c_void_p] * 3 + [ctypes.c_int]
        self._library.digest_function.argtypes = [ctypes.c_char_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int]

    def results(self, name: str, a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
        """Result words [n] uint32 for operand words a (and b) [n] uint32. Raises CannotRecord on any CUDA error."""
        arrays = [np.ascontiguousarray(array, np.uint32) if array is not None else None for array in (a, b)]
        found = np.empty(len(a), np.uint32)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) if array is not None else None for array in (*arrays, found)]
        self._answer(name, self._library.apply_function(name.encode(), *pointers, len(a)))
        return found

    def digests(self, name: str, first: int, count: int) -> np.ndarray:
        """Digests [count] uint32 of the ranges from `first` on. Raises CannotRecord on any CUDA error."""
        found = np.empty(count, np.uint32)
        self._answer(name, self._library.digest_function(name.encode(), first, found.ctypes.data_as(ctypes.c_void_p), count))
        return found

    def _answer(self, name: str, status: int) -> None:
        if status:
            raise CannotRecord(f"{name}: {'not in the library' if status < 0 else self._name(status)}")


def digest(words: np.ndarray) -> int:
    """The digest of the results of one range, uint32."""
    return zlib.crc32(np.ascontiguousarray(words, "<u4").tobytes())


def check(machine: FunctionMachine) -> None:
    """Raises CannotRecord where digests are not those of the words, or sqrt.rn.f32 is not the square root."""
    rng = np.random.default_rng(9)
    for name in (CONTROL, *OF_FP32, *OF_HIGH_WORDS, *OF_FP32_PAIRS, *OF_FP64):
        for number in map(int, rng.integers(0, ranges(name), 8)):
            kept, words = int(machine.digests(name, number, 1)[0]), machine.results(name, *operands(name, number))
            if kept != digest(words):
                raise CannotRecord(f"{name}: range {number} has digest {kept:08x} for words of digest {digest(words):08x}")
    for number in map(int, rng.integers(0, RANGES // 2, 50)):  # positive arguments
        x = operands(CONTROL, number)[0].view(np.float32)  # (RANGE,)
        root = np.where(np.isnan(x), np.uint32(0x7FFFFFFF), np.sqrt(x).view(np.uint32))
        if digest(root) != machine.digests(CONTROL, number, 1)[0]:
            raise CannotRecord(f"{CONTROL}: range {number} is not the square root, so the digests are of other arguments")


def all_digests(machine: FunctionMachine) -> dict[str, np.ndarray]:
    """Digests of every range of every function, by name."""
    return {name: machine.digests(name, 0, ranges(name)) for name in (*OF_FP32, *OF_HIGH_WORDS, *OF_FP32_PAIRS, *OF_FP64)}


def small_words(machine: FunctionMachine) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Every word of the 16-bit functions and words at the edges of functions of two; how many packed results differ from single."""
    arrays: dict[str, np.ndarray] = {}
    difference_counts: dict[str, int] = {}
    all_codes = np.arange(1 << 16, dtype=np.uint32)
    for name in OF_16_BITS:
        single = machine.results(name, all_codes)  # (65536,)
        arrays[name] = single.astype(np.uint16)
        packed = machine.results(f"{name}x2", all_codes | ~all_codes << 16)
        difference_counts[f"{name}x2"] = int((packed != (single | single[::-1] << 16)).sum())  # ~i is the code in reverse order
    a, b = (grid.reshape(-1) for grid in np.meshgrid(edges(), edges(), indexing="ij"))  # (65536,) each
    for name in OF_FP32_PAIRS + OF_FP64:
        arrays[f"{name}-edges"] = machine.results(name, a, b)
    for name in FLUSHING_FUNCTIONS:
        arrays[f"{name}-tiny"] = machine.results(name, *tiny_products())
    for name in OF_FP64:
        arrays[f"{name}-mixed"] = machine.results(name, *operands(name, 0))
    return arrays, difference_counts


def samples(machine: FunctionMachine) -> dict[str, np.ndarray]:
    """Words at the offsets SAMPLED of every range, [RANGES, offsets] uint32, by function of one word."""
    starts = np.arange(RANGES, dtype=np.uint32) * np.uint32(RANGE)
    chosen = (starts[:, None] + np.array(SAMPLE_OFFSETS, np.uint32)).reshape(-1)  # (RANGES * offsets,)
    return {name: machine.results(name, chosen).reshape(RANGES, -1) for name in OF_FP32 + OF_HIGH_WORDS}


def packed_runs(machine: FunctionMachine, runs: list[Run]) -> Iterator[tuple[str, np.ndarray]]:
    """(key, packed words) of each piece of each run, in order."""
    pieces = [
        Run(run.function, run.first_word + at, min(PIECE, run.count - at)) for run in runs for at in range(0, run.count, PIECE)
    ]
    with ThreadPoolExecutor() as pool:
        words = (
            machine.results(piece.function, np.arange(piece.count, dtype=np.uint32) + np.uint32(piece.first_word))
            for piece in pieces
        )
        for start in range(0, len(pieces), 64):
            some = pieces[start : start + 64]
            yield from zip((piece.key for piece in some), pool.map(pack, [next(words) for _ in some]), strict=True)


def origin(device: Device) -> dict:
    """Where and with what the words were written."""
    return {
        "gpu": device.name,
        "arch": device.arch,
        "source": f"harness/lab/hardware_words/*.cu sha256:{source_digest()}",
        "compiler": f"nvcc {compiler_version()}",
        "driver": driver_version(),
        "cuda": {"driver": device.cuda_driver, "runtime": device.cuda_runtime},
        "date": utc_date(),
    }


def record(machine: FunctionMachine, out: Path) -> None:
    """Write `<gpu>_own_functions_*.npz` to the folder `out`. Raises CannotRecord where a check fails."""
    start_time = time.monotonic()
    device = machine.describe()
    check(machine)
    print(f"{device.name}: the digests are those of the words ({time.monotonic() - start_time:.1f} s)", flush=True)
    stem, about = f"{device.slug}_own_functions", origin(device)
    out.mkdir(parents=True, exist_ok=True)
    kept = all_digests(machine)
    _write(out / f"{stem}_digests.npz", kept, about)
    print(f"{len(kept)} functions digested ({time.monotonic() - start_time:.1f} s)", flush=True)
    small, differing = small_words(machine)
    _write(out / f"{stem}_small.npz", small, about | {"packed results that differ from single ones": differing})
    print(f"packed results that differ from single ones: {differing}")
    _write(out / f"{stem}_samples.npz", samples(machine), about | {"offsets": SAMPLE_OFFSETS})
    total = sum(path.stat().st_size for path in out.glob(f"{stem}_*"))
    file_arrays: dict[str, np.ndarray] = {}
    number = 0
    for key, packed_words in packed_runs(machine, kept_runs()):
        if total + packed_words.nbytes > TOTAL_LIMIT:
            print(f"left out, no room: {key}", flush=True)
            continue
        if sum(array.nbytes for array in file_arrays.values()) + packed_words.nbytes > FILE_LIMIT:
            _write(out / f"{stem}_words_{number}.npz", file_arrays, about)
            file_arrays, number = {}, number + 1
        file_arrays[key], total = packed_words, total + packed_words.nbytes
    _write(out / f"{stem}_words_{number}.npz", file_arrays, about)
    print(f"{total} bytes in {out} ({time.monotonic() - start_time:.1f} s)")


def _write(path: Path, arrays: dict[str, np.ndarray], about: dict) -> None:
    np.savez_compressed(path, allow_pickle=False, **arrays, meta=np.array(json.dumps(about)))
    print(f"{path.name}: {len(arrays)} arrays, {path.stat().st_size} bytes", flush=True)


def repeat(machine: FunctionMachine, kept: Path) -> int:
    """Compare this GPU's digests with kept ones; how many ranges differ."""
    total = 0
    with np.load(kept, allow_pickle=False) as archive:
        about = json.loads(str(archive["meta"]))
        for name in (name for name in archive.files if name != "meta"):
            begun = time.monotonic()
            differing = int((machine.digests(name, 0, len(archive[name])) != archive[name]).sum())
            total += differing
            print(f"{ptx(name):24} {differing} of {len(archive[name])} ranges differ ({time.monotonic() - begun:.2f} s)")
    print(f"{total} ranges differ (kept from {about['gpu']}, here {machine.describe().name})")
    return total


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bitverdict.harness.lab.hardware_words.function_words", description=__doc__.partition("\n")[0]
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="folder to write the words to")
    what.add_argument("--repeat", type=Path, metavar="FILE", help="compare this GPU's digests with those of FILE")
    parser.add_argument("--library", type=Path, help="the compiled functions, where nvcc is not on this machine")
    arguments = parser.parse_args(argv)
    try:
        machine = FunctionMachine(arguments.library or build(state_directory() / "recording"))
        if arguments.repeat:
            return int(repeat(machine, arguments.repeat) > 0)
        record(machine, arguments.out)
    except CannotRecord as reason:
        print(f"cannot record: {reason}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
