"""What the GPU's runs came to, as tables, a drawing and a page.

    python -m benchmarks.pages DIR > docs/benchmarks.md; cp DIR/throughput.svg docs/throughput.svg
    python -m benchmarks.pages DIR --into docs/benchmarks.md      replaces the sections that DIR has runs of, and keeps the others

DIR holds what `benchmarks/on_gpus.sh` and `benchmarks/sanitizers.sh` wrote: throughput.json, large.jsonl, judged_cold.jsonl and
judged_warm.jsonl (first and last line of a run; judged_warm8.jsonl and judged_warm4.jsonl with fewer workers), two_gpus.json (and
_short: less work a shard; _all_cores: as many workers on one GPU as on two; _cases: small cases), suite.json and memcheck.json; and
hopper.log, what the line of its section printed; proton.log, what `benchmarks/block_scaled_matmul.py --proton` printed.
small.json, grouping.json, gathers.json, copies.json and blackwell.json are the throughput.json of a run of that part
alone, and come before throughput.json in the part's section. whole*.json are of `bitverdict run --profile whole --json`,
large_whole.json is of `bitverdict lab large` with as many products as compare all words.
What is missing becomes a section that says that it was not run.
"""

# One file because each section of the one page is printed from the same runs, and --into needs all of them.
from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.tutorial_figures import GROUPED, TABLES

HOPPER = (
    "python -m pytest -n auto --dist worksteal tests/kernel_contracts/test_contracts.py tests/kernel_contracts/test_large.py "
    "--bv-profile quick --bv-shards 16 --bv-target cuda:sm_90"
)
SHOWN = ("kernel", "type", "M x N x K", "configuration", "timed", "TFLOP/s", "0.2 to 0.8", "peer", "its TFLOP/s", "ratio", "words",
         "differ")  # fmt: skip
GOALS = {("8192", "launches"): 0.95, ("1024", "graph"): 0.6, ("2048", "graph"): 0.85}
"""Share of cuBLAS that the autotuned matmul must reach in fp16, by size and by how it is timed."""
LEAST_WHOLE = 512**3  # products of a case that the section of whole sizes lists
COLOURS = {"matmul": "#1f5fbf", "hopper_matmul": "#b8860b", "ampere_gemm": "#777777", "block_scaled_matmul": "#7a3fa0"}
JUDGED = {"cold": "cold cache", "warm": "warm cache", "warm8": "warm cache, 8 workers", "warm4": "warm cache, 4 workers"}
BY_HAND = "## Kernels of your own"
TWO_GPUS = ("two_gpus", "two_gpus_short", "two_gpus_all_cores", "two_gpus_cases")
WIDTH, HEIGHT, LEFT, TOP, BAR = 900, 0, 330, 46, 22


def cells(row: dict) -> list[str]:
    """One row of the throughput table. The quantiles of time are turned round in speed: 0.8 of the time is the slow end."""
    speed, peer = row["tflops"], row["peer_tflops"]
    return [row["kernel"], row["dtype"], row["size"], row["config"], row["timed"], f"{speed[0]:.0f}",
            f"{speed[2]:.0f} to {speed[1]:.0f}", row["peer"], f"{peer[0]:.0f}", f"{row['ratio']:.3f}", f"{row['words']:,}",
            f"{row['differ']:,}"]  # fmt: skip


def reached(rows: list[dict]) -> list[tuple[str, bool]]:
    """A sentence for each row of `GOALS`, and whether it was met."""
    said = []
    for row in rows:
        goal = GOALS.get((row["size"], row["timed"])) if (row["kernel"], row["dtype"]) == ("matmul", "fp16") else None
        if goal is None or not row["ms"] or row["part"] == "grouping":
            continue
        how = " through a graph" if row["timed"] == "graph" else ""
        met = row["ratio"] >= goal
        said.append((f"`matmul` at {row['size']} cubed in fp16{how}: **{row['ratio']:.3f}** of cuBLAS "
                     f"(goal {goal}: {'met' if met else 'missed'}).", met))  # fmt: skip
    return said


