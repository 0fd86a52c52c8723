"""The public functions: `judged` makes a test of a kernel that its user describes, `test` of one whose mathematics is shipped,
and `assert_right` judges one launch on operands that are given.

Tests are for pytest, unittest and a plain call. This file is imported in workers too, with the user's own: what
judges is imported when it is asked.
"""

from __future__ import annotations

import inspect
import os
import sys
import unittest
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bitverdict.harness.contracts.described.contract import Description
from bitverdict.harness.contracts.described.draw import STRIDES, STRIDES_TOLD
from bitverdict.harness.contracts.described.dtypes import format_of
from bitverdict.harness.contracts.described.gradients import contract_of
from bitverdict.harness.contracts.described.operands import check_regimes
from bitverdict.harness.model.addresses import is_importing
from bitverdict.harness.model.decorated_object import DecoratedObject, import_address
from bitverdict.harness.model.named_launcher import NamedLauncher
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.usage import UsageError, did_you_mean, no_such_kernel

if TYPE_CHECKING:
    from bitverdict.harness.contracts.described.draw import Draw
    from bitverdict.harness.model.targets import Target
    from bitverdict.harness.session.case_source import CaseSource

ACCUMULATIONS = ("fp32", "fp16", "bf16", "tf32", "fp64")


class Test(Protocol):
    """What `judged` and `test` return: called, it judges on every target that is here, and raises AssertionError with the report.

    pytest collects it by its name, as one test for each target. In a `unittest.TestCase` each target is a subtest.
    """

    __name__: str

    def __call__(self, *arguments: Any) -> None: ...


def judged(
    body: object = None,
    /,
    *,
    reference: Callable[..., object] | None = None,
    exact: bool = False,
    returns: object = (),
    accumulation: str = "fp32",
    specials: bool = False,
    regimes: Sequence[str] = (),
    launcher: str = "",
    sealed: bool = False,
    real_values: bool = True,
    gradient: bool = False,
    batch_invariant: str | Sequence[str] = (),
    deterministic: bool = False,
    recover_order: bool = False,
    strides: str | None = None,
) -> Callable[[Callable[[Draw], Any]], Test]:
    """Turn a function that draws operands and launches a kernel on them into a test of that kernel.

        @bv.judged(reference=lambda xp, x, w: x / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + 1e-6) * w)
        def test_rms_norm(draw):
            m, n = draw.size(1, 70), draw.size(1, 300, around=64)
            return rms_norm(draw.tensor("fp16", (m, n)), draw.tensor("fp16", (n,)))

    The function gets a `Draw`, and returns what the kernel computed: a tensor, or a tuple of them. bitverdict runs it
    twice: in this process up to its first use of a tensor, to choose the inputs, and whole in a worker. So draw everything first,
    and use no time, random numbers or globals that change.

    - `reference`: `reference(xp, *operands, **named)` computes the right result with the Python array API `xp`. It gets the
      operands in the order of their draws, named ones by name, and returns an array, or a tuple of them for several outputs.
    - `exact`: each result must be the word nearest to the reference, as that of a gather.
    - `returns`: the format of each output, such as "fp32" or ("fp16", "int32"); without it, those that the kernel returns.
    - `accumulation`: the type in which the kernel may sum; the error bound follows from it.
    - `specials`: feed NaN, infinities, subnormals and the whole range of exponents too. `regimes`: feed only these kinds.
    - `launcher`: "FILE:FUNCTION" of a launcher that this process never imports; the function then returns a tuple of its arguments.
    - `sealed`: that launcher runs in a jailed process of its own (docs/sealed.md).
    - `real_values`: compute emulated launches without rounding too, which tells wrong mathematics from lost precision.
    - `gradient`: the outputs come from a `torch.autograd.Function`; compare its backward pass with the gradient of the reference.
    - `batch_invariant`: "rows", or names of sizes along which the bits of a row depend on that row alone, whatever the batch.
    - `deterministic`: the same call gives the same bits in any order of atomics (docs/invariance.md, as `batch_invariant`).
    - `recover_order`: find the order of the kernel's sums by extra launches, and expect its exact words (docs/order_of_sums.md).
    - `strides`: how the tensors lie whose draw does not say: "contiguous" for a kernel that takes, but does not refuse, others.

    UsageError (value, rule, remedy) for arguments that do not fit.
    """
    check_sealed(sealed, launcher)
    check_accumulation(accumulation)
    if not callable(reference):
        above = f"write @bv.judged(reference=lambda xp, x: ...) above def {getattr(body, '__name__', 'test_kernel')}(draw)"
        raise UsageError(f"judged(reference={reference!r:.100}): must be a function of xp and the operands; {above}")
    formats = formats_of(returns)
    check_regimes(regimes)
    if strides not in STRIDES:
        raise UsageError(f"judged(strides={strides!r:.100}): must be {STRIDES_TOLD}")

    def make_test(body: Callable[[Draw], object]) -> Test:
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
            gradient=gradient,
            sealed=sealed,
            batch_invariant=(batch_invariant,) if isinstance(batch_invariant, str) else tuple(batch_invariant),
            deterministic=deterministic,
            recover_order=recover_order,
            strides=strides,
        )
        where = DecoratedObject(body.__globals__, lambda: made, f"bv.judged of {body.__name__}")
        contract = contract_of(description, where)

        def source(target: Target, *, sealed: bool = sealed) -> CaseSource:
            from bitverdict.harness.session.case_source import CaseSource

            if sealed:
                check_sealed(sealed, launcher)
                begin(description.launcher, contract.where()[1])
            return CaseSource(contract.address, target, is_sealed=sealed)

        made = as_test(body.__name__, source, body.__module__, body.__doc__)
        made.__contract__ = contract  # type: ignore[attr-defined]
        return made

    return make_test


