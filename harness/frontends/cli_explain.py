"""``bitverdict explain OUTCOME``: what an outcome means, how a kernel comes to it, and what to do."""

from __future__ import annotations

import argparse

from rich.console import Console

from bitverdict.harness.frontends.run_options import add_format
from bitverdict.harness.model.outcome_pages import PAGES
from bitverdict.harness.model.usage import UsageError, did_you_mean
from bitverdict.harness.model.verdict import Outcome
from bitverdict.harness.session.result_files import event_line, tell
from bitverdict.harness.session.tables import LEGEND


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="OUTCOME", help="such as race or 'stray read'; table: the columns of -v")
    add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one page; without an outcome, all of them by their names."""
    console, words = Console(highlight=False), " ".join(arguments.words)
    for outcome in [] if words == "table" else [outcome_named(words)] if words else PAGES:
        tell(event_line("outcome", outcome=str(outcome), **vars(PAGES[outcome])))
    if words == "table":
        text = "\n".join(LEGEND)
    elif words:
        text = page(outcome_named(words)).rstrip()
    else:
        text = "\n".join(f"{outcome}: {each.meaning}" for outcome, each in PAGES.items())
    console.print(text, markup=False, soft_wrap=not console.is_terminal)
    return 0


def page(outcome: Outcome) -> str:
    """The page of one outcome."""
    text = PAGES[outcome]
    return f"{outcome}\n\n{text.meaning}\n\nUsual cause: {text.usual_cause}\n\nWhat to do: {text.remedy}\n"


def outcome_named(words: str) -> Outcome:
    """The outcome called `words`, whatever stands between them. UsageError for none."""
    name = " ".join(words.replace("-", " ").replace("_", " ").lower().split())
    known = [str(outcome) for outcome in Outcome]
    if name not in known:
        raise UsageError(f"explain {words!r}: is no outcome{did_you_mean(name, known, 0.6)}; `bitverdict explain` lists them")
    return Outcome(name)
