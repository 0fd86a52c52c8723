"""Failing cases as files that replay anywhere: the case, the verdict with its signature, versions, knobs, and the judged kernel's
source.

New ones lie in ``.bitverdict/failures/<contract>-<target>-<digest>.json``, one per signature (a second case with the same signature
is the same bug); promoted ones in ``tests/reproducers/`` with the decision that is expected. Written whole or not at all. A file of
another format version is read when that is known how, and refused with a reason when it is not."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import platform
import shlex
import subprocess
import tempfile
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path

from bitverdict import __version__
from bitverdict.harness.judge.instrumentation import read_again
from bitverdict.harness.judge.machine_faults import writing
from bitverdict.harness.model.addresses import add_search_path, resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.case_fields import check_case
from bitverdict.harness.model.contract import case_from_record
from bitverdict.harness.model.paths import HOME, ROOT, state_directory, state_directory_of
from bitverdict.harness.model.sealing import seal
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.session.case_source import reproduction

VERSION = 2
DIGITS = 8  # of a file's name that a report says
KNOBS = (
    "TRITON_DEFAULT_FP_FUSION",
    "TRITON_F32_DEFAULT",
    "TRITON_DISABLE_LINE_INFO",
    "TRITON_INSTRUMENTATION_MODE",
    "DISABLE_PTXAS_OPT",
    "BITVERDICT_POOL_SEED",
)
_FIELDS = {"version", "case", "target", "verdict", "signature"}


@dataclass(frozen=True)
class Reproducer:
    """One stored failing case. `sources` maps an address's file, as written in the case, to its text when it was stored."""

    case: dict
    target: str
    verdict: dict
    signature: tuple[str, str, str]
    versions: dict = field(default_factory=dict)
    machine: str = ""  # model of the GPU
    knobs: dict = field(default_factory=dict)
    sources: dict = field(default_factory=dict)
    hypothesis: dict = field(default_factory=dict)  # how Hypothesis draws it again, or the case it was shrunk from
    secret: dict | None = None  # of a sealed run: what its draws depended on (`bitverdict.harness.sealed.secret_draws`)
    expected_outcome: dict | None = None  # promoted files only: {"decision": ..., "outcome": ...}

    @property
    def name(self) -> str:
        """<contract>-<target>-<digest of contract, target, launcher and signature>.json: equal for one bug."""
        contract, launcher = self.case["contract"], self.case.get("launcher", "")
        text = json.dumps([contract, launcher, self.target, self.signature])
        stem = contract if ":" not in contract else Path(contract.rpartition(":")[0]).stem.rpartition(".")[2]
        return f"{stem}-{self.target.replace(':', '_')}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"


def reproducer_of(
    case: Case, target: str, verdict: Verdict, *, model: str = "", first_case: Case | None = None, secret: dict | None = None
) -> Reproducer:
    """The reproducer of a verdict, with what is needed to judge the case again elsewhere. `first_case` is the case that `case` was
    shrunk from, where it is another: Hypothesis's blob is that of the case it drew."""
    record, first_case = case.to_json(), first_case or case
    drawn: dict = {"draws": "this case" if first_case == case else "the case this one was shrunk from"} | reproduction(
        first_case, target
    )
    if "absent" in drawn:
        del drawn["draws"]
    elif first_case != case:
        drawn["case"] = first_case.to_json()
    if secret is not None:
        drawn["seeds"] = "of the secret: the draw has others"
    return Reproducer(
        case=record,
        target=target,
        verdict=verdict.to_json(),
        signature=verdict.signature,
        versions=versions(),
        machine=model,
        knobs={name: os.environ[name] for name in KNOBS if name in os.environ},
        sources=_sources(record),
        hypothesis=drawn,
        secret=secret,
    )


def write(seed: Reproducer, directory: Path | None = None) -> Path:
    """Store `seed` (default: the state directory's ``failures``), atomically; returns its path. An equal bug is overwritten."""
    directory = directory or state_directory() / "failures"
    path = directory / seed.name
    record = {"version": VERSION, **{name: value for name, value in vars(seed).items() if value is not None}}
    with writing("reproducer", path):
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(record, indent=1, sort_keys=True, default=str) + "\n")
    return path


def replay_line(path: Path) -> str:
    """The line that judges the file at `path` again, as a shell takes it: by its digits where a run from here left it."""
    digits = path.stem.rpartition("-")[2][:DIGITS]
    folder = state_directory_of(HOME) / "failures"
    is_short = (Path.cwd() / path).parent == folder and _stored_files(digits, folder) in ([], [folder / path.name])
    return f"bitverdict replay {digits if is_short else shlex.quote(str(path))}"


def _stored_files(digits: str, folder: Path) -> list[Path]:
    """The files of failures in `folder` whose last digits begin so."""
    return sorted(path for end in ("json", "launch") for path in folder.glob(f"*-{glob.escape(digits)}*.{end}"))


def path_of(name: Path) -> Path:
    """The file that `name` is, or the one of this folder's failures whose digits begin so: ``e74da05f``."""
    if name.suffix or name.exists() or len(name.parts) > 1:
        return name
    found = _stored_files(str(name), state_directory() / "failures")
    if len(found) != 1:
        several = f"stands for {', '.join(path.name for path in found)}" if found else "is no file, and no failure is stored so"
        raise UsageError(f"reproducer {name}: {several}; give the digits that a report says, or a file of .bitverdict/failures")
    return found[0]


