"""Every deliberate fault of the tests and benchmarks, by collection. `python -m tests.faults.corpus` prints how many there are.

A new mutant goes into the collection of its kind: `tests/kernel_contracts/test_corpus.py` finds the test that must notice it.
Kernels that are faulty as they stand, for workers and sanitizers, are no mutants: `crashes/faulting_kernels.py`,
`crashes/injected.py`, and `sanitizer_bait.py`.
"""

from __future__ import annotations

import importlib
import pkgutil

from bitverdict.reference.tensor_core import INSTRUCTIONS
from tests.faults import hazards_for_sanitizers, kernels, product_faults, reference_modules
from tests.faults.causes import kernels_of_models
from tests.faults.causes.matmul_launchers import BUGS
from tests.faults.crashes.kernels import CRASHES
from tests.faults.instruction_constants import mutants_of
from tests.faults.mutants import Mutant
from tests.faults.timing import barriers, memory, order, tensor_memory
from tests.faults.your_kernels import collected as your_kernels

KERNELS = [importlib.import_module(f"{kernels.__name__}.{module.name}") for module in pkgutil.iter_modules(kernels.__path__)]

COLLECTIONS: dict[str, tuple[Mutant, ...]] = {
    "kernels": tuple(mutant for module in KERNELS for mutant in module.MUTANTS),
    "your kernels": your_kernels.MUTANTS,
    "timing": (*order.HAZARDS, *barriers.HAZARDS, *memory.HAZARDS),
    "tensor memory": tensor_memory.MUTANTS,
    "sanitizers": hazards_for_sanitizers.HAZARDS,
    "crashes": CRASHES,
    "causes": tuple(bug.mutant for bug in BUGS),
    "kernels of models": tuple(bug.mutant for bug in kernels_of_models.BUGS),
    "reference": reference_modules.MUTANTS,
    "products": product_faults.MUTANTS,
    "instruction constants": tuple(mutant for rule in INSTRUCTIONS if rule.d != "int32" for mutant in mutants_of(rule)),
}
"""By kind: source of kernels; of a user's kernels; what the emulated GPU's model of time must see; programs that wait for tensor
memory; time beside sanitizers; what crashes; launchers whose cause is named; kernels of language models whose cause is named;
modules of `reference/`; products computed in NumPy; models of tensor cores."""


def main() -> None:
    for name, mutants in COLLECTIONS.items():
        print(f"{len(mutants):5d} {name}")
    print(f"{sum(map(len, COLLECTIONS.values())):5d} in all")


if __name__ == "__main__":
    main()
