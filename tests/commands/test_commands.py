"""The command line as a user meets it: what it prints, what it writes, what it refuses and with which exit status."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popart_jax
from popart_jax.__main__ import main
from popart_jax.commands import files


def save(path: Path, *nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("y",), weights=(), opset: int = 13) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
    ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(list(nodes), "g", [x], ends, list(weights))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(tmp_path / "m.onnx", helper.make_node("Relu", ["x"], ["y"]))


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line of a command that must fail with status 2."""
    try:
        status = main([str(a) for a in arguments])
    except SystemExit as stop:
        status = stop.code
    told = capsys.readouterr()
    assert status == 2
    assert "Traceback" not in told.err
    first, *rest = told.err.rstrip("\n").splitlines()
    assert first.startswith("python -m popart_jax")
    assert ": error: " in first
    assert all(line.startswith("  ") for line in rest)
    return told.err


ARGUMENTS = [
    (["run", "M", "--input", "x"], "'x' should be NAME=VALUE"),
    (["run", "M", "--input", "z=none.npy"], r"the model has no input(s) ['z']; it has ['x']"),
    (["run", "M", "--input", "x=none.npy"], "'none.npy' can't be read: No such file"),
    (["run", "M", "--dim", "N=abc"], "--dim N=abc: expected a whole number"),
    (["run", "M", "--dim", "K=2"], r"no open dimension(s) ['K']; it has ['N']"),
    (["run", "M", "--seed", "abc"], "argument --seed: invalid int value: 'abc'"),
    (["run", "none.onnx"], "there is no file 'none.onnx'"),
    (["run"], "the following arguments are required: model"),
    (["bake", "M"], "invalid choice: 'bake'"),
    (["inspect", "M", "more"], "unrecognized arguments: more"),
    (["compare", "M", "--with", "tvm"], "invalid choice: 'tvm'"),
    (["compare", "M", "--rtol", "-1"], "should not be negative"),
    (["compare", "M", "--minimal", "/nowhere/m.onnx"], "there is no folder '/nowhere'"),
    (["compare", "M", "--minimal", "/"], "'/' can't be written: it is a folder"),
    (["profile", "M", "--target", "mk9"], "no target named 'mk9'"),
    (["profile", "M", "--top", "0"], "--top 0: expected at least 1"),
    (["profile", "M", "--html", "/nowhere/p.html"], "there is no folder '/nowhere'"),
    (["run", "M", "--output-dir", "M"], "can't be made: File exists"),
    (["export", "M", "/nowhere/m.onnx"], "there is no folder '/nowhere'"),
    (["run", "M", "--output", "z"], "The model has no tensor(s) ['z']"),
    (["demo", "--out", "/proc/none"], "No such file or directory: '/proc/none'"),
    (["none.py"], "there is no file 'none.py'"),
    (["-m"], "-m needs the name of a module"),
]


@pytest.mark.parametrize(("arguments", "message"), ARGUMENTS, ids=[" ".join(a) for a, _ in ARGUMENTS])
def test_refusals(model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert message in refused(capsys, *(model if a == "M" else a for a in arguments))


def test_an_array_that_does_not_fit(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model.with_name("x.npy")
    np.save(path, np.ones((2, 4), np.float32))
    assert "Input 'x' has shape [2, 4]; the model declares [N, 3]" in refused(
        capsys, "run", model, "--input", f"x={path}"
    )
    path.write_text("no array")
    assert "is no array" in refused(capsys, "run", model, "--input", f"x={path}")


def test_run_saves_what_it_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["a/b"]), helper.make_node("Abs", ["x"], ["a_b"])]
    path = save(tmp_path / "m.onnx", *nodes, outputs=("a/b", "a_b"))
    x = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "new" / "folder"
    assert main(["run", str(path), "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", str(out)]) == 0
    assert sorted(p.name for p in out.iterdir()) == ["a_b.npy", "a_b_2.npy"]
    np.testing.assert_array_equal(np.load(out / "a_b.npy"), -x)
    np.testing.assert_array_equal(np.load(out / "a_b_2.npy"), abs(x))
    assert "a/b" in capsys.readouterr().out


