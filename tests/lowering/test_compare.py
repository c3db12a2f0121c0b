"""compare: the first node that computes something else, and the model that shows it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from popart_jax.__main__ import main
from popart_jax.compare import compare, distance
from popart_jax.errors import popart_exception
from popart_jax.ops import registry

TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
net (float[2, 3] x) => (float[2] y)
<float[3, 4] w = {1, -2, 3, 4, 5, 6, -7, 8, 9, 10, 11, 12}>
{
  a = MatMul(x, w)
  b = Gelu <approximate = "tanh">(a)
  axes = Constant <value_ints = [1]>()
  y = ReduceSum <keepdims = 0>(b, axes)
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(ir.to_proto(ir.from_onnx_text(TEXT)), path)
    return path


@pytest.fixture
def wrong_gelu() -> Iterator[None]:
    row = registry.resolve("", "Gelu", 20)
    assert row is not None
    registry.add(dataclasses.replace(row, fn=lambda x, /, *, approximate="none": x * 1.01), replace=True)
    yield
    registry.add(row, replace=True)


@pytest.mark.parametrize("runtime", ["onnxruntime", "reference"])
def test_agreeing_model(file: Path, runtime: str) -> None:
    assert main(["compare", str(file), "--with", runtime]) == 0


@pytest.mark.usefixtures("wrong_gelu")
@pytest.mark.parametrize("runtime", ["onnxruntime", "reference"])
def test_the_wrong_node_alone_is_named(file: Path, runtime: str, capsys: pytest.CaptureFixture[str]) -> None:
    feeds = {"x": np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)}
    found = list(compare(str(file), feeds, runtime))
    assert [(d.op, d.tensor) for d in found] == [("Gelu", "b")]
    assert found[0].ulps > 1000
    minimal = file.with_name("small.onnx")
    assert main(["compare", str(file), "--with", runtime, "--minimal", str(minimal)]) == 1
    assert "Gelu" in capsys.readouterr().out
    small = onnx.load(minimal)
    assert [n.op_type for n in small.graph.node] == ["Gelu"]
    assert main(["compare", str(minimal), "--with", runtime, "--minimal", str(minimal)]) == 1


def test_distance_counts_units_in_the_last_place() -> None:
    x = np.array([1.0, 3.0], np.float32)
    assert distance(np.nextafter(x, np.float32(9)), x)[0] == 1
    assert distance(x, x)[0] == 0
    assert distance(x[:1], x)[0] == np.inf


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("at", ["zero", "smallest", "one", "largest"])
def test_neighbours_are_one_unit_apart(dtype: type, at: str) -> None:
    info = ml_dtypes.finfo(dtype)
    numbers = {"zero": 0, "smallest": info.smallest_subnormal, "one": 1, "largest": info.max}
    x = np.array([numbers[at]], dtype)
    towards = np.array([0 if at == "largest" else info.max], dtype)
    assert distance(np.nextafter(x, towards), x)[0] == 1


def test_another_runtime_is_refused(file: Path) -> None:
    with pytest.raises(popart_exception, match="compare: 'tvm' is none of"):
        next(compare(str(file), {"x": np.zeros((2, 3), np.float32)}, "tvm"))
