"""Contract under test: each instruction's evidence claims what the stored words settle, no more and no less.

The constants are moved by one step over the words (`test_tensor_core_constants`). What rests on files that are not at hand is not
compared."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from bitverdict.harness.lab.hardware_words.public_words import DIGESTS
from bitverdict.reference.formats import FORMATS, decode
from bitverdict.reference.tensor_core import INSTRUCTIONS, Evidence, EvidenceKind, Instruction, instruction
from bitverdict.reference.tensor_core.evidence import ALL_CONSTANTS, CONSTANTS, hardware
from bitverdict.reference.tensor_core.export import from_json, text, to_json
from bitverdict.reference.tensor_core.lookup import ALL_INSTRUCTIONS
from tests.reference_checks.tensor_core_words import CHECKOUT, OWN, Words, files, read
from tests.reference_checks.test_tensor_core_constants import mismatches

MEANS = {
    "F - 1": "F from below", "F + 1": "F from above", "block halved": "n", "block doubled": "chain",
    "blocks in reverse": "chain", "passes ascending": "chain", "output bits - 1": "output bits", "output bits + 1": "output bits",
    "rounding": "rounding", "place of c": "place of c", "E floor - 1": "floor", "E floor + 1": "floor",
}  # fmt: skip
"""What a moved constant is called in a record. Only a K of several blocks shows that a block is no longer."""
AT_HAND = {path.stem: path for path in files()}
FLOATS = [rule for rule in INSTRUCTIONS if rule.d != "int32"]


def words_key(rule: Instruction) -> tuple:
    """What decides which words are counted for it: of tcgen05 the kind, whose words are few; else itself."""
    return (rule.family, rule.kind) if rule.family == "tcgen05" else (rule.name, rule.block)


COUNTED = {words_key(rule): rule for rule in FLOATS if rule.evidence.rows and all(row in AT_HAND for row in rule.evidence.rows)}
MEASURED = list(COUNTED.values())
A100 = instruction("sm_80", "mma.sync", "fp16", "fp16", "fp32")


def words_of(rule: Instruction) -> list[Words]:
    held = [words for row in rule.evidence.rows for words in read(AT_HAND[row])]
    return [words for words in held if words_key(words.rule) == words_key(rule)]


def has_specials(words: Words) -> bool:
    of_scale = FORMATS[words.rule.scale] if words.rule.scale else None
    sides = [(FORMATS[words.rule.a], words.a), (FORMATS[words.rule.b], words.b), (words.rule.output, words.c)]
    sides += [(of_scale, side) for side in (words.scale_a, words.scale_b) if of_scale is not None and side is not None]
    return any(not np.isfinite(decode(fmt, side)).all() for fmt, side in sides)


def settled(rule: Instruction) -> tuple[set[str], set[str]]:
    """The constants that the words could settle, and those that they do."""
    could, does = {"specials"}, set()
    unseen: dict[str, int] = {}
    for words in words_of(rule):
        does |= {"specials"} if has_specials(words) else set()
        for name, count in mismatches(words).items():
            unseen[name] = unseen.get(name, 0) + count
    for name, count in unseen.items():
        could.add(MEANS[name])
        does.add(MEANS[name]) if count else None
    return could, does - {MEANS[name] for name, count in unseen.items() if not count}


def wrong(rule: Instruction) -> set[str]:
    """Constants that the record calls open and words settle, or the other way round."""
    could, does = settled(rule)
    return (rule.evidence.open & could) ^ (could - does)


@pytest.mark.parametrize("rule", MEASURED, ids=lambda rule: rule.name.replace(" ", "_"))
def test_what_a_record_leaves_open_is_what_no_word_settles(rule: Instruction) -> None:
    assert words_of(rule), "the files hold no word of it"
    assert wrong(rule) == set()
    assert rule.evidence.words in (0, sum(words.d.size for words in words_of(rule)))


@pytest.mark.parametrize("rule", MEASURED[:1] or [pytest.param(None, marks=pytest.mark.skip(reason="no hardware words at hand"))])
@pytest.mark.parametrize("changed", ["F from below", "specials"])
def test_a_constant_that_is_listed_wrongly_is_found(rule: Instruction, changed: str) -> None:
    other = replace(rule.evidence, open=rule.evidence.open ^ {changed})
    assert wrong(replace(rule, evidence=other)) == {changed}


@pytest.mark.parametrize("rule", [rule for rule in MEASURED if "F is at least" in rule.evidence.note], ids=lambda rule: rule.name)
def test_the_least_f_of_a_note_is_that_of_the_words(rule: Instruction) -> None:
    (least,) = re.findall(r"F is at least (\d+)", rule.evidence.note)
    held = words_of(rule)
    fits = [bits for bits in range(8, 40) if not any(words.mismatches(replace(words.rule, fraction_bits=bits)) for words in held)]
    assert fits[0] == int(least) and fits[-1] == 39


def test_instructions_that_are_counted_together_have_one_evidence() -> None:
    for rule in FLOATS:
        if rule.evidence.rows and words_key(rule) in COUNTED:
            assert rule.evidence == COUNTED[words_key(rule)].evidence, rule.name


def lost_rows(evidence: Evidence) -> set[str]:
    """Rows that are neither stored here nor on the list of public words."""
    public = {*DIGESTS, *re.findall(r"`(\w+)\.npz`", (OWN / "README.md").read_text())}
    return set(evidence.rows) - public - {path.stem for path in OWN.glob("*.npz")}


def test_every_row_is_stored_or_on_the_list_of_public_words() -> None:
    assert {row for rule in INSTRUCTIONS for row in lost_rows(rule.evidence)} == set()
    assert lost_rows(hardware("a100_fp16", "a100_fp8")) == {"a100_fp8"}


def test_every_source_is_a_key_of_the_bibliography() -> None:
    bibliography = (CHECKOUT / "reference" / "SOURCES.md").read_text()
    for rule in INSTRUCTIONS:
        assert all(re.search(rf"(?m)^\| \[?{re.escape(key)}\]? \|", bibliography) for key in rule.evidence.sources), rule.name


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": EvidenceKind.HARDWARE, "sources": ("TB",)}, "names no file"),
        ({"kind": EvidenceKind.HARDWARE, "sources": (), "rows": ("a100_fp16",)}, "names no source"),
        (
            {"kind": EvidenceKind.HARDWARE, "sources": ("TB",), "rows": ("a100_fp16",), "open": frozenset({"G"})},
            r"open constants \['G'\]",
        ),
        ({"kind": EvidenceKind.ANALOGY, "sources": ("TB",), "open": ALL_CONSTANTS}, "does not say with what"),
        ({"kind": EvidenceKind.MODEL_ONLY, "sources": ("MS",)}, "every constant is open"),
    ],
)
def test_a_claim_without_what_it_needs_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Evidence(**fields)


def test_constants_are_named_once_and_a_report_names_each_open_one() -> None:
    assert set(MEANS.values()) | {"specials"} == set(CONSTANTS)
    for name in CONSTANTS:
        assert name in str(hardware("a100_fp16", open={name}))
    both = hardware("a100_fp16", open={"F from below", "F from above", "chain"}, sources=("MS",))
    assert str(both) == "hardware words (A100); no word settles F, chain (from MMA-Sim)"


def test_every_basis_is_what_reports_have_said() -> None:
    plain = [
        rule for rule in FLOATS if rule.a == rule.b and rule.d == "fp32" and rule.arch in ("sm_80", "sm_89", "sm_90", "sm_100")
    ]
    assert {(rule.arch, rule.family, rule.evidence.basis) for rule in plain} == {
        ("sm_80", "mma.sync", "hardware, chain by a model"), ("sm_89", "mma.sync", "hardware, chain by a model"),
        ("sm_89", "mma.sync", "hardware"), ("sm_90", "mma.sync", "hardware"), ("sm_90", "wgmma", "hardware"),
        ("sm_100", "mma.sync", "hardware"), ("sm_100", "tcgen05", "two models"),
    }  # fmt: skip
    assert {rule.evidence.basis for rule in INSTRUCTIONS if rule.d == "int32"} == {"specification"}
    assert {rule.evidence.basis for rule in INSTRUCTIONS if rule.a != rule.b and rule.arch == "sm_89"} == {"one model"}


def test_a_shorter_shape_rests_on_its_own_words_or_on_an_analogy() -> None:
    own = instruction("sm_90", "mma.sync", "e4m3", "e4m3", "fp32", k=16).evidence
    assert own.kind is EvidenceKind.HARDWARE and not lost_rows(own)
    for arch, b in (("sm_90", "e5m2"), ("sm_100", "e4m3")):
        assert instruction(arch, "mma.sync", "e4m3", b, "fp32", k=16).evidence.kind is EvidenceKind.ANALOGY


# ------------------------------------------------------------------------------------------------------------- export
def test_the_export_is_all_instructions_and_gives_them_back() -> None:
    exported = json.loads(text())
    assert exported["version"] == 1
    assert tuple(map(from_json, exported["instructions"])) == ALL_INSTRUCTIONS
    shown = next(each for each in exported["instructions"] if each["name"] == A100.name)
    assert (shown["block"], shown["fraction_bits"], shown["rounding"], shown["floor"]) == (8, 24, "TOWARD_ZERO", -132)
    assert shown["evidence"]["text"] == str(A100.evidence) and shown["evidence"]["rows"] == ["a100_fp16"]


def test_an_export_of_another_number_is_another_instruction() -> None:
    record = json.loads(json.dumps(to_json(A100)))
    assert from_json(record) == A100
    assert from_json(record | {"fraction_bits": 25}) != A100