def throughput_table(told: dict) -> Any:
    from rich.table import Table

    table = Table(title=f"Throughput on {told['model']}, {told['date']}", title_justify="left", pad_edge=False)
    for name in SHOWN:
        table.add_column(name, justify="right" if name[0] in "TMwdr0" else "left")
    for row in told["rows"]:
        if row["ms"]:
            table.add_row(*cells(row))
    missing = sum(bool(row["not_run"]) for row in told["rows"])
    table.caption = f"{missing} rows not run: throughput.json says why" if missing else None
    return table


def svg(told: dict) -> str:
    """Bars of TFLOP/s, kernel over peer, with the span from quantile 0.2 to 0.8."""
    rows = [row for row in told["rows"] if row["ms"] and row["part"] not in ("grouping", "gathers", "copies")]
    height = TOP + len(rows) * (2 * BAR + 14) + 30
    most = max([row["peer_tflops"][0] for row in rows] + [row["tflops"][0] for row in rows] + [1.0]) * 1.08
    scale = (WIDTH - LEFT - 60) / most
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="12" y="22" font-size="15">TFLOP/s on {escape(told["model"])}, {escape(told["date"])}; grey: cuBLAS</text>',
    ]
    for step in range(0, int(most), 100):
        x = LEFT + step * scale
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 26}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 10}" text-anchor="middle">{step}</text>')
    for place, row in enumerate(rows):
        y = TOP + place * (2 * BAR + 14)
        label = f"{row['kernel']} {row['dtype']} {row['size']}" + (", graph" if row["timed"] == "graph" else "")
        parts.append(f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(label)}</text>')
        small = 'text-anchor="end" fill="#777777" font-size="10"'
        parts.append(f'<text x="{LEFT - 8}" y="{y + 32}" {small}>{escape(row["config"])}</text>')
        for lower, speed, colour in ((0, row["tflops"], COLOURS.get(row["kernel"], "#1f5fbf")), (1, row["peer_tflops"], "#bbbbbb")):
            top, length = y + lower * BAR, speed[0] * scale
            parts.append(f'<rect x="{LEFT}" y="{top}" width="{length:.1f}" height="{BAR - 2}" fill="{colour}"/>')
            low, high = (LEFT + speed[end] * scale for end in (2, 1))
            parts.append(f'<line x1="{low:.1f}" y1="{top + 10}" x2="{high:.1f}" y2="{top + 10}" stroke="black"/>')
            said = f"{speed[0]:.0f}" + (f" ({row['ratio']:.2f})" if not lower else "")
            parts.append(f'<text x="{LEFT + length + 6:.1f}" y="{top + 15}">{said}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    into = Path(given[2]) if len(given) == 3 and given[1] == "--into" else None
    if not given or not Path(given[0]).is_dir() or (len(given) > 1 and (into is None or not into.is_file())):
        print("give the directory of the runs' files: python -m benchmarks.pages DIR [--into FILE]", file=sys.stderr)
        return 2
    if into is None:
        print(page(Path(given[0])), end="")
    else:
        into.write_text(merged(into.read_text(), page(Path(given[0]))))
    return 0


def page(place: Path) -> str:
    """The whole page, Markdown."""
    told = read(place / "throughput.json")
    parts = [
        "# What the GPUs said",
        "",
        "Rendered by `python -m benchmarks.pages` from the files of the runs; each section says how to repeat it, and with what",
        "it ran.",
        "What was not run is said, and counts as nothing.",
        "",
        *throughput_section(told),
        *small_section(part_of(place, "small")),
        *grouping_section(part_of(place, "grouping")),
        *gathers_section(part_of(place, "gathers")),
        *copies_section(part_of(place, "copies")),
        *tutorial_section(part_of(place, "blackwell")),
        *proton_section(place / "proton.log"),
        *whole_section([lines(file) for file in sorted(place.glob("whole*.json"))], lines(place / "large_whole.json")),
        *large_section(lines(place / "large.jsonl")),
        *time_section({name: lines(place / f"judged_{name}.jsonl") for name in JUDGED}, place / "judged.txt"),
        *hopper_section(place / "hopper.log"),
        *two_section([read(place / f"{name}.json") for name in TWO_GPUS]),
        *sanitizer_section(suite_rows(place), place / "suite.origin"),
    ]
    return "\n".join(parts).rstrip() + "\n"


def merged(old: str, new: str) -> str:
    """`new` with each section that was not run as `old` has it, where `old` has one, and the one written by hand behind it."""
    kept, printed = dict(sections(old)), dict(sections(new))
    parts = [kept.get(head, body) if "\nNot run." in body else body for head, body in printed.items()]
    parts += [kept[BY_HAND]] if BY_HAND in kept else []
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def sections(text: str) -> list[tuple[str, str]]:
    """(heading, whole text) of each section of a page, what precedes the first among them."""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return [(part.partition("\n")[0], part) for part in parts]


def read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.is_file() else None


def part_of(place: Path, part: str) -> Any:
    """A throughput run with the rows of `part` alone: of a run of its own where there is one. None where neither has any."""
    for name in (part, "throughput"):
        told = read(place / f"{name}.json")
        if told and (rows := [row for row in told["rows"] if row["part"] == part]):
            return told | {"rows": rows}
    return None


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()] if path.is_file() else []


