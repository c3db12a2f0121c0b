"""A session starts from the file of an earlier process, without JAX, and is then as any other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import patterns
import popart_jax as popart
from patterns._core import RULES
from popart_jax import learnt
from popart_jax._compat import xla
from popart_jax.limits import limits
from popart_jax.session import engine, start_files
from popart_jax.session import start_lookup as start
from popart_jax.session.preparing import prepared

from ..platforms import ON_CPUS

pytestmark = ON_CPUS

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
W = np.linspace(-2, 3, 4 * 1100, dtype=np.float32).reshape(4, 1100)  # more than the message holds
B = np.linspace(0, 1, 1100, dtype=np.float32)
SLICE, OTHER = np.array([0, 7]), np.array([1, 6])


def model(w: np.ndarray = W, op: str = "Relu", ends: np.ndarray = SLICE, bias: np.ndarray = B) -> onnx.ModelProto:
    """Columns from `ends[0]` to `ends[1]` of ``op(x @ w + bias)``."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Add", ["xw", "b"], ["sum"]),
        helper.make_node("Slice", ["sum", "begin", "end", "axis"], ["part"]),
        helper.make_node(op, ["part"], ["y"]),
    ]
    stored = {"w": w, "b": bias, "begin": ends[:1], "end": ends[1:], "axis": np.array([1])}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)


def expected(w: np.ndarray = W, ends: np.ndarray = SLICE, bias: np.ndarray = B) -> np.ndarray:
    return np.maximum(X @ w + bias, 0)[:, ends[0] : ends[1]]


def session(proto: onnx.ModelProto | str, kind: str = "All", **given: Any) -> Any:
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType(kind)})
    given.setdefault("deviceInfo", popart.DeviceManager().createCpuDevice())
    source = proto if isinstance(proto, str) else proto.SerializeToString()
    return popart.InferenceSession(source, flow, **given)


def first_result(made: Any, x: np.ndarray = X) -> np.ndarray:
    made.prepareDevice()
    anchors = made.initAnchorArrays()
    made.run(popart.PyStepIO({"x": x}, anchors))
    return anchors["y"]


def check(proto: onnx.ModelProto, wanted: np.ndarray, **given: Any) -> None:
    np.testing.assert_allclose(first_result(session(proto, **given)), wanted, rtol=1e-5, atol=1e-5)


def test_the_second_session_is_not_made(cache: Path, made_in_full: list[str]) -> None:
    check(model(), expected())
    assert made_in_full == ["session"]
    check(model(), expected())
    check(model(2 * W, bias=3 * B), expected(2 * W, bias=3 * B))  # weights are arguments, small and large ones
    assert made_in_full == ["session"]


