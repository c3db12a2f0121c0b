"""Trained numbers go back into the file: same graph, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import popart_jax as popart
from popart_jax.__main__ import main

from .test_parameters import IN_A_FUNCTION, IN_BRANCHES, IN_CONSTANTS, MLP

X2 = np.random.default_rng(3).normal(size=(3, 2)).astype(np.float32)
X3 = np.random.default_rng(3).normal(size=(2, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (MLP, {"x": X3}),
        (IN_CONSTANTS, {"x": X2}),
        (IN_BRANCHES, {"flag": np.array(False), "x": X2}),
        (IN_A_FUNCTION, {"x": X2}),
    ],
)
@pytest.mark.parametrize("form", ["proto", "bytes", "file", "program"])
def test_what_is_saved_is_what_was_trained(form: str, model: onnx.ModelProto, inputs, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    forms = {"proto": model, "bytes": model.SerializeToString(), "file": tmp_path / "model.onnx"}
    program = SimpleNamespace(model=ir.from_proto(model))  # as PyTorch's ONNXProgram
    given = (forms | {"program": program})[form]
    fn, params = popart.to_jax(given)
    moved = {n: p * 1.5 + 0.25 for n, p in params.items()}
    out = tmp_path / "out.onnx"
    fn.save(out, moved)
    theirs = onnxruntime.InferenceSession(out).run(None, inputs)[0]
    np.testing.assert_allclose(fn(moved, inputs)["y"], np.asarray(theirs), rtol=1e-5)
    before, after = model, onnx.load(out)
    assert [n.op_type for n in after.graph.node] == [n.op_type for n in before.graph.node]
    assert [n.name for n in after.graph.node] == [n.name for n in before.graph.node]
    assert after.opset_import == before.opset_import
    _, same = popart.to_jax(out)
    for name, value in moved.items():
        np.testing.assert_array_equal(same[name], value)


def test_what_onnx_ir_has_no_place_for_is_saved_too(tmp_path: Path) -> None:
    """The dictionaries of a classifier, without whose type no runtime takes the file, and training information."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]> g(float[N,3] x) => (float[N,3] y, int64 z) '
        "{ y = MatMul(x, w) z = ai.onnx.ml.ZipMap<classlabels_int64s = [4, 5, 6]>(y) }"
    )
    number = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    one = onnx.helper.make_map_type_proto(onnx.TensorProto.INT64, number)
    model.graph.output[1].type.CopyFrom(onnx.helper.make_sequence_type_proto(one))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(3, dtype=np.float32), "w"))
    model.training_info.add().update_binding.add(key="w", value="w")
    fn, params = popart.to_jax(model)
    fn.save(tmp_path / "out.onnx", params)
    after = onnx.load(tmp_path / "out.onnx")
    assert after.graph.output == model.graph.output
    assert after.training_info == model.training_info
    (served,) = onnxruntime.InferenceSession(popart.inference_model(model)).run(["z"], {"x": X3})
    assert served[0] == pytest.approx(fn(params, X3)["z"][0])


def test_split_parameters_are_saved_apart(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g(float[N,2] x) => (float[N,2] y) '
        "{ [one] a = Mul(x, s) [two] y = Add(a, s) }"
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "s"))
    fn, params = popart.to_jax(model, split=True)
    moved = {**params, "s@two": params["s@two"] * 7}
    fn.save(tmp_path / "apart.onnx", moved)
    theirs = onnxruntime.InferenceSession(tmp_path / "apart.onnx").run(None, {"x": X2})[0]
    np.testing.assert_allclose(np.asarray(theirs), X2 + 7, rtol=1e-6)


