"""Measured figures on pages, and which of them are old: the register is docs/figures.json.

    python -m benchmarks.figures                          # those of more than 200 commits ago, and those whose command is gone
    python -m benchmarks.figures --measured '2,101 cases' '2,300 cases' [--machine TEXT]

A figure is a number with a unit of measurement in the prose of README.md, CONTRIBUTING.md or a page of docs/: seconds, shares,
ratios, counts of cases and words. Code, tables and quotations are left out, and what a rule sets: a number behind one of `LIMIT`'s
words ("at most 60 s", "default 20 s") or behind a setting (`ci`: 40 s). The register has of each its page, text, command, commit,
machine and date. A page that a command prints has one entry for all of its figures, with the text "*". The commit is the one that
was measured, or where nobody wrote that down, the one that first had the figure. `--measured` writes a new text into the page and
the register, with this commit and today's date. Exit status 1 where a figure is old or has no entry, or an entry has no figure.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.campaign import Option, parse, run_script, write

ROOT = Path(__file__).resolve().parent.parent
REGISTER = ROOT / "docs" / "figures.json"
OLD = 200  # commits
FIELDS = ("page", "text", "command", "commit", "machine", "date")
UNITS = r"(?:s|ms|minutes?|seconds?|hours?|%|times|words|cases|TFLOP/s|GB/s)"
FIGURE = re.compile(
    rf"(?<![\w^-])(?:\d[\d.,]* ?{UNITS}|(?:two|three|four|five|ten|half an?) (?:minutes?|seconds?|hours?))(?![\w^])"
)
LIMIT = re.compile(
    r"(?:at (?:most|least)|up to|(?:more|less|fewer|longer) than|no fewer than|beyond|defaults?|limit:?|limit at|every|any"
    r"|each of|may take|`:)[ (*]*$",
    re.IGNORECASE,
)
"""What stands right before a number that nobody measured: a rule or a wish."""
EVERY = "*"
NONE = "none"  # the command of a figure that was measured by hand: the list names it


def pages() -> dict[str, str]:
    """The pages that are looked through, each with its text."""
    names = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
    return {name: (ROOT / name).read_text() for name in names}


def printed() -> set[str]:
    """The pages that commands print: each may have one entry for all of its figures."""
    from bitverdict.harness.lab.pages.printed_pages import BY_RUNS, PAGES

    by_hand_too = {"arithmetic.md", "coverage.md"}
    whole = {*BY_RUNS, "targets.md", *(page.name for page in PAGES)} - by_hand_too
    return {f"docs/{name}" for name in whole}


def prose(page: str) -> str:
    """A page without code blocks, tables, headings and what it quotes."""
    page = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in page.split("\n") if not line.startswith(("|", "    ", "#"))]
    return re.sub(r"`[^`]*`|\"[^\"\n]{1,40}\"", "`", "\n".join(lines))


def figures(page: str) -> list[str]:
    """The measured figures of a page's prose, in their order."""
    text = " ".join(prose(page).split())
    return [match[0] for match in FIGURE.finditer(text) if not LIMIT.search(text[: match.start()][-60:])]


def unregistered(register: dict, pages: dict[str, str]) -> Iterator[str]:
    """Sentences on figures without an entry, and on entries without a figure or a field."""
    for name, text in pages.items():
        entries = {entry["text"] for entry in register["figures"] if entry["page"] == name}
        shown = set(figures(text))
        if EVERY in entries and name not in printed():
            yield f"{name}: {EVERY!r} is of pages that a command prints; give each figure an entry"
        if EVERY not in entries:
            yield from (f"{name}: {figure!r} has no entry in docs/figures.json" for figure in sorted(shown - entries))
        yield from (f"{name}: {figure!r} of docs/figures.json is not on the page" for figure in sorted(entries - shown - {EVERY}))
    for entry in register["figures"]:
        yield from (f"{entry.get('page')}: {entry.get('text')!r}: has no {field}" for field in FIELDS if not entry.get(field))


def old(register: dict) -> Iterator[str]:
    """Sentences on figures that were measured more than `OLD` commits ago, or by a command that is gone."""
    for entry in register["figures"]:
        title = f"{entry['page']}: {entry['text']!r}"
        if gone := missing_script(entry["command"]):
            yield f"{title}: {gone} of `{entry['command']}` is gone"
        if entry["command"] == NONE:
            yield f"{title}: no command measures it: write one, or take the figure away"
        commits = _commits_since(entry["commit"])
        if commits is None:
            yield f"{title}: there is no commit {entry['commit']}"
        elif commits > OLD:
            yield f"{title}: {commits} commits ago, {entry['date']}: run `{entry['command']}` on {entry['machine']}"


def _commits_since(commit: str) -> int | None:
    """How many commits HEAD has that `commit` has not; None where there is no such commit."""
    counted = _git("rev-list", "--count", f"{commit}..HEAD")
    return int(counted) if counted else None


def unknown_commits(register: dict) -> list[str]:
    """Sentences on entries whose commit is no ancestor of HEAD. Nothing where git has not the whole history to tell by."""
    history = _git("rev-list", "HEAD").split()
    if not history or _git("rev-parse", "--is-shallow-repository").strip() != "false":
        return []
    return [
        f"{entry['page']}: {entry['text']!r}: HEAD has no commit {entry['commit']} behind it"
        for entry in register["figures"]
        if not any(commit.startswith(entry["commit"]) for commit in history)
    ]


def _git(*words: str) -> str:
    """What git prints; empty where it fails."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout


def missing_script(command: str) -> str:
    """The script or command word that `command` starts and that is not there; empty where it is."""
    from bitverdict.harness.frontends.main import COMMANDS

    script = re.search(r"benchmarks[./](\w+)", command)
    if script and not (ROOT / "benchmarks" / f"{script[1]}.py").is_file():
        return f"benchmarks/{script[1]}.py"
    word = re.search(r"bitverdict (\w[\w-]*)", command)
    return f"bitverdict {word[1]}" if word and word[1] not in COMMANDS else ""


def measured(register: dict, before: str, after: str, machine: str) -> None:
    """Write `after` where the page and the register have the figure `before`."""
    entries = [entry for entry in register["figures"] if entry["text"] == before]
    if not entries:
        raise SystemExit(
            f"{before!r}: is no text of docs/figures.json; there are {[entry['text'] for entry in register['figures']]}"
        )
    commit = _git("rev-parse", "--short", "HEAD").strip()
    for entry in entries:
        page = ROOT / entry["page"]
        page.write_text(page.read_text().replace(before, after))
        now = {"text": after, "commit": commit, "date": time.strftime("%Y-%m-%d", time.gmtime())}
        entry |= now | ({"machine": machine} if machine else {})
    write(REGISTER, register)


def main() -> int:
    given = parse(
        __doc__,
        measured=Option(str, "a figure as it stands, and as it was measured", {"nargs": 2, "metavar": ("BEFORE", "AFTER")}),
        machine=Option("", "where it was measured, if elsewhere than before"),
    )  # fmt: skip
    register = json.loads(REGISTER.read_text())
    if given.measured:
        measured(register, *given.measured, given.machine)
    lines = [*unregistered(register, pages()), *old(register)]
    print("\n".join([*lines, f"{len(register['figures'])} figures on {len(pages())} pages, {len(lines)} to look at"]))
    return int(bool(lines))


if __name__ == "__main__":
    run_script(main)
