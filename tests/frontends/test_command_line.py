"""Contract under test: the command line judges, stores, replays and promotes; bad input is told in one line and leaves no file."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from triton._C.libtriton import ir

from bitverdict.harness.frontends import cli_demo
from bitverdict.harness.frontends import main as main_module
from bitverdict.harness.frontends.main import COMMANDS, LAB, main
from tests.support.interrupts import answering

ADD = "tests.support.vector_add"
CHECKOUT = Path(__file__).resolve().parents[2]
SM_90 = ["--target", "emulated:sm_90"]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # what Python leaves beside a user's file is not ours
    return tmp_path / "state"


def run(*words: str) -> int:
    return main(["run", *words, "--jobs", "1"])


@pytest.mark.share(4)
def test_a_right_kernel_passes_with_status_0(capsys: pytest.CaptureFixture, state: Path) -> None:
    assert run("--contract", f"{ADD}:CONTRACT", *SM_90, "--max-cases", "8") == 0
    short = capsys.readouterr().out.splitlines()
    said = r"[78] cases judged, [\d,]+ output words compared: [78] pass \(emulated:sm_90 [78] in \d+\.\d s; -v for the table\)"
    assert len(short) <= 4 and re.fullmatch(said, short[-1]), short
    assert run("--contract", f"{ADD}:CONTRACT", *SM_90, "--max-cases", "8", "-v") == 0
    out = capsys.readouterr().out
    assert "5/5" in out and "cases judged" in out and "│ exact" in out
    legend = out.partition("┘\n")[2].splitlines()[:5]
    assert [line.partition(":")[0] for line in legend] == ["inconclusive", "words", "largest share of the bound", "cover", "a case"]
    assert not (state / "failures").exists()


def test_a_wrong_kernel_fails_shrunk_stored_and_replayed(capsys: pytest.CaptureFixture, state: Path, tmp_path: Path) -> None:
    outputs = ["--json", str(tmp_path / "run.jsonl"), "--junit", str(tmp_path / "run.xml"), "--html", str(tmp_path / "run.html")]
    outputs += ["--pictures", str(tmp_path / "drawn")]
    assert run("--contract", f"{ADD}:WRONG", *SM_90, "--max-cases", "15", *outputs) == 1
    out = capsys.readouterr().out
    assert "FAIL" in out and "n=5" in out and "first at [2]" in out
    (stored,) = (state / "failures").glob("*.json")
    assert f"bitverdict replay {stored}" in out.replace("\n", "")
    assert json.loads(stored.read_text())["case"]["problem"]["n"] == 5
    page = (tmp_path / "run.html").read_text()
    assert "stored by no kernel" in page and "c: 1 of 5 words differ" in page and f"bitverdict replay {stored}" in page
    assert {each.name.rpartition("-")[0][-6:] for each in (tmp_path / "drawn").iterdir()} == {"-tiles", "-sizes", "errors"}
    assert main(["replay", str(stored)]) == 1
    assert "failed again: the same bug" in capsys.readouterr().out


def test_a_crash_fails_and_does_not_end_the_run(capsys: pytest.CaptureFixture) -> None:
    assert run("--contract", f"{ADD}:CRASHES", *SM_90, "--max-cases", "10", "--shrink-seconds", "0") == 1
    out = capsys.readouterr().out
    assert "segmentation fault" in out and "SIGSEGV" in out and "2 pass, 8 fail" in out


@pytest.mark.share(4)
def test_a_hang_fails_as_a_timeout(capsys: pytest.CaptureFixture) -> None:
    assert run("--contract", f"{ADD}:HANGS", *SM_90, "--max-cases", "3", "--timeout", "3") == 1
    assert "no verdict within 3 s" in capsys.readouterr().out


def test_a_users_launcher_outside_the_checkout_is_judged(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def add(a, b):\n    return a + b\n")
    assert run("--contract", f"{ADD}:CONTRACT", *SM_90, "--launcher", f"{mine}:add", "--max-cases", "6") == 0
    assert "mine.py:add" in capsys.readouterr().out


@pytest.mark.share(4)
def test_ctrl_c_says_cancelled_and_leaves_the_journal_and_no_worker(tmp_path: Path, state: Path) -> None:
    command = [sys.executable, "-m", "bitverdict", "run", "--contract", f"{ADD}:HANGS", *SM_90, "--jobs", "2"]
    with answering():
        run = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while (
        not any(two_ended_and_two_out(path.read_text()) for path in state.glob("journal/*.jsonl")) and time.monotonic() < deadline
    ):
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    try:
        out, error = run.communicate(timeout=600)
    finally:
        run.kill()
    assert run.returncode == 3 and "2 pass; cancelled" in out and "Traceback" not in error, (out, error)
    assert not any(str(state) in path.read_text() for path in Path("/proc").glob("[0-9]*/environ") if readable(path))


def two_ended_and_two_out(journal: str) -> bool:
    return journal.count('"event":"end"') == 2 and journal.count('"event":"begin"') >= 4


def readable(path: Path) -> bool:
    try:
        return bool(path.read_text())
    except (OSError, UnicodeDecodeError):
        return False


def test_a_kernel_whose_feature_no_target_has_is_not_run_and_not_right(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    needy = tmp_path / "needy.py"
    imports = f"from {ADD} import VectorAdd\nfrom bitverdict.kernels.features import Feature\n"
    needy.write_text(imports + "CONTRACT = VectorAdd(requires=frozenset({Feature.TCGEN05}))\n")
    assert run("--contract", f"{needy}:CONTRACT", *SM_90) == 5
    assert "lacks tcgen05.mma" in capsys.readouterr().out


def test_promoting_moves_the_file_and_says_what_is_expected(capsys: pytest.CaptureFixture, state: Path, tmp_path: Path) -> None:
    run("--contract", f"{ADD}:WRONG", *SM_90, "--max-cases", "6", "--shrink-seconds", "0")
    (stored,) = (state / "failures").glob("*.json")
    assert main(["promote", str(stored), "--expected", "fail", "--directory", str(tmp_path / "kept")]) == 0
    (kept,) = (tmp_path / "kept").iterdir()
    assert not stored.exists() and json.loads(kept.read_text())["expected_outcome"] == {
        "decision": "fail",
        "outcome": "wrong words",
    }


def test_targets_are_listed_with_their_features(capsys: pytest.CaptureFixture) -> None:
    assert main(["targets"]) == 0
    assert "emulated:sm_100  sm_100  emulated" in capsys.readouterr().out


LESS = """def f(a, b): ...
def g(a, b): ...
def h(a, b): ...
f.requires, g.requires, h.claims = (lambda m: False), (lambda q: True), ("fp4",)
"""
NAMED = """import os, torch, triton, triton.language as tl
from pathlib import Path
SIZE = 3
def mymatmul(a, b): ...
def add(a, b): ...
mymatmul.claims = ("stride",)
@triton.jit
def kernel(a): ...
"""
BAD = [
    (["run", "matmull"], "contract 'matmull': no such kernel (did you mean 'matmul'?); known: "),
    (["run", "transpose"], "contract 'transpose': no such kernel; known: ampere_gemm, attention, block_scaled_matmul and "),
    (["run", "matmul", "--target", "emulated:sm90"], "cuda:N or cuda (did you mean 'emulated:sm_90'?);"),
    (["run", "matmul", "--launcher", "{tmp}/named.py:mymatmull"], "no mymatmull (did you mean 'mymatmul'?); it has mymatmul, add"),
    (["run", "matmul", "--launcher", "{tmp}/named.py:softmax"], "has no softmax; it has mymatmul, add"),
    (["run", "matmul", "--launcher", "{tmp}/named.py:mymatmul"], "claims 'stride' (did you mean 'strides'?); it must be of"),
    (["run", "matmul", "--target", "emulated:sm_75"], "target 'emulated:sm_75': must be sm_NN, emulated:sm_NN, cuda:N or cuda; "),
    (["run", "matmul", "--target", "cuda:77"], "target 'cuda:77': no such GPU is visible"),
    (["run", "matmul", "--launcher", "nowhere.py:f"], "there is no file nowhere.py; give a path to an existing Python file"),
    (["run", "matmul", "--launcher", "nowhere.py"], "address 'nowhere.py': must be package.module:NAME or path/file.py:NAME"),
    (["run", "matmul", "--launcher", "no.such.module:f"], "address 'no.such.module:f': cannot import no.such.module"),
    (["run", "matmul", "--launcher", "{tmp}/mine.py:g"], "has no g; it has f, g0"),
    (["run", "matmul", "--launcher", "{tmp}/mine.py:x"], "is a int, must be a function (a, b, activation='', *, out_dtype=None)"),
    (["run", "--launcher", "{tmp}/mine.py:f", "matmul", "ampere_gemm"], "name it, for example: run matmul"),
    (["run", "ampere_gemm", "--launcher", "{tmp}/mine.py:g0"], "is g0(), must be a function (a, bt, d=None, *, block_m=64"),
    (
        ["run", "matmul", "--target", "emulated:sm_90", "--launcher", "{tmp}/less.py:f"],
        "its requires takes no case of matmul; fix the attribute",
    ),
    (["run", "matmul", "--launcher", "{tmp}/less.py:g"], "requires takes 'q'; it may take m, n, k, dtype; fix the attribute"),
    (["run", "matmul", "--launcher", "{tmp}/less.py:h"], "claims 'fp4'; it must be of strides, bf16, fp32, e4m3, int8, "),
    (["run", "--contract", "{tmp}/mine.py:f"], "is a function, must be a bitverdict.harness.model.contract.Contract"),
    (["run", "matmul", "--contract", "a:b"], "give kernels or one contract, not both"),
    (["run", "matmul", "--max-cases", "0"], "--max-cases 0: must be at least 1"),
    (["run", "matmul", "--jobs", "-1"], "--jobs -1: must be at least 0"),
    (["run", "matmul", "--timeout", "0"], "--timeout 0: must be more than 0 seconds; leave it out for 120, give inf for no limit"),
    (["run", "matmul", "--timeout", "-3"], "--timeout -3: must be more than 0 seconds"),
    (["run", "matmul", "--timeout", "nan"], "--timeout nan: must be more than 0 seconds"),
    (["run", "matmul", "--shrink-seconds", "nan"], "--shrink-seconds nan: must be at least 0"),
    (["replay", "{tmp}/whole.json", "--timeout", "0"], "--timeout 0: must be more than 0 seconds"),
    (["run", "matmul", "--json", "{tmp}/none/run.json"], "must be a file in a directory that exists; make "),
    (
        ["replay", "{tmp}/none.json"],
        "cannot be read (No such file or directory); give a file of .bitverdict/failures or tests/reproducers",
    ),
    (["replay", "{tmp}/cut.json"], "is not JSON"),
    (["replay", "{tmp}/version.json"], "version 99, this checkout reads version 2"),
    (["replay", "{tmp}/case.json"], "case of version None: this checkout reads version 1"),
    (["promote", "{tmp}/cut.json"], "is not JSON"),
    (["replay", "{tmp}/whole.json", "{tmp}/cut.json", "--html", "a.html"], "a page is of one case; leave out all but "),
    (["ci", "{tmp}/mine.py"], "is no journal of a run; give a file or a folder such as .bitverdict/journal"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_one_line_with_a_remedy_and_leaves_no_file(
    capsys: pytest.CaptureFixture, tmp_path: Path, state: Path, words: list[str], said: str
) -> None:
    (tmp_path / "mine.py").write_text("x = 3\ndef f(a, b): ...\ndef g0(): ...\n")
    (tmp_path / "less.py").write_text(LESS)
    (tmp_path / "named.py").write_text(NAMED)
    (tmp_path / "cut.json").write_text('{"version": 1, "case": {"contr')
    (tmp_path / "version.json").write_text('{"version": 99}')
    good = {"version": 2, "target": "emulated:sm_90", "verdict": {}, "signature": ["a", "b", "c"]}
    (tmp_path / "case.json").write_text(json.dumps({**good, "case": {"contract": "matmul"}}))
    (tmp_path / "whole.json").write_text(json.dumps({**good, "case": WHOLE}))
    before = sorted(tmp_path.iterdir())
    assert main([word.format(tmp=tmp_path) for word in words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.startswith("error: ") and error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before and not state.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rnu"], "did you mean 'run'?"),
        (["run", "--profile", "quik"], "did you mean 'quick'?"),
        (["run", "--max-case-s"], "unrecognized arguments: --max-case-s (did you mean '--max-cases'?)"),
        (["run", "--frobnicate"], "unrecognized arguments: --frobnicate; bitverdict run --help lists what it takes\n"),
        (["trace", "a.py:f", "-o", "x"], "unrecognized arguments: -o x; bitverdict trace --help lists what it takes\n"),
    ],
)
def test_a_command_or_an_option_that_is_misspelt_gets_the_nearest(
    words: list[str], said: str, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert said in capsys.readouterr().err


WHOLE = {
    "version": 1, "contract": "small_mma", "problem": {"m": 64, "n": 16, "k": 16}, "config": {},
    "regime": "integers", "data_seed": 0, "schedule": "eager", "launcher": "",
}  # fmt: skip
EDITED: list[tuple[dict, str]] = [
    ({"case": {"problem": {"m": -5}}}, "problem.m is -5: must be an integer of at least 0"),
    ({"case": {"problem": {"m": "many"}}}, "problem.m is 'many': must be an integer"),
    ({"case": {"problem": {"m": True}}}, "problem.m is True: must be an integer"),
    ({"case": {"problem": {"m": 1.5}}}, "problem.m is 1.5: must be an integer"),
    ({"case": {"problem": {"dtype": 16}}}, "problem.dtype is 16: must be a text"),
    ({"case": {"problem": {"rows": 3}}}, "must have the fields of Problem, Config and Case"),
    ({"case": {"problem": 3}}, "case.problem is 3: must be an object of JSON"),
    ({"case": {"config": {"num_warps": None}}}, "config.num_warps is None: must be an integer"),
    ({"case": {"data_seed": -1}}, "case.data_seed is -1: must be an integer of at least 0"),
    ({"case": {"data_seed": "0"}}, "case.data_seed is '0': must be an integer"),
    ({"case": {"schedule": "sometimes"}}, "case.schedule is 'sometimes': must be 'eager', 'latest' or 'drawn:<integer>'"),
    ({"case": {"schedule": "eager on 0"}}, "case.schedule is 'eager on 0': must be 'eager', 'latest' or"),
    ({"case": {"calls": 0}}, "case.calls is 0: must be "),
    ({"case": {"calls": 4}}, "case.calls is 4: must be 1, 2 or 3"),
    ({"case": {"real_values": 1}}, "case.real_values is 1: must be true or false"),
    ({"case": {"tuning": 2}}, "case.tuning is 2: must be "),
    ({"case": {"regime": "gauss"}}, "regime 'gauss': unknown; use one of normal, integers"),
    ({"case": {"contract": ""}}, "case.contract is missing"),
    ({"case": {"contract": "nvfp8_matmul"}}, "contract 'nvfp8_matmul': no such kernel; known: "),
    ({"case": {"launcher": 7}}, "case.launcher is 7: must be a text"),
    ({"target": 90}, "target is 90: must be a text"),
    ({"target": "emulated:sm_1"}, "target 'emulated:sm_1': must be sm_NN, emulated:sm_NN, cuda:N or cuda"),
    ({"signature": "wrong words"}, "signature is 'wrong words': must be a list"),
    ({"signature": ["wrong words"]}, "signature is ['wrong words']: must be outcome, message, line"),
    ({"verdict": []}, "verdict is []: must be an object of JSON"),
    ({"sources": {"a.py": 3}}, "sources is {'a.py': 3}: must be an object of JSON with texts in it"),
    ({"knobs": "none"}, "knobs is 'none': must be an object of JSON"),
]


def edited(change: dict) -> dict:
    """A whole reproducer with `change` merged into it."""
    file = {"version": 2, "target": "emulated:sm_100", "verdict": {}, "signature": ["wrong words", "", ""], "case": WHOLE}

    def merged(old: object, new: object) -> object:
        both = isinstance(old, dict) and isinstance(new, dict)
        return old | {k: merged(old.get(k), v) for k, v in new.items()} if both else new  # type: ignore[operator, union-attr]

    return merged(file, change)  # type: ignore[return-value]


@pytest.mark.parametrize(("change", "said"), EDITED, ids=[said for _, said in EDITED])
def test_an_edited_reproducer_is_refused_with_its_field_and_rule(
    change: dict, said: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(edited(change)))
    assert main(["replay", str(path)]) == 2
    error = capsys.readouterr().err
    assert said in error and error.startswith("error: ") and error.count("\n") == 1


def test_a_whole_reproducer_with_a_space_in_its_path_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The rows above can pass; and the line that is printed is one that a shell takes."""
    (tmp_path / "it's here").mkdir()
    path = tmp_path / "it's here" / "a wrong one.json"
    path.write_text(json.dumps(edited({"case": {"schedule": "drawn:-3 on 2"}})))
    status, said = main(["replay", str(path)]), capsys.readouterr().out
    assert status == 0 and "\nwould have exposed: " in said, said
    wrong = edited({"case": {"contract": f"{ADD}:CONTRACT", "problem": {"n": 9, "fault": "wrong"}, "config": "torch"}})
    wrong["case"]["problem"] = {"n": 9, "fault": "wrong"}
    path.write_text(json.dumps(wrong))
    capsys.readouterr()
    assert main(["replay", str(path)]) == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if "replay: " in line).strip()
    assert shlex.split(line.removeprefix("replay: ")) == ["bitverdict", "replay", str(path)]
    right = tmp_path / "right.json"
    right.write_text(json.dumps(edited({"case": {"schedule": "drawn:-3 on 2"}})))
    for several, status in (([right, path], 1), ([right, right], 0)):
        assert main(["replay", *map(str, several)]) == status
        assert len(re.findall("^(?:failed again|passes now): ", capsys.readouterr().out, re.MULTILINE)) == 2


