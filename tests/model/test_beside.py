"""Data beside a model file are found from any folder, by sessions and builders too, and written beside the copy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import popart_jax as popart
from tests.functions.test_parameters import MLP

X = np.random.default_rng(5).normal(size=(2, 3)).astype(np.float32)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose data lie beside it, seen from another folder."""
    model = onnx.ModelProto()
    model.CopyFrom(MLP)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    onnx.save(model, tmp_path / "there/m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "there/m.onnx"


def run(file: Path | str | bytes) -> tuple[popart.InferenceSession, np.ndarray]:
    session = popart.InferenceSession(
        str(file) if isinstance(file, Path) else file,
        popart.DataFlow(1, {"y": popart.AnchorReturnType("All")}),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": X}, anchors))
    return session, anchors["y"]


def test_a_session_finds_them_and_its_copy_has_its_own(stored: Path, tmp_path: Path) -> None:
    session, y = run(stored)
    theirs = np.asarray(onnxruntime.InferenceSession(stored).run(None, {"x": X})[0])
    np.testing.assert_allclose(y, theirs, rtol=1e-5)
    before = stored.with_name("m.data").read_bytes()
    session.modelToHost(str(tmp_path / "copy.onnx"))
    assert stored.with_name("m.data").read_bytes() == before
    again = np.asarray(onnxruntime.InferenceSession(tmp_path / "copy.onnx").run(None, {"x": X})[0])
    np.testing.assert_allclose(again, theirs, rtol=1e-5)


def test_the_folder_of_the_model_comes_first(stored: Path) -> None:
    Path("m.data").write_bytes(b"\0" * stored.with_name("m.data").stat().st_size)
    _, y = run(stored)
    theirs = np.asarray(onnxruntime.InferenceSession(stored).run(None, {"x": X})[0])
    np.testing.assert_allclose(y, theirs, rtol=1e-5)


def test_the_current_folder_serves_where_the_models_has_none(stored: Path) -> None:
    theirs = np.asarray(onnxruntime.InferenceSession(stored).run(None, {"x": X})[0])
    stored.with_name("m.data").rename("m.data")
    _, y = run(stored)
    np.testing.assert_allclose(y, theirs, rtol=1e-5)


def test_a_file_that_ends_early_is_named(stored: Path) -> None:
    data = stored.with_name("m.data")
    data.write_bytes(data.read_bytes()[:-4])
    with pytest.raises(popart.popart_exception, match=r"m.data' ends 4 bytes early"):
        run(stored)


def test_missing_data_are_named(stored: Path) -> None:
    stored.with_name("m.data").unlink()
    with pytest.raises(popart.popart_exception, match=r"Unrecognised file name 'm.data' for externally stored tensor"):
        run(stored)


def referring_to(stored: Path, location: str) -> bytes:
    """The model, with its data at another place."""
    proto = onnx.load(stored, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    return proto.SerializeToString()


@pytest.mark.parametrize("absolute", [True, False])
def test_a_model_reaches_no_file_elsewhere(stored: Path, absolute: bool) -> None:
    """It could name any file, which a session would read, and `modelToHost` overwrite."""
    data = stored.with_name("m.data")
    proto = referring_to(stored, str(data) if absolute else "../there/m.data")
    with pytest.raises(popart.popart_exception, match=r"m\.data', outside the folder of the model and the current one"):
        run(proto)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "../outside.bin"}, "outside the folder of the model"),
        ({"location": "a" * 5000}, r"Unrecognised file name 'a+\.\.\.' for externally stored tensor"),
        ({"location": "w\0.bin"}, "Unrecognised file name"),
        ({"location": "w.bin", "offset": str(1 << 62)}, "begin behind the end of file"),
    ],
    ids=["elsewhere", "too long", "a zero byte", "offset"],
)
@pytest.mark.parametrize("constant", [False, True])
def test_places_that_no_session_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: dict[str, str], message: str, constant: bool
) -> None:
    """As an initializer, and as the tensor of a Constant."""
    there = tmp_path / "there"
    there.mkdir()
    for path in (tmp_path / "outside.bin", there / "w.bin"):
        path.write_bytes(bytes(24))
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[2, 3], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    nodes = [onnx.helper.make_node("Add", ["x", "w"], ["y"])]
    if constant:
        nodes.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=tensor))
    shape = [onnx.helper.make_tensor_value_info(name, 1, [2, 3]) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "g", shape[:1], shape[1:], [] if constant else [tensor])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    (there / "m.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(popart.popart_exception, match=message):
        run(there / "m.onnx")


def test_a_link_out_of_the_folder_is_followed_by_no_model(stored: Path) -> None:
    Path("inside.data").symlink_to(stored.with_name("m.data"))
    with pytest.raises(popart.popart_exception, match=r"inside\.data', outside the folder of the model"):
        run(referring_to(stored, "inside.data"))


def test_files_that_a_cache_links_are_read(stored: Path, tmp_path: Path) -> None:
    """Hugging Face's cache links files by name into a folder; installers make hard links."""
    x = {"x": X}
    theirs = np.asarray(onnxruntime.InferenceSession(stored).run(None, x)[0])
    cached, hard = tmp_path / "snapshot", tmp_path / "hard"
    cached.mkdir()
    hard.mkdir()
    for name in ("m.onnx", "m.data"):
        (cached / name).symlink_to(stored.with_name(name))
        (hard / name).hardlink_to(stored.with_name(name))
    for folder in (cached, hard):
        fn, params = popart.to_jax(folder / "m.onnx")
        np.testing.assert_allclose(fn(params, X)["y"], theirs, rtol=1e-5)
        np.testing.assert_allclose(run(folder / "m.onnx")[1], theirs, rtol=1e-5)
    fn.save(tmp_path / "saved.onnx", params)
    np.testing.assert_array_equal(onnxruntime.InferenceSession(tmp_path / "saved.onnx").run(None, x)[0], theirs)


def test_programs_of_popart_read_any_file(stored: Path, popart_names: None) -> None:
    theirs = np.asarray(onnxruntime.InferenceSession(stored).run(None, {"x": X})[0])
    _, y = run(referring_to(stored, str(stored.with_name("m.data"))))
    np.testing.assert_allclose(y, theirs, rtol=1e-5)


def test_what_this_process_wrote_is_read_from_anywhere(stored: Path, tmp_path: Path) -> None:
    builder = popart.Builder(onnx.load(stored).SerializeToString())
    names = [t.name for t in onnx.load(stored).graph.initializer]
    builder.saveInitializersExternally(names, str(tmp_path / "there" / "own.data"))
    theirs = np.asarray(onnxruntime.InferenceSession(stored).run(None, {"x": X})[0])
    np.testing.assert_allclose(run(builder.getModelProto())[1], theirs, rtol=1e-5)


@pytest.mark.parametrize("by_builder", [True, False])
def test_training_in_the_folder_of_the_model_leaves_it_as_it_was(
    stored: Path, monkeypatch: pytest.MonkeyPatch, by_builder: bool
) -> None:
    monkeypatch.chdir(stored.parent)
    before = {p.name: p.read_bytes() for p in stored.parent.iterdir()}
    builder = popart.Builder("m.onnx")
    loss = builder.aiGraphcore.l1loss(["y"], 1.0)
    if not by_builder:
        builder.saveModelProto("with_loss.onnx")
    session = popart.TrainingSession(
        builder.getModelProto() if by_builder else "with_loss.onnx",
        popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createCpuDevice(),
    )
    assert repr(session) == f"<TrainingSession: x -> {loss}; weights: 4, trained: 4>"
    assert "<tr><td>input</td><td>x</td><td>float32[2, 3]</td></tr>" in session._repr_html_()
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({"x": X}, session.initAnchorArrays()))
    session.modelToHost("trained.onnx")
    assert {n: stored.with_name(n).read_bytes() for n in before} == before
    found = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load("trained.onnx").graph.initializer}
    first = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load("m.onnx").graph.initializer}
    assert all(np.any(found[n] != first[n]) for n in first)
