"""Contract under test: `tests/tutorial_parameters.json` has every list of parameters, configuration and figure of the tutorials.

The tutorials are not in this repository. `TUTORIAL_DOCUMENTS` names their directory, else it is `shared/seeds` beside the checkout;
where they are not, what is asked of each of them is skipped. How they are read is tested on texts of our own."""

from __future__ import annotations

import ast
import os
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.kernel_contracts.tutorial_rows import CHECKOUT, DOCUMENTS, ROWS, TABLE

DIRECTORY = Path(os.environ.get("TUTORIAL_DOCUMENTS") or CHECKOUT.parent / "shared" / "seeds")
CONFIGURATION = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "waves_per_eu", "num_stages", "num_warps")
Lists = dict[str, list]


def document(name: str) -> str:
    path = DIRECTORY / DOCUMENTS[name]["file"]
    if not path.is_file():
        pytest.skip(f"the tutorials are not here: {DOCUMENTS[name]['file']} is looked for in TUTORIAL_DOCUMENTS or shared/seeds")
    return path.read_text()


def literal(text: str) -> Any:
    """The value of a list in Python, a torch type by its name, tuples as lists."""
    return as_lists(ast.literal_eval(re.sub(r"torch\.(\w+)", r"'\1'", text)))


def as_lists(value: Any) -> Any:
    return [as_lists(each) for each in value] if isinstance(value, list | tuple) else value


def parametrized(text: str) -> list[Lists]:
    """The lists of each test: names -> values, of `parametrize` above one function."""
    tests: list[Lists] = []
    lists: Lists = {}
    for found in re.finditer(r'parametrize\("([\w, ]+)",\s*(\[.*?\])\)\s*(?=@|def )|def (\w+)', text, re.DOTALL):
        if found[3] is None:
            lists[found[1]] = literal(found[2])
        elif lists:
            tests.append(lists)
            lists = {}
    return tests


def drawn_lists(text: str) -> list[list]:
    """Lists that a comprehension or a loop over sizes and types goes through."""
    return [
        literal(found)
        for found in re.findall(r"for (?:shape|M, N, K|in_dtype, out_dtype) in (\[\s*\(.*?\)\s*,?\s*\])", text, re.DOTALL)
    ]


def products_of_lists(text: str) -> list[list[list]]:
    """The lists of each `itertools.product`."""
    return [literal(f"[{found}]") for found in re.findall(r"itertools\.product\((\[.*?\])\)", text)]


def tables(text: str) -> list[list]:
    """Lines of figures: four sizes, a time and a speed."""
    return [
        [*map(int, line[:4]), *map(float, line[4:])]
        for line in re.findall(r"(\d+) +(\d+) +(\d+) +(\d+) +(\d+\.\d\d) +(\d+\.\d\d)", text)
    ]


