"""Contract under test: a failure quotes the line that is to blame, draws what its legend says, and tells the case once."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from bitverdict.harness.judge.compare import compare
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.paths import ROOT
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session import failure_report as failure_report_module
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.session.failure_report import LEGEND, SHADES, Paragraph, failure_report, heat_map, place_of
from bitverdict.harness.session.source_excerpt import excerpt, mask_help, source_line
from bitverdict.harness.session.tables import print_wrapped, text_of
from bitverdict.kernels.matmul import Problem


def case(**fields) -> Case:
    return Case(contract="matmul", problem=Problem(m=1, n=2, k=3), **fields)


def test_the_line_of_source_stands_under_its_place(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("\n    a = tl.load(a_ptrs)\n")
    mine = case(launcher=f"{tmp_path / 'mine.py'}:matmul")
    details = {"other location": "kernels/matmul.py:1", "rule": "two loads"}
    verdict = Verdict(
        decision=Decision.FAIL, outcome=Outcome.STRAY_READ, message="read beside", location="mine.py:2", details=details
    )
    told = text_of(failure_report("mine.py:matmul", "emulated:sm_90", mine, verdict, [], "replay")).splitlines()
    place = told.index("  at mine.py:2")
    assert told[place + 1 : place + 3] == ["    2 │ a = tl.load(a_ptrs)", "      │ ^^^^^^^^^^^^^^^^^^^"]
    assert told[told.index("  other location: kernels/matmul.py:1") + 1].startswith('    1 │ """')
    assert not any("launcher=" in line for line in told)


def test_an_error_of_no_known_line_is_placed_at_the_kernel() -> None:
    for first, place in (("1.0e+00  no line that is known", "mine.py:4"), ("1.0e+00  mine.py:7  a = b", "mine.py:7")):
        verdict = Verdict(
            decision=Decision.FAIL,
            outcome=Outcome.LOST_PRECISION,
            details={"error by line": [first]},
            recorded={"launches": [{"place": "mine.py:4"}]},
        )
        assert place_of(verdict) == place


def test_files_of_sentences_are_named_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = f"a load meets the copy issued at {tmp_path}/ring.py:15; nothing orders them at {tmp_path}/ring.py:7"
    details = {"barriers": [f"phase 1, of {tmp_path}/ring.py:5"], "waits": {"partition 0": f"{tmp_path}/ring.py:6"}}
    verdict = Verdict(decision=Decision.FAIL, outcome=Outcome.RACE, message=said, details=details)
    report = text_of(failure_report("mine.py:f", "emulated:sm_90", case(), verdict, [], "replay"))
    assert "issued at ring.py:15" in report and "at ring.py:7" in report and str(tmp_path) not in report


@pytest.mark.parametrize("location", ["", "nowhere.py:3", "kernels/matmul.py:99999", "kernels/matmul.py:0", "no place", "a.so:1"])
def test_a_place_that_cannot_be_read_is_not_quoted(location: str) -> None:
    assert source_line(location, case()) == ""


def test_a_case_tells_its_element_type_and_not_whose_it_is() -> None:
    assert describe(case(launcher="mine.py:f")) == "m=1 n=2 k=3 dtype=fp16 regime=normal data_seed=0 schedule=eager"


@pytest.mark.parametrize(
    ("wrong", "shade"),
    [(0, " "), (1, "·"), (24, "·"), (25, "░"), (49, "░"), (50, "▒"), (74, "▒"), (75, "▓"), (99, "▓"), (100, "█")],
)
def test_the_legend_says_what_each_shade_means(wrong: int, shade: str) -> None:
    words = np.arange(2000, dtype=np.uint32).reshape(10, 200)
    expected = ExpectedOutput(name="c", format="fp32", shape=words.shape, words=words, tile=(10, 10))
    got = words.copy()
    got[:, -10:].flat[:wrong] ^= 1
    got[0, 0] ^= 1
    heat = compare(expected, got).details["heat"]
    assert heat["cell"] == [10, 10]
    picture = heat_map(heat)
    assert picture.splitlines()[2] == "  |·" + " " * 18 + shade + "|"
    assert LEGEND in picture and all(mark in LEGEND for mark in SHADES[1:])
    assert LEGEND == "blank none, · below 25%, ░ below 50%, ▒ below 75%, ▓ below 100%, █ all"


