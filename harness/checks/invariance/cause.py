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
    if said := first.order_hazard or other.order_hazard:
        return f"{said}: the order in which they come decides"
    return SAME_CALL if same_call else NO_DIFFERENCE


def _of_tuning(first: LaunchResult, other: LaunchResult) -> str:
    """Which autotuner took something else."""
    for one, two in zip(first.launch_record.get("tuned", ()), other.launch_record.get("tuned", ()), strict=False):
        if one["choice"] != two["choice"]:
            return f"the autotuner of {one['kernel']} takes {two['choice']} instead of {one['choice']}"
    return ""


def _of_launches(first: LaunchResult, other: LaunchResult) -> str:
    first_launches, twos = first.launch_record.get("launches", ()), other.launch_record.get("launches", ())
    names, others = [each["kernel"] for each in first_launches], [each["kernel"] for each in twos]
    if names != others:
        return f"it launches {', '.join(others) or 'nothing'} instead of {', '.join(names) or 'nothing'}"
    for first_launch, two in zip(first_launches, twos, strict=True):
        if said := [
            f"{name} {before} -> {after}" for name, before, after in _changed_constants(first_launch["constants"], two["constants"])
        ]:
            return f"{first_launch['kernel']} is compiled with {', '.join(said)}"
        if first_launch["instructions"] != two["instructions"]:
            return (
                f"{first_launch['kernel']} multiplies by {', '.join(two['instructions'])} instead of "
                f"{', '.join(first_launch['instructions'])}"
            )
        if first_launch["tile"] != two["tile"]:
            return f"{first_launch['kernel']} has a tile of {two['tile']} instead of {first_launch['tile']}"
    grids = [
        f"{first_launch['kernel']} on a grid of {tuple(two['grid'])} instead of {tuple(first_launch['grid'])}"
        for first_launch, two in zip(first_launches, twos, strict=True)
        if first_launch["grid"] != two["grid"]
    ]
    if grids:
        return grids[0]
    programs = [
        first_launch["kernel"]
        for first_launch, two in zip(first_launches, twos, strict=True)
        if first_launch["program"] != two["program"]
    ]
    return f"{programs[0]} is another program, with the same constants" if programs else ""


def _of_instructions(first: LaunchResult, other: LaunchResult) -> str:
    ones, twos = (sorted({each[0] for each in seen.launch_record.get("instructions", ())}) for seen in (first, other))
    return f"it multiplies by {', '.join(twos)} instead of {', '.join(ones)}" if ones != twos else ""


def _changed_constants(ones: Mapping[str, object], twos: Mapping[str, object]) -> list[tuple[str, Any, Any]]:
    return [(name, ones.get(name), twos.get(name)) for name in {**ones, **twos} if ones.get(name) != twos.get(name)]