def write_atomically(path: Path, text: str) -> None:
    """`text` into `path`: a reader sees the old file or the new one, never half of it."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(path: Path) -> Reproducer:
    """The reproducer at `path`. ValueError (value, rule, remedy) for no file, no JSON, missing fields or another version."""
    try:
        record = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(
            f"reproducer {path}: cannot be read ({error.strerror}); give a file of .bitverdict/failures or tests/reproducers"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"reproducer {path}: is not JSON ({error}); it was cut or edited: take it from its run again") from None
    if not isinstance(record, dict) or not isinstance(record.get("version"), int):
        raise UsageError(f"reproducer {path}: has no version; a reproducer is a JSON object with {', '.join(sorted(_FIELDS))}")
    if record["version"] != VERSION:
        writer = record.get("versions", {}).get("harness", "unknown") if isinstance(record.get("versions"), dict) else "unknown"
        raise UsageError(
            f"reproducer {path}: version {record['version']}, this checkout reads version {VERSION}; replay it with the checkout "
            f"that wrote it ({writer}), or run again here"
        )
    missing = _FIELDS - set(record)
    if missing:
        raise UsageError(f"reproducer {path}: lacks {', '.join(sorted(missing))}; it was cut or edited: take it from its run again")
    for name, kind in (("case", dict), ("target", str), ("verdict", dict), ("signature", list), ("machine", str)):
        if name in record and type(record[name]) is not kind:
            rule = {dict: "an object of JSON", str: "a text", list: "a list"}[kind]
            raise UsageError(
                f"reproducer {path}: {name} is {record[name]!r:.100}: must be {rule}; take the file from its run again"
            )
    if len(record["signature"]) != 3 or not all(isinstance(part, str) for part in record["signature"]):
        raise UsageError(f"reproducer {path}: signature is {record['signature']!r:.100}: must be outcome, message, line")
    for name in ("versions", "knobs", "sources"):
        given = record.get(name, {})
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            raise UsageError(f"reproducer {path}: {name} is {given!r:.100}: must be an object of JSON with texts in it")
    known = {name: record[name] for name in Reproducer.__dataclass_fields__ if name in record}
    known["knobs"] = {
        name.replace("HARNESS_", "BITVERDICT_"): value for name, value in record.get("knobs", {}).items()
    }  # older files
    return Reproducer(**known | {"signature": tuple(record["signature"])})


def check_foreign(seed: Reproducer, path: Path, *, embedded: bool) -> None:
    """UsageError where a judge would run source that lies in the reproducer alone, nobody has asked for that, and it is not sealed:
    it would run with the user's rights, and whoever wrote the file may have written it."""
    absent = [place for place in seed.sources if not Path(place).is_file()]
    if absent and not embedded and not seed.case.get("sealed"):
        raise UsageError(
            f"reproducer {path}: {absent[0]} is not here, and the text stored with the case would run with your rights; read it, "
            "then give --embedded to judge it"
        )


def restore_case(seed: Reproducer, *, use_embedded: bool = False) -> tuple[Case, list[str]]:
    """The case, ready to be judged here, and notes on what is not as it was.

    A file of the kernel under test that is gone is written anew from the text stored with the case; one that changed is judged as
    it is now, unless `use_embedded` asks for the stored text. UsageError when the record is no case of its contract, with the field
    and the rule."""
    check_case(seed.case)
    record, notes = dict(seed.case), []
    for part in ("contract", "launcher"):
        place, _, name = record.get(part, "").rpartition(":")
        text = seed.sources.get(place)
        if text is None:
            continue
        there = Path(place)
        if there.is_file() and not use_embedded:
            if there.read_text() != text:
                notes.append(f"{place} has changed since; judging it as it is now (--embedded judges the stored text)")
            continue
        kept = state_directory() / "replayed" / hashlib.sha256(text.encode()).hexdigest()[:12] / there.name
        with writing("stored source", kept):
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(kept, text)
        notes.append(f"{place}: judging the text stored with the case")
        record[part] = f"{kept}:{name}"
    for name, then in seed.versions.items():
        now = versions().get(name)
        if then != now:
            notes.append(f"{name} was {then}, is {now}")
    for name, value in seed.knobs.items():
        if name in KNOBS:  # a file may name others
            os.environ[name] = value
    if seed.knobs:
        read_again()
    if record.get("sealed"):
        seal(record["launcher"])
    add_search_path(record.get("search_path", ()))
    contract = resolve(record["contract"])
    try:
        case = case_from_record(contract, record)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"case of {record['contract']}: {type(error).__name__}: {error}; it was cut or edited") from error
    return replace(case, contract=record["contract"]), notes


def promote(path: Path, decision: Decision, directory: Path) -> Path:
    """Move a reproducer to `directory`, where it is kept, with the decision that is expected from now on. Returns the new path."""
    stored = read(path)
    expected_outcome = {"decision": str(decision)} | ({"outcome": stored.signature[0]} if decision is Decision.FAIL else {})
    seed = replace(stored, expected_outcome=expected_outcome)
    kept = write(seed, directory)
    if kept.resolve() != path.resolve():
        path.unlink()
    return kept


@cache
def versions() -> dict[str, str]:
    """What decides bits and messages: torch, triton, numpy, Python, and the commit of this checkout (``+`` when it is changed)."""
    version_texts = {"python": platform.python_version()}
    for name in ("torch", "triton", "numpy"):
        try:
            version_texts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            version_texts[name] = "absent"
    try:
        run = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        version_texts["harness"] = run.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        version_texts["harness"] = __version__
    return version_texts


def _sources(record: dict) -> dict[str, str]:
    places = {record.get(part, "").rpartition(":")[0] for part in ("contract", "launcher")}
    return {place: Path(place).read_text() for place in sorted(places) if place.endswith(".py") and Path(place).is_file()}
