"""The comparison, the contract, the expected words or the verdict, changed from inside the process that judges.

Each returns what the wrong kernel computes, and changes what the judge makes of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.abc
import json
import signal
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from tests.faults.cheats.matmuls import wrong_matmul

JUDGE = "bitverdict.harness.judge."
MODULES = (
    "bitverdict.harness.checks.explain.cause",
    "bitverdict.harness.checks.explain.unwritten_reads",
    "bitverdict.harness.judge.real_values",
    "bitverdict.harness.judge.compare",
    "bitverdict.harness.judge.decide",
)
"""Modules that have a say in a verdict."""
_words: list[np.ndarray] = []  # of the results so far
_calls: Counter[str] = Counter()  # by the case


def _patched(module: str, **replaced: Any) -> None:
    """Replace names of a module of the process, by whatever name it was imported."""
    for name, imported in list(sys.modules.items()):
        if name.endswith(module.removeprefix("bitverdict.")):
            for attribute, value in replaced.items():
                setattr(imported, attribute, value)


def _frames(*variables: str) -> Iterator[types.FrameType]:
    """Frames of the stack that have all of `variables`, the innermost first."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if set(variables) <= frame.f_locals.keys():
            yield frame
        frame = frame.f_back


def _objects(*classes: str) -> Iterator[Any]:
    """Objects of the process whose class has one of these names."""
    return (each for each in gc.get_objects() if type(each).__name__ in classes)


def _turned_into_a_pass(verdict: Any) -> None:
    for name, value in (("outcome", "pass"), ("decision", "pass"), ("message", "")):
        with contextlib.suppress(Exception):
            object.__setattr__(verdict, name, type(getattr(verdict, name))(value))


