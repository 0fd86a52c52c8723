"""Hardware words of our own: run single matrix instructions on a GPU and keep operands and results, word for word.

Rule: a file holds everything needed to repeat it on any GPU of that kind: operand words, c, d, the PTX name of the instruction, the
source that issued it (by digest), compiler, driver, date and data seed. Before a word is kept, the same library must give exact
small-integer products and the same word from two placements in the instruction's tile.

    python -m harness.record --out DIRECTORY            write the words of every probe, and one archive of them
    python -m harness.record --dry-run                  make the operands only; needs no GPU
    python -m harness.record --repeat DIRECTORY         run kept operands again and compare with the kept words

Layout of a file: `tests/hardware_words/README.md`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from harness.recording import conversions
from harness.recording.machine import CannotRecord, Device, Machine, build, compiler_version, driver_version, source_digest
from harness.recording.probes import PROBES, Probe
from harness.recording.rows import KINDS, Rows, rows
from reference.formats import FORMATS

DATA_SEED = 20_090
FILE_LIMIT = 3_000_000  # bytes, all files of one GPU together


def operands(probe: Probe, data_seed: int = DATA_SEED) -> Rows:
    """The rows of a probe: a, b [R, steps * K] and c of both widths; an integer probe has c in `c32` as int32 words."""
    if not probe.integer:
        return rows(FORMATS[probe.a], FORMATS[probe.b], probe.k * probe.steps, probe.count, data_seed=data_seed)
    rng = np.random.default_rng(data_seed)
    shape = (probe.count, probe.k * probe.steps)
    a, b = rng.integers(-128, 128, (2, *shape)).astype(np.int8)
    edges = np.array([0, 2**31 - 1, -(2**31), 2**31 - 1000, 1000 - 2**31])
    c = np.where(rng.random(probe.count) < 0.5, rng.choice(edges, probe.count), rng.integers(-(2**31), 2**31, probe.count))
    nothing = np.zeros(probe.count, np.uint8)
    return Rows(a.view(np.uint8), b.view(np.uint8), c.astype(np.int32).view(np.uint32), nothing.astype(np.uint16), nothing)


def instructions(probe: Probe) -> Iterator[tuple[str, str, str]]:
    """(name of c, name of d, PTX) for each result the probe has."""
    for c_name, d_name, ptx in (("c32", "d32", probe.d32), ("c16", "d16", probe.d16)):
        if ptx:
            yield c_name, d_name, ptx


def placements(probe: Probe) -> tuple[int, ...]:
    """Where the products of a group can lie in the tile besides its first rows and columns (`turn` in instructions.cu)."""
    return (1, 2) if probe.family == "wgmma" else (1,)


def check_exact(machine: Machine, probe: Probe, ptx: str, half: bool) -> None:
    """Small integers, whose products are exact in any order: raises CannotRecord where the library does not give them.

    This is what shows that the fragments and descriptors of `instructions.cu` place every element where it should be.
    """
    rng = np.random.default_rng(7)
    shape = (64, probe.k * probe.steps)
    table = _codes_of_integers(probe.a), _codes_of_integers(probe.b)
    drawn = rng.integers(-3, 4, (2, *shape))
    c = rng.integers(-50, 50, 64)
    a, b = (codes[values + 3] for codes, values in zip(table, drawn, strict=True))
    if probe.integer:
        c_words, expected = c.astype(np.int32), (c + (drawn[0] * drawn[1]).sum(axis=1)).astype(np.int32)
    else:
        dtype = np.float16 if half else np.float32
        c_words, expected = c.astype(dtype), (c + (drawn[0] * drawn[1]).sum(axis=1)).astype(dtype)
    for turn in (0, *placements(probe)):
        got = machine.words(ptx, a, b, c_words, steps=probe.steps, turn=turn)
        wrong = int((got != expected).sum())
        if wrong:
            raise CannotRecord(
                f"{ptx}: {wrong} of 64 exact integer products are wrong (placement {turn}): {got[:4]} for {expected[:4]}"
            )


def _codes_of_integers(format: str) -> np.ndarray:
    """Codes of -3 .. 3."""
    if format == "int8":
        return np.arange(-3, 4).astype(np.int8).view(np.uint8)
    record, values = FORMATS[format], np.arange(-3, 4)
    fraction = {0: 0, 1: 0, 2: 0, 3: 1 << (record.mantissa_bits - 1)}
    exponent = {1: 0, 2: 1, 3: 1}
    codes = []
    for value in values:
        size = abs(int(value))
        code = 0 if not size else ((record.bias + exponent[size]) << record.mantissa_bits | fraction[size]) << record.low_padding
        codes.append(code | (record.sign_bit if value < 0 else 0))
    return np.array(codes).astype(record.storage)


def record_probe(machine: Machine, device: Device, probe: Probe, data_seed: int) -> dict[str, np.ndarray]:
    """Arrays of one file. Raises CannotRecord where a check fails or a word depends on where its product lies."""
    chosen = operands(probe, data_seed)
    arrays = {"a": chosen.a, "b": chosen.b, "kind": chosen.kind}
    for c_name, d_name, ptx in instructions(probe):
        check_exact(machine, probe, ptx, half=d_name == "d16")
        c = getattr(chosen, c_name)
        d = machine.words(ptx, chosen.a, chosen.b, c, steps=probe.steps)
        for turn in placements(probe):
            moved = machine.words(ptx, chosen.a, chosen.b, c, steps=probe.steps, turn=turn)
            if (d != moved).any():
                raise CannotRecord(f"{ptx}: {int((d != moved).sum())} words change with the product's place in the tile")
        arrays |= {c_name: c, d_name: d}
    return arrays | {"meta": np.array(json.dumps(meta(device, probe) | origin(device, data_seed)))}


def record_conversions(machine: Machine, device: Device, data_seed: int) -> dict[str, np.ndarray]:
    """Arrays of the file of conversions: `source` holds the fp32 words; every other source is all words of its format."""
    sources = conversions.sources(data_seed)
    arrays = {"source": conversions.fp32_sources(data_seed)}
    for name, source in sources.items():
        arrays[name] = machine.converted(name, source).astype(conversions.storage(name))
    about = {
        "gpu": device.name,
        "arch": device.arch,
        "family": "cvt",
        "instruction": {name: name.replace("_", ".") for name in sources},
    }
    return arrays | {"meta": np.array(json.dumps(about | origin(device, data_seed)))}


def meta(device: Device, probe: Probe) -> dict:
    """What a file of inner products says of its instruction."""
    integer = probe.integer
    return {
        "gpu": device.name,
        "arch": device.arch,
        "family": probe.family,
        "instruction": {d: ptx for _, d, ptx in instructions(probe)},
        "a": probe.a,
        "b": probe.b,
        "d": {d: "int32" if integer else "fp32" if d == "d32" else "fp16" for _, d, _ in instructions(probe)},
        "k": probe.k,
        "steps": probe.steps,
        "saturated": probe.saturated,
        "kinds": [] if integer else list(KINDS),
    }


def origin(device: Device, data_seed: int) -> dict:
    """Where and with what words were written."""
    return {
        "data_seed": data_seed,
        "source": f"harness/recording/*.cu sha256:{source_digest()}",
        "compiler": f"nvcc {compiler_version()}",
        "driver": driver_version(),
        "cuda": {"driver": device.cuda_driver, "runtime": device.cuda_runtime},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def record(out: Path, library: Path | None, data_seed: int) -> int:
    """Write every probe's file into `out` and one archive of them. Returns the number of probes that could not be recorded."""
    machine, device = _machine(library)
    print(f"{device.name} ({device.arch}), driver {driver_version()}, nvcc {compiler_version()}, data seed {data_seed}")
    out.mkdir(parents=True, exist_ok=True)
    jobs: list[tuple[str, Callable[[], dict[str, np.ndarray]]]]
    jobs = [(probe.stem, partial(record_probe, machine, device, probe, data_seed)) for probe in PROBES]
    jobs.append((conversions.STEM, partial(record_conversions, machine, device, data_seed)))
    written, failed = [], 0
    for stem, job in jobs:
        try:
            arrays = job()
        except CannotRecord as reason:
            failed += 1
            print(f"NOT RECORDED {stem}: {reason}")
            continue
        path = out / f"{device.slug}_{stem}.npz"
        np.savez_compressed(path, allow_pickle=False, **arrays)
        written.append(path)
        print(f"{path.name:52} {summary(arrays)} {path.stat().st_size:8} bytes")
    total = sum(path.stat().st_size for path in written)
    with tarfile.open(out / f"{device.slug}_own_words.tar", "w") as archive:
        for path in written:
            archive.add(path, arcname=path.name)
    over = f", OVER the limit of {FILE_LIMIT}" if total > FILE_LIMIT else ""
    print(f"{len(written)} files, {total} bytes{over}; {failed} not recorded; archive {device.slug}_own_words.tar")
    return failed