def trained_in_halves(path: Path) -> np.ndarray:
    """A model as PopART saves it: no outputs, halves packed two by two, unsigned indices; returns its table."""
    builder = popart_jax.Builder()
    table = np.arange(15, dtype=np.float16).reshape(5, 3)
    indices = builder.addInputTensor(popart_jax.TensorInfo("UINT32", [4]), "indices")
    rows = builder.aiOnnx.gather([builder.addInitializedInputTensor(table, "table"), indices])
    builder.aiGraphcore.gelu([builder.aiOnnx.neg([rows])])
    builder.saveModelProto(str(path))
    return table


def test_a_model_saved_by_popart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = trained_in_halves(tmp_path / "m.onnx")
    np.save(tmp_path / "i.npy", np.array([4, 0, 1, 4], np.uint32))
    given = ["run", str(tmp_path / "m.onnx"), "--input", f"indices={tmp_path / 'i.npy'}"]
    assert main(given) == 0
    assert "Gelu:0" in capsys.readouterr().out
    assert main([*given, "--output", "Neg:0", "--output-dir", str(tmp_path)]) == 0
    assert "Gelu:0" not in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(tmp_path / "Neg:0.npy"), -table[[4, 0, 1, 4]])


def test_outputs_whose_names_are_longer_than_file_names(tmp_path: Path) -> None:
    """Two that are alike at the beginning; each letter takes three bytes."""
    names = ["\u20ac" * 300, "\u20ac" * 301]
    nodes = [onnx.helper.make_node(op, ["x"], [name]) for op, name in zip(("Neg", "Abs"), names, strict=True)]
    declared = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in ("x", *names)]
    graph = onnx.helper.make_graph(nodes, "g", declared[:1], declared[1:])
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m"
    )
    np.save(tmp_path / "x.npy", np.float32([-1, 2]))
    assert main(["run", str(tmp_path / "m"), "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", str(tmp_path)]) == 0
    found = sorted(np.load(f).tolist() for f in tmp_path.glob("\u20ac*.npy"))
    assert found == [[1, -2], [1, 2]]


def test_export_for_other_runtimes(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    builder = popart_jax.Builder()
    weight = np.arange(15, dtype=np.float16).reshape(5, 3)
    x = builder.addInputTensor(popart_jax.TensorInfo("FLOAT16", [4, 5]), "x")
    product = builder.aiOnnx.matmul([x, builder.addInitializedInputTensor(weight, "w")])
    builder.aiGraphcore.nllloss([product, builder.addInputTensor(popart_jax.TensorInfo("INT32", [4]))])
    builder.saveModelProto(str(tmp_path / "m.onnx"))
    to = tmp_path / "out.onnx"
    assert main(["export", str(tmp_path / "m.onnx"), str(to), "--output", product]) == 0
    session = ort.InferenceSession(to)
    assert [i.name for i in session.get_inputs()] == ["x"]
    given = np.linspace(-1, 1, 20).astype(np.float16).reshape(4, 5)
    expected = given.astype(np.float64) @ weight
    np.testing.assert_allclose(session.run(None, {"x": given})[0], expected, rtol=2e-3, atol=2e-2)


def test_run_shows_dictionaries_and_sequences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("ZipMap", ["x"], ["map"], domain="ai.onnx.ml", classlabels_strings=["a", "b", "c"]),
        helper.make_node("SplitToSequence", ["x"], ["parts"], axis=1),
    ]
    path = save(tmp_path / "m.onnx", *nodes, outputs=("map", "parts"))
    assert main(["run", str(path), "--dim", "N=4", "--output-dir", str(tmp_path / "out")]) == 0
    named = {p.stem: np.load(p) for p in (tmp_path / "out").iterdir()}
    assert {k: v.shape for k, v in named.items()} == {
        **{f"map[{k}]": (4,) for k in "abc"},
        **{f"parts[{i}]": (4, 1) for i in range(3)},
    }
    np.testing.assert_array_equal(named["map[b]"], named["parts[1]"][:, 0])
    assert main(["inspect", str(path)]) == 0
    assert "ai.onnx.ml.ZipMap" in capsys.readouterr().out


