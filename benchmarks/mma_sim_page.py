"""The table of docs/arithmetic.md of what was compared with MMA-Sim, from what `mma_sim` and `mma_sim_doubles` printed.

    python -m benchmarks.mma_sim_page RESULTS docs/arithmetic.md     # RESULTS: a folder with words.txt, deep.txt, doubles.txt

One row a chip and instruction, over all mixes of operands and shapes: how many there were, the fewest words of one, all words, and
how many differ. Exit status 1 where a word differs, or an instruction that both claim is missing.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

from benchmarks.mma_sim_names import counterparts

BEGIN, END = "<!-- printed by: python -m benchmarks.mma_sim_page RESULTS docs/arithmetic.md -->", "<!-- end of words by MMA-Sim -->"
FILES = ("words.txt", "deep.txt", "doubles.txt")
ROW = re.compile(r"\| ((?:sm_\d+) .*?) \| ([\d,]+) \| ([\d,]+) \|(?: [\d,]+ \| ([\d,]+) \|)?")


def rows(text: str) -> list[tuple[str, int, int, int]]:
    """Name, words, words that differ, words that differ by the side taken of a choice."""
    found = (ROW.fullmatch(line.strip()) for line in text.splitlines())
    return [(row[1], *(int((row[at] or "0").replace(",", "")) for at in (2, 3, 4))) for row in found if row]  # type: ignore[misc]


def group(name: str) -> str:
    """ "sm_120 mma.sync mxf8f6f4" of an instruction's name."""
    return re.split(r" (?:\S+) x |(?<=fp64) ", name)[0]


def table(folder: Path) -> tuple[str, bool]:
    """The table, and whether nothing differs and nothing that both claim is missing."""
    texts = {name: (folder / name).read_text() if (folder / name).exists() else "" for name in FILES}
    seen: dict[str, list[tuple[str, int, int, int]]] = defaultdict(list)
    deep: dict[str, int] = defaultdict(int)
    for name in FILES:
        for row in rows(texts[name]):
            (seen[group(row[0])].append(row) if name != "deep.txt" else None)
            deep[group(row[0])] += row[1] if name == "deep.txt" else 0
    wrong = sum(row[2] for text in texts.values() for row in rows(text))
    claimed = {other.name for other in counterparts() if other.rule.arch.startswith("sm_")}
    missing = claimed - {row[0] for row in rows(texts["words.txt"]) if row[1]}
    lines = [
        "| instruction | forms | fewest words of one | words | around the smallest results | differ | by the side taken |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, of in seen.items():
        differ = sum(row[2] for text in texts.values() for row in rows(text) if group(row[0]) == name)
        by_choice = sum(row[3] for text in texts.values() for row in rows(text) if group(row[0]) == name)
        fewest, words = min(row[1] for row in of), sum(row[1] for row in of)
        lines.append(f"| {name} | {len(of)} | {fewest:,} | {words:,} | {deep[name]:,} | {differ:,} | {by_choice:,} |")
    return "\n".join(lines), not wrong and not missing


def page(text: str, printed: str) -> str:
    """`text` with the table between its marks. ValueError where the marks are not there once."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"the page has these two lines once: {BEGIN} {END}")
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{printed}\n{END}{rest.split(END)[1]}"


def main() -> int:
    folder, document = map(Path, sys.argv[1:3])
    printed, whole = table(folder)
    document.write_text(page(document.read_text(), printed))
    return int(not whole)


if __name__ == "__main__":
    sys.exit(main())
