"""Hardware words of our own: run an instruction or a kernel on a GPU and keep operands and results, word for word.

Rule: a file holds everything needed to repeat it on any GPU of that kind: operand words, c, d, the PTX name of the instruction, the
source that issued it (by digest), compiler, driver, date and data seed. Before a word is kept, the same library must give exact
small-integer products and the same word from two placements in the instruction's tile.

    bitverdict lab record --out DIRECTORY                    words of each instruction it has, an archive of them
    bitverdict lab record --out DIRECTORY --kernel matmul    words of a kernel's first cases instead (needs torch and Triton)
    bitverdict lab record --send FILE.npz                    one file of this GPU's words, to send (docs/sending_words.md)
    bitverdict lab record --take FILE.npz                    check a file that was sent, and hold the model to it
    bitverdict lab record --dry-run                          make the operands only; needs no GPU
    bitverdict lab record --repeat DIRECTORY                 run kept operands again and compare with the kept words

Layout of a file: `tests/hardware_words/README.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from bitverdict.harness.lab.hardware_words import conversion_inputs, sent_words, thread_probes
from bitverdict.harness.lab.hardware_words.cuda_library import (
    CannotRecord,
    Device,
    Machine,
    build,
    compiler_version,
    driver_version,
    present_arch,
    slug,
)
from bitverdict.harness.lab.hardware_words.instruction_words import (
    DATA_SEED,
    instructions,
    operands,
    origin,
    record_conversions,
    record_probe,
    utc_date,
)
from bitverdict.harness.lab.hardware_words.probes import PROBES, Probe
from bitverdict.harness.lab.hardware_words.settled_sides import answers
from bitverdict.harness.model.paths import state_directory

Job = tuple[str, Callable[[], dict[str, np.ndarray]]]  # a file's stem, and what makes its arrays
FILE_LIMIT = 3_000_000  # bytes, all files of one GPU together


def record(out: Path, library: Path | None, data_seed: int) -> int:
    """Write every probe's file into `out` and one archive of them. Returns the number of probes that could not be recorded."""
    machine, device = _machine(library)
    print(f"{device.name} ({device.arch}), driver {driver_version()}, nvcc {compiler_version()}, data seed {data_seed}")
    jobs: list[Job] = [(probe.stem, partial(record_probe, machine, device, probe, data_seed)) for probe in _probes_of(device.arch)]
    jobs.append((conversion_inputs.STEM, partial(record_conversions, machine, device, data_seed)))
    if int(device.arch.removeprefix("sm_")) >= 90:
        jobs.append((thread_probes.STEM, partial(thread_probes.record_threads, device.name, device.arch, data_seed)))
    return write(out, device.slug, jobs)


def record_kernel(out: Path, address: str, target_name: str, count: int) -> int:
    """Write the words of a kernel's first cases into `out`. Returns the number of cases that could not be recorded."""
    from bitverdict.harness.lab.hardware_words import kernel_words  # what only this needs: torch, Triton
    from bitverdict.harness.model.targets import target

    machine = target(target_name)
    if machine.emulated:
        raise CannotRecord(f"{target_name} is a model: hardware words come from hardware; give --target cuda:0")
    cases = kernel_words.chosen_cases(address, machine, count)
    origin_here = {"driver": driver_version(), "date": utc_date()}
    jobs: list[Job] = [
        (stem, partial(_with_origin, partial(kernel_words.record_case, case, machine), origin_here)) for stem, case in cases
    ]
    return write(out, slug(machine.model), jobs)


def _with_origin(job: Callable[[], dict[str, np.ndarray]], origin_here: dict) -> dict[str, np.ndarray]:
    arrays = job()
    return arrays | {"meta": np.array(json.dumps(json.loads(str(arrays["meta"])) | origin_here))}


def write(out: Path, gpu: str, jobs: list[Job]) -> int:
    """Run each job, write its arrays as ``<gpu>_<stem>.npz``, and all files into one archive. Returns how many jobs failed."""
    out.mkdir(parents=True, exist_ok=True)
    paths, failures = [], 0
    for stem, job in jobs:
        try:
            arrays = job()
        except CannotRecord as reason:
            failures += 1
            print(f"NOT RECORDED {stem}: {reason}")
            continue
        path = out / f"{gpu}_{stem}.npz"
        np.savez_compressed(path, allow_pickle=False, **arrays)
        paths.append(path)
        print(f"{path.name:52} {summary(arrays)} {path.stat().st_size:8} bytes")
    total = sum(path.stat().st_size for path in paths)
    with tarfile.open(out / f"{gpu}_own_words.tar", "w") as archive:
        for path in paths:
            archive.add(path, arcname=path.name)
    over = f", OVER the limit of {FILE_LIMIT}" if total > FILE_LIMIT else ""
    print(f"{len(paths)} files, {total} bytes{over}; {failures} not recorded; archive {gpu}_own_words.tar")
    return failures


