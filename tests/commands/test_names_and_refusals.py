"""Names of models are shown as they are, and whatever goes wrong is one line and status 2."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType

import numpy as np
import onnx
import pytest

from patterns.__main__ import main as patterns_main
from popart_jax.__main__ import main

from .test_commands import refused

BRACKETS = """<ir_version: 8, opset_import: ["": 17]>
g(float[batch,8] x) => (float[batch,8] y) { [ {a}/[b,red] ] h = Relu(x) [second] y = Neg(h) }"""
TEXTS = """<ir_version: 8, opset_import: ["": 17]>
g(string[3] words, float[3] x) => (string[3] same, float[3] y) { same = Identity(words) y = Relu(x) }"""


def save(path: Path, text: str, name: str | None = None) -> Path:
    model = onnx.parser.parse_model(text)
    if name is not None:
        model.graph.node[0].name = name
    onnx.save(model, path)
    return path


@pytest.fixture
def bracketed(tmp_path: Path) -> Path:
    return save(tmp_path / "m.onnx", BRACKETS.replace("[ {a}/[b,red] ] ", ""), "blocks[/0]/[red]relu")


def test_inspect_shows_named_dimensions(bracketed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(bracketed)]) == 0
    assert "[batch,8]" in capsys.readouterr().out


@pytest.mark.parametrize("only", [[], ["--model-only"]])
def test_profile_of_names_with_brackets(bracketed: Path, capsys: pytest.CaptureFixture[str], only: list[str]) -> None:
    assert main(["profile", str(bracketed), *only]) == 0
    told = capsys.readouterr().out
    assert "[us]" in told
    assert "[/0]" in told
    assert ("as one program" in told) is not bool(only)


@pytest.mark.parametrize("command", ["run", "profile", "bench"])
def test_inputs_of_texts(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "m.onnx", TEXTS)
    assert main([command, str(path)]) == 0
    np.save(tmp_path / "w.npy", np.array(["a", "bc", ""]))
    assert main([command, str(path), "--input", f"words={tmp_path / 'w.npy'}"]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "inspect", "compare", "profile", "bench"])
def test_a_missing_file(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no file 'none.onnx'" in refused(capsys, command, "none.onnx")
    assert "is a folder" in refused(capsys, command, tmp_path)


def test_open_dimensions_without_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = '<ir_version: 8, opset_import: ["": 17]> '
    path = save(tmp_path / "m.onnx", head + "g(float[?, 2] x) => (float[?, 2] y) {y = Neg(x)}")
    assert main(["run", str(path), "--dim", "x:0=5"]) == 0
    assert "[5, 2]" in capsys.readouterr().out
    assert "it has ['x:0']" in refused(capsys, "run", path, "--dim", "N=5")


def test_what_cannot_be_trained_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = '<ir_version: 8, opset_import: ["": 17]> '
    path = save(tmp_path / "m.onnx", head + "g(float[2] x) => (float[2] y) {y = Neg(x)}")
    np.savez(tmp_path / "d.npz", x=np.ones((1, 2), np.float32), target=np.ones((1, 2), np.float32))
    arguments = ("--data", tmp_path / "d.npz", "--loss", "mse", "--out", tmp_path / "t.onnx")
    told = refused(capsys, "train", path, *arguments)
    assert "nothing to train. The model has no trainable parameters: it stores no" in told


def test_files_that_were_written_for_one_processor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opsets = '<ir_version: 8, opset_import: ["": 17, "com.microsoft.nchwc": 1]>'
    path = save(tmp_path / "m.onnx", opsets + "g(float[2] x) => (float[2] y) {y = com.microsoft.nchwc.Conv(x, x)}")
    assert "take the original, or let it optimise up to ORT_ENABLE_EXTENDED" in refused(capsys, "run", path)


def test_compare_where_the_other_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opsets = '<ir_version: 8, opset_import: ["": 17, "ai.graphcore": 1]>'
    path = save(tmp_path / "m.onnx", opsets + "g(float[2] x) => (float[2] y) {y = ai.graphcore.Gelu(x)}")
    assert "ONNX Runtime can't run this model" in refused(capsys, "compare", path)
    assert "ONNX Runtime can't run this model" in refused(capsys, "bench", path, "--against", "onnxruntime")
    assert "onnx.reference can't run this model" in refused(capsys, "compare", path, "--with", "reference")


def test_compare_without_the_other_runtime(
    bracketed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install 'popart_jax[compare]'" in refused(capsys, "compare", bracketed)


def test_compare_says_no_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from popart_jax import compare

    path = save(
        tmp_path / "m.onnx", '<ir_version: 8, opset_import: ["": 17]> g(float[2] x) => (float[2] y) {y = Neg(x)}'
    )
    monkeypatch.setattr(compare, "intermediates", lambda *_: {"y": np.full(2, 9.0, np.float32)})
    assert main(["compare", str(path)]) == 1
    assert (tmp_path / "m.minimal.onnx").is_file()
    assert "minimal model" in capsys.readouterr().out


def test_the_exit_status_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    told = capsys.readouterr().out
    assert stop.value.code == 0
    assert all(f"{code} " in told.partition("exit status:")[2] for code in (0, 1, 2, 130))


def test_help_is_no_file_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        patterns_main(["--help"])
    assert stop.value.code == 0
    assert not os.listdir(tmp_path)
    assert "usage" in capsys.readouterr().out
    assert patterns_main(["p.md"]) == 0
    assert (tmp_path / "p.md").read_text().startswith("# Patterns")


def test_what_stands_in_the_place_of_a_model_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert main(["inspect", str(tmp_path / "m.onnx")]) == 2
    assert "git lfs pull" in capsys.readouterr().err


def test_a_program_s_error_begins_in_the_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("def f():\n    1 / 0\nf()\n")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("argv", "path", "excepthook"):
            patch.setattr(sys, name, getattr(sys, name))
        patch.setattr(sys, "path", list(sys.path))
        with pytest.raises(ZeroDivisionError) as caught:
            main([str(script)])
        trace: TracebackType | None = caught.tb
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(caught.type, caught.value, trace)
    shown = capsys.readouterr().err.splitlines()
    assert shown[:2] == ["Traceback (most recent call last):", f'  File "{script}", line 3, in <module>']
