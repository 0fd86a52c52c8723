"""One file of hardware words that a contributor sends: written whole or not at all, refused where it is not what was written.

Rule: a file is what `bitverdict lab record --send FILE.npz` wrote, on a GPU. A digest over every array and every line of `meta`
finds damage and edits. It is no signature: who computes it anew can write any word. Layout: docs/sending_words.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bitverdict.harness.lab.hardware_words.cuda_library import Device
from bitverdict.harness.lab.hardware_words.instruction_words import instructions, meta, operands, utc_date
from bitverdict.harness.lab.hardware_words.probes import PROBES, Probe
from bitverdict.reference.formats import FORMATS
from bitverdict.reference.tensor_core import Instruction, elements, instruction

FORM, VERSION = "bitverdict sent words", 1
HARDWARE, MODEL = "hardware", "model"
FIELDS = ("form", "version", "made_by", "gpu", "arch", "driver", "compiler", "versions", "date", "command", "data_seed", "parts")
REMEDY = "ask the sender for the file as `bitverdict lab record --send FILE.npz` wrote it"
Part = dict[str, np.ndarray]  # a, b [R, steps * K], c32, d32, c16, d16 [R] words


class RefusedFileError(ValueError):
    """A file is not taken; the message gives the value, the rule and the remedy."""


@dataclass(frozen=True)
class SentFile:
    """A file as it was written: what `meta` says, and the arrays of each part by its stem."""

    about: dict[str, Any]
    parts: dict[str, Part]


def rule_of(about: Mapping[str, Any], d_name: str) -> Instruction:
    """The model's record of one instruction of a part; ValueError where that chip has none."""
    d = about["d"][d_name]
    rule = instruction(about["arch"], about["family"], about["a"], about["b"], d, k=about["k"])
    return replace(rule, saturates=about["saturated"]) if d == "int32" else rule


def probes_of(arch: str) -> tuple[Probe, ...]:
    """The probes whose every instruction `reference.tensor_core` knows of `arch`. ValueError where there is none."""
    matches, number = [], arch.removeprefix("sm_")
    for probe in PROBES:
        if number.isdigit() and probe.least > int(number):
            continue
        about = meta(Device(arch, arch, "", ""), probe)
        try:
            _ = [rule_of(about, name) for name in about["d"]]
        except ValueError:
            continue
        matches.append(probe)
    if not matches:
        raise ValueError(f"{arch}: `reference.tensor_core` knows no recorded instruction there; name a chip such as sm_90")
    return tuple(matches)


def predict(about: Mapping[str, Any], d_name: str, part: Part) -> np.ndarray:
    """The model's words [R], in the dtype of the part's own."""
    a, b, c = part["a"], part["b"], part["c" + d_name[1:]]
    if about["d"][d_name] == "int32":
        a, b, c = a.view(np.int8), b.view(np.int8), c.view(np.int32)
    with np.errstate(all="ignore"):
        words = elements(rule_of(about, d_name), a, b, c)
    return words.view(part["c" + d_name[1:]].dtype)


def of_model(arch: str, probe: Probe, data_seed: int) -> tuple[dict[str, Any], Part]:
    """What a part says of itself and its arrays, every d by the model: no word of it is evidence."""
    chosen, about = operands(probe, data_seed), meta(Device(f"emulated:{arch}", arch, "", ""), probe)
    part: Part = {"a": chosen.a, "b": chosen.b, "kind": chosen.kind}
    for c_name, d_name, _ in instructions(probe):
        part[c_name] = getattr(chosen, c_name)
        part[d_name] = predict(about, d_name, part)
    return about, part


def model_about(arch: str, data_seed: int, command: str) -> dict[str, Any]:
    """The head of a file that a model made."""
    here = {"gpu": f"emulated:{arch}", "arch": arch, "driver": "none", "compiler": "none", "versions": {"numpy": np.__version__}}
    return {"made_by": MODEL, **here, "date": utc_date(), "command": command, "data_seed": data_seed}