def test(
    kernel: Callable[..., object] | str,
    *,
    like: str,
    claims: Sequence[str] | None = None,
    requires: Callable[..., bool] | None = None,
    sealed: bool = False,
    batch_invariant: str | Sequence[str] = (),
    deterministic: bool = False,
) -> Test:
    """Make a test of a launcher whose mathematics bitverdict has: that of a shipped kernel, or of a KernelBench problem.

        test_matmul = bv.test(matmul, like="matmul", claims=("strides", "bf16"), requires=lambda m, n, k: k % 8 == 0)
        test_softmax = bv.test("candidate.py:ModelNew", like="problem.py", sealed=True)

    - `kernel`: a function, or "FILE:FUNCTION" of one that this process never imports; FILE is looked for beside the file that calls
      `test`. It takes the arguments that the contract of `like` passes ("A launcher of your own" in docs/judging.md).
    - `like`: the name of a shipped kernel, or the file of a KernelBench problem.
    - `claims`: what the launcher takes beyond contiguous fp16. None: its attribute `claims`, where it has one.
    - `requires`: a predicate over fields of the problem, by their names: only cases for which it is true are judged. None: its
      attribute `requires`, where it has one.
    - `sealed`: a jailed process imports the file (docs/sealed.md); `requires` beside `batch_invariant` is then a UsageError.
    - `batch_invariant`, `deterministic`: as of `judged`; sizes have the names of the problem's fields.

    UsageError (value, rule, remedy) for arguments that do not fit.
    """
    check_sealed(sealed, kernel)
    promises = promises_of(batch_invariant, deterministic)
    namespace = calling_namespace()
    if like.endswith(".py"):
        from bitverdict.harness.contracts.torch_mathematics.kernelbench import address_of

        mathematics = address_of(absolute(f"{like}:Model", namespace).rpartition(":")[0])
    elif (mathematics := like) not in (known := kernels_with_a_contract()):
        raise UsageError(f"test(like={like!r}): {no_such_kernel(like, known)}")
    if isinstance(kernel, str):
        launcher = NamedLauncher(absolute(kernel, namespace), None, claims, requires)
    elif callable(kernel) and not hasattr(kernel, "starting_line_number") and not hasattr(kernel, "configs"):
        launcher = NamedLauncher(import_address(kernel), kernel, claims, requires)
    else:
        raise UsageError(f"test({kernel!r:.100}): must be a function that launches a kernel, or its address 'FILE:FUNCTION'")
    where = DecoratedObject(namespace, lambda: made, f"bv.test of {launcher.__name__}")

    def source(target: Target, *, sealed: bool = sealed) -> CaseSource:
        from bitverdict.harness.session.case_source import CaseSource

        if promises:
            check_promises(promises, mathematics, target, is_sealed=sealed, requires=requires)
        address, folders = where()
        if sealed:
            check_sealed(sealed, kernel)
            address = launcher.address
            begin(address, folders, said=launcher if claims is not None or requires is not None else None)
        return CaseSource(
            mathematics,
            target,
            launcher=address,
            search_path=folders,
            is_sealed=sealed,
            claims_accepted=requires is not None,
            promises=promises,
        )

    made = as_test(launcher.__name__, source, str(namespace.get("__name__")), f"{launcher.__name__}, like {like}.")
    made.__launcher__ = launcher  # type: ignore[attr-defined]
    return made


test.__test__ = False  # type: ignore[attr-defined]  # imported by its name it is no test of pytest's


