"""Contract under test: `--bv-database` keeps drawn cases that failed on a Redis server, and says what is wrong with a URL."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitverdict.harness.frontends.pytest_nodes import database
from bitverdict.harness.frontends.pytest_plugin import check_database
from bitverdict.harness.frontends.shared_database import shared
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.session.case_source import CaseSource, walk
from bitverdict.harness.session.shrink import KernelFailed
from tests.support.vector_add import ADDRESS, HOST

CLIENT = "the package redis is not installed (pip install '.[redis]')"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The URL of a Redis server on a socket; Debian's package redis-server has it."""
    pytest.importorskip("redis", reason=CLIENT)
    if (program := shutil.which("redis-server")) is None:
        pytest.skip("redis-server is not installed (Debian's package redis-server)")
    socket = tmp_path / "redis"
    words = [program, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + 300
        while not socket.exists() and time.monotonic() < end:
            time.sleep(0.01)
        yield f"unix://{socket}"
        process.terminate()


def visited(url: str, phase: str, wrong: str) -> list[Case]:
    """The cases that a machine of its own visits, the one with the key `wrong` failing."""
    seen: list[Case] = []

    def visit(case: Case) -> None:
        seen.append(case)
        if case.key == wrong:
            raise KernelFailed

    with contextlib.suppress(KernelFailed):
        walk(CaseSource(ADDRESS, HOST), 30, visit, phases=(phase,), database=shared(url))
    return seen


def test_what_one_machine_found_another_judges_first(server: str) -> None:
    wrong = CaseSource(ADDRESS, HOST).drawn(30)[10]
    visited(server, "generate", wrong.key)
    assert visited(server, "reuse", wrong.key)[0] == wrong
    visited(server, "reuse", "mended")
    assert visited(server, "reuse", "mended") == [], "what is right again is dropped for all"


class Asked:
    """As much of pytest's configuration as is read here."""

    def __init__(self, **options: str) -> None:
        self.options = options

    def getoption(self, name: str, default: object = None) -> object:
        return self.options.get(name.removeprefix("--").replace("-", "_"), default)


def test_a_node_keeps_its_failures_where_the_option_says(server: str) -> None:
    kept = database(Asked(bv_database=server))  # type: ignore[arg-type]
    kept.save(b"key", b"choices")
    assert set(shared(server).fetch(b"key")) == {b"choices"}
    assert database(Asked(bv_database=server, hypothesis_seed="1")) is None, "these draws and no others"  # type: ignore[arg-type]


def test_a_database_that_cannot_be_had_ends_pytest_before_any_test() -> None:
    with pytest.raises(pytest.UsageError, match=r"--bv-database 'http://localhost'"):
        check_database(Asked(bv_database="http://localhost"))  # type: ignore[arg-type]
    check_database(Asked(bv_database=""))  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["redis:", "localhost:6379", "http://localhost", ""])
def test_a_url_of_no_redis_server_is_refused_with_the_rule(url: str) -> None:
    with pytest.raises(UsageError, match=r"must be the URL of a Redis server, redis://HOST:PORT/N"):
        shared(url)


@pytest.mark.parametrize(
    ("url", "sent"), [("redis://HOST:1/0", "of the environment"), ("redis://:of-the-url@HOST:1/0", "of-the-url")]
)
def test_the_password_is_the_urls_or_that_of_the_environment(url: str, sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    redis = pytest.importorskip("redis", reason=CLIENT)
    monkeypatch.setenv("BITVERDICT_DATABASE_PASSWORD", "of the environment")
    monkeypatch.setattr(redis.Redis, "ping", lambda server: None)
    servers: list = []
    monkeypatch.setattr("hypothesis.extra.redis.RedisExampleDatabase", lambda server, **options: servers.append(server))
    shared(url)
    assert servers[0].connection_pool.connection_kwargs["password"] == sent


def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    pytest.importorskip("redis", reason=CLIENT)
    with pytest.raises(UsageError, match=r"redis://\*\*\*@127\.0\.0\.1:1: the server must answer.*start redis-server") as raised:
        shared("redis://:secret@127.0.0.1:1")
    assert "secret" not in str(raised.value)