def test_data_beside_the_model_stay_beside_it(tmp_path: Path) -> None:
    big = onnx.ModelProto()
    big.CopyFrom(MLP)
    wide = np.random.default_rng(0).normal(size=(3, 512)).astype(np.float32)
    big.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(wide, "w1"))
    big.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.zeros(512, np.float32), "b1"))
    big.graph.initializer[2].CopyFrom(onnx.numpy_helper.from_array(np.zeros((512, 2), np.float32), "w2"))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    source = folder / "big.onnx"
    onnx.save(big, source, save_as_external_data=True, location="big.bin", size_threshold=0)
    fn, params = popart.to_jax(source)
    moved = {n: p + 1 for n, p in params.items()}
    for _ in range(2):  # the second time over the first
        fn.save(tmp_path / "trained.onnx", moved)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["elsewhere", "trained.onnx", "trained.onnx.1.data"]
    theirs = onnxruntime.InferenceSession(tmp_path / "trained.onnx").run(None, {"x": X3})[0]
    np.testing.assert_allclose(fn(moved, X3)["y"], np.asarray(theirs), rtol=1e-4)
    fn.save(source, moved)
    theirs = onnxruntime.InferenceSession(source).run(None, {"x": X3})[0]
    np.testing.assert_allclose(fn(moved, X3)["y"], np.asarray(theirs), rtol=1e-4)


def test_constants_beside_the_model_are_read_and_written_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 18]>
        g(float[2] x) => (float[2, 512] y) { one = Constant<value_ints = [1]>() u = Unsqueeze(x, one) y = Mul(u, w) }
        """)
    w = onnx.numpy_helper.from_array(np.linspace(0, 1, 512, dtype=np.float32))
    model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=w))
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    source, target = tmp_path / "there/m.onnx", tmp_path / "there/t.onnx"
    onnx.save(model, source, save_as_external_data=True, location="m.data", convert_attribute=True)
    monkeypatch.chdir(tmp_path / "here")
    Path("t.onnx.data").touch()  # not in the folder that is written to
    fn, params = popart.to_jax("../there/m.onnx")
    fn.save(target, {"w": -params["w"]})
    assert target.with_name("t.onnx.data").stat().st_size == 2048
    (theirs,) = onnxruntime.InferenceSession(target).run(None, {"x": X2[0]})
    np.testing.assert_allclose(np.asarray(theirs), -X2[0][:, None] * np.linspace(0, 1, 512), rtol=1e-6)
    assert main(["compare", str(target)]) == 0
    assert "agrees" in capsys.readouterr().out


def test_a_model_by_name_takes_some_numbers(tmp_path: Path) -> None:
    popart.save(MLP, tmp_path / "m.onnx", {"b2": np.array([5.0, 6.0])})
    _, params = popart.to_jax(tmp_path / "m.onnx")
    np.testing.assert_array_equal(params["b2"], [5.0, 6.0])
    np.testing.assert_array_equal(params["w1"], onnx.numpy_helper.to_array(MLP.graph.initializer[0]))


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ({"w9": np.zeros(2)}, r"stores no float tensors \['w9'\]"),
        ({"b2": np.zeros(3)}, r"'b2' has shape \[3\]; the model stores \[2\]"),
    ],
)
def test_numbers_that_do_not_fit_leave_no_file(numbers, text: str, tmp_path: Path) -> None:
    with pytest.raises(popart.popart_exception, match=text):
        popart.save(MLP, tmp_path / "m.onnx", numbers)
    assert not list(tmp_path.iterdir())


def test_a_failure_on_the_way_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, params = popart.to_jax(MLP)
    target = tmp_path / "m.onnx"
    fn.save(target, params)
    before = target.read_bytes()

    def full(self: Path, data: bytes) -> int:
        with open(self, "wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        fn.save(target, {n: p + 1 for n, p in params.items()})
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_a_source_that_changed_is_not_written_over_blindly(tmp_path: Path) -> None:
    source = tmp_path / "m.onnx"
    source.write_bytes(MLP.SerializeToString())
    fn, params = popart.to_jax(source)
    source.write_bytes(IN_CONSTANTS.SerializeToString())
    os.utime(source, (1, 1))
    with pytest.raises(popart.popart_exception, match="was changed or removed"):
        fn.save(tmp_path / "out.onnx", params)
