"""The conformance pack of a kernel: a zip of JSON and sources, with the digest of each member in its manifest.

The manifest tells a damaged pack from a whole one, and nothing of who made it: a signature of it does. What it says
is computed again by `bitverdict.harness.report.verify`.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError

VERSION = 1
NAMESPACE = "bitverdict"  # of signatures by ssh-keygen -Y
MANIFEST, SIGNATURE, ABOUT, CASES = "manifest.json", "manifest.json.sig", "about.json", "cases.json"
MOST_BYTES = 1 << 28  # of a pack, unpacked


@dataclass
class Pack:
    """What a pack says. `about` has version, required list, contract, launcher, targets, versions, hardware, clauses and known
    failures; `cases` a record each; `sources` {address of a file: text}."""

    about: dict[str, Any]
    cases: list[dict[str, Any]]
    sources: dict[str, str] = field(default_factory=dict)
    manifest: bytes = b""
    signature: bytes = b""


def words_digest(words: np.ndarray) -> str:
    """Of an output's words in memory order; the digest that a launch records of what it got, too."""
    return hashlib.blake2b(np.ascontiguousarray(words).tobytes(), digest_size=8).hexdigest()


def expected_digests(expected: Sequence[ExpectedOutput]) -> dict[str, dict[str, Any]]:
    """By output what is expected: the digest of its words, or of value and bound, and its `size` in elements. `unique`: no other
    words are as right."""
    digests: dict[str, dict[str, Any]] = {}
    for output in expected:
        held = hashlib.sha256(f"{output.format}{tuple(output.shape)}".encode())
        for part in (output.words, output.value, output.bound, output.low, output.high):
            held.update(b"-" if part is None else np.ascontiguousarray(part).tobytes())
        unique = output.words is not None and output.others is None and output.bounded is None and output.inconclusive is None
        unique = unique and not output.any_nan
        digests[output.name] = {"digest": held.hexdigest(), "size": math.prod(output.shape), "unique": unique}
        if unique and output.words is not None:
            digests[output.name]["words"] = words_digest(output.words)
    return digests


def expected_of(case: Case, target: Target, contract: Contract, recorded: Mapping) -> dict[str, dict[str, Any]]:
    """`expected_digests` of one case, from `reference`; {} where no output is expected."""
    if not contract.expected_outcome(case, target).result:
        return {}
    operands = {operand.name: operand for operand in contract.operands(case)}
    return expected_digests(contract.expected(case, target, operands, recorded))


def clause_of(case: Case, target: Target, contract: Contract) -> str:
    """What a case is asked for, in the words of a report: a refusal and its reason, or a result of a type."""
    due = contract.expected_outcome(case, target)
    if not due.result:
        return f"{due.outcome}: {due.message or due.reason}"
    kind = contract.coverage(case, target).get("dtype", "")
    return f"result{f' in {kind}' if kind else ''}" + (", called again" if case.calls > 1 else "")


def clauses(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The report by clause and target: how many cases are asked, and how they ended."""
    rows_by_clause: dict[tuple[str, str], dict[str, Any]] = {}
    for record in records:
        key = record["target"], record["clause"]
        row = rows_by_clause.setdefault(key, {"target": key[0], "clause": key[1], "cases": 0, "decisions": {}})
        row["cases"] += 1
        row["decisions"][record["decision"]] = row["decisions"].get(record["decision"], 0) + 1
    return [rows_by_clause[key] for key in sorted(rows_by_clause)]


def write(path: Path, pack: Pack, *, key: Path | None = None) -> None:
    """Write `pack` to `path`, signed by the SSH key in the file `key` where there is one."""
    text = lambda value: json.dumps(value, indent=1, sort_keys=True, default=str).encode()
    members = {ABOUT: text(pack.about), CASES: text(pack.cases)}
    names = {name: f"sources/{number:02d}-{Path(name).name}" for number, name in enumerate(sorted(pack.sources))}
    members |= {names[name]: source.encode() for name, source in pack.sources.items()}
    listed = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    members[MANIFEST] = text({"version": VERSION, "members": listed, "sources": names})
    if key is not None:
        members[SIGNATURE] = _sign_manifest(members[MANIFEST], key)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in sorted(members.items()):
            packed.writestr(zipfile.ZipInfo(name), data)


def read(path: Path) -> Pack:
    """The pack at `path`. UsageError for what is none, is damaged, or has members that its manifest does not list."""
    try:
        with zipfile.ZipFile(path) as packed:
            if sum(each.file_size for each in packed.infolist()) > MOST_BYTES:
                raise UsageError(f"{path}: more than {MOST_BYTES} bytes unpacked; a pack has far fewer")
            names = packed.namelist()
            members = {name: packed.read(name) for name in names}
        manifest = json.loads(members[MANIFEST])
        if manifest["version"] != VERSION:
            raise UsageError(f"{path}: a pack of version {manifest['version']}; this bitverdict reads version {VERSION}")
        listed = {name: hashlib.sha256(data).hexdigest() for name, data in members.items() if name not in (MANIFEST, SIGNATURE)}
        if listed != manifest["members"] or len(names) != len(members):
            raise UsageError(f"{path}: its members are not those of its manifest; it was damaged or changed")
        sources = {name: members[member].decode() for name, member in manifest["sources"].items()}
        about, cases = json.loads(members[ABOUT]), json.loads(members[CASES])
    except (
        OSError,
        zipfile.BadZipFile,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        NotImplementedError,
    ) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path}: is no pack ({type(error).__name__}: {error}); make one by bitverdict certify") from None
    return Pack(about, cases, sources, members[MANIFEST], members.get(SIGNATURE, b""))


def _sign_manifest(manifest: bytes, key: Path) -> bytes:
    """The signature of `manifest` by ssh-keygen, which is there wherever SSH is and needs no network."""
    done = _keygen("-Y", "sign", "-f", str(key), "-n", NAMESPACE, given=manifest)
    if done.returncode:
        raise UsageError(f"--sign {key}: ssh-keygen says: {done.stderr.decode().strip()}")
    return done.stdout


def signature_holds(pack: Pack, signers: Path, signer: str) -> str:
    """Why the signature of `pack` is not that of `signer` by the file of allowed `signers`; empty where it is."""
    if not pack.signature:
        return "the pack has no signature"
    with tempfile.NamedTemporaryFile() as held:
        held.write(pack.signature)
        held.flush()
        options = ("-f", str(signers), "-I", signer, "-n", NAMESPACE, "-s", held.name)
        done = _keygen("-Y", "verify", *options, given=pack.manifest)
    return "" if done.returncode == 0 else f"the signature is not that of {signer}: {(done.stderr or done.stdout).decode().strip()}"


def _keygen(*words: str, given: bytes) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(["ssh-keygen", *words], input=given, capture_output=True)
    except OSError as error:
        raise UsageError(f"ssh-keygen: {error}; install Debian's package openssh-client") from None
