"""Contract under test: an entry on disk is whole or none, whoever writes, dies or changes it; the store has a bound and
a switch."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from bitverdict.harness.emulator import compiler_digest, disk_store

KEY = disk_store.key_of("a program")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the test's own."""
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", str(tmp_path / "store"))
    return tmp_path / "store"


def test_what_was_kept_is_found(store: Path) -> None:
    assert disk_store.read_entry(KEY) is None
    disk_store.keep(KEY, b"value")
    assert disk_store.read_entry(KEY) == b"value"
    disk_store.keep(KEY, b"another")
    assert disk_store.read_entry(KEY) == b"another"
    assert sorted(path.name for path in store.iterdir()) == sorted([".gitignore", KEY])


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b[:-1],
        lambda b: b[:40],
        lambda b: b[:10],
        lambda b: b"",
        lambda b: b + b"x",
        lambda b: b[:-1] + bytes([b[-1] ^ 1]),
    ],
    ids=["one byte short", "cut", "cut in its digest", "empty", "one byte more", "one bit"],
)
def test_an_entry_that_is_not_what_was_written_is_none(store: Path, change) -> None:
    disk_store.keep(KEY, b"a value of some length" * 4)
    (store / KEY).write_bytes(change((store / KEY).read_bytes()))
    assert disk_store.read_entry(KEY) is None


def test_parts_of_a_key_do_not_run_together() -> None:
    assert len({disk_store.key_of(*parts) for parts in (("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("a", "b", "c"))}) == 5


def _write(size: int) -> None:
    while True:
        disk_store.keep(KEY, bytes([size % 251]) * size)


def test_writers_at_once_and_their_kills_leave_whole_entries(store: Path) -> None:
    """Two sizes, so that a mixture of two entries would be neither."""
    context = multiprocessing.get_context("fork")
    sizes = (200_000, 300_001)
    writers = [context.Process(target=_write, args=(size,)) for size in sizes]
    for writer in writers:
        writer.start()
    try:
        whole = {bytes([size % 251]) * size for size in sizes}
        deadline = time.monotonic() + 300
        while not (store / KEY).exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        seen = [disk_store.read_entry(KEY) for _ in range(100)]
    finally:
        for writer in writers:
            os.kill(writer.pid or 0, signal.SIGKILL)
            writer.join()
    assert set(seen) <= whole and disk_store.read_entry(KEY) in whole
    parts = [path for path in store.iterdir() if path.suffix == ".part"]
    for path in parts:
        os.utime(path, (1, 1))
    disk_store.bound(store)
    assert not [path for path in store.iterdir() if path.suffix == ".part"]


def test_what_was_not_used_for_longest_is_removed(store: Path) -> None:
    keys = [disk_store.key_of(str(n)) for n in range(10)]
    for n, key in enumerate(keys):
        disk_store.keep(key, bytes(1000))
        os.utime(store / key, (n + 1, n + 1))
    assert disk_store.read_entry(keys[0]) is not None  # used again
    (store / "new.part").write_bytes(b"being written")
    disk_store.bound(store, 8000)
    left = [n for n, key in enumerate(keys) if (store / key).exists()]
    assert left == [0, 6, 7, 8, 9] and (store / "new.part").exists()
    disk_store.bound(store, 8000)
    assert [n for n, key in enumerate(keys) if (store / key).exists()] == left


def test_a_process_looks_at_the_bound_by_itself(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_store, "MOST_BYTES", 20_000)
    for n in range(200):
        disk_store.keep(disk_store.key_of(str(n)), bytes(1000))
    assert sum(path.stat().st_size for path in store.iterdir()) < 20_000 + 65 * 1100


def test_the_switch_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path))
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", "off")
    disk_store.keep(KEY, b"value")
    assert disk_store.read_entry(KEY) is None and not list(tmp_path.iterdir())
    monkeypatch.delenv("BITVERDICT_TRANSLATIONS")
    disk_store.keep(KEY, b"value")
    assert (tmp_path / "translations" / KEY).exists() and disk_store.read_entry(KEY) == b"value"


def test_a_place_that_cannot_be_written_costs_no_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", str(tmp_path / "file" / "store"))
    disk_store.keep(KEY, b"value")
    assert disk_store.read_entry(KEY) is None


def test_the_compilers_digest_is_its_own_and_taken_once(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    monkeypatch.setattr(compiler_digest, "triton_key", lambda: (taken.append("again"), f"3.9.0-{len(taken)}")[1])
    ask = compiler_digest.digest.__wrapped__
    assert [ask(), ask()] == ["3.9.0-1", "3.9.0-1"] and len(taken) == 1
    monkeypatch.setattr(compiler_digest, "signature", lambda: "a file was changed")
    assert [ask(), ask()] == ["3.9.0-2", "3.9.0-2"]


def test_the_signature_is_of_every_file_that_triton_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()
    opened = open
    monkeypatch.setattr("builtins.open", lambda file, *given, **named: (read.add(str(file)), opened(file, *given, **named))[1])
    taken = compiler_digest.triton_key.__wrapped__()
    monkeypatch.undo()
    named = {line.rsplit(" ", 4)[0] for line in compiler_digest.signature().splitlines()}
    sources = {path for path in read if path.endswith((".py", ".so")) and "triton" in path}
    assert len(sources) > 20 and sources <= named and taken == compiler_digest.digest()


def test_a_changed_file_of_the_compiler_changes_its_signature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("compiler/a.py", "backends/nvidia/b.py", "language/c.py", "_C/libtriton.so", "__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(compiler_digest.triton, "__file__", str(tmp_path / "__init__.py"))
    told = {compiler_digest.signature()}
    for name in ("compiler/a.py", "backends/nvidia/b.py", "language/c.py", "_C/libtriton.so"):
        (tmp_path / name).write_text("22")
        told.add(compiler_digest.signature())
    assert len(told) == 5
