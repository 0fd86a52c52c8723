"""Contract under test: the code that docs/shrinking.md gives for a shared database runs with the Hypothesis installed, and a case
that one machine saved is visited first by another that only reads."""

from __future__ import annotations

import contextlib
import re
import sys
import types
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from bitverdict.harness.model.case import Case
from bitverdict.harness.session.case_source import CaseSource, walk
from bitverdict.harness.session.shrink import KernelFailed
from tests.support.vector_add import ADDRESS, HOST

PAGE = Path(__file__).resolve().parents[2] / "docs" / "shrinking.md"


class Redis:
    """As much of a Redis client as Hypothesis's backend asks for; one server a process."""

    server: defaultdict[bytes, set[bytes]] = defaultdict(set)

    @classmethod
    def from_url(cls, url: str) -> Redis:
        return cls()

    def pipeline(self) -> Redis:
        self.answers: list = []
        return self

    def expire(self, key: bytes, after: object) -> None:
        self.answers.append(True)

    def smembers(self, key: bytes) -> None:
        self.answers.append(set(self.server[key]))

    def sadd(self, key: bytes, value: bytes) -> None:
        self.answers.append(int(value not in self.server[key]))
        self.server[key].add(value)

    def srem(self, key: bytes, value: bytes) -> None:
        self.answers.append(int(value in self.server[key]))
        self.server[key].discard(value)

    def execute(self) -> list:
        return self.answers

    def publish(self, channel: str, message: str) -> None:
        pass


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The profiles of the page's block, its Redis a fake."""
    (block,) = (text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "redis" in text)
    fake = types.ModuleType("redis")
    fake.Redis = Redis  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "redis", fake)
    monkeypatch.delitem(sys.modules, "hypothesis.extra.redis", raising=False)
    monkeypatch.setenv("REDIS_URL", "redis://nowhere")
    monkeypatch.chdir(tmp_path)
    Redis.server.clear()
    exec(compile(block, str(PAGE), "exec"), {})
    yield
    sys.modules.pop("hypothesis.extra.redis", None)


def visited(profile: str, phase: str, wrong: str) -> list[Case]:
    seen: list[Case] = []

    def visit(case: Case) -> None:
        seen.append(case)
        if not wrong or case.key == wrong:
            raise KernelFailed

    with contextlib.suppress(KernelFailed):
        walk(CaseSource(ADDRESS, HOST), 30, visit, phases=(phase,), database=hypothesis.settings.get_profile(profile).database)
    return seen


def test_what_one_machine_saved_another_reads_and_does_not_delete(profiles: None) -> None:
    wrong = CaseSource(ADDRESS, HOST).drawn(30)[10]
    visited("shared", "generate", wrong.key)
    assert any(key.startswith(b"bitverdict:") for key in Redis.server)
    before = {key: set(values) for key, values in Redis.server.items() if values}
    for _ in range(2):
        assert visited("shared-reader", "reuse", wrong.key)[0] == wrong
    assert visited("shared-reader", "reuse", "mended")[0] == wrong
    assert {key: values for key, values in Redis.server.items() if values} == before, "a reader deletes nothing"
    visited("shared", "reuse", "mended")
    assert visited("shared", "reuse", "mended") == [], "the writer drops what is right again"