def grid(head: tuple[str, ...], rows: list[list[str]], *, left: int = 1) -> list[str]:
    """A Markdown table whose first `left` columns are text."""
    marks = ["---" if place < left else "---:" for place in range(len(head))]
    return [f"| {' | '.join(cells)} |" for cells in ([*head], marks, *rows)] + [""]


def ran_with(told: dict) -> str:
    return ", ".join(f"{name} {version}" for name, version in told["versions"].items())


def throughput_section(told: dict | None) -> list[str]:
    made = ["## Throughput beside cuBLAS", ""]
    if told is None:
        return [*made, "Not run. `python -m benchmarks.throughput --out DIR`", ""]
    told = told | {"rows": [row for row in told["rows"] if row["part"] not in ("small", "grouping", "gathers", "copies")]}
    made += [f"{told['model']}, {told['date']}; {ran_with(told)}.", f"`{told['command']}`", ""]
    made += [
        "TFLOP/s at the median of the times, then at their quantiles 0.8 and 0.2; kernel and cuBLAS took turns in one run.",
        "`timed`: each launch by itself with the L2 cache cleared before it, the host's time of a launch included where it is the",
        "longer.",
        "`words`: of the timed launch, at its own size, compared bit for bit with the plan; 0 where the run ended before that.",
        "",
    ]
    made += [f"- {said}" for said, _ in reached(told["rows"])]
    made += ["", "![TFLOP/s of each kernel beside cuBLAS](throughput.svg)", ""]
    made += timed_rows([row for row in told["rows"] if row["ms"]])
    return [*made, *not_run([row for row in told["rows"] if row["not_run"]])]


def not_run(missing: list[dict]) -> list[str]:
    """Rows that were not run, by kernel, type and reason."""
    if not missing:
        return []
    tables: dict[tuple, list[str]] = {}
    for row in missing:
        tables.setdefault((row["kernel"], row["dtype"], row["not_run"]), []).append(f"{row['size']} ({row['config']})")
    told = [f"- {kernel} {dtype}: {reason}. Its rows: {', '.join(rows)}" for (kernel, dtype, reason), rows in tables.items()]
    return ["Not run:", "", *told, ""]


def noted(told: dict) -> list[str]:
    """What was written beside a run's figures by hand: what its file cannot say of itself."""
    return [told["note"], ""] if told.get("note") else []


def timed_rows(ran: list[dict]) -> list[str]:
    """The table of rows that were timed, and what was tried for each."""
    made = grid(SHOWN, [cells(row) for row in ran], left=5)
    tried = [row for row in ran if row.get("tried")]
    if tried:
        made += ["What was tried (of `matmul` the autotuner's milliseconds, else TFLOP/s):", ""]
        made += [f"- {row['kernel']} {row['dtype']} {row['size']}, {row['timed']}: {told_of(row['tried'])}" for row in tried]
        made.append("")
    return made


