"""Contract under test: the page of a run is one file that loads nothing, fits a telephone, takes a keyboard and can be read."""

from __future__ import annotations

import html
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from bitverdict.harness.report.maps import tile_map
from bitverdict.harness.report.page import page, write_pictures
from bitverdict.harness.report.source import listing
from bitverdict.harness.report.timeline import timeline
from tests.support import chromium
from tests.support.told_run import HEADER, OUTPUT, RING, TOLD, event, piece, told

CONTRAST = """
(() => {
  const made = Object.assign(document.createElement("canvas"), {width: 1, height: 1});
  const canvas = made.getContext("2d", {willReadFrequently: true});
  const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const linear = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const under = (e) => {
    for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; }
  };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || ["TITLE", "SCRIPT", "OPTION"].includes(e.tagName.toUpperCase())) continue;
    const style = getComputedStyle(e);
    const ink = rgb(e.namespaceURI.endsWith("svg") ? style.fill : style.color);
    found.push([ratio(ink, under(e)), 4.5, e.className.baseVal ?? e.className]);
  }
  for (const e of document.querySelectorAll("svg rect, svg path, svg line, svg circle")) {
    const style = getComputedStyle(e), name = e.className.baseVal;
    if (["grid", "right", "phase0", "phase1", "paper"].includes(name)) continue;
    const drawn = style.fill === "none" || name === "issued" || e.tagName === "line" ? style.stroke : style.fill;
    found.push([ratio(rgb(drawn), under(e)), 3, name]);
  }
  return found.filter(([is, least]) => !(is >= least)).concat([[found.length, 0, "checked"]]);
})()
"""
"""What is below its ratio of WCAG AA, 4.5 of text and 3 of what is drawn, and how much was looked at."""

FOCUSED = "[document.activeElement.id, document.activeElement.dataset?.decision ?? '', document.activeElement.className]"
SHOWN = "[...document.querySelectorAll('#table tbody tr')].filter(row => !row.hidden).map(row => row.dataset.target)"


@pytest.mark.skipif(chromium.PROGRAM is None, reason="no chromium: install Debian's package chromium")
def test_the_page_fits_and_can_be_read_and_used_without_a_mouse(tmp_path: Path) -> None:
    """One launch for all that needs a browser."""
    path = tmp_path / "report.html"
    path.write_text(page(told(), HEADER))
    broken = tmp_path / "broken.html"
    broken.write_text(
        path.read_text().replace("--quiet: #565d6b", "--quiet: #b9bdc6").replace("max-width: 100%; }\ntable", "}\ntable")
    )
    broken.write_text(broken.read_text().replace(".scroll { overflow-x: auto;", ".scroll {"))
    with chromium.tab(tmp_path / "profile") as tab:
        tab.open(broken)
        tab.show(360, "light")
        assert tab.value("document.documentElement.scrollWidth") > 360
        assert len(tab.value(CONTRAST)) > 1
        tab.open(path)
        assert tab.value("performance.getEntriesByType('resource').length") == 0
        sizes = set()
        for width in (320, 1280):
            for scheme in ("light", "dark"):
                tab.show(width, scheme)
                assert tab.value("document.documentElement.scrollWidth") <= width
                low = tab.value(CONTRAST)
                assert low[:-1] == [] and low[-1][0] > 100, low
                tab.picture(tmp_path / f"{width}-{scheme}.png")
                sizes.add((tmp_path / f"{width}-{scheme}.png").read_bytes())
        assert len(sizes) == 4
        tab.value("document.activeElement.blur(); 0")
        visited = []
        while "fail" not in visited and len(visited) < 12:
            tab.press("Tab")
            visited += filter(None, tab.value(FOCUSED)[:2])
        assert visited[:2] == ["filter-text", "filter-target"] and visited[-1] == "fail"
        assert len(tab.value(SHOWN)) == 3
        tab.press("Enter")
        assert tab.value(SHOWN) == ["emulated:sm_90"]
        assert tab.value("document.getElementById('filter-count').textContent") == "1 of 3 lines"
        assert tab.value("document.querySelector('[data-decision=fail]').ariaPressed") == "true"
        listed = "[...document.querySelectorAll('.listed tbody tr')].filter(row => !row.hidden).map(row => row.id)"
        assert tab.value(listed) == ["case-1"], "the filters are of the list of cases too"
        tab.value("document.querySelector('[data-decision=all]').click(); 0")
        tab.value("document.getElementById('by-seconds').click(); 0")
        assert tab.value(listed) == ["case-2", "case-1", "case-3"], "the slowest first"
        assert tab.value("document.getElementById('all-cases').open") is False
        tab.value("new Promise(go => { addEventListener('hashchange', () => go(0)); location.hash = 'case-2'; })")
        assert tab.value("document.getElementById('all-cases').open") is True, "a link to a case shows it"