def digest(about: Mapping[str, object], parts: Mapping[str, Part]) -> str:
    """SHA-256 of `about` without its digest and of every array: name, dtype, shape, bytes."""
    found = hashlib.sha256(json.dumps({k: v for k, v in about.items() if k != "digest"}, sort_keys=True).encode())
    for stem, name in sorted((stem, name) for stem, part in parts.items() for name in part):
        array = np.ascontiguousarray(parts[stem][name])
        found.update(f"{stem}/{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def write(path: Path, about: Mapping[str, object], made: Mapping[str, tuple[dict[str, object], Part]]) -> dict[str, Any]:
    """Write `path`, whole or not at all, and return its `meta`. `made`: by stem, what a part says of itself and its arrays."""
    parts = {stem: part for stem, (_, part) in made.items()}
    header = {"form": FORM, "version": VERSION, **about, "parts": {stem: of_part for stem, (of_part, _) in made.items()}}
    header["digest"] = digest(header, parts)
    arrays = {f"{stem}/{name}": array for stem, part in parts.items() for name, array in part.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, meta=np.array(json.dumps(header)), **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return header


def read(path: Path) -> SentFile:
    """The file at `path`, by whomever its words were made. Refused: no such form, truncated, edited, arrays that do not fit."""
    try:
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        about = json.loads(str(arrays.pop("meta")))
    except (OSError, ValueError, EOFError, KeyError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as reason:
        raise RefusedFileError(f"{path}: {reason}; a file of words is a whole .npz with `meta`; {REMEDY}") from None
    missing = [name for name in (*FIELDS, "digest") if not isinstance(about, dict) or name not in about]
    if missing:
        raise RefusedFileError(f"{path}: `meta` lacks {', '.join(missing)}; a sent file has every field; {REMEDY}")
    if (about["form"], about["version"]) != (FORM, VERSION):
        raise RefusedFileError(
            f"{path}: {about['form']!r} version {about['version']}; read is {FORM!r} version {VERSION}; {REMEDY}"
        )
    parts: dict[str, Part] = {}
    for name, array in arrays.items():
        stem, _, short = name.partition("/")
        parts.setdefault(stem, {})[short] = array
    found = digest(about, parts)
    if found != about["digest"]:
        raise RefusedFileError(
            f"{path}: sha256 {found[:16]}, `meta` says {str(about['digest'])[:16]}; an edited file is not taken; {REMEDY}"
        )
    try:
        _check_shapes(path, about, parts)
        _ = [rule_of(of_part, name) for of_part in about["parts"].values() for name in of_part["instruction"]]
    except RefusedFileError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as reason:
        raise RefusedFileError(
            f"{path}: {reason!r}; `parts` names an instruction of the model as a recording does; {REMEDY}"
        ) from None
    return SentFile(about, parts)


def take(path: Path) -> SentFile:
    """`read`, and every word made by hardware: what a model made is refused, because it would prove the model by itself."""
    sent_file = read(path)
    if sent_file.about["made_by"] != HARDWARE:
        raise RefusedFileError(
            f"{path}: made by {sent_file.about['made_by']!r} ({sent_file.about['gpu']}); evidence is made by {HARDWARE!r}; "
            "run `bitverdict lab record --send FILE.npz` on the GPU itself"
        )
    return sent_file


def differing_lines(sent: SentFile) -> list[str]:
    """A line for each instruction whose words are not the model's: how many, and the first with its operands."""
    lines = []
    for stem, about in sent.about["parts"].items():
        part = sent.parts[stem]
        for d_name, ptx in about["instruction"].items():
            actual, expected = part[d_name], predict(about, d_name, part)
            wrong = np.nonzero(actual != expected)[0]
            if wrong.size:
                row = int(wrong[0])
                a, b, c = (_hex(part[name][row]) for name in ("a", "b", "c" + d_name[1:]))
                lines.append(
                    f"{about['arch']} {ptx}: {wrong.size} of {actual.size} words differ; row {row} of {stem}: "
                    f"a={a} b={b} c={c}: sent {_hex(actual[row])}, the model gives {_hex(expected[row])}"
                )
    return lines


def _hex(words: np.ndarray) -> str:
    return " ".join(f"{int(word):0{2 * words.dtype.itemsize}x}" for word in np.atleast_1d(words))


def _check_shapes(path: Path, about: dict[str, Any], parts: dict[str, Part]) -> None:
    """Every part has its instructions' arrays, in the shapes and types of its formats, and a chip that has a model."""
    if set(parts) != set(about["parts"]) or not parts:
        raise RefusedFileError(
            f"{path}: arrays of {sorted(parts)}, `meta` names {sorted(about['parts'])}; both are the same parts; {REMEDY}"
        )
    for stem, of_part in about["parts"].items():
        part, codes = parts[stem], {"int8": np.dtype(np.uint8)}
        rows, length = len(part.get("a", ())), of_part["k"] * of_part["steps"]
        wanted = {side: ((rows, length), codes.get(of_part[side]) or np.dtype(FORMATS[of_part[side]].storage)) for side in "ab"}
        for name in of_part["d"]:
            word = np.dtype(np.uint16 if name == "d16" else np.uint32)
            wanted |= {name: ((rows,), word), "c" + name[1:]: ((rows,), word)}
        for name, (shape, dtype) in wanted.items():
            array = part.get(name)
            if array is None or (array.shape, array.dtype) != (shape, dtype) or not rows:
                there = "nothing" if array is None else f"{array.dtype} {array.shape}"
                raise RefusedFileError(
                    f"{path}: {stem}/{name} is {there}; that instruction has {dtype} {shape}, rows above 0; {REMEDY}"
                )
        if of_part["arch"] != about["arch"]:
            raise RefusedFileError(
                f"{path}: {stem} is of {of_part['arch']}, the file of {about['arch']}; a file is of one chip; {REMEDY}"
            )
