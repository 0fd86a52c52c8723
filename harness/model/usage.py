"""What a person asked that cannot be: status 2. Any other exception that reaches the command line is the harness's own failure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

KERNELS_NAMED = 3  # of those that are known, in a message


class UsageError(ValueError):
    """Something asked for is wrong. The text has the value, the rule and the remedy, on one line."""


class BodyError(UsageError):
    """The body of a described kernel does not keep its rule: it may depend on its draws alone. It ends a run."""


def did_you_mean(name: object, known: Iterable[str], cutoff: float = 0.76) -> str:
    """ " (did you mean 'x'?)" where one of `known` is spelt nearly like `name` or ends in it; else empty.

    The default tells fp16 from bf16, which are no slips of each other.
    """
    names = list(known)
    found = difflib.get_close_matches(str(name), names, 1, cutoff) or [each for each in names if each.endswith(f":{name}")]
    return f" (did you mean {found[0]!r}?)" if found else ""


def no_such_kernel(name: str, known: Sequence[str]) -> str:
    """That no kernel is called so, the one that is meant, and the beginning of the list."""
    others = f" and {len(known) - KERNELS_NAMED} others (docs/kernels.md)" if len(known) > KERNELS_NAMED else ""
    return f"no such kernel{did_you_mean(name, known)}; known: {', '.join(known[:KERNELS_NAMED])}{others}"
