"""The command line: `COMMANDS`, a word each.

Exit status: 0 all right, 1 fail, 2 usage, 3 inconclusive, an error or cancelled, 5 nothing ran.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

from bitverdict.harness.judge.machine_faults import MachineFault, machine_fault
from bitverdict.harness.judge.out_of_memory import out_of_memory
from bitverdict.harness.model import addresses, trusted_imports
from bitverdict.harness.model.feature_table import has_laboratory
from bitverdict.harness.model.log_lines import no_commands
from bitverdict.harness.model.paths import notice_of_older_state, state_directory
from bitverdict.harness.model.supervision import USAGE, cancels_from_here, ends_by_itself, leave, supervise
from bitverdict.harness.model.triton_release import described_releases, installed_triton
from bitverdict.harness.model.usage import UsageError, did_you_mean
from bitverdict.harness.workers.forkserver import end_early, start_early, start_forked
from bitverdict.harness.workers.one_thread import one_thread


@dataclass(frozen=True)
class Command:
    """A word of the command line: its help, and where its arguments and what it does are found. `forks`: whether it always
    judges in workers. `group`: under which heading it is listed."""

    help: str
    module: str = "frontends.main"
    arguments: str = "add_arguments"
    does: str = "run"
    forks: bool = False
    group: str = "Judge"

    def find(self, name: str) -> Any:
        """A function of its module, which is imported for it."""
        return getattr(import_module(f"bitverdict.harness.{self.module}"), name)


LAB = "Maintain"
COMMANDS = {
    "run": Command("judge your tests and launchers, or kernels, on targets", "frontends.cli_run", forks=True),
    "selftest": Command(
        "judge the kernels that bitverdict brings: does it work here?", "frontends.cli_run", does="run_selftest", forks=True
    ),
    "demo": Command("a right kernel and one without its mask, judged: what it looks like", "frontends.cli_demo", forks=True),
    "explain": Command("what an outcome means, how a kernel comes to it, what to do", "frontends.cli_explain", group="Understand"),
    "exec": Command("run a script or a module, unchanged, on an emulated GPU", "frontends.cli_exec"),
    "kernelbench": Command("judge ModelNew of one file by Model of another", "frontends.cli_kernelbench", forks=True),
    "merge": Command(
        "join the journals of the shards of one run, each case counted once", "frontends.cli_merge", group="CI and fleets"
    ),
    "ci": Command("what journals say, as annotations, a summary, SARIF and JUnit", "frontends.cli_ci", group="CI and fleets"),
    "mcp": Command("serve judge, explain and trace to an agent, by the Model Context Protocol", "frontends.mcp_server"),
    "watch": Command("judge at each save: a launcher, a test or a contract in a file", "frontends.cli_watch", forks=True),
    "mutate": Command("put faults into a kernel: which would its cases miss?", "frontends.cli_mutate", forks=True, group="Prove"),
    "replay": Command(
        "judge a stored failing case again", "frontends.cli_replay", "add_replay_arguments", "run_replay", forks=True
    ),
    "promote": Command(
        "keep a failing case in tests/reproducers", "frontends.cli_replay", "add_promote_arguments", "run_promote", group="Prove"
    ),
    "certify": Command(
        "judge every required case of a kernel and write a conformance pack", "frontends.cli_certify", forks=True, group="Prove"
    ),
    "verify": Command(
        "check a conformance pack against what is computed here",
        "frontends.cli_certify",
        "add_verify_arguments",
        "run_verify",
        forks=True,
        group="Prove",
    ),
    "invariance": Command(
        "equal calls, equal words; the same row, the same bits in any batch",
        "frontends.cli_invariance",
        forks=True,
        group="Understand",
    ),
    "crosscheck": Command("compare a GPU's words with the plan's and the emulated GPU's", "lab.commands.crosscheck", group=LAB),
    "large": Command("large products on a GPU, bit for bit at chosen elements", "lab.commands.large_products", group=LAB),
    "replay-launches": Command(
        "what scripts launch on the emulated GPU, again on a real one", "frontends.cli_replay_launches", group="Prove"
    ),
    "compile": Command("compile every kernel for every GPU it is for, without one", "lab.offline_compile.compile_all", group=LAB),
    "record": Command("write hardware words of an instruction or a kernel", "lab.hardware_words.record", group=LAB),
    "tma-limits": Command("where the legality of TMA operations ends", "lab.commands.tma_limits", group=LAB),
    "new": Command("write the files of a new kernel into the checkout, which work at once", "lab.commands.new_kernel", group=LAB),
    "sanitize": Command("cases under iisan, consan, fpsan and compute-sanitizer", "lab.commands.sanitize", group=LAB),
    "pages": Command("print the pages of docs/ that come from the code, or check them", "lab.commands.pages", group=LAB),
    "trace": Command(
        "look at a launch: tiles by line, who touched an element, partitions by time", "frontends.cli_trace", group="Understand"
    ),
    "translate": Command(
        "print the Python that an emulated GPU executes for a kernel", "frontends.cli_translate", group="Understand"
    ),
    "order": Command(
        "the order of a kernel's sums on a target, and whether it is the one recorded", "frontends.cli_order", group="Understand"
    ),
    "targets": Command("list the machines that are here and what they have", arguments="", does="run_targets", group="Understand"),
}


LABORATORY = {name for name, command in COMMANDS.items() if command.group == LAB}
"""Commands of maintainers, which need a checkout."""


NEEDS_A_CHECKOUT = "is of the laboratory: it needs a checkout of the repository, and this is a wheel; run it in a clone"


class Parser(argparse.ArgumentParser):
    """argparse's, which names the nearest word where one is not known. `command`: that the words begin with."""

    command = ""

    def error(self, message: str) -> NoReturn:
        if (match := re.search(r"invalid choice: '(.*?)' ", message)) and match[1] in LABORATORY:
            message = f"{match[1]} {NEEDS_A_CHECKOUT}"
        elif match := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += did_you_mean(match[1], re.findall(r"'(.*?)'", match[2]), 0.6)
        elif match := re.search(r"unrecognized arguments: (-[\w-]*|)", message):
            near = did_you_mean(match[1], (option for options in _options(self) for option in options))
            message += near or f"; bitverdict {self.command} --help lists what it takes"
        super().error(message)


