"""Modelled beside measured: every node is joined by name, and inputs without a shape are named."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

import popart_jax
from popart_jax import profiling
from popart_jax.__main__ import main
from popart_jax.profiling import profile_model, worked

TEXT = """<ir_version: 8, opset_import: ["": 13]>
g(float[{rows},64] x) => (float[{rows},32] y) <float[64,32] w> {{
  [first] h = MatMul(x, w)
  [second] y = Relu(h)
}}"""


def model(rows: object) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(TEXT.format(rows=rows))
    del proto.graph.initializer[:]
    weights = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return proto


def test_each_node_has_cycles_and_a_time():
    rows, report = profile_model(model(16), {"x": np.ones((16, 64), np.float32)})
    assert [r.op for r in rows] == ["MatMul", "Relu"]
    assert all(r.cycles > 0 and r.measured_us and r.measured_us > 0 for r in rows)
    assert rows[0].cycles > rows[1].cycles
    assert sum(r.cycles for r in rows) == pytest.approx(report.total_cycles, rel=0.05)


def test_the_command_prints_the_table(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    onnx.save(model(16), path)
    written = tmp_path / "r.json"
    assert main(["profile", str(path), "--html", str(tmp_path / "r.html"), "--json", str(written)]) == 0
    printed = capsys.readouterr().out
    figures = json.loads(written.read_text())
    assert [n["op"] for n in figures["nodes"]] == ["MatMul", "Relu"]
    assert sum(n["cycles"] for n in figures["nodes"]) == pytest.approx(figures["cycles"])
    assert figures["measured_us"] > 0
    assert "as one program" in printed
    assert "MatMul" in printed
    assert "Fullest tile" in printed
    assert (tmp_path / "r.html").stat().st_size > 1000


BRANCHES = """<ir_version: 8, opset_import: ["": 13]>
g(float[4,8] x, bool c) => (float[4,8] y) {
  [shape] s = Shape(x)
  [flat] f = Reshape(x, s)
  [choice] z = If (c) <
    then_branch = yes () => (float[4,8] a) { [inner_sin] a = Sin(f) },
    else_branch = no () => (float[4,8] b) { [inner_tan] t = Tan(f) [inner_exp] b = Exp(t) }
  >
  [last] y = Neg(z)
}"""


def test_nodes_of_branches_belong_to_the_node_that_holds_them():
    feeds = {"x": np.ones((4, 8), np.float32), "c": np.array(True)}
    rows, report = profile_model(onnx.parser.parse_model(BRANCHES), feeds, repeats=1)
    by = {r.node: r for r in rows}
    assert list(by) == ["shape", "flat", "choice", "last"]
    assert by["choice"].cycles > by["last"].cycles > 0
    assert by["choice"].measured_us is not None
    assert by["shape"].measured_us is None
    assert [r.node for r in worked(rows)] == ["flat", "choice", "last"]
    assert sum(r.cycles for r in rows) == pytest.approx(report.total_cycles)


def test_weights_and_inputs_have_their_roles_in_the_report():
    _, report = profile_model(model(16), {"x": np.ones((16, 64), np.float32)}, repeats=1)
    assert {v.name: v.kind for v in report.memory.variables if v.always} == {"w": "weights", "x": "inputs"}


def _timed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Fills with the outputs of each node that is timed."""
    timed: list[list[str]] = []
    whole = profiling._time
    monkeypatch.setattr(profiling, "_time", lambda g, *rest: timed.append(rest[2]) or whole(g, *rest))
    return timed


def test_nodes_of_a_builder_are_timed_once_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their debug numbers tell them apart, not what they cost."""
    builder = popart_jax.Builder()
    y = x = builder.addInputTensor("FLOAT", [2, 3])
    for _ in range(10):
        y = builder.aiOnnx.tanh([y])
    builder.addOutputTensor(y)
    timed = _timed(monkeypatch)
    rows, _ = profiling.profile_model(builder.getModelProto(), {x: np.ones((2, 3), np.float32)}, repeats=1)
    assert (len(rows), len(timed)) == (10, 1)


def test_nodes_that_are_alike_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = "".join(f"h{i + 1} = Tanh(h{i}) " for i in range(40))
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[3,2] y)
      {{ h0 = Relu(x) {steps} a = Transpose<perm=[1,0]>(h40) b = Transpose<perm=[0,1]>(h40) t = Tanh(a) c = Tanh(b)
         d = Transpose<perm=[1,0]>(c) y = Add(t, d) }}"""
    timed = _timed(monkeypatch)
    rows, _ = profiling.profile_model(onnx.parser.parse_model(text), {"x": np.ones((2, 3), np.float32)}, repeats=1)
    assert len(rows) == 47
    assert all(row.measured_us for row in rows)
    assert [names[0] for names in timed] == ["h0", "h1", "a", "b", "t", "y"]


def test_numbers_of_64_bits_are_priced_as_an_ipu_has_them_without_a_warning(recwarn):
    text = """<ir_version: 8, opset_import: ["": 13]>
    g(double[4,8] x, int64[4] at) => (double[4,8] y) { z = Relu(x)  y = Gather(z, at) }"""
    fed = {"x": np.ones((4, 8)), "at": np.arange(4)}
    rows, report = profile_model(onnx.parser.parse_model(text), fed, measured=False)
    assert [r.op for r in rows] == ["Relu", "Gather"]
    single = profile_model(onnx.parser.parse_model(text.replace("double", "float")), fed, measured=False)[1]
    assert report.total_cycles == single.total_cycles
    assert not [w for w in recwarn if "truncated" in str(w.message)]
