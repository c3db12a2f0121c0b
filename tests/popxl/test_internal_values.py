"""Values of `popart._internal.ir` that need no program: Irs and graphs of one's own, scopes, tensor infos, float8."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import popart_jax as popart
from popart_jax.popxl._internal import ir as _ir

KINDS = {
    popart.DataType.FLOAT8_143: ml_dtypes.float8_e4m3fnuz,
    popart.DataType.FLOAT8_152: ml_dtypes.float8_e5m2fnuz,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("scale", [-1, 0, 2])
def test_float8_bytes_of_arrays(kind, width, scale):
    given = np.random.default_rng(3).standard_normal((4, 3)).T.astype(f"float{width}")
    found = getattr(_ir, f"convertFromFloat{width}ToFloat8AsUInt8")(kind, given, scale, True)
    wanted = (given.astype(np.float64) * 2.0**scale).astype(KINDS[kind])
    np.testing.assert_array_equal(found, np.ascontiguousarray(wanted).view(np.uint8).reshape(-1))
    back = getattr(_ir, f"convertFromFloat8AsUInt8ToFloat{width}")(kind, found, np.dtype(f"float{width}"), -scale)
    assert back.dtype == given.dtype
    np.testing.assert_array_equal(back, (wanted.astype(np.float64) * 2.0**-scale).reshape(-1))


@pytest.mark.parametrize("kind", KINDS)
def test_values_beyond_a_float8_type(kind):
    given = np.array([1e9, -1e9, np.inf, np.nan], np.float32)
    largest = float(ml_dtypes.finfo(KINDS[kind]).max)
    for throws, wanted in ((True, [np.nan] * 4), (False, [largest, -largest, np.nan, np.nan])):
        found = _ir.convertFromFloat32ToFloat8AsUInt8(kind, given, 0, throws)
        np.testing.assert_array_equal(found.view(KINDS[kind]).astype(np.float32), np.array(wanted, np.float32))


def test_the_scale_brings_data_into_range():
    small = np.random.default_rng(1).random(64).astype(np.float32) * 2.0**-20
    scale = _ir.calculateScaleFromFloat32ToFloat8(small, popart.DataType.FLOAT8_143)
    assert 10 <= scale <= 31
    assert _ir.calculateScaleFromFloat16ToFloat8(small.astype(np.float16) * 8, popart.DataType.FLOAT8_143) < 31
    with pytest.raises(popart.popart_exception, match="is no float8 type"):
        _ir.calculateScaleFromFloat32ToFloat8(small, popart.DataType.FLOAT)


def test_irs_and_graphs_of_ones_own():
    ir = _ir.Ir()
    assert ir != _ir.Ir()
    graph = _ir.Graph(ir, _ir.GraphId("sub"))
    assert ir.hasGraph(_ir.GraphId("sub"))
    assert ir.getGraph(_ir.GraphId("sub")) == graph
    assert graph.getIr() == ir
    assert not ir.getDataFlow().isAnchored("out")
    with pytest.raises(popart.popart_exception, match="Tensor out is not an anchor"):
        ir.getDataFlow().art("out")


def test_tensor_infos_need_no_arguments():
    assert _ir.TensorInfo().dataType() is popart.DataType.UNDEFINED
    assert _ir.TensorInfo(popart.DataType.FLOAT, [2, 3]) == popart.TensorInfo("FLOAT", [2, 3])


def test_scopes():
    base = _ir.Scope() / "base"
    one, other = base / "a", base / "b"
    assert one.getCommonParent(other) == base != one
    assert one.isSubscope(base)
    assert not one.isSubscope(one)
    assert not base.isSubscope(one)