def small_section(told: dict | None) -> list[str]:
    """Sizes whose launch takes the host longer than the GPU, through one graph."""
    made = ["## Small sizes through one CUDA graph", ""]
    if told is None:
        return [*made, "Not run. `python -m benchmarks.throughput --out DIR --parts small`", ""]
    made += [f"{told['model']}, {told['date']}; {ran_with(told)}.", f"`{told['command']}`", ""]
    made += [
        "A launch of many in one graph, whose operands stay in the L2 cache; cuBLAS the same, in turns.",
        "A lone launch of these sizes takes the host longer than the GPU.",
        "",
    ]
    made += noted(told)
    made += [f"- {said}" for said, _ in reached(told["rows"])]
    return [*made, "", *timed_rows([row for row in told["rows"] if row["ms"]])]


def grouping_section(told: dict | None) -> list[str]:
    """Each tile in groups of 1, 4, 8 and 16 rows of tiles, and what its group gains over none."""
    made = ["## Tiles in groups of rows", ""]
    rows = [row for row in told["rows"] if row["ms"]] if told else []
    if told is None or not rows:
        return [*made, "Not run. `python -m benchmarks.throughput --out DIR --parts grouping`", ""]
    without, grouped = GROUPED
    made += [
        f"{told['model']}, {told['date']}; {ran_with(told)}.",
        f"`{told['command']}`",
        "",
        "`matmul` in fp16. The tutorial says that taking tiles in groups of rows gains",
        f'"more than 10 %" on some GPUs: {without:.0f} to {grouped:.0f} TFLOP/s on an A100 ({grouped / without - 1:.0%}).',
        "Gains are over the same tile without groups: of the TFLOP/s, and of the ratio to cuBLAS, which took turns with each row.",
        "",
    ]
    alone = {_less(row): row for row in rows if _group(row) == 1}
    table = []
    for row in sorted(rows, key=lambda row: (row["size"] != rows[0]["size"], _less(row), _group(row))):
        base = alone.get(_less(row))
        speed, ratio = (row["tflops"][0], base and base["tflops"][0]), (row["ratio"], base and base["ratio"])
        gains = [f"{ours / theirs - 1:+.1%}" if theirs else "-" for ours, theirs in (speed, ratio)]
        table.append([row["size"], _less(row)[1], str(_group(row)), f"{speed[0]:.0f}", gains[0], f"{ratio[0]:.3f}", gains[1],
                      f"{row['words']:,}", f"{row['differ']:,}"])  # fmt: skip
    if not any(row["words"] for row in rows):
        made += ["Not judged in this run: no words were compared.", ""]
    return [*made, *grid(("M x N x K", "tile", "group", "TFLOP/s", "gain", "of cuBLAS", "gain", "words", "differ"), table, left=2)]


def _group(row: dict) -> int:
    return int(next(part[1:] for part in row["config"].split() if re.fullmatch(r"g\d+", part)))


def _less(row: dict) -> tuple[str, str]:
    """Size and configuration of a row, without its group."""
    return row["size"], " ".join(part for part in row["config"].split() if not re.fullmatch(r"g\d+", part))


def gathers_section(told: dict | None) -> list[str]:
    """A matmul between a gather and a scatter: by TMA where the GPU has it, by pointers anywhere."""
    made = ["## A matmul between a gather and a scatter", ""]
    if told is None:
        return [*made, "Not run. `python -m benchmarks.throughput --out DIR --parts gathers`", ""]
    made += [f"{told['model']}, {told['date']}; {ran_with(told)}.", f"`{told['command']}`", ""]
    made += [
        "Row numbers are permutations. The peer is torch: `index_select`, the product by cuBLAS, `index_copy_`; three launches.",
        "The tutorial says that gathers by TMA are typically faster than by pointers: both are rows here, where the GPU has both.",
        "",
        *noted(told),
    ]
    return [*made, *timed_rows([row for row in told["rows"] if row["ms"]]), *not_run([r for r in told["rows"] if r["not_run"]])]