def send(path: Path, library: Path | None, target_name: str, data_seed: int) -> int:
    """Write one file to send. Returns the number of probes that could not be recorded. An emulated target's file is the model's."""
    command = f"bitverdict lab record --send {path.name} --target {target_name} --data-seed {data_seed}"
    recorded_parts: dict[str, tuple[dict, dict[str, np.ndarray]]] = {}
    failures = 0
    if target_name.startswith("emulated:"):
        arch = target_name.removeprefix("emulated:")
        about = sent_words.model_about(arch, data_seed, command)
        recorded_parts = {probe.stem: sent_words.of_model(arch, probe, data_seed) for probe in _probes_of(arch)}
    else:
        if target_name != "cuda:0":
            raise CannotRecord(f"--target {target_name}: words are those of cuda:0; choose the GPU by CUDA_VISIBLE_DEVICES")
        machine, device = _machine(library)
        about = {"made_by": sent_words.HARDWARE, "gpu": device.name, "arch": device.arch, "command": command}
        about |= {"versions": {"numpy": np.__version__}} | origin(device, data_seed)
        for probe in _probes_of(device.arch):
            try:
                arrays = record_probe(machine, device, probe, data_seed)
            except CannotRecord as reason:
                failures += 1
                print(f"NOT RECORDED {probe.stem}: {reason}")
                continue
            recorded_parts[probe.stem] = json.loads(str(arrays.pop("meta"))), arrays
        if not recorded_parts:
            raise CannotRecord(f"{device.name} ({device.arch}): no instruction passed its checks; the reasons stand above")
    said = sent_words.write(path, about, recorded_parts)
    print(
        f"{path}: {len(recorded_parts)} files' words of {said['gpu']} ({said['arch']}), made by "
        f"{said['made_by']}, sha256 {said['digest']}"
    )
    for of_part, part in recorded_parts.values():
        _tell(of_part, part)
    return failures


def _tell(about: dict, part: sent_words.Part) -> None:
    for answer in answers(about, part):
        print(f"open choice, {answer}")


def _probes_of(arch: str) -> tuple[Probe, ...]:
    try:
        return sent_words.probes_of(arch)
    except ValueError as reason:
        raise CannotRecord(str(reason)) from None


def take(path: Path) -> int:
    """Hold the model to a file that was sent. Returns how many instructions differ; a file that is no evidence is refused."""
    sent = sent_words.take(path)
    lines = sent_words.differing_lines(sent)
    for stem, about in sent.about["parts"].items():
        _tell(about, sent.parts[stem])
    print("\n".join(lines) or f"{path}: every word of {len(sent.parts)} parts ({sent.about['gpu']}) is the model's")
    return len(lines)


def summary(arrays: dict[str, np.ndarray]) -> str:
    """Rows, and for each result how many words are NaN, infinite and zero."""
    outputs = [array for name, array in arrays.items() if name.startswith("output_")]
    if outputs:
        return f"{sum(array.size for array in outputs):6} words of {len(outputs)} outputs"
    if "source" in arrays:
        return f"{sum(len(array) for name, array in arrays.items() if name.startswith('cvt')):6} words"
    parts = [f"{len(arrays['a']):5} rows"]
    for name, dtype in (("d32", np.float32), ("d16", np.float16)):
        if name in arrays:
            values = arrays[name].view(dtype)
            parts.append(f"{name}: {np.isnan(values).sum():4} NaN {np.isinf(values).sum():4} Inf {(values == 0).sum():4} zero")
    return "  ".join(parts)


