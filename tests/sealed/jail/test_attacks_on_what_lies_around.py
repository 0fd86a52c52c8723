"""Contract under test: each protection alone stops the attacks that it is there for, and without any each attack succeeds."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bitverdict.harness.model.paths import ROOT
from bitverdict.harness.sealed.jail import confine
from bitverdict.harness.sealed.jail.jail import Jail, start_process
from bitverdict.harness.sealed.jail.protections import ALWAYS, BUBBLEWRAP, LANDLOCK, SECCOMP, SIGNALS, Protections, protections
from tests.support.confined_attacks import ATTACKS

ALONE = (BUBBLEWRAP, SECCOMP, LANDLOCK)
STOPPED_BY = {
    "reads_the_state_directory": (BUBBLEWRAP, LANDLOCK),
    "lists_the_state_directory": (BUBBLEWRAP, LANDLOCK),
    "writes_a_file_elsewhere": (BUBBLEWRAP, LANDLOCK),
    "writes_a_cache_beside_its_file": (BUBBLEWRAP, LANDLOCK),
    "empties_a_file_that_it_may_read": (BUBBLEWRAP, SECCOMP, LANDLOCK),
    "changes_the_mode_of_a_file": (BUBBLEWRAP, SECCOMP),
    "connects_to_a_port": (BUBBLEWRAP, SECCOMP, LANDLOCK),
    "connects_to_a_socket_by_its_path": (BUBBLEWRAP, SECCOMP),
    "connects_to_an_abstract_socket": (BUBBLEWRAP, SECCOMP, SIGNALS),
    "sends_a_datagram_to_a_socket_by_its_path": (BUBBLEWRAP, SECCOMP),
    "signals_another_process": (BUBBLEWRAP, SECCOMP, SIGNALS),
    "has_a_file_signal_another_process": (BUBBLEWRAP, SECCOMP, SIGNALS),
    "traces_another_process": (BUBBLEWRAP, SECCOMP, LANDLOCK),
    "reads_the_memory_of_another_process": (BUBBLEWRAP, SECCOMP, LANDLOCK),
    "opens_the_memory_of_another_process": (BUBBLEWRAP, LANDLOCK),
    "reads_the_variables_of_another_process": (BUBBLEWRAP, LANDLOCK),
    "limits_another_process": (BUBBLEWRAP, SECCOMP),
    "makes_a_process": (SECCOMP,),
    "makes_a_user_namespace": (SECCOMP,),
}
"""An attack -> the protections each of which stops it where it is the only one. Landlock's scopes come with Landlock."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """What came of each attack: without a protection (""), with one alone, and with all that the machine has ("all")."""
    home = tmp_path_factory.mktemp("attacked")
    (home / "state").mkdir()
    (home / "folder").mkdir()
    (home / "signalled").touch()
    secret, read_only = home / "state" / "journal", home / "folder" / "candidate.py"
    secret.write_text("data seeds"), read_only.write_text("# a file that may be read\n")
    port, path, abstract, datagrams = listening(home)
    folders = [str(ROOT / "tests"), str(home / "folder")]
    jails = {name: Jail(folders, machine_protections=having(*([name] if name else []))) for name in ("", *ALONE) if has(name)}
    jails["all"] = Jail(folders)
    ours, theirs = socket.socketpair()
    functions = "tests.support.confined_functions"
    victim = start_process(
        jails[""].address, f"{functions}:be_attacked", [theirs], {"signalled": str(home / "signalled")}, log=home / "log"
    )
    theirs.close()
    given = {
        **line(ours, (home / "log").read_text),
        "secret": str(secret),
        "folder": str(read_only.parent),
        "read_only": str(read_only),
        "port": port.getsockname()[1],
        "socket": path.getsockname(),
        "abstract": abstract.getsockname().decode(),
        "datagrams": datagrams.getsockname(),
        "signalled": str(home / "signalled"),
    }
    given["victim"] = given["pid"]
    yield {name: attacked(jail, given, home / f"log-{name}") for name, jail in jails.items()}
    victim.end()
    for jail in jails.values():
        jail.end()
    for each in (ours, port, path, abstract, datagrams):
        each.close()


def listening(home: Path) -> tuple[socket.socket, socket.socket, socket.socket, socket.socket]:
    port = socket.create_server(("127.0.0.1", 0), backlog=32)
    path, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    path.bind(str(home / "socket"))
    abstract.bind(f"\0{home}")
    datagrams.bind(str(home / "datagrams"))
    path.listen(32)
    abstract.listen(32)
    return port, path, abstract, datagrams


def having(*names: str) -> Protections:
    return Protections((*names, *ALWAYS), {})


def has(name: str) -> bool:
    return not name or protections().has(name)


def attacked(jail: Jail, given: dict, log: Path) -> dict[str, str]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = start_process(jail.address, "tests.support.confined_attacks:run_all", [theirs], {"given": given}, log=log)
        theirs.close()
        found = line(ours, log.read_text)
        process.end()
    return found


def line(channel: socket.socket, log: Any) -> dict:
    channel.settimeout(120)  # a busy machine starts them late
    with channel.makefile() as lines:
        text = lines.readline()
    assert text, log()
    return json.loads(text)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_succeeds_unprotected_and_is_stopped_by(found: dict[str, dict[str, str]], name: str) -> None:
    assert found[""][name] == "", "the attack itself is wrong: nothing was in its way"
    assert found["all"][name]
    for protection in STOPPED_BY[name]:
        alone = LANDLOCK if protection == SIGNALS else protection
        if alone in found and has(protection):
            assert found[alone][name], protection


@pytest.mark.parametrize("name", ALONE)
def test_this_machine_has(name: str) -> None:
    """Where it lacks one, the attacks above were not tried against it."""
    if not has(name):
        pytest.skip(f"{name} is lacking here: {protections().remedies[name]}")


def test_no_call_that_reaches_large_parts_of_the_kernel_is_allowed() -> None:
    if confine.pyseccomp is None:
        pytest.skip("pyseccomp or libseccomp2 is not installed")
    from bitverdict.harness.sealed.jail import syscalls

    named = {*syscalls.ALWAYS, *syscalls.OF_A_PROCESS, *syscalls.WHERE_IT_HAS_DEVICES, *(row[0] for row in syscalls.WHERE)}
    refused = """
    ptrace process_vm_readv process_vm_writev mount umount2 pivot_root chroot unshare setns bpf perf_event_open
    io_uring_setup io_uring_enter io_uring_register userfaultfd keyctl add_key request_key kexec_load init_module socket
    connect bind listen accept accept4 pidfd_open pidfd_getfd pidfd_send_signal process_madvise move_pages migrate_pages
    kcmp shmget msgget semget setsid setpgid chmod fchmod chown openat2 truncate clone3 memfd_secret open_by_handle_at
    quotactl reboot swapon tkill
    """.split()
    assert not named & set(refused)
    assert {row[0] for row in syscalls.WHERE_A_DRIVER_LISTENS} == {"socket", "connect", "bind", "listen"}
