"""JSON lines and JUnit of a run, written while it goes, so that a kill loses nothing."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from xml.etree import ElementTree

from bitverdict.harness.judge.machine_faults import writing
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.session.observer import Observer
from bitverdict.harness.session.reproducers import versions, write_atomically
from bitverdict.harness.session.tally import Tally

FREE = "free space there, or name another file"
_ELEMENTS = {Decision.FAIL: "failure", Decision.ERROR: "error", Decision.INCONCLUSIVE: "skipped", Decision.NOT_RUN: "skipped"}
_ELEMENTS |= {Decision.CANCELLED: "skipped"}
"""JUnit's element for a case that did not pass."""


class Records(Observer):
    """JSON lines and JUnit, written while the run goes, so that a kill loses nothing."""

    WRITE_INTERVAL = 2.0  # seconds between two writes of the JUnit file, which is always whole

    def __init__(self, json_path: Path | None, junit_path: Path | None) -> None:
        self.json_path, self.json = json_path, None
        if json_path:
            with writing("--json", json_path, FREE):
                self.json = json_path.open("w")
        self.junit_path, self.junit = junit_path, ElementTree.Element("testsuites", name="bitverdict")
        self._suites: dict[str, ElementTree.Element] = {}
        self._written = 0.0

    def begin(self, arguments: dict) -> None:
        self._line({"event": "run", "time": time.time(), "versions": versions(), "arguments": arguments})

    def on_count(self, case: Case, name: str, target: str, classes: dict[str, str | int], verdict: Verdict) -> None:
        record = verdict.to_json()
        if verdict.decision is Decision.PASS:
            record = {name: value for name, value in record.items() if name not in ("details",) and value not in ([], {}, None, "")}
        self._line({"event": "verdict", "contract": name, "target": target, "case": case.to_json(), "verdict": record})
        suite = self._suites.get(f"{name}-{target}")
        if suite is None:
            suite = self._suites[f"{name}-{target}"] = ElementTree.SubElement(self.junit, "testsuite", name=f"{name}-{target}")
        seconds = f"{verdict.seconds.get('total', 0.0):.3f}"
        entry = ElementTree.SubElement(suite, "testcase", classname=f"{name}-{target}", name=describe(case), time=seconds)
        kind = _ELEMENTS.get(verdict.decision)
        if kind:
            ElementTree.SubElement(
                entry, kind, message=_printable(f"{verdict.outcome}: {verdict.message}"), type=str(verdict.outcome)
            )
        if time.monotonic() - self._written > self.WRITE_INTERVAL:
            self._write_junit()

    def on_reproducer(self, path: Path, address: str, target: str) -> None:
        self._line({"event": "reproducer", "contract": address, "target": target, "path": str(path)})

    def end(self, tally: Tally) -> None:
        self._line({"event": "summary", "time": time.time(), **tally.to_json()})
        self._write_junit()
        if self.json:
            self.json.close()

    def _line(self, record: dict) -> None:
        if self.json and self.json_path:
            with writing("--json", self.json_path, FREE):
                self.json.write(json.dumps(record, default=str) + "\n")
                self.json.flush()

    def _write_junit(self) -> None:
        if not self.junit_path:
            return
        for suite in self._suites.values():
            suite.set("tests", str(len(suite)))
            suite.set("failures", str(sum(entry.find("failure") is not None for entry in suite)))
            suite.set("errors", str(sum(entry.find("error") is not None for entry in suite)))
            suite.set("skipped", str(sum(entry.find("skipped") is not None for entry in suite)))
        text = io.BytesIO()
        ElementTree.ElementTree(self.junit).write(text, encoding="utf-8", xml_declaration=True)
        with writing("--junit", self.junit_path, FREE):
            write_atomically(self.junit_path, text.getvalue().decode())
        self._written = time.monotonic()


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable() or c in "\n\t")