def test_a_program_that_is_kept_is_not_compiled_to_start_from(
    cache: Path, made_in_full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(model(), expected())
    monkeypatch.setattr(start, "installed", lambda: ["other"])
    compiled: list[Any] = []
    monkeypatch.setattr(engine, "compile_traced", compiled.append)
    check(model(), expected())
    check(model(), expected())
    assert made_in_full == ["session"] * 2
    assert compiled == []


def options(**values: Any) -> Any:
    made = popart.SessionOptions()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def with_note() -> onnx.ModelProto:
    made = model()
    made.doc_string = "another"
    return made


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], dict[str, Any]]] = {
    "another operator": lambda _: {"proto": model(op="Abs"), "wanted": np.abs(X @ W + B)[:, :7]},
    "a constant of the program": lambda _: {
        "proto": model(ends=np.array([1, 6])),
        "wanted": expected(ends=np.array([1, 6])),
    },
    "an option": lambda _: {"userOptions": options(enableOutlining=False)},
    "patterns": lambda _: {"patterns": popart.Patterns(popart.PatternsLevel.NoPatterns).enableRuntimeAsserts(False)},
    "a device": lambda _: {"deviceInfo": popart.DeviceManager().createIpuModelDevice({})},
    "a variable of XLA's": lambda patch: patch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_min_max=true") or {},
    "a variable of JAX's": lambda patch: patch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "highest") or {},
    "a variable of PopART's": lambda patch: patch.setenv("POPART_PRINT_TENSORS", "none") or {},
    "our sources": lambda patch: patch.setattr(start, "sources", lambda: "other") or {},
    "another file of the model": lambda patch: {"proto": with_note()},
    "what is installed": lambda patch: patch.setattr(start, "installed", lambda: ["jax-9.9.dist-info"]) or {},
    "the processor": lambda patch: patch.setattr(start, "machine", lambda: "other") or {},
    "JAX is there": lambda patch: patch.setattr(start, "sys", sys) or {},
    "another module patterns": lambda patch: (
        patch.setattr(start, "sys", SimpleNamespace(modules={"patterns": 1})) or {}
    ),
    "limits": lambda patch: patch.setattr(limits, "nodes", 100) or {},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_makes_a_session_in_full(
    change: str, cache: Path, made_in_full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(model(), expected())
    given: dict[str, Any] = {"proto": model(), "wanted": expected(), **CHANGES[change](monkeypatch)}
    check(**given)
    assert made_in_full == ["session"] * 2


def test_a_program_may_choose_patterns(cache: Path, made_in_full: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "sys", SimpleNamespace(modules={"patterns": patterns}))
    for level, made in (("All", 1), ("All", 1), ("NoPatterns", 2), ("NoPatterns", 2)):
        chosen = popart.Patterns(getattr(popart.PatternsLevel, level)).enableRuntimeAsserts(False)
        check(model(), expected(), patterns=chosen)
        assert made_in_full == ["session"] * made


def test_a_rewrite_of_a_program_makes_sessions_in_full(
    cache: Path, made_in_full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "sys", SimpleNamespace(modules={"patterns": patterns}))
    check(model(), expected())
    rule = next(iter(RULES.values()))[0]
    monkeypatch.setitem(RULES, "Own", [replace(rule, rewrite=lambda node, context: None)])
    check(model(), expected())
    assert made_in_full == ["session"] * 2


def test_whole_numbers_are_made_narrower(cache: Path, made_in_full: list[str]) -> None:
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(B, "w")],
    )
    proto, x = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8), np.array([7, 0, 1])
    first_result(session(proto), x)
    made = session(proto)
    np.testing.assert_array_equal(first_result(made, x), B[x])
    stepio = popart.PyStepIO({"x": x}, made.initAnchorArrays())
    made.run(stepio)
    assert made_in_full == ["session"]
    x[1] = 1 << 40
    with pytest.raises(popart.popart_exception, match="the device holds INT32"):
        made.run(stepio)


def test_a_log_gets_its_lines(cache: Path, made_in_full: list[str], caplog: pytest.LogCaptureFixture) -> None:
    check(model(), expected())
    popart.getLogger("devicex").setLevel("INFO")
    try:
        with caplog.at_level("INFO", "popart"):
            check(model(), expected())
    finally:
        popart.getLogger().setLevel("WARN")
    assert made_in_full == ["session"] * 2
    assert "Engine loaded" in caplog.text


@pytest.mark.parametrize("damage", ["cut", "other", "empty", "code"])
def test_a_damaged_file_is_as_none(damage: str, cache: Path, made_in_full: list[str]) -> None:
    check(model(), expected())
    for path in cache.glob("*.popef"):
        data = path.read_bytes()
        middle = len(data) // 2
        made = {
            "cut": data[:middle], "other": b"x" * len(data), "empty": b"",
            "code": data[: middle - 20] + bytes(40) + data[middle + 20 :],
        }  # fmt: skip
        path.write_bytes(made[damage])
    check(model(), expected())
    assert made_in_full == ["session"] * 2