def test_a_reproducer_tells_what_was_executed(state: Path) -> None:
    run("--contract", f"{ADD}:CONTRACT", *SM_90, "--launcher", f"{ADD}:add_off_by_one", "--max-cases", "5", "--shrink-seconds", "0")
    run("--contract", f"{ADD}:DOUBLED", *SM_90, "--max-cases", "5", "--shrink-seconds", "0")
    told = [json.loads(path.read_text())["verdict"]["recorded"].get("launches") for path in (state / "failures").iterdir()]
    assert None in told
    (launch,) = next(launches for launches in told if launches)
    assert launch["kernel"] == "add_kernel" and launch["instructions"] == [] and len(launch["program"]) == 12


@pytest.mark.share(4)
def test_nothing_is_printed_below_a_report_once_gluon_was_imported() -> None:
    """The bindings' page of "leaked" functions comes with an ordinary exit: the second process shows that it still would."""
    words = ["run", "tmem_copy", "--target", "emulated:sm_90"]  # not run there: only its contract is imported
    ours = subprocess.run([sys.executable, "-m", "bitverdict", *words], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    plain = f"import sys; from bitverdict.harness.frontends.main import COMMANDS, main; sys.exit(main({words!r}))"
    ordinary = subprocess.run([sys.executable, "-c", plain], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert (ours.returncode, "leaked" in ours.stderr) == (5, False)
    prints = type(ir.context).__module__ == "nanobind"  # the bindings of the newest releases
    assert (ordinary.returncode, "leaked" in ordinary.stderr) == (5, prints), "no page any more: drop supervision.leave"


@pytest.mark.share(4)
def test_the_demo_passes_what_is_right_and_fails_what_has_no_mask(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Path.cwd()
    assert main(["demo"]) == 0 and Path.cwd() == before
    right, wrong = capsys.readouterr().out.split("$ bitverdict run ")[1:]
    assert "24 pass" in right and "FAIL" not in right
    assert "FAIL test_without_mask.py:test_row_sums on emulated:sm_90: stray read" in wrong
    assert main(["replay", re.search(r"bitverdict replay (\S+)", wrong)[1]]) == 1, "the line that it prints"
    monkeypatch.setattr(cli_demo, "_MASK", "mask=at <= n")  # nothing is taken away: both pass
    assert main(["demo"]) == 3


def test_help_lists_each_command_once_under_five_headings(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = re.findall(r"^(?:  ([\w-]+) +\w.*|(\w.*):)$", capsys.readouterr().out.partition("print the versions")[2], re.MULTILINE)
    assert [heading for _, heading in listed if heading] == list(dict.fromkeys(each.group for each in COMMANDS.values()))
    everyone = {name for name, command in COMMANDS.items() if command.group != LAB}
    assert (
        sorted(name for name, _ in listed if name) == sorted(everyone | {"lab"})
        and len({each.group for each in COMMANDS.values()}) == 5
    )


def test_a_command_of_maintainers_is_found_under_lab(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["lab", "pages", "nope"], ["pages", "nope"]):
        assert main(words) == 2 and "page 'nope': is not printed" in capsys.readouterr().err
    for words, status, said in (
        (["lab", "runn"], 2, "lab runn: no such"),
        (["lab", "page"], 2, "'pages'"),
        (["lab", "--help"], 0, ""),
    ):
        assert main(words) == status
        out, errors = capsys.readouterr()
        assert said in errors and "  pages " in out and "  watch " not in out, "maintainers' commands alone"
    monkeypatch.setattr(main_module, "has_laboratory", lambda: False)  # as a wheel
    assert main(["lab"]) == 2 and "error: lab is of the laboratory: it needs a checkout" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_has_the_commands_and_their_options(shell: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--completion", shell])
    printed = capsys.readouterr().out
    assert not ended.value.code and "certify" in printed and "max-cases" in printed


def test_completion_of_an_unknown_shell_says_which_there_are(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--completion", "word"])
    assert ended.value.code == 2 and "must be one of bash, " in capsys.readouterr().err