def copies_section(told: dict | None) -> list[str]:
    """A tile through tensor memory and back, in GB/s."""
    made = ["## A tile through tensor memory", ""]
    if told is None:
        return [*made, "Not run. `python -m benchmarks.throughput --out DIR --parts copies`", ""]
    made += [f"{told['model']}, {told['date']}; {ran_with(told)}.", f"`{told['command']}`", ""]
    made += ["`tmem_copy` is one program: the time is that of a launch. GB/s of what is read and written.", ""]
    table = [
        [row["kernel"], row["dtype"], row["size"], row["config"], f"{row['gb_s'][0]:.2f}", row["peer"],
         f"{row['peer_gb_s'][0]:.2f}", f"{row['words']:,}", f"{row['differ']:,}"]
        for row in told["rows"] if row["ms"]
    ]  # fmt: skip
    if table:
        made += grid(("kernel", "type", "M x N", "configuration", "GB/s", "peer", "its GB/s", "words", "differ"), table, left=4)
    return [*made, *not_run([row for row in told["rows"] if row["not_run"]])]


def tutorial_section(told: dict | None) -> list[str]:
    """The tutorials' own figures, each beside the row of ours that it belongs to."""
    made = ["## The tutorials' figures beside ours", ""]
    if told is None:
        return [*made, "Not run. `python -m benchmarks.throughput --out DIR`", ""]
    ours = {(row["kernel"], row["dtype"], row["size"], row["config"]): row for row in told["rows"]}
    table = []
    for figure in TABLES:
        row = ours.get((figure.kernel, figure.dtype, figure.size, figure.config))
        came = "not tested" if row is None else f"not run: {row['not_run']}" if not row["ms"] else f"{row['tflops'][0]:.1f}"
        table.append([figure.kernel, figure.dtype, figure.size, figure.config, f"{figure.tflops:.2f}", figure.chip, came])
    made += [
        f"Ours: {told['model']}, {told['date']}. TFLOP/s. The tutorials' autotuned matmul and block-scaled matmul print no table:",
        "their sizes are rows of the first section.",
        "",
    ]
    return [*made, *grid(("kernel", "type", "M x N x K", "configuration", "the tutorial", "its chip", "ours"), table, left=4)]


def proton_section(log: Path) -> list[str]:
    """What the block-scaled benchmark printed under Triton's profiler, its tree at the end."""
    made = ["## Triton's profiler on the block-scaled product", ""]
    said = log.read_text().splitlines() if log.is_file() else []
    other = re.search(r"triton (3\.[0-8]\.\d+)", said[0]) if said else None  # an older release than that of the other sections
    if other or not any("tflop/s" in line for line in said):
        why = dict.fromkeys(line for line in said if line.startswith(("not run: ", "ModuleNotFoundError: ")))
        why |= {f"by Triton {other[1]}, whose figures are not shown: the other sections are of 3.9": None} if other else {}
        how = "Not run. `python -m benchmarks.block_scaled_matmul --format mixed --proton NAME | tee DIR/proton.log`"
        return [*made, how, "", *(f"- last tried: {line}" for line in why), *([""] if why else [])]
    how = "`python -m benchmarks.block_scaled_matmul --proton NAME`, as the tutorial profiles: active around the launches alone."
    return [*made, how, "", "```", *said, "```", ""]


def told_of(tried: dict) -> str:
    """Each configuration with its figure, or with what refused it."""
    return "; ".join(f"{name} {value}" for name, value in tried.items())


def whole_section(runs: list[list[dict]], large: list[dict]) -> list[str]:
    """The tutorials' own sizes, all words of each: those of at least `LEAST_WHOLE` products, and what comparing them took."""
    made = ["## The tutorials' own sizes, all words", ""]
    found: dict[tuple[str, ...], list[dict]] = {}
    for each in (each for run in runs for each in run if each.get("event") == "verdict"):
        p = each["case"]["problem"]
        m, n, k = p.get("m", p.get("out_rows", 0)), p.get("n", 0), p.get("k", 0)
        if m * n * k >= LEAST_WHOLE and each["verdict"].get("words"):
            found.setdefault((each["contract"], each["target"], p["dtype"], f"{m}x{n}x{k}"), []).append(each["verdict"])
    if not found:
        return [*made, "Not run. `bitverdict run --profile whole --json FILE`", ""]
    made += [
        "`bitverdict run --profile whole`. Seconds of one core a case, from operands to the comparison; the longest where",
        "there are several. What is not in the table was not run whole.",
        "",
    ]
    ended = [run for run in runs if "wall" in run[-1]]
    made += [
        f"- {run[-1]['sentence']}; {run[-1]['wall']:.0f} s, {run[-1]['seconds']['total']:,.0f} s of cores; {ran_with(run[0])}."
        for run in ended
    ]
    made.append("")
    emulated = [
        run for run in ended if all(each["target"].startswith("emulated:") for each in run if each.get("event") == "verdict")
    ]
    if emulated:
        cores = sum(run[-1]["seconds"]["total"] for run in emulated)
        made += [f"The emulated runs together took {cores:,.0f} seconds of cores: {cores / 120:.0f} minutes of two.", ""]
    table = [
        [*row, str(len(came)), f"{sum(v['words'] for v in came):,}", f"{sum(v['decision'] != 'pass' for v in came)}",
         f"{max(v['seconds']['total'] for v in came):.0f}"]
        for row, came in sorted(found.items(), key=lambda item: (item[0][0], item[0][1], item[0][2], -item[1][0]["words"]))
    ]  # fmt: skip
    made += grid(("kernel", "target", "type", "M x N x K", "cases", "words", "not passed", "seconds"), table, left=4)
    if large and large[-1].get("event") == "summary":
        made += [f"`bitverdict lab large` at one size, all words, {large[-1]['model']}: **{large[-1]['sentence']}**", ""]
    return made


