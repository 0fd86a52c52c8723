"""JSON lines and JUnit of a run, written while it goes, so that a kill loses nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TextIO
from xml.etree import ElementTree

from bitverdict.harness.judge.machine_faults import writing
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.session.observer import Observer
from bitverdict.harness.session.reproducers import versions, write_atomically
from bitverdict.harness.session.tally import Tally
from bitverdict.harness.workers.journal import verdict_record

FREE = "free space there, or name another file"
_ELEMENTS = {Decision.PASS: "", Decision.FAIL: "failure", Decision.ERROR: "error"}
"""JUnit's element for a case that was decided; any other is skipped."""


_streams: list[TextIO] = []


@contextmanager
def events_on_standard_output() -> Iterator[None]:
    """Standard output gets the events of `tell` alone; what is printed goes to standard error."""
    _streams.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _streams.pop()


def event_line(event: str, **fields: object) -> str:
    """An event as a line of JSON (docs/events.schema.json)."""
    return json.dumps({"event": event, **fields}, default=str) + "\n"


def tell(lines: str) -> str:
    """The `lines` of events, which standard output gets too if it is asked for."""
    for stream in _streams[-1:]:
        stream.write(lines)
        stream.flush()
    return lines


class JUnit:
    """JUnit XML: a suite for each kernel on each target, a test case for each case."""

    def __init__(self) -> None:
        self._root = ElementTree.Element("testsuites", name="bitverdict")
        self._suites: dict[str, ElementTree.Element] = {}

    def add(self, name: str, target: str, case: str, verdict: Verdict) -> None:
        classname = f"{name}-{target}"
        if classname not in self._suites:
            self._suites[classname] = ElementTree.SubElement(self._root, "testsuite", name=classname)
        seconds = f"{verdict.seconds.get('total', 0.0):.3f}"
        entry = ElementTree.SubElement(self._suites[classname], "testcase", classname=classname, name=case, time=seconds)
        if kind := _ELEMENTS.get(verdict.decision, "skipped"):
            message = printable(f"{verdict.outcome}: {verdict.message}")
            ElementTree.SubElement(entry, kind, message=message, type=str(verdict.outcome))

    def text(self) -> str:
        for suite in self._suites.values():
            suite.set("tests", str(len(suite)))
            for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
                suite.set(attribute, str(sum(entry.find(kind) is not None for entry in suite)))
        return ElementTree.tostring(self._root, encoding="utf-8", xml_declaration=True).decode()


def printable(text: str) -> str:
    """`text` without what XML cannot hold."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")


class Records(Observer):
    """JSON lines and JUnit, written while the run goes, so that a kill loses nothing."""

    WRITE_INTERVAL = 2.0  # seconds between two writes of the JUnit file, which is always whole

    def __init__(self, json_path: Path | None, junit_path: Path | None) -> None:
        self.json_path, self.json = json_path, None
        if json_path:
            with writing("--json", json_path, FREE):
                self.json = json_path.open("w")
        self.junit_path, self.junit = junit_path, JUnit()
        self._written = 0.0

    def begin(self, arguments: dict) -> None:
        self._line("run", time=time.time(), versions=versions(), arguments=arguments)

    def on_count(self, case: Case, name: str, target: str, classes: dict[str, str | int], verdict: Verdict) -> None:
        self._line("verdict", contract=name, target=target, case=case.to_json(), verdict=verdict_record(verdict))
        self.junit.add(name, target, describe(case), verdict)
        if time.monotonic() - self._written > self.WRITE_INTERVAL:
            self._write_junit()

    def on_reproducer(self, path: Path, address: str, target: str) -> None:
        self._line("reproducer", contract=address, target=target, path=str(path))

    def end(self, tally: Tally) -> None:
        self._line("summary", time=time.time(), **tally.to_json())
        self._write_junit()
        if self.json:
            self.json.close()

    def _line(self, event: str, **fields: object) -> None:
        line = tell(event_line(event, **fields))
        if self.json and self.json_path:
            with writing("--json", self.json_path, FREE):
                self.json.write(line)
                self.json.flush()

    def _write_junit(self) -> None:
        if not self.junit_path:
            return
        with writing("--junit", self.junit_path, FREE):
            write_atomically(self.junit_path, self.junit.text())
        self._written = time.monotonic()
