"""Required lists are versioned and frozen: a file a version, with the digest of each contract's required cases on each target.

``python -m bitverdict.harness.report.required_lists --freeze 1.0`` writes the file of a version; without ``--freeze`` it says what
differs from the newest one. Once a version is released a change is due under a new version.
A kernel that no version has is *new*: its list may change, and pages of measurements may lack it. Freezing it makes both due. An
emulated target that no version names is new likewise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.architectures import BY_DEFAULT, EMULATED_ARCHITECTURES
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import Target, target

FOLDER = Path(__file__).with_name("required")
COMMAND = "python -m bitverdict.harness.report.required_lists --freeze"


def digest(cases: Sequence[Case]) -> str:
    """Of the cases, whatever their order."""
    return hashlib.sha256("\n".join(sorted(case.key for case in cases)).encode()).hexdigest()


def lists(stems: Sequence[str] | None = None, targets: Sequence[Target] | None = None) -> dict[str, dict[str, list]]:
    """{contract: {target: [how many cases, their digest]}}, of this checkout; a contract that a target cannot serve is left out."""
    lists_by_contract: dict[str, dict[str, list]] = {}
    for stem in kernels_with_a_contract() if stems is None else stems:
        contract = resolve(stem)
        for where in [target(f"emulated:{arch}") for arch in BY_DEFAULT] if targets is None else targets:
            if not contract.lacking(where):
                cases = contract.required(where)
                lists_by_contract.setdefault(stem, {})[where.name] = [len(cases), digest(cases)]
    return lists_by_contract


def versions() -> list[str]:
    """The frozen versions, the oldest first."""
    return sorted((path.stem for path in FOLDER.glob("*.json")), key=lambda name: tuple(map(int, name.split("."))))


def _read(version: str) -> dict:
    return json.loads((FOLDER / f"{version}.json").read_text())


def frozen(version: str) -> dict[str, dict[str, list]]:
    return _read(version)["required"]


def frozen_kernels() -> list[str]:
    """The kernels of this checkout that the newest version has; the others are new."""
    listed = frozen(versions()[-1])
    return [stem for stem in kernels_with_a_contract() if stem in listed]


def frozen_architectures() -> list[str]:
    """The emulated architectures that were there when the newest version was frozen."""
    listed = _read(versions()[-1])["emulated"]
    return [arch for arch in EMULATED_ARCHITECTURES if arch in listed]


def differences(version: str, now: dict[str, dict[str, list]]) -> list[str]:
    """What of the lists `now` is not as `version` froze it, a sentence each."""
    then, sentences = frozen(version), []
    for stem, by_target in now.items():
        for where, (count, known) in by_target.items():
            before = then.get(stem, {}).get(where)
            if before is None:
                sentences.append(f"{stem} on {where}: required list {version} has none; {count} cases now")
            elif before != [count, known]:
                sentences.append(f"{stem} on {where}: {before[0]} cases in required list {version}, {count} now, and they differ")
    return sentences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--freeze", default="", metavar="VERSION", help="write the lists of this checkout as this version")
    arguments = parser.parse_args()
    if arguments.freeze:
        current_lists = lists()
        FOLDER.mkdir(exist_ok=True)
        text = json.dumps(
            {"version": arguments.freeze, "required": current_lists, "emulated": EMULATED_ARCHITECTURES}, indent=1, sort_keys=True
        )
        (FOLDER / f"{arguments.freeze}.json").write_text(text + "\n")
        print(f"frozen as {arguments.freeze}: {len(current_lists)} contracts")
        return 0
    newest = versions()[-1]
    said = differences(newest, lists(frozen_kernels()))
    print("\n".join(said) or f"as required list {newest} froze them")
    if new := [stem for stem in kernels_with_a_contract() if stem not in frozen_kernels()]:
        print(f"in no frozen list: {', '.join(new)}")
    return int(bool(said))


if __name__ == "__main__":
    raise SystemExit(main())
