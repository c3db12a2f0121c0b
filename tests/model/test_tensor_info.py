"""TensorInfo and element types (semantics 1.5, 1.6)."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import DataType, TensorInfo, getTensorInfo, popart_exception
from popart_jax.model.dtypes import TABLE
from popart_jax.model.tensor_info import _TensorInfoCore


def test_from_array_and_types():
    info = TensorInfo(np.zeros((2, 3), np.float16))
    assert (info.shape(), info.rank(), info.nelms(), info.nbytes()) == ([2, 3], 2, 6, 12)
    assert (info.dataType(), info.data_type(), info.data_type_lcase()) == (DataType.FLOAT16, "FLOAT16", "float16")
    assert TensorInfo("FLOAT", (2, 3)) == TensorInfo(np.float32, [2, 3]) == TensorInfo(np.dtype("float32"), [2, 3])
    assert TensorInfo("FLOAT", [2, 3]) != TensorInfo("FLOAT", [3, 2])
    assert TensorInfo("FLOAT", [2, 3]) != TensorInfo("INT32", [2, 3])
    assert TensorInfo("FLOAT", []).nelms() == 1


def test_wrong_arguments():
    for bad in ((), ("FLOAT",), ("FLOAT", [1], [1])):
        with pytest.raises(TypeError):
            TensorInfo(*bad)
    with pytest.raises(KeyError):
        TensorInfo(np.complex64, [1])
    with pytest.raises(popart_exception, match="FLOAT17"):
        TensorInfo("FLOAT17", [1])


def test_core_forms():
    assert _TensorInfoCore("FLOAT", "(2,3)").shape() == [2, 3]
    assert _TensorInfoCore("FLOAT", "()").shape() == []
    info = _TensorInfoCore(DataType.INT8, [4], [2, 2])
    assert (info.metaShape(), info.dim(0)) == ([2, 2], 4)
    info.set(DataType.FLOAT)
    assert (info.data_type(), info.shape()) == ("FLOAT", [4])
    info.set(DataType.FLOAT, [2, 5])
    assert info.strides() == [5, 1]
    with pytest.raises(popart_exception):
        info.dim(7)
    with pytest.raises(popart_exception):
        _TensorInfoCore("FLOAT", "(2,x)")
    with pytest.raises(TypeError):
        _TensorInfoCore(3)


def test_types_that_the_runtime_takes():
    assert getTensorInfo(np.zeros(3, np.int64)).data_type() == "INT64"
    with pytest.raises(popart_exception, match="float64"):
        getTensorInfo(np.zeros(3))
    with pytest.raises(TypeError):
        getTensorInfo([1, 2])  # type: ignore[arg-type]


def test_every_type_has_a_row():
    assert {row.data_type for row in TABLE} == set(DataType)
    assert all(row.numpy is None or row.numpy.itemsize == row.size or row.name == "STRING" for row in TABLE)