def large_section(rows: list[dict]) -> list[str]:
    made = ["## Large products, bit for bit", ""]
    if not rows:
        return [*made, "Not run. `bitverdict lab large --target cuda:0 --json FILE`", ""]
    summary, rows = (rows[-1], rows[:-1]) if rows[-1].get("event") == "summary" else (None, rows)
    made += [
        "`bitverdict lab large --target cuda:0`: chosen rows crossed with chosen columns, both ends of every",
        "tile among them; the words expected are the plan's.",
        "",
    ]
    if summary:
        made += [f"{summary['model']}; {ran_with(summary)}.", "", f"**{summary['sentence']}**", ""]
    else:
        made += ["The run was ended before its last case; what there is:", ""]
    head = ("kernel", "type", "M x N x K", "configuration", "words", "of", "tiles", "differ", "verdict")
    judged = [row for row in rows if row["decision"] != "not run"]
    table = [
        [row[name] for name in ("contract", "kind", "size", "config")]
        + [f"{row['words']:,}", f"{row['result_words']:,}", "{}/{}".format(*row["tiles"]), f"{row['differ']:,}", row["decision"]]
        for row in judged
    ]
    made += grid(head, table, left=4)
    missing = dict.fromkeys(f"- not run: {r['contract']}: {r['message']}" for r in rows if r["decision"] == "not run")
    return [*made, *missing, ""]


def time_section(runs: dict[str, list[dict]], machine: Path) -> list[str]:
    """Seconds by bucket of a run that compiles everything and of one that finds it compiled."""
    made = ["## Where the time goes when judging on a GPU", ""]
    runs = {name: run for name, run in runs.items() if len(run) == 2 and run[1].get("event") == "summary"}
    if not runs:
        return [*made, "Not run. `bitverdict selftest --target cuda:0 --json FILE`", ""]
    made += [f"{' '.join(machine.read_text().split())}.", ""] if machine.is_file() else []
    names = sorted({name for run in runs.values() for name in run[1]["seconds"] if name not in ("total", "processor")})
    table = []
    for name, (first, last) in runs.items():
        wall, total = last["time"] - first["time"], sum(last["seconds"].get(bucket, 0.0) for bucket in names)
        cases = sum(sum(n for decision, n in row["decisions"].items() if decision != "not run") for row in last["rows"])
        bare, own = (
            sum(last["seconds"].get(bucket, 0.0) for bucket in buckets) / max(total, 1e-9)
            for buckets in (("transfer", "harness"), ("transfer", "harness", "start"))
        )
        spent = [last["seconds"].get(bucket, 0.0) for bucket in names]
        shares = [f"{seconds:.1f} ({seconds / max(total, 1e-9):.0%})" for seconds in spent]
        table.append([JUDGED[name], f"{cases:,}", f"{wall:.0f}", f"{cases / wall:.0f}", *shares, f"{bare:.0%}", f"{own:.0%}"])
    made += [
        "Seconds summed over the workers, by bucket (start: a worker's CUDA context);",
        "`transfer + harness` is the goal's share (at most a third, warm); `+ start` adds the workers's beginning to it.",
        "",
    ]
    made += grid(("run", "cases", "wall s", "cases a second", *names, "transfer + harness", "+ start"), table)
    for name, (first, last) in runs.items():
        made += [f"- {JUDGED[name]}: {last['sentence']} ({ran_with(first)})"]
    return [*made, ""]


