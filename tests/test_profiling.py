"""Modelled beside measured: every node is joined by name, and inputs without a shape are named."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from popart_jax.__main__ import main
from popart_jax.profiling import profile_model

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
    assert main(["profile", str(path), "--html", str(tmp_path / "r.html")]) == 0
    printed = capsys.readouterr().out
    assert "MatMul" in printed
    assert "Fullest tile" in printed
    assert (tmp_path / "r.html").stat().st_size > 1000
