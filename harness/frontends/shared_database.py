"""``pytest --bv-database redis://HOST:PORT/N``: Hypothesis's database of failing cases on a Redis server."""

from __future__ import annotations

import importlib
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bitverdict.harness.model.extras import pip_line
from bitverdict.harness.model.usage import UsageError

if TYPE_CHECKING:
    from hypothesis.database import ExampleDatabase

KEEP_TIME = timedelta(days=30)  # since a case failed last
ANSWERED_WITHIN = 5.0  # seconds
SCHEMES = ("redis", "rediss", "unix")
PREFIX = b"bitverdict:"


def shared(url: str) -> ExampleDatabase:
    """The database at `url`, by Hypothesis's Redis backend. UsageError: no URL of Redis, no client, or no server that answers.

    The server's password is that of `url`, else that of the environment: a command line is seen by every user of its machine.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not (parts.netloc or parts.path):
        raise UsageError(
            f"--bv-database {url!r}: must be the URL of a Redis server, redis://HOST:PORT/N or unix://PATH; "
            "without it cases are kept in .hypothesis/examples"
        )
    try:
        redis: Any = importlib.import_module("redis")
        backend: Any = importlib.import_module("hypothesis.extra.redis")
    except ImportError as error:
        raise UsageError(
            f"--bv-database {_public_url(url)}: the client cannot be imported ({error}); {pip_line('redis')}"
        ) from error
    try:
        waits = {"socket_connect_timeout": ANSWERED_WITHIN, "socket_timeout": ANSWERED_WITHIN}
        server = redis.Redis.from_url(url, password=os.environ.get("BITVERDICT_DATABASE_PASSWORD"), **waits)
        server.ping()
    except (redis.exceptions.RedisError, ValueError) as error:
        raise UsageError(
            f"--bv-database {_public_url(url)}: the server must answer ({error}); start redis-server there, or leave the option out"
        ) from error
    return backend.RedisExampleDatabase(server, expire_after=KEEP_TIME, key_prefix=PREFIX)


def _public_url(url: str) -> str:
    """`url` without a password."""
    before, at, after = url.rpartition("@")
    return f"{before.partition('://')[0]}://***@{after}" if at else url