def first_printed(log: list[str]) -> int:
    """Where pytest begins to print: `on_gpus.sh` writes the GPU and the date before, a run by hand need not."""
    return next((place for place, line in enumerate(log[:4]) if line.startswith("=====")), 0)


def hopper_section(log: Path) -> list[str]:
    """The plugin's own summary, as pytest printed it at the end: words by kernel and type, what was not run, the verdict."""
    made = ["## The hopper environment", ""]
    told = log.read_text().splitlines() if log.is_file() else []
    first = next((place for place, line in enumerate(told) if line.startswith("output words compared and equal")), None)
    if first is None:
        return [*made, f"Not run. `{HOPPER} | tee DIR/hopper.log`", ""]
    rest = told[first:]
    counted = [line.strip() for line in rest[1:] if " words compared and equal, " in line]
    ended = [line.strip("= ") for line in rest if line.startswith("=") and " in " in line]
    where = next((i for i, line in enumerate(rest) if line.startswith("where ")), len(rest))
    kinds = [line for line in rest[1:where] if line.startswith("  ")]
    spent = [line for line in rest[where:] if line.startswith(("where ", "  ", "judged cases"))]
    missing = [line for line in rest if line.startswith("not run:")]
    made += [f"{' '.join(told[: first_printed(told)])}.", ""] if first_printed(told) else []
    made += [f"`{HOPPER}`, what `tox -e hopper` runs, with the profile `quick` in place of `ci`:", ""]
    made += [*(f"**{line}**  " for line in (*counted, *ended)), ""]
    return [*made, "```", rest[0], *kinds, *spent, "```", "", *(f"- {line}" for line in missing), ""]


def two_section(runs: list[dict | None]) -> list[str]:
    """Both workloads, one under the other: large products and small cases need not come to the same."""
    made = ["## Two GPUs", ""]
    found = [told for told in runs if told is not None and told.get("ratio")]
    if not found:
        return [*made, "Not run. `python -m benchmarks.two_gpus --out DIR`", ""]
    if len(found) > 1:
        made += [
            "Judging waits for the host, which works out the expected words, not for the GPU. A second GPU takes time off",
            "where it brings workers of its own and the work outlasts the start of pytest and its workers (20 to 30 s with",
            "16 workers). Every workload that was timed is here; the longest was chosen after the shorter had missed the",
            "goal.",
            "",
        ]
    for told in found:
        made += [f"{told['model']}, {told['date']}. `{told['command']}`", ""]
        made += [f"**{told['sentence']}**: {'met' if told['ratio'] <= told['goal'] else 'missed'}.", ""]
        made += workers_rule(told)
        table = [[", ".join(run["gpus"]), str(run["shards"]), f"{run['cases']:,}", f"{run['words']:,}", f"{run['seconds']:.1f}"]
                 for run in (told["warming"], *told["one"], *told["two"])]  # fmt: skip
        table[0][0] += " (first run: compiles)"
        made += grid(("GPUs", "shards", "cases", "words", "seconds"), table)
    return made


def workers_rule(told: dict) -> list[str]:
    """How many workers judge in each run, and on what; of an earlier run's file, which has none of it, what its workload was."""
    if "slots" not in told:
        return [
            "Small cases, by the benchmark as it was at commit 630cf70, as many workers in both runs, one a core: a run is",
            "mostly starting, and two GPUs bring no more cores.",
            "",
        ]
    one, two = (min(count * told["slots"], told["cores"]) for count in (1, 2))
    rule = (f"{one} workers judge on one GPU and {two} on two (`BITVERDICT_GPU_SLOTS={told['slots']}`; "
            f"{told['cores']} cores).")  # fmt: skip
    if one == two:
        rule += " With every core at work for either, the second GPU brings nothing: judging waits for the host's arithmetic."
    return [
        rule,
        f"Each shard is a product of {told['size']} with expected words "
        f"worth {told['products']:,} products of elements on the host.",
        "",
    ]


