"""Why two calls give other words: what they launched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitverdict.harness.judge.classify import LaunchResult

NO_DIFFERENCE = "both launch the same program on the same grid: its arguments, where they lie, or memory that it reads decide"
SAME_CALL = "nothing that is known of the launches differs: the launcher keeps state, draws at random, or races"


def cause(first: LaunchResult, other: LaunchResult, *, same_call: bool = False) -> str:
    """What differs between the launches of `first` and `other`, in a sentence. `same_call`: no size differs."""
    found = _of_tuning(first, other) or _of_launches(first, other) or _of_instructions(first, other)
    if found:
        return found
    if said := first.unordered or other.unordered:
        return f"{said}: the order in which they come decides"
    return SAME_CALL if same_call else NO_DIFFERENCE


def _of_tuning(first: LaunchResult, other: LaunchResult) -> str:
    """Which autotuner took something else."""
    for one, two in zip(first.recorded.get("tuned", ()), other.recorded.get("tuned", ()), strict=False):
        if one["choice"] != two["choice"]:
            return f"the autotuner of {one['kernel']} takes {two['choice']} for {one['choice']}"
    return ""


def _of_launches(first: LaunchResult, other: LaunchResult) -> str:
    ones, twos = first.recorded.get("launches", ()), other.recorded.get("launches", ())
    names, others = [each["kernel"] for each in ones], [each["kernel"] for each in twos]
    if names != others:
        return f"it launches {', '.join(others) or 'nothing'} for {', '.join(names) or 'nothing'}"
    for one, two in zip(ones, twos, strict=True):
        if said := [f"{name} {before} -> {after}" for name, before, after in _changed(one["constants"], two["constants"])]:
            return f"{one['kernel']} is compiled with {', '.join(said)}"
        if one["instructions"] != two["instructions"]:
            return f"{one['kernel']} multiplies by {', '.join(two['instructions'])} for {', '.join(one['instructions'])}"
        if one["tile"] != two["tile"]:
            return f"{one['kernel']} has a tile of {two['tile']} for {one['tile']}"
    grids = [
        f"{one['kernel']} on a grid of {tuple(two['grid'])} for {tuple(one['grid'])}"
        for one, two in zip(ones, twos, strict=True)
        if one["grid"] != two["grid"]
    ]
    if grids:
        return grids[0]
    programs = [one["kernel"] for one, two in zip(ones, twos, strict=True) if one["program"] != two["program"]]
    return f"{programs[0]} is another program, with the same constants" if programs else ""


def _of_instructions(first: LaunchResult, other: LaunchResult) -> str:
    ones, twos = (sorted({each[0] for each in seen.recorded.get("instructions", ())}) for seen in (first, other))
    return f"it multiplies by {', '.join(twos)} for {', '.join(ones)}" if ones != twos else ""


def _changed(ones: Mapping[str, Any], twos: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(name, ones.get(name), twos.get(name)) for name in {**ones, **twos} if ones.get(name) != twos.get(name)]
