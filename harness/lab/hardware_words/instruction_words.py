"""Words of single instructions: what one probe is fed, the checks before its words are kept, and what its file says of itself."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator

import numpy as np

from bitverdict.harness.lab.hardware_words import conversion_inputs
from bitverdict.harness.lab.hardware_words.cuda_library import (
    CannotRecord,
    Device,
    Machine,
    compiler_version,
    driver_version,
    source_digest,
)
from bitverdict.harness.lab.hardware_words.probe_inputs import KINDS, Rows, rows
from bitverdict.harness.lab.hardware_words.probes import Probe
from bitverdict.reference.formats import FORMATS

DATA_SEED = 20_090


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
    inputs = operands(probe, data_seed)
    arrays = {"a": inputs.a, "b": inputs.b, "kind": inputs.kind}
    for c_name, d_name, ptx in instructions(probe):
        check_exact(machine, probe, ptx, half=d_name == "d16")
        c = getattr(inputs, c_name)
        d = machine.words(ptx, inputs.a, inputs.b, c, steps=probe.steps)
        for turn in placements(probe):
            moved = machine.words(ptx, inputs.a, inputs.b, c, steps=probe.steps, turn=turn)
            if (d != moved).any():
                raise CannotRecord(f"{ptx}: {int((d != moved).sum())} words change with the product's place in the tile")
        arrays |= {c_name: c, d_name: d}
    return arrays | {"meta": np.array(json.dumps(meta(device, probe) | origin(device, data_seed)))}


def record_conversions(machine: Machine, device: Device, data_seed: int) -> dict[str, np.ndarray]:
    """Arrays of the file of conversions: `source` holds the fp32 words; every other source is all words of its format."""
    sources = conversion_inputs.sources(data_seed, int(device.arch.removeprefix("sm_")))
    arrays = {"source": conversion_inputs.fp32_sources(data_seed)}
    for name, source in sources.items():
        arrays[name] = machine.convert(name, source).astype(conversion_inputs.storage(name))
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
        "saturated": probe.saturates,
        "kinds": [] if integer else list(KINDS),
    }


def origin(device: Device, data_seed: int) -> dict:
    """Where and with what words were written."""
    return {
        "data_seed": data_seed,
        "source": f"harness/lab/hardware_words/*.cu sha256:{source_digest()}",
        "compiler": f"nvcc {compiler_version()}",
        "driver": driver_version(),
        "cuda": {"driver": device.cuda_driver, "runtime": device.cuda_runtime},
        "date": utc_date(),
    }


def utc_date() -> str:
    """The date in UTC, as a file keeps it."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()