def repeat(kept: Path, library: Path | None, target_name: str) -> int:
    """Run the operands of every file in `kept` on this device again. Returns the number of words that came out otherwise."""
    files = sorted(path for path in kept.glob("*_own_*.npz") if "_own_fp64" not in path.name)  # no instruction of a probe
    if not files:
        raise CannotRecord(f"no *_own_*.npz in {kept}")
    kernels = [path for path in files if "_own_kernel_" in path.name]
    difference_count = words = 0
    for path in kernels:
        from bitverdict.harness.lab.hardware_words.kernel_words import repeat_case
        from bitverdict.harness.model.targets import target

        with np.load(path, allow_pickle=False) as archive:
            count, differing_count = repeat_case(archive, target(target_name))
        words, difference_count = words + count, difference_count + differing_count
        print(f"{path.name}: {differing_count} of {count} words differ on {target_name}")
    instruction_files = [path for path in files if path not in kernels]
    if not instruction_files:
        print(f"{words} words, {difference_count} differ")
        return difference_count
    machine, device = _machine(library)
    for path in instruction_files:
        with np.load(path, allow_pickle=False) as archive:
            about = json.loads(str(archive["meta"]))
            if about["family"] == "threads":
                count, other = thread_probes.repeat_threads(archive)
                words, difference_count = words + count, difference_count + other
                print(f"{path.name}: {other} of {count} words differ (kept from {about['gpu']}, here {device.name})")
                continue
            for name, ptx in about["instruction"].items():
                if about["family"] == "cvt":
                    source = archive["source"] if name in conversion_inputs.FROM_FP32 else np.arange(len(archive[name]))
                    again = machine.convert(name, source).astype(archive[name].dtype)
                else:
                    again = machine.words(ptx, archive["a"], archive["b"], archive["c" + name[1:]], steps=about["steps"])
                count = int((again != archive[name]).sum())
                difference_count, words = difference_count + count, words + again.size
                print(f"{path.name} {name}: {count} of {again.size} words differ (kept from {about['gpu']}, here {device.name})")
    print(f"{words} words, {difference_count} differ")
    return difference_count


def dry_run(data_seed: int) -> None:
    """Make every probe's operands and say how large the files will be, with the c words standing in for d."""
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        for probe in PROBES:
            inputs = operands(probe, data_seed)
            arrays = {"a": inputs.a, "b": inputs.b, "kind": inputs.kind}
            for c_name, d_name, _ in instructions(probe):
                c = getattr(inputs, c_name)
                arrays |= {c_name: c, d_name: np.random.default_rng(1).permuted(c)}
            path = Path(folder) / f"{probe.stem}.npz"
            np.savez_compressed(path, allow_pickle=False, **arrays)
            total += path.stat().st_size
            ptx = ", ".join(ptx for _, _, ptx in instructions(probe))
            print(f"{probe.stem:32} {inputs.a.shape[0]:5} x {inputs.a.shape[1]:3} {path.stat().st_size:8} bytes  {ptx}")
    words = sum(len(source) for source in conversion_inputs.sources(data_seed).values())
    print(
        f"{conversion_inputs.STEM:32} {words} conversions of {len(conversion_inputs.fp32_sources(data_seed))} fp32 words and "
        f"all small ones"
    )
    print(f"{len(PROBES)} files of products, about {total} bytes (limit {FILE_LIMIT}), and one of conversions")


def _machine(library: Path | None) -> tuple[Machine, Device]:
    folder = state_directory() / "recording"
    arch = present_arch()  # before nvcc takes its time
    machine = Machine(library or build(folder, arch))
    return machine, machine.describe()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``record``, for ``bitverdict lab record`` too."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="folder to write the words to")
    what.add_argument("--send", type=Path, metavar="FILE", help="write one file of this GPU's words, to send")
    what.add_argument("--take", type=Path, metavar="FILE", help="check a file that was sent and compare its words with the model's")
    what.add_argument("--repeat", type=Path, metavar="DIRECTORY", help="run the kept operands again and compare the words")
    what.add_argument("--dry-run", action="store_true", help="make the operands only, without a GPU")
    parser.add_argument("--library", type=Path, help="the compiled instructions, where nvcc is not on this machine")
    parser.add_argument("--data-seed", type=int, default=DATA_SEED)
    parser.add_argument("--kernel", metavar="ADDRESS", help="with --out: record this kernel (a stem, or path/file.py:NAME)")
    parser.add_argument("--target", default="cuda:0", help="GPU (default cuda:0); with --send also emulated:sm_90")
    parser.add_argument("--cases", type=int, default=4, help="how many cases of the kernel's required cases (default 4)")


def run(arguments: argparse.Namespace) -> int:
    """0 all recorded (or repeated word for word), 1 something was not, 2 nothing can be recorded here."""
    try:
        if arguments.dry_run:
            dry_run(arguments.data_seed)
            return 0
        if arguments.send:
            return int(send(arguments.send, arguments.library, arguments.target, arguments.data_seed) > 0)
        if arguments.take:
            return int(take(arguments.take) > 0)
        if arguments.repeat:
            return int(repeat(arguments.repeat, arguments.library, arguments.target) > 0)
        if arguments.kernel:
            return int(record_kernel(arguments.out, arguments.kernel, arguments.target, arguments.cases) > 0)
        return int(record(arguments.out, arguments.library, arguments.data_seed) > 0)
    except CannotRecord as reason:
        print(f"cannot record: {reason}", file=sys.stderr)
        return 2
    except sent_words.RefusedFileError as reason:
        print(f"refused: {reason}", file=sys.stderr)
        return 2


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bitverdict record", description="Hardware words of single instructions.")
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
