"""Contract under test: the emulator goes by the records of asynchronous kinds. An edit of one changes what is found, a record that
is untrue is refused, and every kind has a hazard that fails and an idiom that passes."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, async_rules, emulated
from bitverdict.harness.emulator.async_rules import (
    CP_ASYNC,
    KINDS,
    RULES,
    TCGEN05_COMMIT,
    TCGEN05_CP,
    TCGEN05_MMA,
    TMA_GATHER,
    TMA_LOAD,
    TMA_REDUCE,
    TMA_SCATTER,
    TMA_STORE,
    WGMMA,
    AsyncKind,
    Completion,
    Proxy,
    rule_of,
)
from bitverdict.harness.emulator.execution.async_ops import Flights
from bitverdict.harness.emulator.releases import RELEASES, installed_release
from tests.emulator.ordering import test_idioms as idioms
from tests.emulator.ordering.test_hazards import EVERY, failure_report
from tests.faults.mutants import Mutant, SourceEdit, replaced_once
from tests.support.emulated_launches import KERNELS, load, source_of
from tests.support.tutorial_facts import holds

ROOM = "bitverdict.harness.emulator."
SCHEDULES = ("eager", "latest")
STORE_WAIT = ("    tma.store_wait(pendings=0)", "    pass")
RACES_ANYWAY = any(each.operation == "ttng.tmem_copy" for each in {*installed_release().hazards} - {*RELEASES[-1].hazards})
FENCE = '\n[^\n]*"ttng.fence_async_shared"[^\n]*'  # the compiler's own, in the tile program


def edited(monkeypatch: pytest.MonkeyPatch, kind: AsyncKind, **fields: Any) -> AsyncKind:
    """Let the emulator go by `kind` with other `fields`."""
    made, places = replace(kind, **fields), 0
    for name, module in list(sys.modules.items()):
        if name.startswith(ROOM) and module is not async_rules:
            for attribute in [held for held, value in vars(module).items() if value is kind]:
                monkeypatch.setattr(module, attribute, made)
                places += 1
    assert places, f"nothing goes by {kind.name}"
    return made


def changed(name: str, edits: tuple[tuple[str, str], ...], directory: Path) -> ModuleType:
    """The module of the kernel or idiom `name` with each text of `edits` replaced: in the idiom alone where it is one."""
    source = source_of(name) if name in KERNELS else idioms.source_of(name)
    head, found, rest = ("", "", source.read_text()) if name in KERNELS else source.read_text().partition(f"def {name}(")
    body, end, behind = (rest, "", "") if name in KERNELS else rest.partition("\n\n\n")
    for text, by in edits:
        if text in body:
            body = replaced_once(body, text, by, name)
        else:  # in the function of a partition
            head = replaced_once(head, text, by, name)
    path = directory / "edited.py"
    path.write_text(head + found + body + end + behind)
    return load(path)


def outcome(name: str, module: ModuleType, schedule: str, without: str = "") -> str:
    """What a launch of `name` ends in; `without` is cut from its tile program."""
    run, arch = KERNELS.get(name, (None, "")) if name in KERNELS else (None, idioms.arch_of(name))
    try:
        cut = LaunchOptions(rewrite=lambda text: re.sub(without, "", text, count=1)) if without else None
        with emulated(arch, schedule, options=cut):
            idioms.run(module, name) if run is None else run(module)
    except EmulatedFault as fault:
        return fault.outcome
    return "passed"


@dataclass(frozen=True)
class Edit:
    """With the record of `kind` as it is the kernel `name` ends in `before`, with `fields` in `after`. `texts` are replaced in it,
    `without` is cut from its program once."""

    kind: AsyncKind
    fields: dict[str, Any]
    name: str
    before: str
    after: str
    texts: tuple[tuple[str, str], ...] = field(default=())
    without: str = ""

    def __str__(self) -> str:
        return f"{self.kind.name}-{'-'.join(self.fields)}".replace(" ", "-")


CALLS = {  # of Gluon, by which a hazard names the operation
    "cp.async": "async_copy.async_load(",
    "wgmma": "warpgroup_mma(",
    "TMA load": "tma.async_load(",
    "TMA gather": "tma.async_gather(",
    "TMA store": "tma.async_store(",
    "TMA scatter": "tma.async_scatter(",
    "TMA reduce": "tma.async_atomic_add(",
    "tcgen05.mma": "tcgen05_mma(",
    "tcgen05.cp": "tcgen05_copy(",
    "tcgen05.commit": "tcgen05_commit(",
    "try_cancel": "clc.try_cancel(",
}
AT_EXIT, BY_GROUP, BY_COMMIT = (
    {"must_finish_before_exit": False},
    {"completes_by": Completion.WAIT_GROUP},
    {"completes_by": Completion.COMMIT},
)
GENERIC = {"proxy": Proxy.GENERIC}
READ_UNFENCED = (("    fence_async_shared()  # between", "    # between"),)
FENCED_TOO_EARLY = (
    ("    mbarrier.wait(stored, 0)\n    fence_async_shared()", "    fence_async_shared()\n    mbarrier.wait(stored, 0)"),
)
STORED_AGAIN = (
    (
        "    done = barrier_of(1)\n",
        "    done = barrier_of(1)\n    a_tile.store(a_tile.load(gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])))\n",
    ),
)
EDITS = [
    Edit(TMA_STORE, AT_EXIT, "copy_waits_twice", "race", "passed", (STORE_WAIT,)),
    Edit(TMA_SCATTER, AT_EXIT, "copy_scatters_rows_beyond_the_end", "race", "passed", (STORE_WAIT,)),
    Edit(TMA_REDUCE, AT_EXIT, "copy_adds_nothing_twice_to_what_it_stored", "race", "passed", (STORE_WAIT,)),
    Edit(TMA_LOAD, AT_EXIT, "copy_loads_ahead_while_there_is_more", "race", "passed", (("turn < 1", "turn < 2"),)),
    Edit(
        TMA_GATHER,
        AT_EXIT,
        "copy_mixes_a_gather_and_a_tile_on_one_barrier",
        "race",
        "passed",
        (
            ("    mbarrier.invalidate(arrived)\n", ""),
            (STORE_WAIT[0], STORE_WAIT[0] + "\n    tma.async_gather(rows_of_a, numbers, 0, arrived, tile)"),
        ),
    ),
    Edit(TCGEN05_MMA, AT_EXIT, "product_commits_once_for_two", "race", "passed",
         (("    stored(out, sums)", "    stored(out, sums)\n    tcgen05_mma(a_tile, b_tile, spare, use_acc=False)"),)),
    Edit(TCGEN05_CP, AT_EXIT, "product_accumulates_on_a_copy_without_a_wait", "race", "passed",
         (("    stored(out, sums)", "    stored(out, sums)\n    tcgen05_copy(zeros, sums)"),)),
    Edit(CP_ASYNC, BY_COMMIT, "copy_commits_empty_groups", "passed", "race"),
    Edit(WGMMA, BY_COMMIT, "product_chains_wgmma_without_a_wait", "passed", "race"),
    Edit(TMA_LOAD, BY_GROUP, "copy_waits_twice", "passed", "race"),
    Edit(TMA_GATHER, BY_GROUP, "tma_gather", "passed", "race"),
    Edit(TMA_STORE, BY_COMMIT, "copy_waits_twice", "passed", "race"),
    Edit(TMA_REDUCE, BY_COMMIT, "copy_adds_nothing_twice_to_what_it_stored", "passed", "race"),
    Edit(TMA_SCATTER, BY_COMMIT, "tma_scatter", "passed", "race"),
    Edit(TCGEN05_MMA, BY_GROUP, "product_commits_once_for_two", "passed", "race"),
    Edit(TCGEN05_CP, BY_GROUP, "product_accumulates_on_a_copy_without_a_wait", "passed", "race"),
    Edit(TMA_LOAD, GENERIC, "copy_is_refilled_behind_the_fence_of_its_reader", "race", "passed", READ_UNFENCED),
    Edit(TMA_STORE, GENERIC, "copy_is_fenced_by_the_partition_that_sends", "race", "passed", FENCED_TOO_EARLY),
    Edit(TMA_SCATTER, GENERIC, "tma_scatter", "race", "passed", without=FENCE),
    Edit(TCGEN05_CP, GENERIC, "product_accumulates_on_a_copy_without_a_wait", "race", "passed", without=FENCE),
    Edit(TCGEN05_MMA, GENERIC, "product_commits_once_for_two", "race", "passed", STORED_AGAIN, without=FENCE),
    Edit(WGMMA, GENERIC, "product_chains_wgmma_without_a_wait", "race", "passed",
         (("    half = gl.zeros", STORED_AGAIN[0][1].split("\n")[1] + "\n    half = gl.zeros"),), without=FENCE),
    Edit(CP_ASYNC, {"proxy": Proxy.ASYNC}, "block_scaled_matmul", "race", "passed", without="" if RACES_ANYWAY else FENCE),
    Edit(TCGEN05_MMA, {"pipe": ""}, "product_accumulates_without_a_wait", "passed", "race"),
    Edit(TCGEN05_CP, {"pipe": ""}, "product_accumulates_on_a_copy_without_a_wait", "passed", "race"),
    Edit(TCGEN05_COMMIT, {"pipe": ""}, "product_commits_once_for_two", "passed", "race"),
    Edit(TMA_SCATTER, {"group": "another"}, "tma_scatter", "passed", "race"),
]  # fmt: skip


@holds("order of products")
@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_an_edit_of_a_record_changes_what_is_found(edit: Edit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = changed(edit.name, edit.texts, tmp_path)
    found = [outcome(edit.name, module, schedule, edit.without) for schedule in SCHEDULES]
    edited(monkeypatch, edit.kind, **edit.fields)
    after = [outcome(edit.name, module, schedule, edit.without) for schedule in SCHEDULES]
    assert (found, after) == ([edit.before] * 2, [edit.after] * 2)


UNTRUE = [
    (
        TMA_LOAD,
        {"writes": (async_rules.TENSOR,)},
        "copy_waits_twice",
        "TMA load writes shared memory: its record says writes tensor",
    ),
    (TMA_STORE, {"reads": ()}, "copy_waits_twice", "TMA store reads shared memory: its record says signals an mbarrier"),
    (TCGEN05_MMA, {"writes": ()}, "product_commits_once_for_two", "tcgen05.mma writes tensor memory: its record says reads shared"),
]


@pytest.mark.parametrize(("kind", "fields", "name", "message"), UNTRUE, ids=[kind.name for kind, *_ in UNTRUE])
def test_a_record_that_leaves_out_what_its_operation_uses_is_refused(
    kind: AsyncKind, fields: dict[str, Any], name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited(monkeypatch, kind, **fields)
    with pytest.raises(ValueError, match=re.escape(message)):
        outcome(name, load(idioms.source_of(name)), "eager")


def test_a_finding_quotes_the_record_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = edited(monkeypatch, TMA_STORE, until="a wait of another kind", ptx_section="a page")
    module = changed("copy_waits_twice", (STORE_WAIT,), tmp_path)
    with emulated("sm_100"), pytest.raises(EmulatedFault) as raised:
        idioms.run(module, "copy_waits_twice")
    assert raised.value.details["rule"] == made.rule.sentence
    assert made.rule.sentence == "TMA store reads shared memory until a wait of another kind (a page)"


def test_every_kind_is_a_row_of_the_table_and_an_unknown_one_has_none() -> None:
    assert [rule.operation for rule in RULES[: len(KINDS)]] == [kind.name for kind in KINDS] == list(CALLS)
    assert all(rule_of(rule.operation) == rule.sentence for rule in RULES)
    with pytest.raises(ValueError, match="'no such operation': no rule of that name"):
        rule_of("no such operation")


@pytest.fixture(scope="module")
def aside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hazards")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_has_a_hazard_that_fails_by_its_rule(kind: AsyncKind, aside: Path) -> None:
    """A commit touches nothing itself: its hazard leaves it out, or puts it elsewhere."""

    def broken(hazard: Mutant) -> bool:
        if not (kind.reads or kind.writes):
            return any(isinstance(edit, SourceEdit) and CALLS[kind.name] in edit.replace for edit in hazard.edits)
        return CALLS[kind.name] in hazard.at + hazard.other and (
            failure_report(hazard, aside)[0].details.get("rule") == kind.rule.sentence
        )

    assert any(broken(hazard) for hazard in EVERY)


def test_every_kind_has_an_idiom_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    issued, issue = set(), Flights.issue

    def noted(flights: Flights, flight: Any, land: Any) -> Any:
        issued.add(flight.kind)
        return issue(flights, flight, land)

    monkeypatch.setattr(Flights, "issue", noted)
    assert {outcome(idiom, load(idioms.source_of(idiom)), "eager") for idiom in idioms.IDIOMS} == {"passed"}
    assert issued == set(KINDS)


BEFORE, AFTER = "    tcgen05_mma(a_tile, b_tile, spare, use_acc=False)\n", "    mbarrier.wait(done, 0)\n"
WRITTEN = "    a_tile.store(a_tile.load(gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])))\n"


@holds("fence before the product")
@holds("no fence after the product")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_product_wants_a_fence_before_it_and_none_after_it(schedule: str, tmp_path: Path) -> None:
    """The operand is written before the product, with the compiler's fence and without it; after the wait; and between both."""
    name, found = "product_commits_once_for_two", {}
    for place, edit in {
        "before": (BEFORE, WRITTEN + BEFORE),
        "after": (AFTER, AFTER + WRITTEN),
        "in flight": (AFTER, WRITTEN + AFTER),
    }.items():
        (tmp_path / place).mkdir()
        found[place] = outcome(name, changed(name, (edit,), tmp_path / place), schedule)
        found[f"{place}, unfenced"] = outcome(name, changed(name, (edit,), tmp_path / place), schedule, FENCE)
    assert (found["before"], found["before, unfenced"]) == ("passed", "race")
    assert (found["after"], found["in flight"]) == ("passed", "race")