def test_a_file_of_another_user_is_not_loaded(
    cache: Path, made_in_full: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(model(), expected())
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    check(model(), expected())
    assert made_in_full == ["session"] * 2


def test_a_run_that_fails_is_made_in_full(
    cache: Path, made_in_full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(model(), expected())
    second = session(model())

    def fail(*_: Any) -> None:
        raise RuntimeError("lost")

    monkeypatch.setattr(second._parts.first, "call", fail)
    np.testing.assert_allclose(first_result(second), expected(), rtol=1e-5)
    assert made_in_full == ["session"] * 2


def test_the_session_in_full_goes_on(cache: Path, made_in_full: list[str], tmp_path: Path) -> None:
    """Also where the file of the model was overwritten meanwhile."""
    file, saved = tmp_path / "model.onnx", tmp_path / "saved.onnx"
    file.write_bytes(model().SerializeToString())
    first_result(session(str(file)))
    made = session(str(file))
    file.write_bytes(b"")
    made.prepareDevice()
    made.weightsFromHost()
    anchors = made.initAnchorArrays()
    stepio = popart.PyStepIO({"x": X.copy()}, anchors)
    for factor in (1, 2):
        stepio.inputs["x"][...] = factor * X
        made.run(stepio, "named")
        np.testing.assert_allclose(anchors["y"], np.maximum(factor * X @ W + B, 0)[:, :7], rtol=1e-5, atol=1e-5)
    assert made_in_full == ["session"]
    assert made.getInfo("w").shape() == [4, 1100]
    assert made_in_full == ["session"] * 2
    anchors["y"][...] = 0
    made.run(stepio)
    np.testing.assert_allclose(anchors["y"], np.maximum(2 * X @ W + B, 0)[:, :7], rtol=1e-5, atol=1e-5)
    made.modelToHost(str(saved))
    stored = {t.name: numpy_helper.to_array(t) for t in onnx.load(saved).graph.initializer}
    np.testing.assert_array_equal(stored["w"], W)
    np.testing.assert_array_equal(stored["b"], B)


def test_a_file_that_changes_while_it_is_read_leaves_nothing(
    cache: Path, made_in_full: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = tmp_path / "model.onnx", prepared.read_session_model
    file.write_bytes(model().SerializeToString())

    def changed(*args: Any, **options: Any) -> Any:
        file.write_bytes(model(ends=OTHER).SerializeToString())
        return read(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(prepared, "read_session_model", changed)
        np.testing.assert_allclose(first_result(session(str(file))), expected(ends=OTHER), rtol=1e-5)
    check(model(), expected())
    assert made_in_full == ["session"] * 2


REFUSED = {
    "not prepared": (lambda made: made.run(popart.PyStepIO({"x": X}, {"y": np.empty((3, 7), np.float32)})), "prepare"),
    "another type": (lambda made: first_result(made, X.astype(np.float64)), "Type discrepancy"),
    "another size": (lambda made: first_result(made, X[:2].copy()), "number of input elements"),
    "another name": (lambda made: made.prepareDevice() or made.run(popart.PyStepIO({"z": X}, {})), "no Tensor named z"),
    "no step": (lambda made: made.prepareDevice() or made.run(7), "PyStepIO"),
    "constant weights": (lambda made: made.writeWeights(popart.PyWeightsIO({"w": W})), "constantWeights"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_refused_as_ever(case: str, cache: Path, made_in_full: list[str]) -> None:
    first_result(session(model()))
    act, text = REFUSED[case]
    messages = []
    for made in (session(model()), session(model(), name="another")):
        with pytest.raises((popart.popart_exception, TypeError), match=text) as caught:
            act(made)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


NOT_KEPT = {
    "options": lambda: session(model(), userOptions=options(enableFloatingPointChecks=True)),
    "random numbers": lambda: session(drawing()),
    "a model of ModelProto": lambda: popart.InferenceSession(
        model(), popart.DataFlow(1, {"y": popart.AnchorReturnType("All")}), popart.DeviceManager().createCpuDevice()
    ),
}


def drawing() -> onnx.ModelProto:
    made = model()
    made.graph.node.extend(
        [
            helper.make_node("RandomNormalLike", ["y"], ["drawn"], dtype=TensorProto.FLOAT),
            helper.make_node("Add", ["y", "drawn"], ["noisy"]),
        ]
    )
    made.graph.output.append(helper.make_tensor_value_info("noisy", TensorProto.FLOAT, None))
    return made


@pytest.mark.parametrize("case", NOT_KEPT)
def test_other_sessions_are_not_kept(case: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(start_files, "keep_file", lambda *args: kept.append(args))
    NOT_KEPT[case]().prepareDevice()
    assert kept == []


def test_other_releases_of_jaxlib_keep_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(xla, "__version__", "9.9.9")
    monkeypatch.setattr(start_files, "keep_file", lambda *args: kept.append(args))
    check(model(), expected())
    assert kept == []


SCRIPT = """
import sys, numpy as np, popart_jax as popart
flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
session = popart.InferenceSession(sys.argv[1], flow, popart.DeviceManager().createCpuDevice())
session.prepareDevice()
anchors = session.initAnchorArrays()
session.run(popart.PyStepIO({"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}, anchors))
np.save(sys.argv[2], anchors["y"])
print(*[name for name in ("jax", "onnx", "onnx_ir.serde", "patterns") if name in sys.modules])
"""


@pytest.mark.processes
def test_a_process_needs_neither_jax_nor_onnx(tmp_path: Path) -> None:
    file, out = tmp_path / "model.onnx", tmp_path / "y.npy"
    file.write_bytes(model().SerializeToString())
    environment = {n: v for n, v in os.environ.items() if not n.startswith("POP")}
    environment |= {learnt.FOLDER: str(tmp_path / "cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    imported = []
    for _ in range(2):
        command = [sys.executable, "-c", SCRIPT, str(file), str(out)]
        imported.append(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
        np.testing.assert_allclose(np.load(out), expected(), rtol=1e-5, atol=1e-5)
        out.unlink()
    assert [text.split() for text in imported] == [["jax", "onnx", "onnx_ir.serde", "patterns"], []]
