"""How far a run went: the largest sizes it judged, the configurations it judged, and what a launcher was not asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.verdict import Decision, Verdict

SIZES = ("m", "n", "k")
JUDGED_DECISIONS = (Decision.PASS, Decision.FAIL)


@dataclass
class Tuner:
    """The configurations of one autotuner on one target: how many there are, which were judged, which did not fit."""

    configuration_count: int = 0
    judged: set[int] = field(default_factory=set)
    unfit: set[int] = field(default_factory=set)


@dataclass
class Scope:
    """Of a run, by the name that the table has for a kernel or launcher."""

    largest: dict[str, dict[str, int]] = field(default_factory=dict)  # -> largest m, n, k that were judged, each by itself
    tuners: dict[tuple[str, str], Tuner] = field(default_factory=dict)  # (kernel, target) -> its configurations
    limits: dict[str, dict[str, None]] = field(default_factory=dict)  # -> what it was not asked, a sentence each

    def narrow(self, contract: str, said: list[str]) -> None:
        self.limits.setdefault(contract, {}).update(dict.fromkeys(said))

    def count(self, case: Case, contract: str, target: str, verdict: Verdict) -> None:
        for told in verdict.recorded.get("tuned", ()):
            tuner = self.tuners.setdefault((told["kernel"], target), Tuner())
            tuner.configuration_count = max(tuner.configuration_count, told["of"])
            tuner.unfit.update(told["unfit"])
            tuner.judged |= {told["took"]} if verdict.decision in JUDGED_DECISIONS else set()
        if verdict.decision in JUDGED_DECISIONS:
            sizes = self.largest.setdefault(contract, {})
            for name in SIZES:
                if isinstance(size := getattr(case.problem, name, None), int):
                    sizes[name] = max(sizes.get(name, 0), size)

    def lines(self) -> list[str]:
        """What a person reads below the table."""
        sizes = [f"{name} {' '.join(f'{axis}={n}' for axis, n in most.items())}" for name, most in self.largest.items() if most]
        found = [f"the largest sizes judged: {'; '.join(sizes)}"] if sizes else []
        for (kernel, target), tuner in self.tuners.items():
            unfit = f"; {len(tuner.unfit)} do not fit" if tuner.unfit else ""
            found.append(f"{kernel} on {target}: {len(tuner.judged)} of {tuner.configuration_count} configurations judged{unfit}")
        return found + self.limit_lines()

    def limit_lines(self) -> list[str]:
        """What was not asked, by contract."""
        return [f"{contract}: {sentence}" for contract, said in self.limits.items() for sentence in said]

    def to_json(self) -> dict[str, Any]:
        return {
            "largest": self.largest,
            "configurations": [
                {
                    "kernel": kernel,
                    "target": target,
                    "of": tuner.configuration_count,
                    "judged": sorted(tuner.judged),
                    "do_not_fit": sorted(tuner.unfit),
                }
                for (kernel, target), tuner in self.tuners.items()
            ],
            "not_asked": {contract: list(said) for contract, said in self.limits.items()},
        }