def configurations(text: str) -> list[list[int]]:
    """The configurations to tune over, each in the order of `CONFIGURATION`."""
    made = []
    for metas, rest in re.findall(r"triton\.Config\((\{.*?\}), (.*?)\)", text):
        told = ast.literal_eval(metas) | {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", rest)}
        made.append([told.get(name, 0) for name in CONFIGURATION])
    return made


def rows_of(name: str) -> list[dict[str, Any]]:
    return [row for row in ROWS if row["document"] == name]


def without(rows: list[dict[str, Any]], text: str) -> list:
    """What of `text` no row of `rows` has."""
    lists = [row["lists"] for row in rows if "lists" in row]
    of_tests = [row["lists"] for row in rows if "lists" in row and row["kind"] == "test"]
    missing: list = [test for test in parametrized(text) if test not in of_tests]
    values = [value for each in lists for value in each.values()]
    joined = list(chain(*(each["M, N, K"] for each in of_tests if "M, N, K" in each)))  # sizes that two rows share out
    missing += [found for found in drawn_lists(text) if found not in values and found != joined]
    for group in products_of_lists(text):
        missing += [group] if not any(list(each.values()) == group for each in lists) else []
    figures = [figure for row in rows for figure in row.get("figures", ())]
    missing += [line for line in tables(text) if line not in figures]
    known = [config for each in lists for names, given in each.items() if names == ", ".join(CONFIGURATION) for config in given]
    return missing + [config for config in configurations(text) if config not in known]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_list_and_figure_of_a_tutorial_is_transcribed(name: str) -> None:
    assert not without(rows_of(name), document(name))


FOUND = {"tcgen05": (4, 0, 2, 10, 0), "ampere": (0, 1, 0, 0, 0), "block scaled": (0, 0, 0, 0, 0), "matmul": (0, 2, 0, 0, 13),
         "gather scatter": (3, 0, 0, 0, 0)}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_read_of_a_tutorial_is_as_much_as_it_has(name: str) -> None:
    """A pattern that finds nothing would hold nothing."""
    text = document(name)
    found = parametrized(text), drawn_lists(text), products_of_lists(text), tables(text), configurations(text)
    assert tuple(map(len, found)) == FOUND[name]


@pytest.mark.parametrize(
    ("name", "pattern", "row", "value"),
    [
        ("block scaled", r'"--format", type=str, choices=(\[.*?\])', "formats", lambda row: row["lists"]["format"]),
        ("block scaled", r"validate_block_scaled\((8192),", "size of validation", lambda row: row["lists"]["M, N, K"][0][0]),
        ("block scaled", r"required=False, default=(\d+)", "K of the figures, by default", lambda row: row["lists"]["K"][0]),
        ("block scaled", r"reps=(\d+), block_scale_type=args", "repetitions", lambda row: row["repetitions"]),
        ("block scaled", r'"--format".*?default=("\w+")', "options of the script", lambda row: row["default_format"]),
        ("block scaled", r'"-K", type=int, required=False, default=(\d+)', "options of the script", lambda row: row["default_k"]),
        ("block scaled", r'"--K_step", type=int, default=(\d+)', "options of the script", lambda row: row["default_step"]),
        ("block scaled", r'"--bench", .*?default=(\w+)', "options of the script", lambda row: row["default_bench"]),
        ("block scaled", r'hook=("\w+")', "session of the profiler", lambda row: row["hook"]),
        ("block scaled", r"assert K % (\d+) == 0", "depth that is timed", lambda row: row["multiple"]),
        ("block scaled", r"VEC_SIZE = (\d+) if block_scale_type", "elements a scale", lambda row: row["sizes"]["nvfp4"]),
        ("block scaled", r"else (\d+) assert block_scale_type", "elements a scale", lambda row: row["sizes"]["mxfp8"]),
        ("tcgen05", r"// 1024 > (\d+)", "most shared memory", lambda row: row["kib"]),
        ("tcgen05", r"128 rows and (\d+) columns of", "occupancy of tensor memory", lambda row: row["columns_in_all"]),
        ("matmul", r"e\.g\., 220 to (\d+)", "speed of groups", lambda row: row["figures_tflops"][1]),
        ("matmul", r"rtol = (\d+) if torch.version.hip is None", "tolerance on HIP", lambda row: row["rtol"][0]),
        ("matmul", r"x >= 0, x, (0\.01) \* x", "activation", lambda row: row["slope"]),
        ("block scaled", r"epsilon = (\S+)", "elements and scales", lambda row: row["epsilon"]),
        ("gather scatter", r"y_offset=(\d+) is not", "illegal gather", lambda row: row["y_offset"]),
        ("gather scatter", r"at least (\d+) elements", "fewest rows", lambda row: row["least"]),
        ("gather scatter", r"BLOCK_Y >= (16)\.", "fewest columns", lambda row: row["least_in_fp16"]),
        ("gather scatter", r"256 // 4 = (64) gather4", "instructions of a gather", lambda row: row["counts"][0]),
        ("gather scatter", r"256 // 4 // 4 = (16) gather4", "instructions of a gather", lambda row: row["counts"][1]),
        ("gather scatter", r"reg_bases=(\[\[.*?\]\])", "layouts", lambda row: row["bases"]["slice"]["registers"]),
        ("tcgen05", r"range \[(32, 512)\]", "allocation", lambda row: row["range"]),
        ("tcgen05", r"this kernel will use (\d+) KB", "shared memory of the pipelined kernel", lambda row: row["kib"]),
        ("tcgen05", r"yields a (3):2 ratio", "loads to products", lambda row: row["ratio"][0]),
        ("tcgen05", r"attempt yields (\d+) TFLOPS", "best without pipelining", lambda row: row["figure"]),
        ("tcgen05", r"M, N, K = 8192, 8192, (16) \* 1024", "blocked matmul, figures", lambda row: row["size"][2] // 1024),
        ("matmul", r"need to load (90)", "blocks loaded", lambda row: row["blocks"][0]),
        ("matmul", r"only need to load (54)", "blocks loaded", lambda row: row["blocks"][1]),
        ("matmul", r"e\.g\., (\d+) to", "speed of groups", lambda row: row["figures_tflops"][0]),
        ("matmul", r"x_vals=(\[.*?\])", "sizes that are timed", lambda row: row["lists"]["M, N, K"]),
        ("ampere", r"BM, BN, BK = (\d+)", "the Ampere tile", lambda row: row["lists"]["BM"][0]),
        ("ampere", r"STAGES = (\d+)", "the Ampere tile", lambda row: row["lists"]["STAGES"][0]),
        ("ampere", r"\* (0\.1), dtype", "operands of the Ampere product", lambda row: row["deviation"]),
    ],
)  # fmt: skip
def test_a_figure_in_the_text_is_the_one_transcribed(name: str, pattern: str, row: str, value: Any) -> None:
    found = re.search(pattern, document(name).replace("# ", ""), re.DOTALL)
    assert found is not None
    (transcribed,) = (each for each in ROWS if each["id"] == row)
    told = literal(found[1])
    assert told == value(transcribed)


TEXT = """
@pytest.mark.parametrize("M, N", [(1, 2), (3, 4)])
@pytest.mark.parametrize("dtype", [torch.float16])
def test_it(): ...
def other(): ...
triton.Config({'BLOCK_SIZE_M': 5, 'BLOCK_SIZE_N': 6, 'BLOCK_SIZE_K': 7, 'GROUP_SIZE_M': 8}, num_stages=9, num_warps=1),
for a, b in itertools.product([5], [6, 7]): ...
# 64 64 32 4 3.27 671.77
for M, N, K in [(1, 2, 3),]: ...
"""


def test_a_list_that_is_not_transcribed_is_noticed() -> None:
    row: dict[str, Any] = {"kind": "test", "lists": {"M, N": [[1, 2], [3, 4]], "dtype": ["float16"]}}
    more: list[dict[str, Any]] = [
        {"kind": "configurations", "lists": {", ".join(CONFIGURATION): [[5, 6, 7, 8, 0, 9, 1]]}},
        {"kind": "configurations", "lists": {"a": [5], "b": [6, 7]}},
        {"kind": "figures", "figures": [[64, 64, 32, 4, 3.27, 671.77]]},
        {"kind": "test", "lists": {"M, N, K": [[1, 2, 3]]}},
    ]
    assert not without([row, *more], TEXT)
    assert without([{**row, "lists": {**row["lists"], "dtype": ["float32"]}}, *more], TEXT) == [row["lists"]]
    assert len(without([{**row, "kind": "statement"}, *more], TEXT)) == 1, "a list of a test is held by a row of a test"
    for place in range(len(more)):
        assert len(without([row, *more[:place], *more[place + 1 :]], TEXT)) == 1, more[place]


def test_the_columns_of_a_table_are_those_that_the_benchmark_is_asked() -> None:
    assert all(tuple(row["columns"][: len(TABLE)]) == TABLE for row in ROWS if "figures" in row)