def summary(arrays: dict[str, np.ndarray]) -> str:
    """Rows, and for each result how many words are NaN, infinite and zero."""
    if "source" in arrays:
        return f"{sum(len(array) for name, array in arrays.items() if name.startswith('cvt')):6} words"
    parts = [f"{len(arrays['a']):5} rows"]
    for name, dtype in (("d32", np.float32), ("d16", np.float16)):
        if name in arrays:
            values = arrays[name].view(dtype)
            parts.append(f"{name}: {np.isnan(values).sum():4} NaN {np.isinf(values).sum():4} Inf {(values == 0).sum():4} zero")
    return "  ".join(parts)


def repeat(kept: Path, library: Path | None) -> int:
    """Run the operands of every file in `kept` on this device again. Returns the number of words that came out otherwise."""
    machine, device = _machine(library)
    differing = words = 0
    files = sorted(kept.glob("*_own_*.npz"))
    if not files:
        raise CannotRecord(f"no *_own_*.npz in {kept}")
    for path in files:
        with np.load(path, allow_pickle=False) as held:
            about = json.loads(str(held["meta"]))
            for name, ptx in about["instruction"].items():
                if about["family"] == "cvt":
                    source = held["source"] if name in conversions.FROM_FP32 else np.arange(len(held[name]))
                    again = machine.converted(name, source).astype(held[name].dtype)
                else:
                    again = machine.words(ptx, held["a"], held["b"], held["c" + name[1:]], steps=about["steps"])
                count = int((again != held[name]).sum())
                differing, words = differing + count, words + again.size
                print(f"{path.name} {name}: {count} of {again.size} words differ (kept from {about['gpu']}, here {device.name})")
    print(f"{words} words, {differing} differ")
    return differing