class _VersionAction(argparse.Action):
    """Prints the version and those of what decides the words."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        from bitverdict import __version__

        try:
            torch = version("torch")
        except PackageNotFoundError:
            torch = "not installed"
        print(f"bitverdict {__version__}, {installed_triton().name}, torch {torch}", described_releases(), sep="\n")
        parser.exit()


class _CompletionAction(argparse.Action):
    """Prints a script of a shell that completes commands and options."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: object, __: object = None) -> NoReturn:
        try:
            import shtab
        except ModuleNotFoundError:
            parser.exit(USAGE, "error: --completion needs shtab; install it: pip install 'bitverdict[completion]'\n")
        if shell not in shtab.SUPPORTED_SHELLS:
            parser.error(f"--completion {shell}: must be one of {', '.join(shtab.SUPPORTED_SHELLS)}")
        print(shtab.complete(globals()["parser"](), shell))
        parser.exit()


class _GroupedHelp(argparse.RawDescriptionHelpFormatter):
    """Of the commands, their headings alone (`_listing`)."""

    def _iter_indented_subactions(self, action: argparse.Action) -> Generator[argparse.Action, None, None]:
        yield from ()


def _listing(*, laboratory: bool = False) -> str:
    """The commands under their headings; those of maintainers alone where the `laboratory` is asked for."""
    lines: dict[str, list[str]] = {}
    for name, command in COMMANDS.items():
        if (command.group == LAB) == laboratory:
            lines.setdefault(command.group, []).append(f"  {name:<16} {command.help}")
    if not laboratory and has_laboratory():
        lines[LAB] = [f"  {'lab':<16} commands of maintainers, which need this checkout: bitverdict lab lists them"]
    return "\n\n".join("\n".join([f"{heading}:", *some]) for heading, some in lines.items())


def _options(parser: argparse.ArgumentParser) -> Iterator[list[str]]:
    """The option strings of `parser` and of its commands."""
    for action in parser._actions:
        yield list(action.option_strings)
        for command in (action.choices or {}).values() if isinstance(action, argparse._SubParsersAction) else ():
            yield from _options(command)


def parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Every command, and its arguments; of those that `words` do not begin with no arguments, since their modules take time."""
    description = "Judge Triton and Gluon kernels, bit for bit where bits are known."
    root_parser = Parser(prog="bitverdict", description=description, epilog=_listing(), formatter_class=_GroupedHelp)
    root_parser.add_argument("--completion", action=_CompletionAction, help="print a completion script for bash, zsh, ...")
    root_parser.add_argument("--version", action=_VersionAction, help="print the versions of bitverdict, Triton and torch")
    commands = root_parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    only_command = root_parser.command = words[0] if words and words[0] in COMMANDS else ""
    for name, command in COMMANDS.items():
        if name in LABORATORY and not has_laboratory():
            continue
        prog = f"bitverdict {'lab ' * (name in LABORATORY)}{name}"
        command_parser = commands.add_parser(name, prog=prog, help=command.help, description=command.help)
        if command.arguments and only_command in ("", name):
            command.find(command.arguments)(command_parser)
    return root_parser


def main(words: list[str] | None = None) -> int:
    """Run one command; returns its exit status. Anything asked that cannot be is told in one line, with status 2."""
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # unset it warns in Triton 3.9 and flips in 3.10: it decides bits
    words = sys.argv[1:] if words is None else words
    if words[:1] == ["lab"] and not has_laboratory():
        print(f"error: lab {NEEDS_A_CHECKOUT}", file=sys.stderr)
        return USAGE
    if words[:1] == ["lab"]:
        words = words[1:]
        if not LABORATORY.intersection(words[:1]):
            print(f"usage: bitverdict lab COMMAND ...\n\n{_listing(laboratory=True)}")
            if words[:1] in ([], ["-h"], ["--help"]):
                return 0
            print(f"error: lab {words[0]}: no such command{did_you_mean(words[0], LABORATORY)}", file=sys.stderr)
            return USAGE
    if words and words[0] in COMMANDS and (problem := installed_triton().problem):  # before a command's modules import Triton's own
        print(f"error: {problem}", file=sys.stderr)
        return USAGE
    if not words:
        parser().print_help(sys.stderr)
        return USAGE
    try:
        arguments = parser(words).parse_args(words)
        if not installed_triton().is_proven:
            from bitverdict.harness.emulator.releases import notice

            print(f"note: {notice()}", file=sys.stderr)
        if older := notice_of_older_state():
            print(older, file=sys.stderr)
        command = COMMANDS[arguments.command]
        if getattr(arguments, "sealed", False):
            trusted_imports.begin(always=True)
        does = command.find(command.does)

        import bitverdict.harness.judge.devices  # noqa: F401  (what torch.cuda says to a user's file)

        if arguments.command not in ("run", "selftest", "kernelbench"):  # which says itself from when there is something to cancel
            cancels_from_here()
        if getattr(arguments, "format", "text") == "text":
            return does(arguments)
        from bitverdict.harness.session.result_files import events_on_standard_output

        with events_on_standard_output():
            return does(arguments)
    except UsageError as error:
        print(no_commands(f"error: {error}"), file=sys.stderr)
        return 2
    except MachineFault as fault:
        print(no_commands(f"error: {fault}"), file=sys.stderr)
        return 3
    except BrokenPipeError:  # nobody reads standard output any more
        return 3
    except KeyboardInterrupt:
        ends_by_itself()
        print("cancelled", file=sys.stderr)
        return 3
    except Exception as error:
        print(no_commands(f"error: {machine_fault(error) or out_of_memory(error) or own_failure(error)}"), file=sys.stderr)
        return 3


def own_failure(error: Exception) -> str:
    """One sentence on what the harness raised by its own fault; the traceback lies in the state directory, or is printed."""
    import time
    import traceback

    from bitverdict.harness.judge.classify import place_of, raised_by

    traceback_text = "".join(traceback.format_exception(error))
    path = state_directory() / "errors" / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(traceback_text)
        stored = f"its traceback is in {path}"
    except OSError:
        stored = f"its traceback:\n{traceback_text}"
    location, _ = place_of(error)
    said = " ".join(f"{type(error).__name__}: {error}".split())[:400]
    return f"the {raised_by(error) or 'contract'} raised {said} ({location}), which is no fault of a kernel; {stored}"


def run_targets(arguments: argparse.Namespace) -> int:
    from bitverdict.harness.model.architectures import is_amd
    from bitverdict.harness.model.targets import targets

    for target in targets(every=True):
        features = ", ".join(sorted(str(feature) for feature in target.features))
        model = target.model or ("emulated, no GPU run" if is_amd(target.arch) else "emulated")
        print(f"{target.name:<16} {target.arch:<7} {model:<24} {features}")
    return 0


def entry() -> NoReturn:
    """What ``bitverdict`` and ``python -m bitverdict`` run."""
    if sys.argv[1:2] and sys.argv[1] in LABORATORY and has_laboratory():
        print(f"note: bitverdict {sys.argv[1]} is bitverdict lab {sys.argv[1]} now", file=sys.stderr)
    trusted_imports.begin()
    if not {"--in-process", "--pdb"}.isdisjoint(sys.argv):  # for a debugger, which holds the process that it started
        leave(main())
    os._exit(supervise(_start_ahead))


def _start_server() -> None:
    addresses.before_importing = lambda: None
    start_forked()


def _start_ahead() -> int:
    """`main`, with the server of the workers started before a user's file is imported."""
    words = sys.argv[1:]
    if (
        not (words and words[0] in COMMANDS and COMMANDS[words[0]].forks)
        or not {"-h", "--help"}.isdisjoint(words)
        or installed_triton().problem
    ):
        return main()
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    gc.disable()  # a sixth of the time of the imports, until there is something to judge
    if words[0] == "watch":  # its rounds import the user's files
        start_early()
    else:
        addresses.before_importing = _start_server
    status = USAGE
    try:
        with one_thread():
            status = main()
    finally:
        if status == USAGE:  # nobody needs it
            end_early()
    return status
