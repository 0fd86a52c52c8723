"""Contract under test: a file of words that is sent is taken whole and unedited, from hardware alone, and differences are told.

No GPU: files are the model's. What is mutated is a file: cut, edited, with a word that differs, marked as a model's."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

from bitverdict.harness.lab.hardware_words import cuda_library, record, sent_words, settled_sides
from bitverdict.harness.lab.hardware_words.cuda_library import CannotRecord
from bitverdict.harness.lab.hardware_words.sent_words import RefusedFileError
from bitverdict.reference.tensor_core import BlockOrder, ConsumerFp8, elements, instruction

SENT = sorted((Path(__file__).parents[1] / "hardware_words" / "sent").glob("*.npz"))
STEM = "own_wgmma_k16_fp16"


def made(made_by: str = sent_words.MODEL) -> tuple[dict, dict]:
    probe = next(probe for probe in sent_words.probes_of("sm_90") if probe.stem == STEM)
    about = sent_words.model_about("sm_90", 7, "bitverdict record") | {"made_by": made_by}
    return about, {STEM: sent_words.of_model("sm_90", probe, 7)}


def test_every_file_that_was_sent_is_taken_and_holds_the_model_s_words() -> None:
    assert {path.name: sent_words.differing_lines(sent_words.take(path)) for path in SENT} == {path.name: [] for path in SENT}


def test_a_model_s_file_of_every_instruction_is_read_but_never_taken(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "words.npz"
    assert record.main(["--send", str(path), "--target", "emulated:sm_90"]) == 0
    sent = sent_words.read(path)
    assert set(sent.parts) == {probe.stem for probe in sent_words.probes_of("sm_90")} and not sent_words.differing_lines(sent)
    assert sent.about["made_by"] == "model" and list(tmp_path.iterdir()) == [path]
    assert np.isnan(sent.parts[STEM]["d32"].view(np.float32)).any()
    assert record.main(["--take", str(path)]) == 2
    assert "made by 'model' (emulated:sm_90); evidence is made by 'hardware'" in capsys.readouterr().err


def test_an_edited_word_or_line_is_refused_by_the_digest(tmp_path: Path) -> None:
    path = tmp_path / "words.npz"
    sent_words.write(path, *made())
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files}
    word = arrays | {f"{STEM}/d32": arrays[f"{STEM}/d32"] ^ np.uint32(1)}
    line = arrays | {"meta": np.array(str(arrays["meta"]).replace('"made_by": "model"', '"made_by": "hardware"'))}
    for edited in (word, line):
        np.savez_compressed(path, **edited)
        with pytest.raises(RefusedFileError, match="an edited file is not taken; ask the sender"):
            sent_words.read(path)


def test_a_differing_word_is_told_with_its_instruction_and_operands(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    about, parts = made(sent_words.HARDWARE)
    d = parts[STEM][1]["d32"]
    d[5] ^= 1
    path = tmp_path / "words.npz"
    sent_words.write(path, about, parts)
    assert record.main(["--take", str(path)]) == 1
    told = capsys.readouterr().out
    a = " ".join(f"{word:04x}" for word in parts[STEM][1]["a"][5])
    assert f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16: 1 of {d.size} words differ; row 5" in told
    assert f"a={a} b=" in told and f"sent {d[5]:08x}, the model gives {d[5] ^ 1:08x}" in told


def test_a_cut_file_and_one_of_another_form_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "words.npz"
    sent_words.write(path, *made())
    whole = path.read_bytes()
    for size in (0, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(RefusedFileError, match=r"a whole \.npz"):
            sent_words.read(path)
    np.savez_compressed(path, meta=np.array("{}"))
    with pytest.raises(RefusedFileError, match="lacks form, version"):
        sent_words.read(path)


def test_arrays_of_another_shape_are_refused_whatever_the_digest(tmp_path: Path) -> None:
    about, parts = made()
    parts[STEM][1]["b"] = parts[STEM][1]["b"][:, :8]
    sent_words.write(tmp_path / "words.npz", about, parts)
    with pytest.raises(RefusedFileError, match=f"{STEM}/b is uint16"):
        sent_words.read(tmp_path / "words.npz")


@pytest.mark.parametrize("edit", [{"k": None}, {"family": "tcgen05"}, {"a": "fp17"}], ids=str)
def test_a_part_of_no_known_instruction_is_refused(tmp_path: Path, edit: dict) -> None:
    about, parts = made()
    parts[STEM] = parts[STEM][0] | edit, parts[STEM][1]
    sent_words.write(tmp_path / "words.npz", about, parts)
    with pytest.raises(RefusedFileError, match="names an instruction of the model"):
        sent_words.read(tmp_path / "words.npz")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "words.npz"
    sent_words.write(path, *made())
    before = path.read_bytes()
    monkeypatch.setattr(sent_words.os, "fsync", lambda file: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        sent_words.write(path, *made())
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_without_a_gpu_sending_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def absent(name: str) -> None:
        raise OSError(f"{name}: not found")

    monkeypatch.setattr(cuda_library.ctypes, "CDLL", absent)
    assert record.main(["--send", str(tmp_path / "words.npz")]) == 2
    assert "no CUDA driver (libcuda.so.1: not found): record runs on the GPU" in capsys.readouterr().err
    assert record.main(["--send", str(tmp_path / "words.npz"), "--target", "emulated:sm_1"]) == 2
    assert not list(tmp_path.iterdir())


def test_a_chip_that_nvcc_does_not_know_is_refused_before_it_runs(tmp_path: Path) -> None:
    with pytest.raises(CannotRecord, match="sm_70: nvcc 13 compiles for sm_75 and later"):
        cuda_library.build(tmp_path, "sm_70")


def test_an_older_chip_is_asked_for_the_instructions_that_it_has() -> None:
    asked = {arch: {probe.stem for probe in sent_words.probes_of(arch)} for arch in ("sm_75", "sm_80", "sm_86", "sm_89")}
    assert asked["sm_75"] == {"own_mmasync_k8_fp16"}
    assert asked["sm_80"] == asked["sm_86"] and len(asked["sm_80"]) == 9 and "own_mmasync_k16_fp16_chain2" in asked["sm_80"]
    assert {stem for stem in asked["sm_89"] - asked["sm_80"] if "e4m3" not in stem and "e5m2" not in stem} == set()


PLANTED = [("sm_80", "own_mmasync_k16_bf16", side) for side in BlockOrder] + [
    ("sm_120", "own_mmasync_k32_e4m3", side) for side in ConsumerFp8
]


@pytest.mark.parametrize(("arch", "stem", "side"), PLANTED, ids=str)
def test_a_recording_settles_the_side_whose_words_it_has(tmp_path: Path, capsys, arch: str, stem: str, side: Enum) -> None:
    """The GPU here is planted: each word is the model's under one side. Of the side taken, every word is expected too."""
    probe = next(probe for probe in sent_words.probes_of(arch) if probe.stem == stem)
    about, part = sent_words.of_model(arch, probe, 7)
    for name in about["d"]:
        named = arch, about["family"], about["a"], about["b"], about["d"][name]
        field = "block_order" if isinstance(side, BlockOrder) else "consumer_fp8"
        chosen = replace(instruction(*named).choices, **{field: side})
        with np.errstate(all="ignore"):
            part[name] = elements(instruction(*named, k=probe.k, choices=chosen), part["a"], part["b"], part["c" + name[1:]])
    head = sent_words.model_about(arch, 7, "bitverdict record") | {"made_by": sent_words.HARDWARE}
    sent_words.write(tmp_path / "words.npz", head, {stem: (about, part)})
    taken = side in (BlockOrder.ASCENDING, ConsumerFp8.NATIVE)
    assert record.main(["--take", str(tmp_path / "words.npz")]) == (0 if taken else 1)
    told = capsys.readouterr().out
    assert told.count(f"the words are those of {type(side).__name__}.{side.name}\n") == len(about["d"])
    found = settled_sides.answers(about, part)
    assert all(answer.settled_sides == (f"{type(side).__name__}.{side.name}",) and len(answer.rows) > 100 for answer in found)
    part[name] = part[name] ^ part[name].dtype.type(1)
    assert settled_sides.answers(about, part)[-1].settled_sides == () and "each is wrong" in str(
        settled_sides.answers(about, part)[-1]
    )