def suite_rows(place: Path) -> list[dict]:
    """The rows of suite.json as this checkout understands what was printed, those of memcheck.json in the place of their like."""
    from bitverdict.harness.lab.sanitizers import runs as sanitizer

    rows: dict[str, dict] = {}
    for name in ("suite.json", "memcheck.json"):
        for row in sanitizer.read(place / name) if (place / name).is_file() else []:
            rows[json.dumps([row["contract"], row["mode"], row["case"]], sort_keys=True)] = row
    return list(rows.values())


def sanitizer_section(rows: list[dict], origin: Path) -> list[str]:
    """Kernel by mode: cases and what they came to, with the seconds; then each finding, and what was not run, with its reason."""
    made = ["## Under the sanitizers", ""]
    if not rows:
        return [*made, "Not run. `bash benchmarks/sanitizers.sh DIR suite`", ""]
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    kernels = list(dict.fromkeys(row["contract"] for row in rows))
    made += [
        "`bash benchmarks/sanitizers.sh DIR suite`: every case of a kernel's required cases that expects a result and names its",
        "configuration, under each mode: bare, Triton's iisan, consan and fpsan compiled in, compute-sanitizer's memcheck and",
        "racecheck around the process. Seconds are of the workers, starting them and compiling included. fpsan's words are",
        "its own: its cases ran and were not compared. Faulty kernels under the same modes:",
        "[sanitizers.md](sanitizers.md).",
        "",
        *([origin.read_text().strip(), ""] if origin.is_file() else []),
    ]
    ran = [kernel for kernel in kernels if any(r["contract"] == kernel and r["verdict"]["outcome"] != "not run" for r in rows)]
    table = []
    for kernel in ran:
        line = [kernel]
        for mode in modes:
            here = [row["verdict"] for row in rows if (row["contract"], row["mode"]) == (kernel, mode)]
            outcomes = [verdict["outcome"] for verdict in here]
            seconds = sum(verdict["seconds"].get("worker", 0.0) for verdict in here)
            told = ", ".join(f"{'ran' if mode == 'fpsan' and outcome == 'pass' else outcome} {outcomes.count(outcome)}"
                             for outcome in dict.fromkeys(outcomes))  # fmt: skip
            line.append(f"{told} ({seconds:.0f} s)")
        table.append(line)
    made += grid(("kernel", *modes), table, left=len(modes) + 1)
    counted = [row["verdict"]["outcome"] for row in rows]
    named = {outcome: counted.count(outcome) for outcome in dict.fromkeys(counted)}
    made += [f"{len(rows):,} verdicts: " + ", ".join(f"{outcome} {count:,}" for outcome, count in named.items()) + ".", ""]
    found: dict[str, list[str]] = {}
    for row in rows:
        verdict = row["verdict"]
        if verdict["outcome"] not in ("pass", "not run"):
            said = f"{row['contract']}, {row['mode']}: {verdict['outcome']}: {(verdict['message'].splitlines() or [''])[0][:200]}"
            found.setdefault(said, []).append(verdict["location"])
    made += [f"- {said} ({len(places)} cases)" for said, places in found.items()]
    besides: dict[str, list[str]] = {}
    for row in rows:
        if said := row["verdict"]["details"].get("besides"):
            besides.setdefault(said, []).append(row["contract"])
    made += [f"- besides, under memcheck, in {len(names)} cases of {', '.join(dict.fromkeys(names))}: {said}. The kernel ran, and "
             "memcheck found nothing in it" for said, names in besides.items()]  # fmt: skip
    missing: dict[str, list[str]] = {}
    for row in rows:
        if row["verdict"]["outcome"] == "not run":
            name = row["contract"] if row["contract"] not in ran else f"{row['contract']} under {row['mode']}"
            missing.setdefault(row["verdict"]["message"], []).append(name)
    made += [f"- not run: {', '.join(dict.fromkeys(names))}: {why}" for why, names in missing.items()]
    return [*made, ""]


if __name__ == "__main__":
    sys.exit(main())