def test_the_page_is_one_file_and_escapes_what_kernels_say() -> None:
    text = page(told(), HEADER)
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)|@import|url\(|https?://(?!www\.w3\.org/2000/svg)""", text)
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text
    for due in (
        HEADER["command"],
        HEADER["commit"],
        "triton 3.9.0",
        "multiple of 16",
        "m = 512",
        "replay .bitverdict",
        "wait on the mb",
    ):
        assert due in text


def test_the_page_names_its_kernel_and_each_failure_has_an_address() -> None:
    text = page(told(), HEADER)
    failures = told()["failures"]
    assert f"<h1>{', '.join(dict.fromkeys(html.escape(each['contract']) for each in failures))} <span" in text
    for number in range(1, len(failures) + 1):
        assert f'id="failure-{number}"' in text and f'href="#failure-{number}"' in text
    columns = re.findall(r"<th scope=\"col\"[^>]*>(\w+)</th>", text)
    assert columns[:3] == ["contract", "pass", "fail"], "a narrow window shows these"
    assert text.index(failures[0]["headline"]) < text.index(failures[0]["replay"])


def test_a_listing_has_no_blank_lines_but_single_ones_inside(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("\n\na = 1\n\n\n\nb = 2\n\nc = 3\n\n")
    case = SimpleNamespace(launcher=f"{tmp_path / 'mine.py'}:f", contract="")
    (shown,) = listing({"mine.py:7": "here"}, case)  # type: ignore[arg-type]
    assert [line["parts"] for line in shown["lines"]][:2] == [[("", "a = "), ("number", "1")], []]
    assert [(line["number"], line["gap"]) for line in shown["lines"]] == [
        (3, False),
        (4, False),
        (7, False),
        (8, False),
        (9, False),
    ]


def test_lines_of_one_file_are_one_listing_however_they_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("a = 1\nb = 2\n")
    monkeypatch.chdir(tmp_path)
    case = SimpleNamespace(launcher="", contract="test_mine.py:f")
    (shown,) = listing({f"{tmp_path / 'mine.py'}:1": "stored", "mine.py:2": "error"}, case)  # type: ignore[arg-type]
    assert [line["said"] for line in shown["lines"]] == ["stored", "error"]


def test_each_picture_is_a_file_with_its_colours(tmp_path: Path) -> None:
    files = write_pictures(tmp_path / "pictures", told())
    assert [path.name.rpartition("sm_90-")[2] for path in files] == ["tiles-c.svg", "sizes-c.svg", "errors-c.svg", "timeline.svg"]
    assert all("prefers-color-scheme: dark" in path.read_text() for path in files)


def test_the_timeline_draws_each_stage_and_its_reuse() -> None:
    svg = timeline(TOLD, "race", "mine.py:7")
    assert [f"stage {number} of line 7" in svg for number in (0, 1, 2)] == [True, True, False]
    assert svg.count("<title>in flight:") == 3 and "phase 1 is open" in svg and "race at mine.py:7" in svg
    assert svg.count("reused after it was read: step 9") == 1 and "overwritten before it was read" not in svg
    assert "it was read:" not in timeline({**TOLD, "events": RING[:9]}, "race")
    assert timeline({**TOLD, "events": [each for each in RING if each["kind"] == "read"]}) == ""


@pytest.mark.parametrize(
    "reads",
    [
        [],
        [event(8, "read", reads=[piece(0, 128)])],
        [event(8, "read", reads=[piece(256, 512)])],
        [event(8, "issued", 7, reads=[piece(0, 256)])],
    ],
    ids=["never", "in part", "another stage", "still in flight"],
)
def test_only_what_is_overwritten_before_its_read_is_red(reads: list) -> None:
    before = [each for each in RING if each["kind"] not in ("read", "fault")]
    svg = timeline({**TOLD, "events": [*before[:-1], *reads, before[-1]]})
    assert svg.count("overwritten before it was read: step 9") == 1 and "reused after it was read" not in svg
    landed = [event(8, "read", reads=[piece(0, 256)])]
    if reads and reads[0]["flight"]:
        landed = [*reads, event(8, "landed", 7, reads=[piece(0, 256)])]
    svg = timeline({**TOLD, "events": [*before[:-1], *landed, before[-1]]})
    assert svg.count("reused after it was read: step 9") == 1 and "overwritten before it was read" not in svg


def test_the_legend_names_the_marks_that_are_drawn() -> None:
    quiet = r'class="label quiet"[^>]*>([^<]*)<'
    said = set(re.findall(quiet, timeline(TOLD, "race", "mine.py:7")))
    assert {"load in flight", "reused after the read", "wait passes", "on-chip read"} <= said
    assert not {"stored", "mma issued", "global load", "on-chip write"} & said
    product = event(8, "issued", 7, operation="wgmma", reads=[piece(0, 256)])
    assert "mma issued" in re.findall(quiet, timeline({**TOLD, "events": [*RING[:9], product]}))


def test_programs_of_one_colour_share_a_line_of_the_legend() -> None:
    cells = [[[4, 1, writer, 0.0] for writer in range(1, 42)]]
    output = OUTPUT | {"map": {"cell": [1, 4], "shape": [1, 164], "cells": cells}}
    tiles = tile_map(output, [[0, [place, 0, 0]] for place in range(41)])
    assert "6 wrong words stored by program 0, program 8, program 16 and 3 more" in tiles
    assert len(re.findall("wrong words? stored by", tiles)) == 8


def test_a_map_says_which_program_stored_the_wrong_words() -> None:
    tiles, sizes, errors = (each["svg"] for each in told()["failures"][0]["pictures"])
    assert "32 wrong words stored by program 1" in tiles and "8 wrong words stored by program (0, 1)" in tiles
    assert sizes.count('class="wrong" fill-opacity') == 2 + 5, "2 cells, 5 of the scale"
    assert "error up to 256 times the bound" in sizes and "NaN, inf" not in errors, "no bar stands there"
    assert 'fill-opacity="0.15"' in sizes and 'fill-opacity="1.00"' in sizes and "NaN or infinite" in sizes
    assert sum(map(sum, OUTPUT["errors"]["counts"])) + sum(OUTPUT["errors"]["zero"]) == OUTPUT["of"]
