"""The PTX that Triton makes of a tile program, executed beside it from the same bytes: what the compiler does below is held too.

The emulated GPU executes the tile program and takes the compiler at its word for what comes below: the conversion to LLVM, LLVM's
optimiser, the PTX back end. `PtxTwin` rides on a launch. It keeps the bytes before, runs the PTX of that very program on them, and
compares every byte with what the tile program left, and a race or a stray access of the PTX with none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from bitverdict.harness.emulator.advice import Advice
from bitverdict.harness.emulator.compiler_process import NotAssembled
from bitverdict.harness.emulator.device_probe import DeviceProbe, LaunchRun
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.frontend import kept_translations
from bitverdict.harness.emulator.memory.byte_arrays import copy_of, different_places, words_in
from bitverdict.harness.emulator.memory.global_memory import Region
from bitverdict.harness.emulator.memory.tensor_maps import Descriptor
from bitverdict.harness.emulator.numerics.enclosures import keys
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, UnknownOpcode, Words
from bitverdict.harness.ptx_machine.launch import cluster_of, kernel_program, run_on
from bitverdict.harness.ptx_machine.memory import Observer
from bitverdict.harness.ptx_machine.program import Parameter
from bitverdict.harness.ptx_machine.tensor_maps import TensorMap, host_map
from bitverdict.harness.ptx_machine.threads import LaunchShape


@dataclass(frozen=True)
class PtxResult:
    """What the PTX of one launch came to. `words`: of 4 bytes, that it stored. `difference`: empty where every byte is as the tile
    program left it. `not_run`: why it was not executed. `is_definite`: no chip may leave other words."""

    kernel: str
    words: int = 0
    difference: str = ""
    not_run: str = ""
    is_definite: bool = False


@dataclass(eq=False)
class PtxTwin(DeviceProbe):
    """Runs the PTX of each launch beside its tile program. `rewrite` changes the PTX before it runs: a mutant. `observe` is told of
    its accesses. `count_steps` is told of its instructions and of how many threads execute them: what it raises ends the PTX."""

    results: list[PtxResult] = field(default_factory=list)
    rewrite: Callable[[str], str] = str
    observe: Observer | None = None
    count_steps: Callable[[int, int], None] = lambda steps, threads: None
    _before: list[tuple[Region, np.ndarray]] = field(default_factory=list, repr=False)

    def begin(self, run: LaunchRun) -> None:
        self._before = [(region, copy_of(region.raw)) for region in run.regions]

    def end(self, run: LaunchRun) -> None:
        before, self._before = self._before, []
        if run.is_complete:
            self.results.append(self.result_of(run, before))

    def result_of(self, run: LaunchRun, before: list[tuple[Region, np.ndarray]]) -> PtxResult:
        """Of the launch `run`, executed from the bytes `before` it."""
        name = run.launch.name
        program = run.translation.program
        target = re.search(r'ttg\.target = "cuda:(\d+)"', program.text)
        if target is None:
            return PtxResult(name, not_run="it is no program for a GPU of NVIDIA")
        metadata = run.launch.metadata
        try:
            text = kept_translations.ptx(
                program.text,
                int(target[1]),
                fuses_sums=bool(metadata.get("enable_fp_fusion", True)),
                flushes=bool(metadata.get("enable_reflect_ftz", True)),
            )
            kernel = kernel_program(self.rewrite(text))
            words = _words_of_arguments(kernel.parameters, run.arguments, _descriptors_said(metadata))
        except (NotAssembled, UnknownOpcode, EmulatedFault) as error:
            return PtxResult(name, not_run=str(error))
        warps = program.integer("ttg.total-num-warps", program.integer("ttg.num-warps", 4))
        lanes_differ = any(note.advice is Advice.LANES_DIFFER for note in run.context.notes)
        x, y, z = run.launch.grid  # of clusters
        grid = program.integer("ttg.num-ctas", 1) * x, y, z
        shape = LaunchShape(
            grid,
            (32 * warps, 1, 1),
            program.integer("ttg.shared"),
            takes_other_words=lanes_differ,
            either_row=run.context.allow_duplicate_rows,
            shuffles_order=True,  # as a reduction does in the tile program
            cluster=cluster_of(kernel, grid),
            count_steps=self.count_steps,
        )
        regions = [
            Region(region.base, words, region.name, region.low, region.high, region.allowed_bytes, None, changes=region.changes)
            for region, words in before
        ]
        try:
            space = run_on(kernel, shape, words, regions, self.observe)
        except EmulatedFault as fault:
            if fault.outcome == "not modelled":
                return PtxResult(name, not_run=str(fault))
            place = f" (line {fault.details['PTX line']} of the PTX: {fault.details['instruction']})" if fault.details else ""
            return PtxResult(name, difference=f"the PTX ends in {fault}{place}; the tile program has no such fault")
        is_definite = not kernel.sums_that_may_be_fused and not any(map(_ATOMIC_SUM.match, kernel.opcodes))
        return PtxResult(name, space.written_words, "; ".join(_differences(run, before)), is_definite=is_definite)


_ATOMIC_SUM = re.compile(r"(atom|red|cp\.reduce)\b.*\.add\b.*\.b?f(16|32|64)")  # its words depend on the order of threads


def _descriptors_said(metadata: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """What the compiler says of each tensor descriptor that the launch is given."""
    descriptor_metadata = metadata.get("tensordesc_meta") or []
    return iter(ast.literal_eval(descriptor_metadata) if isinstance(descriptor_metadata, str) else cast(list, descriptor_metadata))


def _words_of_arguments(
    parameters: tuple[Parameter, ...], arguments: Sequence[object], descriptor_metadata: Iterator[dict[str, object]]
) -> list[Words | TensorMap]:
    """Words [1] of each parameter, or its tensor map; those behind the arguments (scratch memory, which only tensor maps lie in
    here) are null."""
    words: list[Words | TensorMap] = []
    for number, parameter in enumerate(parameters):
        value = arguments[number] if number < len(arguments) else 0
        if isinstance(value, Descriptor) and parameter.size == 128:
            words.append(host_map(value, next(descriptor_metadata)))
            continue
        dtype = DTYPES[8 * parameter.size]
        value = value if isinstance(value, np.ndarray) else getattr(value, "base", value)  # a tensor descriptor's address
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            words.append(value.reshape(1).astype(f"f{parameter.size}").view(dtype))
        else:
            words.append(np.array([int(cast(int, value)) % (1 << 8 * parameter.size)], np.uint64).astype(dtype))
    return words


def _differences(run: LaunchRun, after_ptx: list[tuple[Region, np.ndarray]]) -> Iterator[str]:
    """A sentence for each storage in which words differ that the compiled program does not leave open."""
    for region, ptx_bytes in after_ptx:
        size = min((kind.itemsize for kind in region.access_types), default=1)
        if not len(places := different_places(region.raw, ptx_bytes, size)):
            continue
        tile_words, ptx_words = (words_in(each, size) for each in (region.raw, ptx_bytes))
        open_words = (
            run.enclosed.enclosure_at(region.base + size * places, keys(tile_words[places]), size, False) if run.enclosed else None
        )
        if open_words is not None:
            inside = (open_words.low <= keys(ptx_words[places])) & (keys(ptx_words[places]) <= open_words.high)
            places = places[~inside]
        if len(places):
            first = int(places[0])
            by_tile, by_ptx = (f"{int(words[first]):#x}" for words in (tile_words, ptx_words))
            element = first - region.low // size
            count = f"{len(places)} words of {region.name} differ"
            yield f"{count}, first element {element}: {by_tile} by the tile program, {by_ptx} by its PTX"


__all__ = ["PtxResult", "PtxTwin"]