def dry_run(data_seed: int) -> None:
    """Make every probe's operands and say how large the files will be, with the c words standing in for d."""
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        for probe in PROBES:
            chosen = operands(probe, data_seed)
            arrays = {"a": chosen.a, "b": chosen.b, "kind": chosen.kind}
            for c_name, d_name, _ in instructions(probe):
                c = getattr(chosen, c_name)
                arrays |= {c_name: c, d_name: np.random.default_rng(1).permuted(c)}
            path = Path(folder) / f"{probe.stem}.npz"
            np.savez_compressed(path, allow_pickle=False, **arrays)
            total += path.stat().st_size
            ptx = ", ".join(ptx for _, _, ptx in instructions(probe))
            print(f"{probe.stem:32} {chosen.a.shape[0]:5} x {chosen.a.shape[1]:3} {path.stat().st_size:8} bytes  {ptx}")
    words = sum(len(source) for source in conversions.sources(data_seed).values())
    print(f"{conversions.STEM:32} {words} conversions of {len(conversions.fp32_sources(data_seed))} fp32 words and all small ones")
    print(f"{len(PROBES)} files of products, about {total} bytes (limit {FILE_LIMIT}), and one of conversions")


def _machine(library: Path | None) -> tuple[Machine, Device]:
    folder = Path(tempfile.gettempdir()) / "bitverdict-recording"
    machine = Machine(library or build(folder))
    return machine, machine.describe()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``record``, for ``python -m harness record`` too."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="folder to write the words to")
    what.add_argument("--repeat", type=Path, metavar="DIRECTORY", help="run the kept operands again and compare the words")
    what.add_argument("--dry-run", action="store_true", help="make the operands only, without a GPU")
    parser.add_argument("--library", type=Path, help="the compiled instructions, where nvcc is not on this machine")
    parser.add_argument("--data-seed", type=int, default=DATA_SEED)


def run(arguments: argparse.Namespace) -> int:
    """0 all recorded (or repeated word for word), 1 something was not, 2 nothing can be recorded here."""
    try:
        if arguments.dry_run:
            dry_run(arguments.data_seed)
            return 0
        if arguments.repeat:
            return int(repeat(arguments.repeat, arguments.library) > 0)
        return int(record(arguments.out, arguments.library, arguments.data_seed) > 0)
    except CannotRecord as reason:
        print(f"cannot record: {reason}", file=sys.stderr)
        return 2


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness record", description="Hardware words of single instructions.")
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
