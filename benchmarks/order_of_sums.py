"""Launchers of known orders of sums: is the order that the probes give the one that each has by construction?

    python -m benchmarks.order_of_sums [--arch sm_90] [--launchers sequential,stream_k] [--jobs 2]
    python -m benchmarks.order_of_sums --device cuda:0 [--jobs 12]

With a device each launcher is recovered there and on the emulated GPU of its architecture, and the trees must be equal. A larger
case is recovered on the device too, and its words on drawn operands must be those that the tree gives; they are counted. A
launcher whose order depends on timing, or is no tree, must be told so. Exit status 1 for anything else.
"""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks.campaign import parse, run_script
from tests.support.summing_orders import NO_ORDER, SUMMING, Summing

SHIPPED = (("split_k_matmul", "second kernel"), ("split_k_matmul", "last program"), ("split_k_matmul", "atomics"))


def recovered_at(name: str, address: str, line: str, target_name: str) -> dict[str, Any]:
    """What became of one case, as plain values."""
    warnings.simplefilter("ignore")
    from dataclasses import replace

    from bitverdict.harness.checks.sums.order_recovery import recover_orders
    from bitverdict.harness.judge.remote_launcher import launcher_of_case
    from bitverdict.harness.model.addresses import resolve
    from bitverdict.harness.model.targets import target
    from bitverdict.reference.sums.description import describe_tree

    began = time.perf_counter()
    try:
        contract, machine = resolve(address), target(target_name)
        if address == "split_k_matmul":
            asked = [each for each in contract.required(machine) if contract.expected_outcome(each, machine).result]
            case = next(each for each in asked if each.config.reduction == line and each.problem.k > each.config.block_k)
            case = replace(case, schedule="eager", calls=1)
        else:
            case = contract.case(contract.problem_told([tuple(each.split("=")) for each in line.split()]))  # type: ignore[attr-defined]
        found = recover_orders(case, machine, contract, launcher_of_case(case, machine))
    except Exception as error:
        return {"name": name, "target": target_name, "error": f"{type(error).__name__}: {error}"[:500]}
    made: dict[str, Any] = {
        "name": name,
        "target": target_name,
        "why": found.why,
        "timing": found.timing,
        "launches": found.launches,
    }
    for each in found.outputs:
        firsts = [
            np.unravel_index(int(np.argmax(each.members.reshape(-1) == at)), each.members.shape) for at in range(len(each.orders))
        ]
        made |= {
            "trees": [order.tree for order in each.orders],
            "operators": [sorted({operator.name.partition(" (")[0] for operator in order.operators}) for order in each.orders],
            "fused": [order.fused_leaves for order in each.orders],
            "places": [tuple(int(one) for one in first) for first in firsts],
            "members": each.members,
            "told": describe_tree(each.orders[-1].tree),
            "words": each.words,
            "telling": each.telling_words,
            "probes": each.probes,
        }
    return made | {"seconds": time.perf_counter() - began}


def wrong(summing: Summing, line: str, arch: str, got: dict[str, Any]) -> str:
    """Why what was recovered is not what the launcher has by construction; empty where it is."""
    if "error" in got:
        return got["error"]
    if summing.tree is None:
        said = f"{NO_ORDER}: {got['timing']}" if got["timing"] else got["why"]
        return "" if summing.why in said else f"must say {summing.why!r}, says {said!r}"
    if "trees" not in got:
        return got["timing"] or got["why"]
    for tree, place in zip(got["trees"], got["places"], strict=True):
        if tree != summing.due(line, arch, place):
            return f"the tree at {place} is another one than the launcher has"
    return ""


def main() -> int:
    options = parse(__doc__, device=str, arch="sm_90", launchers="", jobs=2)
    asked = [each for each in SUMMING if not options.launchers or each.name in options.launchers.split(",")]
    asked = [each for each in asked if options.arch in each.architectures]
    shipped = SHIPPED if not options.launchers or "split_k_matmul" in options.launchers else ()
    emulated, began, failures, words, telling = f"emulated:{options.arch}", time.perf_counter(), 0, 0, 0
    real = max(options.jobs * 2 // 5, 1) if options.device else 0
    context = get_context("spawn")
    with ProcessPoolExecutor(max(options.jobs - real, 1), context) as emulators, ProcessPoolExecutor(max(real, 1), context) as gpus:
        small = {each.name: emulators.submit(recovered_at, each.name, each.address, each.small, emulated) for each in asked}
        small |= {f"{address}, {how}": emulators.submit(recovered_at, how, address, how, emulated) for address, how in shipped}
        there, large = {}, {}
        if options.device:
            there = {each.name: gpus.submit(recovered_at, each.name, each.address, each.small, options.device) for each in asked}
            there |= {f"{address}, {how}": gpus.submit(recovered_at, how, address, how, options.device) for address, how in shipped}
            large = {
                each.name: gpus.submit(recovered_at, each.name, each.address, each.large, options.device)
                for each in asked
                if each.large
            }
        for name, summing in [*((each.name, each) for each in asked), *((f"{address}, {how}", None) for address, how in shipped)]:
            rows = [(summing.small if summing else "", small[name].result())]
            rows += [(summing.small if summing else "", there[name].result())] if there else []
            rows += [(summing.large, large[name].result())] if name in large and summing else []
            said = []
            for line, got in rows:
                if summing is not None:
                    why = wrong(summing, line, options.arch, got)
                else:
                    timed = bool(got.get("timing"))
                    why = got.get("error", "") or (
                        "" if timed == name.endswith("atomics") else got["timing"] or got["why"] or "no timing seen"
                    )
                if why and not (summing is None and name.endswith("atomics") and got["target"] == options.device):
                    said.append(f"{got['target']} {line}: {why}")
                words, telling = words + got.get("words", 0), telling + got.get("telling", 0)
            if len(rows) > 1 and "trees" in rows[0][1] and "trees" in rows[1][1]:
                for part in ("trees", "operators", "fused"):
                    if rows[0][1][part] != rows[1][1][part]:
                        said.append(f"{part} differ between {emulated} and {options.device}")
                if not np.array_equal(rows[0][1]["members"], rows[1][1]["members"]):
                    said.append(f"outputs share their order otherwise on {options.device}")
            failures += bool(said)
            shown = rows[0][1]
            told = (
                shown.get("told") or f"{NO_ORDER}: {shown['timing']}"
                if shown.get("told") or shown.get("timing")
                else shown.get("why", "")
            )
            counts = ", ".join(
                f"{got['target']} {got.get('probes', 0)} probes {got.get('launches', 0)} launches {got.get('words', 0)} words"
                f" {got.get('seconds', 0):.1f} s" for _, got in rows
            )  # fmt: skip
            print(f"{'WRONG' if said else 'right'} {name}: {told}\n      {counts}", flush=True)
            for each in said:
                print(f"      {each}", flush=True)
    print(f"{len(asked) + len(shipped)} launchers, {failures} wrong; {words:,} words held to the trees,")
    print(f"{telling:,} of them not nearest to the exact sum; {time.perf_counter() - began:.0f} s")
    return int(failures > 0)


if __name__ == "__main__":
    run_script(main)
