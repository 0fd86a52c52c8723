"""Contract under test: a commit can be done without only where no wait can tell that its copies are in the next group."""

from __future__ import annotations

import pytest

from bitverdict.harness.mutants.equivalence import COMMITS, equal_programs
from bitverdict.harness.mutants.program.copy_groups import without_a_commit


def program(*body: str) -> str:
    """A tile program of `body`: c commits, w2 waits for all but two groups, ^bb1: is a label, ^bb1 and ^bb1, ^bb2 jump."""
    lines = []
    for number, each in enumerate(body):
        if each == "c":
            lines.append(f'    %t{number} = "ttg.async_commit_group"() : () -> !ttg.async.token loc(#loc)')
        elif each.startswith("w"):
            lines.append(f'    %t{number} = "ttg.async_wait"() <{{num = {each[1:]} : i32}}> : () -> !ttg.async.token loc(#loc)')
        elif each.startswith("("):  # an operation with a region
            lines += [
                '    "tt.reduce"() ({',
                *([f'      "ttg.async_wait"() <{{num = {each[2]} : i32}}> : () -> () loc(#loc)'] if "w" in each else []),
                '      "tt.reduce.return"() : () -> () loc(#loc)',
                "    }) : () -> () loc(#loc)",
            ]
        elif each.endswith(":"):
            lines.append(f"  {each}")
        else:
            operands = "(%go)" if "," in each else "()"
            kinds = "(i1)" if "," in each else "()"
            sizes = " <{operandSegmentSizes = array<i32: 1, 0, 0>}>" if "," in each else ""
            lines.append(f'    "cf.{"cond_br" if "," in each else "br"}"{operands}[{each}]{sizes} : {kinds} -> () loc(#loc)')
    return "\n".join(
        [
            '#loc = loc("kernel.py":1:0)',
            '"builtin.module"() ({',
            '  "tt.func"() <{function_type = (i1) -> (), sym_name = "copies", sym_visibility = "public"}> ({',
            '  ^bb0(%go: i1 loc("go"(#loc))):',
            *lines,
            '    "tt.return"() : () -> () loc(#loc)',
            "  }) {noinline = false} : () -> () loc(#loc)",
            '}) {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.shared = 0 : i32, ttg.target = "cuda:90"}'
            " : () -> () loc(#loc)",
        ]
    )


NEEDED = {
    "the second may be in flight": ["c", "c", "w1"],
    "fewer follow than may be in flight": ["c", "c", "c", "w2"],
    "it is waited for before the second": ["c", "w0", "c", "w0"],
    "the second is in another block": ["c", "^bb1", "^bb1:", "c", "w0"],
    "on one of two ways too few follow": ["c", "c", "^bb1, ^bb2", "^bb1:", "c", "^bb2", "^bb2:", "w1"],
    "a loop comes back with too few": ["^bb1", "^bb1:", "w1", "c", "c", "^bb1, ^bb2", "^bb2:"],
    "there is one": ["c", "w0"],
    "a region waits": ["c", "c", "(w1)", "w0"],
}


@pytest.mark.parametrize("body", [["c", "c", "w0"], ["c", "c", "c", "w1"], ["c", "w63", "c", "w0"], ["c", "()", "c", "w0"]])
def test_a_commit_before_another_is_spared_where_no_wait_counts_it(body: list[str]) -> None:
    right = program(*body)
    first = next(line for line in right.split("\n") if "async_commit_group" in line)
    mutant = right.replace(first + "\n", "")
    assert equal_programs(right, mutant, "sm_90") == COMMITS
    assert equal_programs(mutant, right, "sm_90") == ""


def test_commits_of_a_loop_count_for_the_waits_in_it() -> None:
    body = ["c", "c", "c", "c", "^bb1", "^bb1:", "w2", "c", "c", "^bb1, ^bb2", "^bb2:", "w0"]
    right = program(*body)
    assert right.replace('    %t0 = "ttg.async_commit_group"() : () -> !ttg.async.token loc(#loc)\n', "") in set(
        without_a_commit(right)
    )
    assert len(list(without_a_commit(right))) == 1


@pytest.mark.parametrize("why", NEEDED)
def test_a_commit_that_a_wait_counts_is_needed(why: str) -> None:
    assert list(without_a_commit(program(*NEEDED[why]))) == []