def test_the_first_wrong_words_stand_line_below_line_in_columns() -> None:
    rows = [{"at": at, "got": "0x1 (1)", "expected": "0x12345 (2)", "ulp": ulp} for at, ulp in (([0, 3], 17), ([11, 4], None))]
    verdict = Verdict(decision=Decision.FAIL, outcome=Outcome.WRONG_WORDS, message="2 words differ", details={"first": rows})
    told = text_of(failure_report("mine", "emulated:sm_90", case(), verdict, [], "replay")).splitlines()[1:]
    head, *words = (line.split() for line in told[:3])
    assert head == ["at", "got", "expected", "ulp"]
    assert words == [["[0,", "3]", "0x1", "(1)", "0x12345", "(2)", "17"], ["[11,", "4]", "0x1", "(1)", "0x12345", "(2)"]]
    for name, word in (("got", "0x1 "), ("expected", "0x12345")):
        assert {line.find(word) for line in told[1:3]} == {told[0].find(name)}, "under its head"


def test_values_without_rounding_stand_beside_the_words() -> None:
    rows = [
        {"at": [at], "got": "0x1 (1)", "expected": "0x2 (2)", "ulp": None, "real value": "1.5", "exact": "2 +- 1e-16"}
        for at in (0, 1)
    ]
    verdict = Verdict(decision=Decision.FAIL, outcome=Outcome.WRONG_MATHEMATICS, message="2 differ", details={"first": rows})
    head, first, *_ = text_of(failure_report("mine", "emulated:sm_90", case(), verdict, [], "replay")).splitlines()[1:]
    assert head.split() == ["at", "got", "expected", "ulp", "without", "rounding", "mathematics"]
    assert first.find("1.5") == head.find("without") and first.find("2 +- 1e-16") == head.find("mathematics")


def test_a_tile_with_one_right_word_of_many_is_not_drawn_as_all_wrong() -> None:
    words = np.arange(200 * 600, dtype=np.uint32).reshape(200, 600)
    expected = ExpectedOutput(name="c", format="fp32", shape=words.shape, words=words, tile=(200, 200))
    got = words ^ 1
    got[0, 0] ^= 1
    heat = compare(expected, got).details["heat"]
    assert heat["percent"] == [[99, 100, 100]]


KERNEL = """def kernel(x, out, n):
    at = tl.arange(0, 64)
    row = tl.load(x + at) + tl.load(out + at, mask=at < n)  # both

    tl.store(out + at, row, mask=at < n)
"""
MESSAGE = (
    "read at byte 12 of x, which its sizes and strides do not reach (it spans 12 bytes); 1 such element, first at [3] of the tile"
)
DETAILS = {"operation": "%row = tt.load %x", "program": "(0, 0, 0)", "summary": "x[3] is read, beyond its 3 elements"}


def shown_at(width: int, tmp_path: Path, line: int = 3, **options) -> str:
    (tmp_path / "mine.py").write_text(KERNEL)
    verdict = Verdict(
        decision=Decision.FAIL, outcome=Outcome.STRAY_READ, message=MESSAGE, location=f"mine.py:{line}", details=DETAILS
    )
    mine = case(launcher=f"{tmp_path / 'mine.py'}:f")
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    print_wrapped(screen, failure_report("mine.py:f", "emulated:sm_90", mine, verdict, [], "bitverdict replay x", **options))
    return screen.file.getvalue()


def screen_defects(width: int, tmp_path: Path) -> set[str]:
    """What is wrong with a failure on a screen of `width` columns."""
    call = "f(torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float32, device='cuda'))" * 2
    text = shown_at(width, tmp_path, is_full=False, call=call)
    lines = text.splitlines()
    copied = [line for line in lines if line.startswith(("  call: ", "  case: ", "  replay: "))]
    rest = [line.rstrip() for line in lines if line not in copied]
    headline = "FAIL mine.py:f on emulated:sm_90: stray read: x[3] is read, beyond its 3 elements"
    return {
        name
        for name, holds in {
            "copied line broken": len(copied) == 3 and len(copied[0]) > 100,
            "line beyond the screen": max(map(len, rest)) <= width,
            "word cut": set(MESSAGE.split()) <= set(text.split()),
            "headline not first": " ".join(text.split()).startswith(headline),
            "details repeated": "program: " not in text and "operation: " not in text,
        }.items()
        if not holds
    }


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_failure_fits_the_screen_and_breaks_between_words(width: int, tmp_path: Path) -> None:
    assert screen_defects(width, tmp_path) == set()


def broken_between_letters(paragraph: Paragraph, console: Console, options: ConsoleOptions) -> RenderResult:
    text, width = paragraph.text.plain, options.max_width - 2
    yield from (Text(f"  {text[at : at + width]}") for at in range(0, len(text), width))


