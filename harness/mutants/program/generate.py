"""Mutants of the tile programs that a kernel is compiled to, in an order that depends on the programs alone.

A kernel is compiled to many programs: for types, configurations, divisible sizes. A mutant is one change at one place of the source
(`Place`), made in each of them that has the place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bitverdict.harness.emulator.frontend.edited_programs import EditedProgram
from bitverdict.harness.model.paths import display_path
from bitverdict.harness.mutants.program.edits import Offer, apply_offer, brief
from bitverdict.harness.mutants.program.operators.table import offers
from bitverdict.harness.mutants.program.tile_program import Place, Site, tile_program
from bitverdict.harness.mutants.record import GeneratedMutant, Kind

LONGEST = 160  # characters of a text that a person reads


def of_programs(kernel: str, arch: str, programs: Iterable[str]) -> Iterator[GeneratedMutant]:
    """The mutants of the tile `programs` (texts) of `kernel` for the target `arch`, each once."""
    numbers: Counter[tuple[str, str]] = Counter()
    seen_edits: set[tuple[Place, str, str]] = set()
    for text in dict.fromkeys(programs):
        for site in tile_program(text).sites.values():
            for offer in offers(site):
                if (site.place, offer.operator, offer.variant) in seen_edits or not site.place.line:
                    continue
                seen_edits.add((site.place, offer.operator, offer.variant))
                number = numbers[site.place.function, offer.operator]
                numbers[site.place.function, offer.operator] += 1
                yield _mutant(kernel, arch, number, site, offer)


def _mutant(kernel: str, arch: str, number: int, site: Site, offer: Offer) -> GeneratedMutant:
    place = site.place
    return GeneratedMutant(
        id=f"{kernel}/{place.function}/{arch} {offer.operator}/{number}",
        kernel=kernel,
        kind=Kind.PROGRAM,
        operator=offer.operator,
        family=offer.family,
        file=display_path(Path(site.file)),
        line=place.line,
        before=brief(site.line)[:LONGEST],
        after=offer.after[:LONGEST],
        edit={
            "function": place.function,
            "line": place.line,
            "operation": place.operation,
            "ordinal": place.ordinal,
            "variant": offer.variant,
        },
    )


def place_of(edit: Mapping[str, Any]) -> Place:
    """Where the edit of a mutant is made."""
    return Place(edit["function"], edit["line"], edit["operation"], edit["ordinal"])


def apply_mutant(mutant: GeneratedMutant, text: str) -> EditedProgram | None:
    """The tile program `text` with the edit of `mutant`; None where it has no such place, or the operator offers nothing there."""
    found = _find_offer(mutant, text)
    return None if found is None else apply_offer(*found)


def line_of_edit(mutant: GeneratedMutant, text: str) -> int | None:
    """The line of the tile program `text` that the edit of `mutant` is made at; None where it has none."""
    found = _find_offer(mutant, text)
    return None if found is None else found[1].op.line


def comes_to(mutant: GeneratedMutant) -> Callable[[Mapping[str, set[int]]], bool]:
    """Whether launches came to the place of `mutant`: asked of their programs, by texts, each with the lines that none came to."""
    known: dict[str, int | None] = {}

    def line_in(text: str) -> int | None:
        if text not in known:
            known[text] = line_of_edit(mutant, text)
        return known[text]

    def has_place(programs: Mapping[str, set[int]]) -> bool:
        lines = ((line_in(text), missed) for text, missed in programs.items())
        return any(line is not None and line not in missed for line, missed in lines)

    return has_place


def site_of(mutant: GeneratedMutant, text: str) -> Site | None:
    """Where the edit of `mutant` is made in the tile program `text`; None where it has no such place."""
    return tile_program(text).sites.get(place_of(mutant.edit))


def _find_offer(mutant: GeneratedMutant, text: str) -> tuple[Offer, Site] | None:
    site = site_of(mutant, text)
    if site is None:
        return None
    kind = mutant.operator, mutant.edit["variant"]
    return next(((each, site) for each in offers(site) if (each.operator, each.variant) == kind), None)