def assert_right(
    function: Callable[..., object] | str,
    operands: Sequence[object],
    *,
    reference: Callable[..., object],
    target: str | None = None,
    exact: bool = False,
    returns: object = (),
    accumulation: str = "fp32",
    real_values: bool = True,
    sealed: bool = False,
) -> None:
    """Judge one launch, ``function(*operands)``; AssertionError with the report where it is wrong, or cannot be decided.

        bv.assert_right(matmul, (a, b), reference=lambda xp, a, b: a @ b, target="emulated:sm_90")

    - `function`: a function of a file, or its address "FILE:FUNCTION": a worker imports it.
    - `operands`: tensors and numbers; their words are copied.
    - `target`: the name of one; None: all that are here. An emulated one runs the launch under several schedules.
    - `sealed`: a jailed process imports the file of `function`, which must be an address (docs/sealed.md).
    - `reference` and the others: as of `judged`.

    `unittest.SkipTest` where the target lacks a feature that the kernel needs.
    """
    __tracebackhide__ = True
    if is_importing():  # the file is imported to be judged, and this call is not asked
        return
    if not (isinstance(function, str) or callable(function)) or not isinstance(operands, list | tuple):
        given = f"{type(function).__name__}, {type(operands).__name__}"
        raise UsageError(
            f"assert_right({given}): must be a function and a tuple of its operands; write bv.assert_right(f, (x,), ...)"
        )
    check_sealed(sealed, function)
    from bitverdict.harness.frontends.one_launch import judge_launch

    address = absolute(function, calling_namespace()) if isinstance(function, str) else import_address(function)
    judge_launch(
        address,
        operands,
        reference,
        target=target,
        exact=exact,
        returns=formats_of(returns),
        accumulation=check_accumulation(accumulation),
        real_values=real_values,
        is_sealed=sealed,
    )


def load_tests(module: str) -> Callable[..., unittest.TestSuite]:
    """The hook `load_tests` by which unittest finds tests of a module: write ``load_tests = bv.load_tests(__name__)`` in it.

    It adds the functions that `judged` and `test` made. Methods of a `TestCase` unittest finds by itself.
    """

    def load(loader: unittest.TestLoader, standard: unittest.TestSuite, pattern: str | None) -> unittest.TestSuite:
        for name, found in vars(sys.modules[module]).items():
            if name.startswith("test") and hasattr(found, "__bitverdict__"):
                kind = type(name, (unittest.TestCase,), {name: found, "__module__": module})
                standard.addTest(kind(name))
        return standard

    return load


def as_test(name: str, source: Callable[[Target], CaseSource], module: str, documentation: str | None) -> Test:
    """A function that judges the cases of `source`."""

    def hold_test(*arguments: object) -> None:
        from bitverdict.harness.frontends.called_test import hold

        hold(source, arguments[0] if arguments else None)

    hold_test.__name__, hold_test.__qualname__, hold_test.__doc__, hold_test.__module__ = name, name, documentation, module
    hold_test.__signature__ = inspect.Signature()  # type: ignore[attr-defined]  # pytest takes parameters for fixtures
    hold_test.__bitverdict__ = source  # type: ignore[attr-defined]
    return hold_test


def begin(address: str, folders: Sequence[str], said: object = None) -> None:
    """Seal the launcher at `address` in this process; its own process finds its modules in `folders`."""
    from bitverdict.harness.sealed.processes import candidate_descriptions

    candidate_descriptions.begin(address, folders, said)


def check_sealed(sealed: bool, launcher: object) -> None:
    """UsageError for a sealed run of what is not named by its file: of an imported function there is none."""
    if sealed and (not isinstance(launcher, str) or ".py:" not in launcher):
        raise UsageError(
            "sealed=True: a function that this process has imported cannot be sealed; name it instead, as in "
            'bv.test("mykernels.py:matmul", sealed=True)'
        )


def promises_of(batch_invariant: str | Sequence[str], deterministic: bool) -> str:
    """Both promises as `Case.promises` has them."""
    sizes = (batch_invariant,) if isinstance(batch_invariant, str) else tuple(batch_invariant)
    return ",".join((*sizes, *(["deterministic"] if deterministic else [])))


def check_promises(promises: str, mathematics: str, target: Target, *, is_sealed: bool, requires: object) -> None:
    """UsageError for a promise along what is no size of the kernel's problem, and for one whose smaller batches nobody can ask a
    sealed launcher."""
    from bitverdict.harness.model.addresses import resolve

    contract = resolve(mathematics)
    sizes = {name for case in contract.required(target)[:1] for name in contract.sizes(case)}
    for word in promises.split(","):
        if sizes and word not in (known := ("rows", "deterministic", *sorted(sizes))):
            said = f"batch_invariant={word!r}: is no size of {mathematics}{did_you_mean(word, known)}"
            raise UsageError(f"{said}; it must be of {', '.join(each for each in known if each != 'deterministic')}")
    if is_sealed and requires is not None and promises != "deterministic":
        raise UsageError(
            f"batch_invariant={promises!r} with requires= of a sealed launcher: its judge does not import your predicate, and "
            "could not tell which smaller batches it takes; make requires an attribute of the launcher, in its own file"
        )


def absolute(address: str, namespace: Mapping[str, object]) -> str:
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


def formats_of(returns: object) -> tuple[str, ...]:
    """The formats that `returns` names: one, or several in a tuple or a list. UsageError for an unknown one."""
    return tuple(format_of(each) for each in (returns if isinstance(returns, list | tuple) else (returns,)))


def check_accumulation(name: str) -> str:
    """`name`; UsageError for no type that a kernel may sum in."""
    if name not in ACCUMULATIONS:
        raise UsageError(f"accumulation={name!r}: must be one of {', '.join(ACCUMULATIONS)}")
    return name
