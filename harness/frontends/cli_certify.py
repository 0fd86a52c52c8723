"""``bitverdict certify STEM | FILE:FUNCTION --target T -o PACK`` writes a conformance pack; ``verify PACK`` trusts nothing in one.

Exit status of certify: 0 every required case passes or is a known failure, 1 some fail, 2 usage. Of verify: 0 verified, 1 rejected,
2 usage, 3 nothing of it could be computed here.
"""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
from pathlib import Path

from bitverdict.harness.frontends.cli_run import check_arguments, defaults
from bitverdict.harness.frontends.subjects import find_subject_or_launcher
from bitverdict.harness.judge.machine_faults import check_compiler_cache, writing
from bitverdict.harness.model import trusted_imports
from bitverdict.harness.model.targets import targets
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.report import pack, verify
from bitverdict.harness.report.certify import certify_sources, open_points
from bitverdict.harness.session import tally
from bitverdict.harness.session.result_files import FREE
from bitverdict.harness.workers.forkserver import collect_again
from bitverdict.harness.workers.pool import WorkerPool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("stem", metavar="STEM | FILE:FUNCTION", help="a kernel, or a test that bitverdict.test or judged made")
    add("--launcher", default="", metavar="FILE:FUNCTION", help="your own launcher, by the kernel's mathematics")
    add("--target", action="append", required=True, metavar="T", help="as of run; may be repeated")
    add("-o", "--output", type=Path, required=True, metavar="PACK", help="the pack, a zip file")
    add(
        "--known",
        type=Path,
        default=None,
        metavar="FILE",
        help="known failures: JSON, a list of target, case, outcome, owner, issue",
    )
    add("--sign", type=Path, default=None, metavar="KEY", help="sign the pack by this SSH key (ssh-keygen -Y sign)")
    add("--timeout", type=float, default=120.0, metavar="SECONDS", help="a case that takes longer is a timeout (default: 120)")


def run(arguments: argparse.Namespace) -> int:
    known_failures = []
    if arguments.known:
        try:
            known_failures = json.loads(arguments.known.read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"--known {arguments.known}: {error}; give a JSON list") from None
    asked = argparse.Namespace(**defaults())
    address, asked.launcher = find_subject_or_launcher(arguments.stem, arguments.launcher, "certify")
    asked.stems, asked.target = [address], arguments.target
    sources = check_arguments(asked)
    if lacking := [source for source in sources if source.unserved_reason]:
        raise UsageError(
            f"--target {lacking[0].target.name}: {lacking[0].unserved_reason}; name a target that serves {arguments.stem}"
        )
    check_compiler_cache()
    collect_again()
    with WorkerPool(timeout=arguments.timeout) as pool:
        conformance_pack = certify_sources(sources, pool, known_failures)
    with writing("--output", arguments.output, FREE):
        pack.write(arguments.output, conformance_pack, key=arguments.sign)
    for said in (opened := open_points(conformance_pack)):
        print(said)
    counts = ", ".join(f"{count:,} {name}" for name, count in conformance_pack.about["counts"].items())
    print(f"{arguments.output}: {counts}; required list {conformance_pack.about['required list']}")
    return int(bool(opened))


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("pack", type=Path, metavar="PACK", help="what bitverdict certify wrote; its kernel is run on this machine")
    add("--share", type=float, default=verify.SHARE, metavar="S", help="of the cases, what is judged again (0.1)")
    add("--seed", type=int, default=None, metavar="N", help="draw the share by this seed (default: a new one)")
    add("--signers", type=Path, default=None, metavar="FILE", help="allowed signers, as of ssh-keygen -Y verify")
    add("--signer", default="", metavar="NAME", help="whose signature the pack must have")
    add("--timeout", type=float, default=120.0, metavar="SECONDS", help="a case that takes longer is a timeout (default: 120)")


def run_verify(arguments: argparse.Namespace) -> int:
    if bool(arguments.signers) != bool(arguments.signer):
        raise UsageError("--signers and --signer: belong together; give the file of allowed signers and one of its names")
    if not 0 <= arguments.share <= 1:
        raise UsageError(f"--share {arguments.share}: must be from 0 to 1")
    if not arguments.pack.is_file():
        raise UsageError(f"{arguments.pack}: there is no such file; give a pack, which bitverdict certify writes")
    try:
        loaded_pack = pack.read(arguments.pack)
    except UsageError as error:
        print(f"REJECTED: {error}")
        return 1
    if arguments.signers and (why := pack.signature_holds(loaded_pack, arguments.signers, arguments.signer)):
        print(f"REJECTED: {why}")
        return 1
    trusted_imports.begin(always=True)
    seed = secrets.randbits(64) if arguments.seed is None else arguments.seed
    collect_again()
    with tempfile.TemporaryDirectory() as directory, WorkerPool(timeout=arguments.timeout) as pool:
        try:
            placed = verify.unpack(loaded_pack, Path(directory))
        except (UsageError, KeyError, TypeError, ValueError, AttributeError, RecursionError, OSError) as error:
            print(f"REJECTED: the pack cannot be read as one: {error}")
            return 1
        verification = verify.verify_pack(placed, pool, {each.name: each for each in targets()}, seed, arguments.share)
    for said in [
        *(f"wrong: {each}" for each in verification.rejections),
        *(f"known failure: {each}" for each in verification.owned_failures),
        *verification.not_run,
    ]:
        print(said)
    signature = (
        f"signed by {arguments.signer}" if arguments.signers else "signature not checked" if loaded_pack.signature else "not signed"
    )
    print(f"{verification.sentence}; drawn by seed {seed}; {signature}")
    return int(bool(verification.rejections)) if verification.rejections or verification.is_verified else tally.INCONCLUSIVE
