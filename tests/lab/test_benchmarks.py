"""Contract under test: the benchmarks' figures are what they are called; a missed goal or a wrong word is a failing status; a row
or a section that did not run says so and is no figure; what the runs on GPUs will do is tried here on emulated ones.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks import pages, throughput, throughput_operands, throughput_rows, two_gpus
from benchmarks.pages import GOALS
from benchmarks.throughput_rows import GRAPH, PARTS, Timed
from benchmarks.tutorial_figures import TABLES
from bitverdict.harness.lab.large_gemm.cases import Row
from bitverdict.harness.model.targets import target

HOPPER = target("emulated:sm_90")
ROW = Timed(kernel="matmul", dtype="fp16", m=8192, n=8192, k=8192, config="128x256x64", ms=(2.0, 1.9, 2.2), peer="cuBLAS fp16",
            peer_ms=(1.9, 1.8, 2.0), words=10)  # fmt: skip


def test_quantiles_are_the_median_and_both_fifths() -> None:
    assert throughput.quantiles([float(t) for t in range(11)]) == (5.0, 2.0, 8.0)
    assert throughput.quantiles([3.0] * 10) == (3.0, 3.0, 3.0)


def test_speed_is_two_operations_a_product_and_the_ratio_is_of_speeds() -> None:
    assert ROW.tflops(2.0) == pytest.approx(2 * 8192**3 / 2e-3 / 1e12)
    assert ROW.ratio == pytest.approx(0.95)
    assert ROW.to_json()["peer_tflops"][0] > ROW.to_json()["tflops"][0]


def test_a_row_of_large_products_is_printed_as_it_is_stored() -> None:
    row = json.loads(
        json.dumps(asdict(Row("matmul", "fp16", "64x64x64", "128x256x64", {}, words=7, result_words=4096, tiles=(1, 2))))
    )
    assert "| 7 | 4,096 | 1/2 |" in "\n".join(pages.large_section([row | {"decision": "pass"}]))


def test_a_missed_goal_or_a_wrong_word_is_a_failing_status() -> None:
    assert throughput.status([ROW]) == 0 and GOALS == {("8192", "launches"): 0.95, ("1024", "graph"): 0.6, ("2048", "graph"): 0.85}
    assert throughput.status([replace(ROW, ms=(2.01, 1.9, 2.2))]) == 1
    assert throughput.status([replace(ROW, differ=1)]) == 1
    small = replace(ROW, m=2048, n=2048, k=2048, timed=GRAPH, peer_ms=(1.7, 1.7, 1.7))
    assert throughput.status([small]) == 0 and throughput.status([replace(small, peer_ms=(1.69, 1.6, 1.8))]) == 1
    by_launches, one_of_grouping = replace(small, timed="launches", ms=(9.0,) * 3), replace(ROW, part="grouping", ms=(9.0,) * 3)
    assert throughput.status([by_launches, one_of_grouping]) == 0  # no goal is theirs


def test_every_row_has_a_case_that_its_contract_takes_back() -> None:
    from bitverdict.harness.model.addresses import resolve

    asks = list(throughput_rows.asked([throughput_rows.size_of(text) for text in throughput_rows.SIZES]))
    assert list(dict.fromkeys(ask.row.part for ask in asks)) == list(PARTS)
    assert {(ask.row.size, ask.row.timed) for ask in asks if ask.row.part == "small"} == {("1024", GRAPH), ("2048", GRAPH)}
    assert {ask.row.dtype for ask in asks if ask.row.part == "blackwell"} == {"fp16", "nvfp4", "mxfp4", "mxfp8", "mixed"}
    kinds = {ask.row.kernel for ask in asks}
    tutorials = {"block_scaled_matmul", "blocked_matmul", "blocked_matmul_pipelined", "warp_specialized_matmul"}
    gathers = {f"{kind}_gather_scatter_matmul" for kind in ("fused", "warp_specialized", "pointer")}
    assert kinds == {"matmul", "hopper_matmul", "ampere_gemm", "tmem_copy"} | tutorials | gathers
    for ask in asks:
        for config in ask.configs:
            case = replace(ask.case, config=config)
            assert resolve(case.contract).case_from_json(json.loads(json.dumps(case.to_json()))) == case


def test_a_row_is_measured_and_one_that_lacks_a_feature_is_not() -> None:
    asks = list(throughput_rows.asked([(64, 64, 64)], ("others", "blackwell")))
    ampere = next(ask for ask in asks if ask.row.kernel == "ampere_gemm")
    throughput.measure(ampere, HOPPER, 1, 0.01)
    assert len(ampere.row.ms) == 3 and ampere.row.peer_ms[0] > 0 and not ampere.row.not_run
    throughput.judge([ampere], HOPPER)
    assert (ampere.row.words, ampere.row.differ) == (64 * 64, 0)
    for name in ("blocked_matmul", "block_scaled_matmul"):
        lacking = next(ask for ask in reversed(asks) if ask.row.kernel == name)
        throughput.measure(lacking, HOPPER, 1, 0.01)
        assert "lacks" in lacking.row.not_run and not lacking.row.ms


def test_a_product_between_a_gather_and_a_scatter_is_measured_and_judged(tmp_path: Path) -> None:
    asks = [ask for ask in throughput_rows.asked([], ("gathers",)) if ask.row.size == "1024x1024x2048"]
    by_tma, by_pointers = (
        next(ask for ask in asks if ask.row.kernel == f"{kind}_gather_scatter_matmul") for kind in ("fused", "pointer")
    )
    throughput.measure(by_tma, HOPPER, 1, 0.01)
    assert by_tma.row.not_run == "emulated:sm_90 lacks TMA gather4, TMA scatter4, tcgen05.mma, tensor memory"
    sizes = dict.fromkeys(("table_rows", "rows", "out_rows", "n"), 64) | {"k": 32}
    by_pointers.case = replace(by_pointers.case, problem=replace(by_pointers.case.problem, **sizes))
    throughput.measure(by_pointers, HOPPER, 1, 0.01)
    assert len(by_pointers.row.ms) == 3 and by_pointers.row.peer == "index_select, cuBLAS bf16, index_copy"
    throughput.judge([by_pointers], HOPPER)
    assert (by_pointers.row.words, by_pointers.row.differ) == (64 * 64, 0)
    told = {"date": "today", "command": "python", "model": "a GPU", "versions": {"triton": "3.9.0"}, "seconds": 1.0}
    rows = [ask.row.to_json() | {"part": "gathers"} for ask in (by_tma, by_pointers)]
    (tmp_path / "gathers.json").write_text(json.dumps(told | {"rows": rows}))
    section = pages.page(tmp_path).partition("## A matmul between a gather and a scatter")[2].partition("## ")[0]
    assert "| pointer_gather_scatter_matmul |" in section and "bf16: emulated:sm_90 lacks TMA gather4" in section


def test_a_copy_through_tensor_memory_is_measured_and_its_words_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = list(throughput_rows.asked([], ("copies",)))
    assert len({ask.row.config for ask in asks}) == len(asks) >= 6
    throughput.measure(asks[0], HOPPER, 1, 0.01)
    assert asks[0].row.not_run == "emulated:sm_90 lacks tensor memory"
    last = asks[-1]
    throughput.measure(last, target("emulated:sm_100"), 1, 0.01)
    assert (last.row.words, last.row.differ) == (128 * 256, 0) and "tcgen05.cp" in last.row.config
    monkeypatch.setattr(throughput, "call_of", lambda case, contract, tensors: lambda: tensors["source"] + 1)
    throughput.measure(asks[1], target("emulated:sm_100"), 1, 0.01)
    assert asks[1].row.differ > 0 and throughput.status([asks[1].row]) == 1
    told = {"date": "today", "command": "python", "model": "a GPU", "versions": {"triton": "3.9.0"}, "seconds": 1.0}
    rows = [ask.row.to_json() | {"part": "copies"} for ask in (asks[0], last)]
    (tmp_path / "copies.json").write_text(json.dumps(told | {"rows": rows}))
    section = pages.page(tmp_path).partition("## A tile through tensor memory")[2].partition("## ")[0]
    assert "| tmem_copy | fp32 | 128x256 |" in section and "fp32: emulated:sm_90 lacks tensor memory" in section


def test_dequantised_operands_are_the_elements_times_their_scales() -> None:
    import numpy as np

    from bitverdict.harness.contracts.block_scaled_matmul import CONTRACT
    from bitverdict.harness.contracts.inputs.block_scaled_inputs import read_back
    from bitverdict.harness.judge.guarded_buffers import words
    from bitverdict.harness.model.case import Operand
    from bitverdict.kernels.scaled_operands import FORMATS
    from bitverdict.reference.formats import FORMATS as CODES
    from bitverdict.reference.formats import decode

    for name, f in FORMATS.items():
        problem = CONTRACT.module.Problem(m=160, n=40, k=256, format=name)
        made, wide = throughput_operands.scaled(problem, "cpu")
        for side, element, size, got in (("a", f.a, 160, wide[0]), ("b", f.b, 40, wide[1])):
            form = "uint8" if element == "e2m1" else element
            elements = Operand(name=side, format=form, codes=words(made[side]))
            factors = Operand(name="s", format=f.scale, codes=words(made[f"{side}_scale"]))
            logical = read_back(elements, factors, size, 256, f.block_size)
            scales = np.repeat(decode(CODES[f.scale], logical.scales), f.block_size, axis=1)  # (size, k)
            exact = decode(CODES[element], logical.codes) * scales
            assert np.abs(got.double().numpy() - exact).max() <= np.abs(exact).max() / 256, (name, side)


def test_a_page_says_what_was_not_run_and_shows_what_was(tmp_path: Path) -> None:
    assert pages.page(tmp_path).count("Not run.") == 13
    told = {"date": "today", "command": "python", "model": "a GPU", "versions": {"triton": "3.9.0"}, "seconds": 1.0}
    lacking = Timed(
        kernel="blocked_matmul", dtype="fp16", m=8192, n=8192, k=16384, config="64x64x64 w4", not_run="it lacks tcgen05"
    )
    rows = [ROW.to_json(), lacking.to_json()]
    (tmp_path / "throughput.json").write_text(json.dumps(told | {"rows": rows}))
    page = pages.page(tmp_path)
    assert page.count("Not run.") == 12 and "**0.950** of cuBLAS (goal 0.95: met)" in page and "it lacks tcgen05" in page
    drawn = pages.svg(told | {"rows": rows})
    assert drawn.startswith("<svg") and "matmul fp16 8192" in drawn and "blocked_matmul" not in drawn
    assert pages.main([str(tmp_path / "nowhere")]) == 2


def test_whole_sizes_are_shown_by_kernel_with_the_longest_time(tmp_path: Path) -> None:
    def verdict(size: int, seconds: float, decision: str = "pass") -> dict:
        problem = {"table_rows": size, "rows": size, "out_rows": size, "n": size, "k": size, "dtype": "bf16"}
        came = {"decision": decision, "words": size * size, "seconds": {"total": seconds}}
        kernel = "fused_gather_scatter_matmul"
        return {"event": "verdict", "contract": kernel, "target": "emulated:sm_100", "case": {"problem": problem}, "verdict": came}

    run = [{"event": "run", "versions": {"triton": "3.9.0"}}, verdict(512, 3.0), verdict(512, 7.0, "fail"), verdict(256, 1.0),
           {"event": "summary", "sentence": "3 cases judged", "wall": 12.4, "seconds": {"total": 90.0}}]  # fmt: skip
    (tmp_path / "whole_fused.json").write_text("".join(json.dumps(line) + "\n" for line in run))
    section = pages.page(tmp_path).partition("## The tutorials' own sizes, all words")[2].partition("## ")[0]
    assert "| fused_gather_scatter_matmul | emulated:sm_100 | bf16 | 512x512x512 | 2 | 524,288 | 1 | 7 |" in section
    assert "256x256x256" not in section and "- 3 cases judged; 12 s, 90 s of cores; triton 3.9.0." in section
    assert "together took 90 seconds of cores" in section


def test_the_time_of_a_run_counts_a_worker_s_start_as_the_harness_s_own(tmp_path: Path) -> None:
    first = {"time": 0.0, "versions": {"triton": "3.9.0"}}
    seconds = {"compile": 6.0, "harness": 1.0, "transfer": 1.0, "start": 2.0, "total": 10.0}
    last = {
        "event": "summary",
        "time": 4.0,
        "seconds": seconds,
        "rows": [{"decisions": {"pass": 8, "not run": 2}}],
        "sentence": "8",
    }
    (tmp_path / "judged_warm.jsonl").write_text("\n".join(map(json.dumps, (first, last))))
    assert "| warm cache | 8 | 4 | 2 | 6.0 (60%) | 1.0 (10%) | 2.0 (20%) | 1.0 (10%) | 20% | 40% |" in pages.page(tmp_path)
    del seconds["start"]  # as files were written before workers told it
    (tmp_path / "judged_warm.jsonl").write_text("\n".join(map(json.dumps, (first, last))))
    assert "| 6.0 (75%) | 1.0 (12%) | 1.0 (12%) | 25% | 25% |" in pages.page(tmp_path)


def test_the_hopper_environment_is_shown_as_pytest_ended_it(tmp_path: Path) -> None:
    log = tmp_path / "hopper.log"
    log.write_text(
        "NVIDIA H200,\n2026-11-29 10:48 UTC\n====== test session starts ======\n"  # on_gpus.sh writes the first two
        "created: 16/16 workers\noutput words compared and equal, by kernel and type:\n"
        "  matmul  fp16  2 cases  70 words (0)\n"
        "70 words compared and equal, 0 of them with K of 4,096 or more; 0 nodes failed\nnot run: small_mma: it lacks\n"
        "where 90 s of all workers went, by test file:\n  test_large.py  90.0 s 100%\n"
        "======== 2 passed, 1 skipped in 8.55s ========\n"
    )
    shown = pages.page(tmp_path).partition("## The hopper environment")[2].partition("## ")[0]
    assert "**70 words compared and equal, 0 of" in shown and "**2 passed, 1 skipped in 8.55s**" in shown
    kept = (
        "  matmul  fp16  2 cases  70 words (0)\nwhere 90 s of all workers went, by test file:\n  test_large.py  90.0 s 100%\n```\n"
    )
    assert kept + "\n- not run: small_mma: it lacks" in shown and "created" not in shown
    assert "NVIDIA H200, 2026-11-29 10:48 UTC." in shown and "session starts" not in shown
    log.write_text("created: 16/16 workers\n")  # ended before its summary
    assert pages.page(tmp_path).count("Not run.") == 13


def test_grouping_is_shown_as_the_gain_over_the_same_tile_without_it(tmp_path: Path) -> None:
    rows = [
        replace(ROW, config=f"128x256x64 g{group} w8 s3 {loads}", part="grouping", peer_ms=(peer, peer, peer)).to_json()
        for group, loads, peer in ((8, "pointers", 1.8), (1, "pointers", 1.5), (8, "descriptors", 1.9))
    ]
    told = {"date": "today", "command": "python", "model": "a GPU", "versions": {}, "seconds": 1.0, "rows": rows}
    (tmp_path / "throughput.json").write_text(json.dumps(told))
    page = pages.page(tmp_path)
    shown = page.partition("## Tiles in groups of rows")[2].partition("\n## ")[0]
    assert "| 8192 | 128x256x64 w8 s3 pointers | 1 |" in shown and "| +0.0% | 0.750 | +0.0% |" in shown
    assert (
        "| +0.0% | 0.900 | +20.0% |" in shown
        and "| - | 0.950 | - |" in shown
        and "Not judged" not in shown
        and "220 to 245 TFLOP/s on an A100 (11%)" in shown
    )
    assert "pointers" not in page.partition("## Tiles")[0]  # they are in no other table


def test_a_part_that_was_run_alone_stands_with_its_own_chip(tmp_path: Path) -> None:
    """And without judging it says so; the sections of the whole run keep theirs."""
    told = {"date": "today", "command": "python", "model": "a GPU", "versions": {}, "seconds": 1.0}
    of_part = {part: replace(ROW, config="128x256x64 g8 w8", part=part, words=0).to_json() for part in ("small", "grouping")}
    (tmp_path / "throughput.json").write_text(json.dumps(told | {"rows": [ROW.to_json(), *of_part.values()]}))
    (tmp_path / "grouping.json").write_text(json.dumps(told | {"model": "another GPU", "rows": [of_part["grouping"]]}))
    parts = dict(pages.sections(pages.page(tmp_path)))
    assert "another GPU" in (shown := parts["## Tiles in groups of rows"]) and "Not judged in this run" in shown
    assert "a GPU, today" in (shown := parts["## Small sizes through one CUDA graph"]) and "| matmul | fp16 | 8192 |" in shown
    assert parts["## Throughput beside cuBLAS"].count("| matmul | fp16 | 8192 |") == 1


def test_a_profiler_that_could_not_be_loaded_is_not_run_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "proton.log").write_text("not run: --proton told: no library\nnot run: --proton told: no library\n")
    shown = dict(pages.sections(pages.page(tmp_path)))["## Triton's profiler on the block-scaled product"]
    assert "\nNot run. `python" in shown and shown.count("- last tried: not run: --proton told: no library") == 1
    (tmp_path / "proton.log").write_text("GPU, triton 3.9.0, 2026-11-22\ntflop/s   time/ms  launches\n")
    assert "Not run." not in dict(pages.sections(pages.page(tmp_path)))["## Triton's profiler on the block-scaled product"]
    (tmp_path / "proton.log").write_text("GPU, triton 3.6.0, 2026-11-22\ntflop/s   time/ms  launches\n")
    shown = dict(pages.sections(pages.page(tmp_path)))["## Triton's profiler on the block-scaled product"]
    assert "\nNot run. `python" in shown and "- last tried: by Triton 3.6.0" in shown and "time/ms" not in shown


def test_each_figure_of_the_tutorials_stands_beside_a_row_of_ours(tmp_path: Path) -> None:
    asks = list(throughput_rows.asked([(64, 64, 64)], ("blackwell",)))
    asks[0].row.ms = asks[0].row.peer_ms = (3.0, 3.0, 3.0)
    for ask in asks[1:]:
        ask.row.not_run = "it lacks tcgen05"
    rows = [ask.row.to_json() for ask in asks]
    told = {"date": "today", "command": "python", "model": "a GPU", "versions": {}, "seconds": 1.0, "rows": rows}
    (tmp_path / "throughput.json").write_text(json.dumps(told))
    shown = pages.page(tmp_path).partition("## The tutorials' figures beside ours")[2].partition("\n## ")[0]
    assert len(TABLES) == 10 and shown.count("Blackwell, not named | not run: it lacks tcgen05") == 9 and "not tested" not in shown
    assert f"| 671.77 | Blackwell, not named | {asks[0].row.tflops(3.0):.1f} |" in shown and "| 1113.49 |" in shown


def test_sections_without_a_run_are_kept_from_the_page_there_is(tmp_path: Path) -> None:
    old = "# What\n\n## Two GPUs\n\nmeasured before\n\n## The hopper environment\n\nalso before\n\n## Gone\n\nx\n"
    into = tmp_path / "page.md"
    into.write_text(old)
    (tmp_path / "hopper.log").write_text("output words compared and equal, by kernel\nwhere 9 s\n== 2 passed in 8.55s ==\n")
    assert pages.main([str(tmp_path), "--into", str(into)]) == 0
    page = into.read_text()
    assert "measured before" in page and "also before" not in page and "2 passed" in page and "## Gone" not in page
    assert page.startswith("# What the GPUs said\n") and page.count("## Two GPUs") == 1 and "\n\n\n" not in page
    with_own = into.read_text() + "\n## Kernels of your own\n\nWritten by hand.\n"
    into.write_text(with_own)
    assert pages.main([str(tmp_path), "--into", str(into)]) == 0
    assert into.read_text() == with_own
    assert pages.main([str(tmp_path), "--into", str(tmp_path / "nowhere.md")]) == 2


def test_both_workloads_of_two_gpus_are_shown_with_their_workers_rule(tmp_path: Path) -> None:
    run = {"gpus": ["0"], "seconds": 10.0, "shards": 240, "cases": 9, "words": 9, "status": 0}
    told = {"model": "a GPU", "date": "today", "command": "python", "goal": 0.6, "warming": run, "one": [run], "two": [run]}
    (tmp_path / "two_gpus_cases.json").write_text(json.dumps(told | {"ratio": 1.14, "sentence": "small"}))
    assert "**small**: missed." in pages.page(tmp_path)
    large = told | {"ratio": 0.55, "sentence": "large", "slots": 8, "cores": 32, "products": 1 << 29, "size": "4096x4096x4096"}
    (tmp_path / "two_gpus.json").write_text(json.dumps(large))
    page = pages.page(tmp_path)
    rule = "8 workers judge on one GPU and 16 on two (`BITVERDICT_GPU_SLOTS=8`"
    assert page.index("**large**: met.") < page.index(rule) < page.index("**small**: missed.")
    assert "32 cores" in page and "536,870,912 products" in page and page.count("as many workers in both runs") == 1
    (tmp_path / "two_gpus.json").write_text(json.dumps(large | {"slots": 32}))
    assert "32 workers judge on one GPU and 32 on two" in (page := pages.page(tmp_path)) and "the second GPU brings nothing" in page


def test_the_suite_under_memcheck_comes_from_its_own_file_if_there_is(tmp_path: Path) -> None:
    row = {"contract": "matmul", "case": {"schedule": "eager"}, "mode": "memcheck", "target": "cuda:0"}
    for name, outcome in (("suite", "wrong words"), ("memcheck", "pass")):
        verdict = {"outcome": outcome, "message": "", "location": "", "details": {}, "seconds": {}}
        (tmp_path / f"{name}.json").write_text(json.dumps([row | {"verdict": verdict}]))
    assert [row["verdict"]["outcome"] for row in pages.suite_rows(tmp_path)] == ["pass"]
    assert "1 verdicts: pass 1." in pages.page(tmp_path)


def test_two_gpus_are_counted_by_what_ran_and_judged_by_the_ratio(tmp_path: Path) -> None:
    told = '<properties><property name="cases" value="3"/><property name="words" value="70"/></properties>'
    node = f"<testcase>{told}</testcase>"
    junit = tmp_path / "junit.xml"
    junit.write_text(f"<testsuites>{node}{node}<testcase><skipped/></testcase></testsuites>")
    assert two_gpus.counted(junit) == {"shards": 2, "not_run": 1, "cases": 6, "words": 140}
    run = {"gpus": ["0"], "status": 0, "shards": 240, "cases": 9, "words": 9}
    both: dict = {"one": [run | {"seconds": 10.0}], "two": [run | {"seconds": 5.5}]}
    two_gpus.summary(both)
    assert both["ratio"] == 0.55 and "240 shards" in both["sentence"]
