"""The page itself: one file with its styles, script and pictures in it. It loads nothing and needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bitverdict.harness.judge.machine_faults import writing
from bitverdict.harness.report.collect import stem_of
from bitverdict.harness.report.svg import as_file
from bitverdict.harness.session.failure_report import heat_map
from bitverdict.harness.session.reproducers import write_atomically
from bitverdict.harness.session.result_files import FREE

FOLDER = Path(__file__).parent
FAILURE_PARTS: dict[str, object] = {"drawn": "", "help": [], "pictures": [], "heat": None, "first": [], "clusters": []}
FAILURE_PARTS |= {"error": False, "examined": "", "not_examined": "", "program": ""}
RUN_PARTS: dict[str, object] = {"rows": [], "cases": [], "sizes": [], "configurations": [], "left_out": None}
"""What the page shows nothing of where it is not told."""
STATUS = {0: "all pass", 1: "failed", 3: "open: an error, or a case that is not decided", 5: "nothing ran"}


def page(page_data: Mapping[str, Any], header: Mapping[str, object]) -> str:
    """The text of the page. `page_data` is of `bitverdict.harness.report.collect`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = {name: Markup((FOLDER / name).read_text()) for name in ("colours.css", "page.css", "page.js")}
    failures = [
        {**each, "pictures": [{**one, "svg": Markup(one["svg"])} for one in each["pictures"]], "heat_text": _heat(each)}
        for each in ({**FAILURE_PARTS, **failure} for failure in page_data["failures"])
    ]
    page_data = {**RUN_PARTS, **page_data}
    targets = sorted({row["target"] for row in page_data["rows"]})
    return environment.get_template("page.html.j2").render(
        told={**page_data, "failures": failures},
        header=header,
        text=text,
        targets=targets,
        status=page_data.get("status_text") or STATUS.get(page_data["status"], ""),
    )


def _heat(told: Mapping[str, Any]) -> str:
    return heat_map(told["heat"]) if told["heat"] else ""


def write_page(path: Path, told: Mapping[str, object], header: Mapping[str, object]) -> None:
    """Write the page to `path`, whole or not at all."""
    with writing("--html", path, FREE):
        write_atomically(path, page(told, header))


def write_pictures(directory: Path, told: Mapping[str, Any]) -> list[Path]:
    """Each picture as an SVG file of its own, with its colours, in `directory`; the files' paths."""
    paths = []
    with writing("--pictures", directory, FREE):
        directory.mkdir(parents=True, exist_ok=True)
        for number, each in enumerate(told["failures"], 1):
            for one in each["pictures"]:
                kind = f"{one['kind']}-{one['name']}" if one["name"] else one["kind"]
                path = directory / f"{stem_of(each, number)}-{kind}.svg"
                write_atomically(path, as_file(one["svg"]))
                paths.append(path)
    return paths