def test_inspect_marks_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "m.onnx", helper.make_node("Unheard", ["x"], ["y"]))
    assert main(["inspect", str(path)]) == 1
    assert "missing" in capsys.readouterr().out
    assert "ai.onnx.Unheard" in refused(capsys, "run", path)


def test_compare_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = [numpy_helper.from_array(np.ones((3, 2), np.float32), "w")]
    path = save(tmp_path / "m.onnx", helper.make_node("MatMul", ["x", "w"], ["y"]), weights=weights)
    assert main(["compare", str(path), "--dim", "N=5"]) == 0
    assert main(["compare", str(path), "--with", "reference"]) == 0
    assert not list(tmp_path.glob("*.minimal.onnx"))


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    path.write_text("before")

    def half() -> None:
        with files.whole(path) as place:
            place.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert [p.read_text() for p in tmp_path.iterdir()] == ["before"]
    with files.whole(path) as place:
        place.write_text("after")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["after"]


def test_interrupts_end_quietly(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("popart_jax.commands.feeds.feeds", stop)
    assert main(["run", str(model)]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_run_takes_programs_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [])  # put back afterwards
    (tmp_path / "hello.py").write_text("import sys\nprint('hello', *sys.argv[1:])\n")
    main(["run", str(tmp_path / "hello.py"), "--you"])
    assert capsys.readouterr().out == "hello --you\n"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("popart_jax 0.")


def test_an_input_without_a_type_must_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    graph = helper.make_graph(
        [node], "g", [helper.make_empty_tensor_value_info("x")], [helper.make_empty_tensor_value_info("y")]
    )
    path = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    assert "give it with --input x=FILE.npy" in refused(capsys, "run", path)


@pytest.mark.parametrize("write", [lambda p: files.check_writable(p / "file"), files.make_folder])
def test_folders_without_the_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # as root may write anywhere
    with pytest.raises(popart_jax.popart_exception, match=r"[nN]o right to write to"):
        write(tmp_path)


def test_a_file_that_fails_half_way_is_not_there(tmp_path: Path) -> None:
    def write() -> None:
        with files.whole(tmp_path / "file") as place:
            place.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(popart_jax.popart_exception, match="can't be written: No space"):
        write()
    assert not list(tmp_path.iterdir())


def test_inspect_shows_a_tree_by_scope(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of names with slashes, and of the scopes that PyTorch's newer exporter notes; bodies stand under their node."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
      g (float[N,4] x, bool on) => (float[N,4] y) {
      a = Relu(x) b = Tanh(a)
      c = If(on) <then_branch = t () => (float[N,4] d) { [inner] d = Neg(b) },
                  else_branch = e () => (float[N,4] f) { f = Abs(b) }>
      [late] y = Exp(c) }""")
    model.graph.node[0].name, model.graph.node[1].name = "/block/attend/Relu", "/block/Tanh"
    noted = model.graph.node[-1].metadata_props.add()
    noted.key, noted.value = "pkg.torch.onnx.name_scopes", "['', 'head', 'head.last', 'exp']"
    onnx.save(model, tmp_path / "m.onnx")
    assert main(["inspect", str(tmp_path / "m.onnx"), "--tree"]) == 0
    shown = [
        line.replace("│", " ") for line in capsys.readouterr().out.splitlines() if "──" in line and "┼" not in line
    ]
    found = {line.lstrip(" ├└─").split(" ->")[0].rstrip(): len(line) - len(line.lstrip(" ")) for line in shown}
    for name, depth in {
        "If:c": 0, "then_branch": 4, "inner": 8, "block (2 nodes)": 0, "/block/Tanh": 4, "attend (1 nodes)": 4,
        "/block/attend/Relu": 8, "head (1 nodes)": 0, "last (1 nodes)": 4, "late": 8,
    }.items():  # fmt: skip
        assert found[name] == depth, (name, found)
