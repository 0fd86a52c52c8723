"""bitverdict: whether a Triton or Gluon kernel is right, bit for bit where the bits are known.

The names below are what a contract of one's own, a test and a notebook need; each is imported when it is asked for.

    import bitverdict
    with bitverdict.emulated("sm_90"):
        kernel[grid](...)
"""

import os
import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    # `python -m` looks in the current folder before its own library: whatever lies there would stand for a module of Python's
    if any(word.removeprefix("-m").partition(".")[0] == "bitverdict" for word in sys.orig_argv):
        sys.path[:] = [folder for folder in sys.path if folder != sys.path[0]] + sys.path[:1]  # an empty `PYTHONPATH` names it too

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitverdict.harness.contracts.described.draw import Draw as Draw
    from bitverdict.harness.emulator import EmulatedFault as EmulatedFault
    from bitverdict.harness.emulator import emulated as emulated
    from bitverdict.harness.frontends import strategies as strategies
    from bitverdict.harness.frontends.public import assert_right as assert_right
    from bitverdict.harness.frontends.public import judged as judged
    from bitverdict.harness.frontends.public import load_tests as load_tests
    from bitverdict.harness.frontends.public import test as test
    from bitverdict.harness.judge.judge import judge as judge
    from bitverdict.harness.model.case import Case as Case
    from bitverdict.harness.model.case import Operand as Operand
    from bitverdict.harness.model.contract import Contract as Contract
    from bitverdict.harness.model.contract import ExpectedOutcome as ExpectedOutcome
    from bitverdict.harness.model.contract import ExpectedOutput as ExpectedOutput
    from bitverdict.harness.model.targets import Target as Target
    from bitverdict.harness.model.targets import target as target
    from bitverdict.harness.model.targets import targets as targets
    from bitverdict.harness.model.verdict import Decision as Decision
    from bitverdict.harness.model.verdict import Outcome as Outcome
    from bitverdict.harness.model.verdict import Verdict as Verdict
    from bitverdict.harness.ptx_machine.cuda_source import cuda_kernel as cuda_kernel
    from bitverdict.harness.ptx_machine.launch import ptx_kernel as ptx_kernel
    from bitverdict.harness.ptx_machine.numba_source import numba_kernel as numba_kernel
    from bitverdict.harness.ptx_machine.tilelang_source import tilelang_kernel as tilelang_kernel
    from bitverdict.harness.report.launch_replay.launch_sampler import sample as sample
    from bitverdict.harness.report.launch_trace.tracer import trace as trace

_RENAMED_VARIABLES = (
    "STATE TRANSLATIONS POOL_SEED PROFILE SPARES GPU_SLOTS DATABASE DATABASE_PASSWORD PYTHON WITHOUT_WORDS SHARE INJECTED"
)
for _name in [
    name for name in _RENAMED_VARIABLES.split() if f"HARNESS_{name}" in os.environ and f"BITVERDICT_{name}" not in os.environ
]:
    os.environ[f"BITVERDICT_{_name}"] = os.environ[f"HARNESS_{_name}"]
    print(f"note: HARNESS_{_name} is read as BITVERDICT_{_name}, its newer name: set that", file=sys.stderr)
__version__ = "0.1.0"
_package_folder = Path(__path__[0])
if not (_package_folder / "harness" / "__init__.py").is_file():
    __path__.insert(0, str(_package_folder.parent))  # a zip, or a checkout that lost its links: the rooms lie beside this folder
_HOME = {
    "Case": "harness.model.case",
    "Contract": "harness.model.contract",
    "Draw": "harness.contracts.described.draw",
    "EmulatedFault": "harness.emulator",
    "ExpectedOutput": "harness.model.contract",
    "Operand": "harness.model.case",
    "Outcome": "harness.model.verdict",
    "ExpectedOutcome": "harness.model.contract",
    "Decision": "harness.model.verdict",
    "Target": "harness.model.targets",
    "Verdict": "harness.model.verdict",
    "emulated": "harness.emulator",
    "assert_right": "harness.frontends.public",
    "judged": "harness.frontends.public",
    "load_tests": "harness.frontends.public",
    "test": "harness.frontends.public",
    "judge": "harness.judge.judge",
    "cuda_kernel": "harness.ptx_machine.cuda_source",
    "numba_kernel": "harness.ptx_machine.numba_source",
    "tilelang_kernel": "harness.ptx_machine.tilelang_source",
    "ptx_kernel": "harness.ptx_machine.launch",
    "sample": "harness.report.launch_replay.launch_sampler",
    "target": "harness.model.targets",
    "targets": "harness.model.targets",
    "trace": "harness.report.launch_trace.tracer",
}
_MODULES = {"strategies": "harness.frontends.strategies"}
__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"bitverdict.{_MODULES[name]}")
    if name not in _HOME:
        raise AttributeError(f"bitverdict has no {name}; it has {', '.join(sorted(__all__))}")
    import_module("bitverdict.harness.model.trusted_imports").begin()  # pytest puts the folder of a test file before Python's own
    if problem := import_module("bitverdict.harness.model.triton_release").installed_triton().problem:
        raise ImportError(problem)
    return getattr(import_module(f"bitverdict.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