RENDERING_MUTANTS: dict[str, tuple[object, str, object, str]] = {
    "paragraphs never wrapped": (
        Paragraph,
        "__rich_console__",
        lambda paragraph, console, options: iter([Text.assemble("  ", paragraph.text, no_wrap=True, overflow="ignore")]),
        "line beyond the screen",
    ),
    "paragraphs broken between letters": (Paragraph, "__rich_console__", broken_between_letters, "word cut"),
    "copied lines wrapped": (
        failure_report_module,
        "_whole_line",
        lambda name, line, style="": Text(f"  {name}: {line}"),
        "copied line broken",
    ),
    "all details": (failure_report_module, "FULL_DETAILS", set(), "details repeated"),
}


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("mutant", RENDERING_MUTANTS)
def test_a_screen_that_renders_badly_is_seen(mutant: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, planted, defect = RENDERING_MUTANTS[mutant]
    monkeypatch.setattr(owner, name, planted)
    assert defect in screen_defects(width, tmp_path)


def test_all_details_are_shown_where_they_are_asked_for(tmp_path: Path) -> None:
    assert "program: (0, 0, 0)" in shown_at(100, tmp_path) and "operation: %row" in shown_at(100, tmp_path)


@pytest.mark.parametrize(("operation", "underlined"), [("tt.load", "whole"), ("tt.store", "tl.store(out + at, row, mask=at < n)")])
def test_the_only_call_of_the_operation_is_underlined(operation: str, underlined: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(KERNEL)
    number = 3 if operation == "tt.load" else 5
    *_, line, marks = (text.plain for text in excerpt(f"mine.py:{number}", case(launcher=f"{tmp_path / 'mine.py'}:f"), operation))
    marked = line[marks.index("^") : marks.rindex("^") + 1]
    assert marked == (underlined if number == 5 else KERNEL.splitlines()[2].strip().partition("  #")[0]), "two loads: the line"


def help_for(kernel: str, line: int, tmp_path: Path, operation: str = "tt.load %x") -> str:
    (tmp_path / "mine.py").write_text(kernel)
    return mask_help(f"mine.py:{line}", case(launcher=f"{tmp_path / 'mine.py'}:f"), operation)


def test_a_load_without_a_mask_is_told_the_mask_beside_it(tmp_path: Path) -> None:
    one_load = KERNEL.replace(" + tl.load(out + at, mask=at < n)", "").replace(
        "at = tl.arange(0, 64)", "at, two = tl.arange(0, 64), 2"
    )
    assert help_for(one_load, 3, tmp_path) == "this load has no mask; line 5, with the same index, has mask=at < n"
    assert help_for(one_load, 5, tmp_path, "tt.store %x") == "", "it has one"
    assert help_for("def kernel(x):\n    a = tl.load(x)\n", 2, tmp_path) == "", "one element: nothing to bound"


def test_a_mask_over_other_indices_is_no_help(tmp_path: Path) -> None:
    text = (ROOT / "docs/examples/tutorial_matmul.py").read_text()
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "a = tl.load(" in each)
    bounds = "this load has no mask: add one that bounds offs_k[None, :]"
    for forgotten in ("offs_k[None, :] < K - k", r"offs_k\[.*\] < K - k"):  # of both loads, or of one beside the other's
        kernel = re.sub(f", mask={forgotten if '.*' in forgotten else re.escape(forgotten)}, other=0.0", "", text)
        assert help_for(kernel, line, tmp_path) == bounds, "not the mask of the store, nor that of b"
    same = text.replace("b = tl.load(b_ptrs, mask=offs_k[:, None]", "b = tl.load(a_ptrs, mask=offs_k[None, :]")
    same = same.replace("a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k, other=0.0)", "a = tl.load(a_ptrs)")
    assert help_for(same, line, tmp_path).endswith(f"line {line + 1}, with the same index, has mask=offs_k[None, :] < K - k")


def test_a_detail_that_the_sentence_has_is_told_once() -> None:
    details = {"program": "(1, 0, 0)", "argument": "x", "offset": 12, "schedule": "eager", "timeline": ["=> step 3  found here"]}
    message = "read at byte 12 of x, which its sizes and strides do not reach; 1 of the tile's elements, in program (1, 0, 0)"
    others = details | {"program": "(2, 0, 0)", "offset": 1, "schedule": "latest", "timeline": ["step 2", "=> step 3"]}
    for each, count in ((details, 0), (others, 4)):
        verdict = Verdict(decision=Decision.FAIL, outcome=Outcome.STRAY_READ, message=message, details=each)
        told = text_of(failure_report("mine", "emulated:sm_90", case(schedule="eager"), verdict, [], "replay")).splitlines()
        assert sum(line.startswith(tuple(f"  {name}: " for name in details)) for line in told) == count, told
