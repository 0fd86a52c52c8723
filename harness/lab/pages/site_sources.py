"""The Markdown of the site: ``python -m bitverdict.harness.lab.pages.site_sources FOLDER`` lays it there for `.ci/docs`.

Pages lie as in the repository, so a link that leads somewhere in a checkout leads there on the site; what pages link is copied.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bitverdict.harness.model.paths import ROOT

OF_GITHUB = (".github/", "harness/")  # templates, which are no pages
_ESCAPED_BAR = re.compile(
    r"\\\|(?=[^`\n]*`([^`\n]*`[^`\n]*`)*[^`\n]*$)", re.MULTILINE
)  # in code, where the site shows the backslash
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def pages() -> list[str]:
    """The Markdown pages and notebooks of the checkout that git has or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "*.ipynb"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return sorted(name for name in names if name and not name.startswith(OF_GITHUB) and (ROOT / name).is_file())


def lay(folder: Path) -> None:
    """Write every page, and every file that one links, into `folder`, which is emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in pages():
        text = (ROOT / name).read_text()
        text = notebook_text(text) if name.endswith(".ipynb") else _ESCAPED_BAR.sub("|", text)
        for linked in {(Path(name).parent / place[1]) for place in _LINK.finditer(text)}:
            source = (ROOT / linked).resolve()
            if source.is_file() and source.suffix != ".md" and source.is_relative_to(ROOT):
                _write(folder / source.relative_to(ROOT), source.read_bytes())
        _write(folder / Path(name).with_suffix(".md"), text.encode())
    _write(folder / "llms.txt", llms_text((ROOT / "mkdocs.yml").read_text()).encode())


def llms_text(navigation: str) -> str:
    """What a language model reads of the site first (llmstxt.org): each page of `mkdocs.yml` by its title, under its shelf."""
    lines = [f"# {re.search(r'^site_name: (.*)', navigation, re.MULTILINE)[1]}", ""]  # type: ignore[index]
    lines += [f"> {re.search(r'^site_description: (.*)', navigation, re.MULTILINE)[1]}"]  # type: ignore[index]
    for line in navigation.partition("\nnav:\n")[2].splitlines():
        if shelf := re.fullmatch(r"  - ([\w-]+):", line):
            lines += ["", f"## {shelf[1]}", ""]
        elif page := re.fullmatch(r" +- (?:(.*): )?(\S+\.md)", line):
            place = re.sub(r"README/$", "", f"{page[2].removesuffix('.md')}/")  # where it lies on the site
            lines += [f"- [{page[1] or page[2]}]({place})"] if lines[-1] == "" or lines[-1].startswith("- ") else []
    return "\n".join(lines) + "\n"


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def notebook_text(notebook: str) -> str:
    """The cells of a notebook as Markdown; what they printed is left to whoever runs them."""
    return "\n\n".join(_cells(json.loads(notebook)["cells"])) + "\n"


def _cells(cells: list[dict]) -> Iterator[str]:
    for cell in cells:
        text = "".join(cell["source"])
        yield text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"


if __name__ == "__main__":
    lay(Path(sys.argv[1]))