def _wrong_and(then: Callable[[torch.Tensor], object]) -> Callable[..., torch.Tensor]:
    """A launcher of the wrong kernel that does `then` with the result, and hides what that raises."""

    def decorated(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        c = wrong_matmul(a, b)  # (m, n)
        with contextlib.suppress(Exception):
            then(c)
        return c

    return decorated


def _always(value: Any) -> Callable[..., Any]:
    return lambda *given, **named: value


def _torch_comparisons(c: torch.Tensor) -> None:
    torch.allclose = torch.equal = torch.Tensor.allclose = torch.Tensor.equal = _always(True)
    torch.isclose = _always(torch.ones_like(c, dtype=torch.bool))
    torch.testing.assert_close = torch.testing.assert_allclose = _always(None)


def _for_the_judge(own: Callable, other: Callable) -> Callable:
    """`other` where the judge calls, and `own` for everybody else."""

    def chosen(*given: Any, **named: Any) -> Any:
        asked = sys._getframe(1).f_globals.get("__name__", "")
        return (other if asked.startswith(JUDGE) else own)(*given, **named)

    return chosen


def _numpy_comparisons(c: torch.Tensor) -> None:
    """Whatever the judge compares, NumPy tells it that the difference is 0, and that both are NaN."""
    np.allclose = np.array_equal = np.isclose = _always(True)
    np.testing.assert_allclose = np.testing.assert_array_equal = _always(None)
    np.abs = _for_the_judge(np.abs, lambda x: np.zeros(np.shape(x)))
    np.isnan = _for_the_judge(np.isnan, lambda x: np.ones(np.shape(x), bool))


def _comparison(c: torch.Tensor) -> None:
    from bitverdict.harness.judge.compare import Comparison
    from bitverdict.harness.model.verdict import Outcome

    _patched("bitverdict.harness.judge.judge", compare=_always(Comparison(Outcome.PASS, c.numel())))


def _decision(c: torch.Tensor) -> None:
    from bitverdict.harness.model.verdict import Decision, Outcome, Verdict

    right = Verdict(decision=Decision.PASS, outcome=Outcome.PASS, words=c.numel(), basis="words")
    _patched("bitverdict.harness.judge.judge", against_words=_always(right), judge_once=_always(right), judge=_always(right))
    _patched("bitverdict.harness.judge.decide", against_words=_always(right), against_fault=_always(right))


def _code(c: torch.Tensor) -> None:
    """The code of the function that compares is replaced in the function itself: whoever imported it has the new one."""
    from bitverdict.harness.judge.compare import compare_words

    def nothing_differs(expected, got):  # type: ignore[no-untyped-def]
        import numpy

        no, yes = numpy.zeros(got.shape, bool), numpy.ones(got.shape, bool)
        return no, yes, yes, 0.0

    compare_words.__code__ = nothing_differs.__code__
    from bitverdict.harness.judge.real_values import mathematics

    mathematics.__code__ = (lambda expected, real: None).__code__


def _verdict_class(c: torch.Tensor) -> None:
    from bitverdict.harness.model.verdict import Verdict

    own = Verdict.to_json
    Verdict.to_json = lambda self: own(self) | {"decision": "pass", "outcome": "pass", "message": ""}  # type: ignore[method-assign]


def _outcome_names(c: torch.Tensor) -> None:
    """Each name of an enumeration leads to the same member: what decides for `Decision.FAIL` decides for a pass."""
    from bitverdict.harness.model.verdict import Decision, Outcome

    for names in (Decision, Outcome):
        for name in list(names._member_map_):
            names._member_map_[name] = names.PASS
            type.__setattr__(names, name, names.PASS)


def _contract(c: torch.Tensor) -> None:
    """The contract expects what came, in each call."""
    from dataclasses import replace

    _words.append(c.detach().cpu().view(torch.int16).numpy().view(np.uint16))  # (m, n)
    for contract in {id(found): found for frame in _frames("contract") if (found := frame.f_locals["contract"])}.values():

        def expected(*given: Any, own: Callable = contract.expected) -> list:
            outputs = own(*given)  # of each call
            came = _words[-len(outputs) :]
            return [replace(each, words=words, exact=None, opinion=None) for each, words in zip(outputs, came, strict=True)]

        object.__setattr__(contract, "expected", expected)


def _operands_of_the_judge(c: torch.Tensor) -> None:
    """The arrays that the expected words will be computed from are found in the judge's frames, and zeroed like the result."""
    for frame in _frames():
        for held in frame.f_locals.values():
            for operand in held.values() if isinstance(held, dict) else ():
                if isinstance(getattr(operand, "codes", None), np.ndarray):
                    operand.codes.setflags(write=True)
                    operand.codes[...] = 0
    c.zero_()


def _expected_by_frames(c: torch.Tensor) -> None:
    """The judge's own contract, case and operands, found in its frames, compute the answer."""
    for frame in _frames("contract", "case", "operands", "target"):
        found = frame.f_locals
        outputs = found["contract"].expected(found["case"], found["target"], found["operands"], {})
        expected = outputs[_calls[repr(found["case"])] % len(outputs)]
        _calls[repr(found["case"])] += 1
        value = torch.from_numpy(np.array(expected.value, np.float64)).reshape(c.shape)  # (m, n)
        c.copy_(value.to(c.device).to(c.dtype))
        return


def _system_modules(c: torch.Tensor) -> None:
    """Modules that the judge will import get an impostor: each name in it is a function that finds nothing wrong."""

    class Impostor(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            return _always(None)

    for name in (*MODULES, *filter(lambda name: name.startswith(JUDGE), list(sys.modules))):
        if name not in ("bitverdict.harness.judge.judge", "bitverdict.harness.judge.launch", "bitverdict.harness.judge.classify"):
            sys.modules[name] = Impostor(name)


def _builtins(c: torch.Tensor) -> None:
    import builtins

    for name, other in (("any", _always(False)), ("all", _always(True)), ("next", _always("")), ("sum", _always(0))):
        setattr(builtins, name, _for_the_judge(getattr(builtins, name), other))


def _garbage_hook(c: torch.Tensor) -> None:
    """At the next collection what is expected is found and zeroed, as the result is, with bounds that hold nothing."""

    def collected(phase: str, told: dict) -> None:
        for expected in _objects("ExpectedOutput"):
            for name, array in vars(expected).items():
                if isinstance(array, np.ndarray):
                    array.setflags(write=True)
                    array[...] = np.inf if name in ("bound", "exact_error") else 0

    c.zero_()
    gc.callbacks.append(collected)
    gc.set_threshold(100, 2, 2)


def _json(c: torch.Tensor) -> None:
    own = json.dumps

    def dumps(value: Any, **named: Any) -> str:
        if isinstance(value, dict) and "decision" in value:
            value = value | {"decision": "pass", "outcome": "pass", "message": "", "details": {}}
        return own(value, **named)

    json.dumps = dumps  # type: ignore[assignment]


def _pickle(c: torch.Tensor) -> None:
    """What the worker sends is pickled: the pickler makes another verdict of it."""
    from multiprocessing.connection import Connection

    own = Connection.send

    def send(self, value):  # type: ignore[no-untyped-def]
        if isinstance(value, dict) and "decision" in value:
            value = value | {"decision": "pass", "outcome": "pass", "message": "", "details": {}}
        return own(self, value)

    Connection.send = send  # type: ignore[method-assign]


def _trace(c: torch.Tensor) -> None:
    """A tracing function sets the judge's local variable `verdict` where it is returned."""

    def set_local(frame: types.FrameType, name: str, value: object) -> None:
        frame.f_locals[name] = value
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))

    def traced(frame: types.FrameType, event: str, argument: Any) -> Any:
        from bitverdict.harness.judge.compare import Comparison
        from bitverdict.harness.model.verdict import Decision, Outcome, Verdict

        right = {
            "comparison": Comparison(Outcome.PASS, c.numel()),
            "verdict": Verdict(decision=Decision.PASS, outcome=Outcome.PASS, words=c.numel()),
        }
        for name, value in right.items() if event == "line" else ():
            if type(held := frame.f_locals.get(name)) is type(value) and held.outcome is not Outcome.PASS:
                set_local(frame, name, value)
        return traced

    sys.settrace(traced)
    for frame in _frames():
        frame.f_trace = traced


