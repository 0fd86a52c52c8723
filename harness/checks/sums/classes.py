"""Outputs of one case whose sums have one order, by results that all of them gave for the same probes."""

from __future__ import annotations

import numpy as np

from bitverdict.harness.checks.sums.masks import in_pairs, rungs_of
from bitverdict.harness.checks.sums.probes import NotRecovered, SummedOutput

FINGERPRINTS = 12
MOST_CLASSES = 128


def classes_of(summed_output: SummedOutput, rng: np.random.Generator) -> np.ndarray:
    """(outputs,) numbers of classes: outputs of one class have the same terms and gave the same results to all fingerprints."""
    size, count = summed_output.terms.size, summed_output.terms.count
    if not size or not count:
        raise NotRecovered(f"{summed_output.name} has no term to add")
    keys, rungs = [summed_output.terms.present(np.arange(size))], rungs_of(summed_output)  # (outputs, T)
    for number in range(FINGERPRINTS):
        high, low = rungs[number // 2 % len(rungs)]
        if number % 2:
            values = in_pairs(summed_output, np.arange(count), high, rng)
        else:
            values = np.zeros(count)
            values[rng.permutation(count)[:200]] = 2.0**low
            at = rng.permutation(count)[:2]
            values[at] = (2.0**high, -(2.0**high))[: len(at)]
        found = summed_output.everywhere(summed_output.factors_for(values[None])[:, 0])
        if found is None:
            if size > MOST_CLASSES:
                raise NotRecovered(f"the {size} outputs of {summed_output.name} share elements as different terms")
            return np.arange(size)
        keys.append(np.nan_to_num(found, nan=-1.0, posinf=-2.0, neginf=-3.0)[:, None])
    _, members = np.unique(np.concatenate(keys, axis=1, dtype=np.float64), axis=0, return_inverse=True)
    members = members.reshape(-1)
    if members.max() >= MOST_CLASSES:
        raise NotRecovered(f"{summed_output.name} has outputs of more than {MOST_CLASSES} different orders")
    return members
