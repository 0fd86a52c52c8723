"""``bitverdict lab pages``: print the pages of docs/ that come from the code and from stored answers, or check them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

PASS, DIFFERS = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="PAGE", help="pages to print, such as kernels.md (default: all)")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 where a page is not what is printed now")
    parser.add_argument("--directory", type=Path, default=None, metavar="DIR", help="where they lie (default: docs)")


def run(arguments: argparse.Namespace) -> int:
    """Write each page that differs, or say which do. UsageError for a page that is not printed here."""
    from bitverdict.harness.lab.pages import printed_pages

    directory = arguments.directory or printed_pages.DOCS
    stale_pages = printed_pages.stale_pages(arguments.names, directory)
    for page, text in stale_pages:
        path = directory / page.name
        if arguments.check:
            line = f"{path}: is not what {page.source} gives now; write it anew: bitverdict lab pages {page.name}"
            print(line, file=sys.stderr)
        else:
            path.write_text(text)
            print(f"written: {path}")
    return DIFFERS if arguments.check and stale_pages else PASS