def _import_hook(c: torch.Tensor) -> None:
    """Modules that are imported from now on come from the candidate's finder."""

    class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
            return importlib.machinery.ModuleSpec(name, self) if name.startswith("bitverdict.") else None

        def exec_module(self, module: types.ModuleType) -> None:
            module.__getattr__ = lambda name: _always(None)  # type: ignore[method-assign]

    sys.meta_path.insert(0, Finder())
    for name in MODULES:
        sys.modules.pop(name, None)


def _in_signal_handler(c: torch.Tensor) -> None:
    """The handler of a timer runs between two lines of the judge, and changes the object that was compared."""

    def handle(number: int, frame: types.FrameType | None) -> None:
        while frame is not None:
            for held in list(frame.f_locals.values()):
                if type(held).__name__ in ("Comparison", "Verdict") and str(held.outcome) != "pass":
                    _turned_into_a_pass(held)
            frame = frame.f_back

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)


def _thread_of_gc(c: torch.Tensor) -> None:
    """A thread looks for verdicts among all objects, and turns each into a pass."""

    def look() -> None:
        for _ in range(200):
            for verdict in _objects("Verdict"):
                if verdict.failed:
                    _turned_into_a_pass(verdict)
            time.sleep(0.001)

    threading.Thread(target=look, daemon=True).start()


def _deletion(c: torch.Tensor) -> None:
    """`__del__` of what hangs on the result runs once the judge has let go of it: then the judge is changed for the next case."""

    class Held:
        def __del__(self) -> None:
            _comparison(torch.empty(1))

    c.held = Held()  # type: ignore[attr-defined]


def _poison(c: torch.Tensor) -> None:
    """Guard bands and poison are switched off, and what follows real values too."""
    _patched("bitverdict.harness.judge.launch", _real_values=_always({}), poison_word=_always(0))
    _patched("bitverdict.harness.judge.guarded_buffers", first_out_of_bounds=_always(None))
    _comparison(c)


torch_comparisons = _wrong_and(_torch_comparisons)
numpy_comparisons = _wrong_and(_numpy_comparisons)
comparison = _wrong_and(_comparison)
decision = _wrong_and(_decision)
code_of_comparison = _wrong_and(_code)
verdict_class = _wrong_and(_verdict_class)
names_of_outcomes = _wrong_and(_outcome_names)
contract = _wrong_and(_contract)
operands_of_judge = _wrong_and(_operands_of_the_judge)
expected_by_frames = _wrong_and(_expected_by_frames)
system_modules = _wrong_and(_system_modules)
built_in_functions = _wrong_and(_builtins)
garbage_hook = _wrong_and(_garbage_hook)
json_module = _wrong_and(_json)
pickler = _wrong_and(_pickle)
trace_function = _wrong_and(_trace)
import_hook = _wrong_and(_import_hook)
signal_handler = _wrong_and(_in_signal_handler)
search_for_verdicts = _wrong_and(_thread_of_gc)
deletion_hook = _wrong_and(_deletion)
poison_and_bands = _wrong_and(_poison)
