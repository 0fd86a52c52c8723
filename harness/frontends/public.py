"""The public functions: `judged` makes a test of a kernel that its user describes.

What they return is a test for pytest, unittest and a plain call. This file is imported in workers too, with the user's own: what
judges is imported when it is asked.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bitverdict.harness.contracts.described.contract import DescribedContract, Description
from bitverdict.harness.contracts.described.dtypes import format_of
from bitverdict.harness.contracts.described.operands import check_regimes
from bitverdict.harness.model.found_again import FoundAgain
from bitverdict.harness.model.usage import UsageError

if TYPE_CHECKING:
    from bitverdict.harness.contracts.described.draw import Draw
    from bitverdict.harness.model.targets import Target
    from bitverdict.harness.session.case_source import CaseSource

ACCUMULATIONS = ("fp32", "fp16", "bf16", "int32")


class Test(Protocol):
    """What `judged` and `test` return: called, it judges on every target that is here, and raises AssertionError with the report.

    pytest collects it by its name, as one test for each target. In a `unittest.TestCase` each target is a subtest.
    """

    __name__: str

    def __call__(self, *arguments: Any) -> None: ...


def judged(
    *,
    reference: Callable[..., Any],
    exact: bool = False,
    returns: Any = (),
    accumulation: str = "fp32",
    specials: bool = False,
    regimes: Sequence[str] = (),
    launcher: str = "",
    sealed: bool = False,
    real_values: bool = True,
) -> Callable[[Callable[[Draw], Any]], Test]:
    """Make a test of a function that draws operands, launches a kernel on them, and returns what it returned.

        @bv.judged(reference=lambda xp, x, w: x / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + 1e-6) * w)
        def test_rms_norm(draw):
            m, n = draw.size(1, 70), draw.size(1, 300, around=64)
            return rms_norm(draw.tensor("fp16", (m, n)), draw.tensor("fp16", (n,)))

    `reference(xp, *operands, **named)` is the mathematics, against the Python array API standard: operands in the order of their
    draws, and draws with a name by it. It returns an array, or a tuple of them for several outputs. `exact`: each result must be
    the word nearest to the reference, as of a gather. `returns`: the format of each output, "fp32" for one; without it the one
    that comes. `accumulation`: the type in which the kernel may sum. `specials`: feed NaN, infinities, subnormals and the whole
    range of exponents too. `regimes`: feed these, and no others. `launcher`: the address "FILE:FUNCTION" of a launcher that this
    process never imports; the function returns the tuple of its arguments. `real_values`: whether an emulated launch also
    computes without rounding, which tells wrong mathematics from lost precision.

    The function may depend on its draws alone: it runs up to its first use of a tensor in this process, and whole in a worker.
    UsageError (value, rule, remedy) for anything asked that cannot be.
    """
    check_sealed(sealed, launcher)
    if accumulation not in ACCUMULATIONS:
        raise UsageError(f"judged(accumulation={accumulation!r}): must be one of {', '.join(ACCUMULATIONS)}")
    if not callable(reference):
        raise UsageError(f"judged(reference={reference!r:.100}): must be a function of xp and the operands")
    formats = tuple(format_of(each) for each in ((returns,) if isinstance(returns, str) or not _many(returns) else returns))
    check_regimes(regimes)

    def decorated(body: Callable[[Draw], Any]) -> Test:
        if not callable(body) or len(inspect.signature(body).parameters) != 1:
            raise UsageError(f"judged: {body!r:.100} must be a function of one argument, draw")
        description = Description(
            body=body,
            reference=reference,
            exact=exact,
            returns=formats,
            accumulation=accumulation,
            specials=specials,
            regimes=tuple(regimes),
            launcher=absolute(launcher, body.__globals__) if launcher else "",
            real_values=real_values,
        )
        where = FoundAgain(body.__globals__, lambda: made, f"bv.judged of {body.__name__}")
        contract = DescribedContract(description, where)

        def source(target: Target) -> CaseSource:
            from bitverdict.harness.session.case_source import CaseSource

            return CaseSource(contract.address, target)

        made = as_test(body.__name__, source, body)
        made.__contract__ = contract  # type: ignore[attr-defined]
        return made

    return decorated


def as_test(name: str, source: Callable[[Target], CaseSource], of: Callable[..., Any]) -> Test:
    """A function that judges the cases of `source`; `of` lends its documentation and its place."""

    def test(*arguments: Any) -> None:
        from bitverdict.harness.frontends.called_test import hold

        hold(source, arguments[0] if arguments else None)

    test.__name__, test.__qualname__, test.__doc__, test.__module__ = name, name, of.__doc__, of.__module__
    test.__signature__ = inspect.Signature()  # type: ignore[attr-defined]  # pytest takes parameters for fixtures
    test.__bitverdict__ = source  # type: ignore[attr-defined]
    return test


def check_sealed(sealed: bool, launcher: object) -> None:
    """UsageError for a sealed run: of an imported function there is none."""
    if not sealed:
        return
    if not isinstance(launcher, str) or not launcher:
        raise UsageError(
            "sealed=True: a function that this process has imported cannot be sealed; name it instead, as in "
            'bv.test("mykernels.py:matmul", sealed=True)'
        )
    raise UsageError("sealed=True: sealed runs are not available in this version; leave it out")


def absolute(address: str, namespace: dict[str, Any]) -> str:
    """An address "FILE:FUNCTION" whose file is looked for beside the file of `namespace`, then in the current folder."""
    place, _, name = address.rpartition(":")
    if not place or not name:
        raise UsageError(f"launcher {address!r}: must be FILE:FUNCTION or package.module:FUNCTION")
    if not place.endswith(".py"):
        return address
    beside = Path(str(namespace.get("__file__", ""))).resolve().parent / place
    for path in (beside, Path(place).absolute()):
        if path.is_file():
            return f"{path.resolve()}:{name}"
    raise UsageError(f"launcher {address!r}: there is no file {place} beside {namespace.get('__file__')} or in {os.getcwd()}")


def calling_namespace() -> dict[str, Any]:
    """The globals of the module that called a function of this one."""
    frame = sys._getframe(2)
    return frame.f_globals


def _many(returns: Any) -> bool:
    return isinstance(returns, list | tuple)
