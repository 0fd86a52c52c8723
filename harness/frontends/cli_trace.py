"""``bitverdict trace``: launch on the emulated GPU and look at it: tiles by line, one tile, an element, errors, facts, a page."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bitverdict.harness.frontends.cli_translate import EXIT_NOTHING, EXIT_PRINTED, FAULT, emulated_target
from bitverdict.harness.frontends.subjects import address_of_word, find_subjects, is_bare_launcher
from bitverdict.harness.model.addresses import load, resolve
from bitverdict.harness.model.extras import require_extra
from bitverdict.harness.model.launcher_limits import check_launcher
from bitverdict.harness.model.log_lines import count_text
from bitverdict.harness.model.targets import Target, target, targets
from bitverdict.harness.model.usage import UsageError

if TYPE_CHECKING:
    from bitverdict.harness.emulator.frontend.edited_programs import EditedPrograms
    from bitverdict.harness.report.launch_trace.trace import Trace

DEFAULT_TARGET = "emulated:sm_90"
_ELEMENT = re.compile(r"(?P<name>[\w ]+)\[(?P<index>[\d, ]+)\]")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "what",
        metavar="FILE:FUNCTION",
        help="a function without parameters that launches, a test or a launcher in a file, or a shipped kernel",
    )
    add("--target", default="", metavar="T", help="emulated:sm_NN (default: emulated:sm_90, or the first that serves)")
    add("--launcher", default="", metavar="FILE:FUNCTION", help="your launcher, on a required case of the kernel")
    add("--case", type=int, default=1, metavar="N", help="of a test or a kernel the required case (default 1)")
    add("--launch", type=int, default=0, metavar="N", help="which launch, from 1 (default: the last)")
    add("--program", type=int, default=0, metavar="P", help="which program, counted over the grid (default 0)")
    add("--tile", default="", metavar="NAME", help="print this variable's last value in the program")
    add("--line", type=int, default=0, metavar="N", help="with --tile: its last value of line N")
    add(
        "--element",
        default="",
        metavar="NAME[I,J]",
        help="who touched this element of a tensor, which registers hold that of a tile",
    )
    add("--errors", default="", metavar="NAME", help="what each line adds to the error of this tensor's worst element")
    add("--facts", action="store_true", help="print widths of accesses and bank conflicts by line")
    add("--html", type=Path, default=None, metavar="PAGE", help="write a page of the program to look at, one file")


def run(arguments: argparse.Namespace) -> int:
    """Status 1 where a fault ended the launches, 5 where nothing was launched. UsageError for anything asked that cannot be."""
    if arguments.html is not None:
        require_extra("jinja2", "--html")
    element = _ELEMENT.fullmatch(arguments.element)
    if arguments.element and element is None:
        raise UsageError(f"--element {arguments.element}: must be a name and an index, such as y[3] or acc[0,1]")
    traces, fault, where = _traces(arguments)
    if not traces:
        why = fault or "if it enters bv.emulated itself, leave that out: the command enters the GPU"
        print(f"error: {arguments.what} launches nothing on {where}: {why}", file=sys.stderr)
        return FAULT if fault else EXIT_NOTHING
    if not 0 <= arguments.launch <= len(traces):
        raise UsageError(f"--launch {arguments.launch}: of {count_text(len(traces), 'launch', 'launches')}, numbered from 1")
    trace = traces[arguments.launch - 1]
    try:
        for line in _report(trace, arguments, element):
            print(line)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if len(traces) > 1 and not arguments.launch:
        print(f"the last of {len(traces)} launches; --launch N shows another: {', '.join(each.kernel for each in traces)}")
    if fault:
        print(f"error: the launches end in {fault}", file=sys.stderr)
        return FAULT
    return EXIT_PRINTED


def _report(trace: Trace, arguments: argparse.Namespace, element: re.Match[str] | None) -> Iterator[str]:
    """What was asked for, or else the screen."""
    import numpy as np

    from bitverdict.harness.report.launch_trace.lines import TileLine, screen
    from bitverdict.harness.report.launch_trace.memory_facts import fact_lines

    program, facts, errors, width = arguments.program, None, {}, shutil.get_terminal_size((100, 0)).columns
    if arguments.tile:
        tile = trace.find_tile(arguments.tile, program, arguments.line)
        row = TileLine(tile, 1)
        yield f"{tile.name} after line {tile.line} in program {program}: {row.type_text}{f', {row.layout}' if row.layout else ''}"
        low, high = trace.bounds(arguments.tile, program, arguments.line)
        ends = (
            [("", low)] if np.array_equal(low, high, equal_nan=low.dtype.kind == "f") else [("lowest\n", low), ("highest\n", high)]
        )
        for said, value in ends:
            yield said + np.array2string(value, max_line_width=width)
    if element is not None:
        yield from _element_lines(trace, element["name"], ast.literal_eval(f"({element['index']},)"), program)
    if arguments.errors:
        errors[arguments.errors] = trace.errors(arguments.errors)
        for each in errors[arguments.errors]:
            yield f"{each.relative:.1e}  {each.text}"
        if not errors[arguments.errors]:
            yield f"no element of {arguments.errors} is rounded"
    if arguments.facts:
        facts = trace.facts()
        yield from fact_lines(facts)
    if arguments.html is not None:
        from bitverdict.harness.judge.machine_faults import writing
        from bitverdict.harness.report.launch_trace.page import trace_page
        from bitverdict.harness.session.reproducers import write_atomically

        with writing("--html", arguments.html):
            write_atomically(arguments.html, trace_page(trace, program, facts, errors))
        yield f"page: {arguments.html}"
    if not (arguments.tile or arguments.element or arguments.errors or arguments.facts):
        yield from screen(trace, program, width)


def _element_lines(trace: Trace, name: str, index: tuple[int, ...], program: int) -> Iterator[str]:
    """Who touched an element of a tensor or a byte of memory on the chip; which registers hold that of a tile."""
    from bitverdict.harness.report.launch_trace.records import source_of
    from bitverdict.harness.report.launch_trace.trace import SPACES

    where = ", ".join(map(str, index))
    if name in trace.tensors or name in SPACES:
        accesses = trace.accesses(name, index[0] if name in SPACES else index, program if name in SPACES else None)
        for access in accesses:
            agent = "" if access.agent == "the program" else f", {access.agent}"
            place = access.location.rpartition("/")[2]
            yield f"{name}[{where}]  {access.kind:<6} by program {access.program}{agent}  {place}  {source_of(access.location)}"
        if not accesses:
            yield f"{name}[{where}]: not accessed"
        return
    value, layout = trace.tile(name, program), trace.layout(name, program)
    if len(index) != value.ndim or any(at >= size for at, size in zip(index, value.shape, strict=True)):
        raise UsageError(f"--element {name}[{where}]: the tile has the shape {value.shape}")
    for held in layout.holders(*index):
        yield f"{name}[{where}] = {value[index]!s}  warp {held.warp}, lane {held.lane}, register {held.register}"


def _traces(arguments: argparse.Namespace) -> tuple[list[Trace], str, Target]:
    """The traces, what ended them (empty where nothing did), and where."""
    word, where = address_of_word(arguments.what), emulated_target(arguments.target)
    if not arguments.launcher and ".py:" in word and is_bare_launcher(word):
        function = load(word)
        parameters = inspect.signature(function).parameters.values()
        if not any(parameter.default is parameter.empty and parameter.kind < 2 for parameter in parameters):
            return *_traces_of_function(function, where or target(DEFAULT_TARGET)), where or target(DEFAULT_TARGET)
    subjects = find_subjects([word], "trace")
    if len(subjects.addresses) != 1:
        raise UsageError(
            f"trace {arguments.what}: has {len(subjects.addresses)} tests; name one of {', '.join(subjects.addresses)}"
        )
    address, launcher = subjects.addresses[0], arguments.launcher or subjects.launcher
    contract = resolve(address)
    if arguments.launcher:
        check_launcher(contract, launcher)
    able = [each for each in targets() if each.emulated and (launcher or not contract.lacking(each))]
    where = where or next((each for each in able if each.name == DEFAULT_TARGET), able[0])
    return *_traces_of_case(address, where, launcher, arguments.case), where


def _traces_of_function(function: Callable[[], object], where: Target) -> tuple[list[Trace], str]:
    from bitverdict.harness.judge.classify import outcome_of
    from bitverdict.harness.judge.devices import target_device

    def launch() -> str:
        with target_device(where):
            try:
                function()
            except Exception as error:
                seen = outcome_of(error)
                return f"{seen.outcome}: {seen.message} [{seen.location}]"
        return ""

    return _traces_of(launch, where)


def _traces_of_case(address: str, where: Target, launcher: str, number: int) -> tuple[list[Trace], str]:
    from bitverdict.harness.judge.clock import Clock
    from bitverdict.harness.judge.launch import launch
    from bitverdict.harness.judge.remote_launcher import launcher_of
    from bitverdict.harness.session.case_source import CaseSource

    contract = resolve(address)
    case = next(islice(CaseSource(address, where, launcher=launcher).required(), max(number, 1) - 1, None), None)
    if case is None:
        raise UsageError(f"--case {number}: {address} has fewer required cases on {where}")

    def launch_case() -> str:
        operands = {operand.name: operand for operand in contract.operands(case)}
        seen = launch(case, where, contract, launcher_of(case, where), operands, Clock())
        return f"{seen.outcome}: {seen.message} [{seen.location}]" if seen.outcome is not None else ""

    return _traces_of(launch_case, where)


def _traces_of(launch: Callable[[], str], where: Target) -> tuple[list[Trace], str]:
    """The traces of what `launch` launches there, and the fault that it names."""
    from bitverdict.harness.judge.devices import launched_with
    from bitverdict.harness.report.launch_trace.tracer import LaunchTracer

    def relaunch(edited_programs: EditedPrograms) -> None:
        with launched_with(edited_programs=edited_programs, real_values=frozenset()):
            launch()

    tracer = LaunchTracer(where.arch)
    with launched_with(**tracer.options()):
        fault = launch()
    return tracer.with_relaunch(relaunch), fault
