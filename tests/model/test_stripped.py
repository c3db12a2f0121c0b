"""Large initializers are read beside the message, and the whole message comes back; odd models are left to protobuf."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from popart_jax.buffers import lasting
from popart_jax.model.files import stripped, wire
from popart_jax.model.files.stripped import read_stripped

BIG = np.arange(20_000, dtype=np.float32).reshape(100, 200)
HALVES = np.arange(12_000, dtype=np.float16)


def typed(name: str, array: np.ndarray) -> TensorProto:
    """A tensor with its data in a typed field."""
    return helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.ravel().tolist())


def model(*tensors: TensorProto) -> onnx.ModelProto:
    """A model with these initializers and one node."""
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Identity", [tensors[0].name], ["y"])
    return helper.make_model(helper.make_graph([node], "g", [], [y], list(tensors)), producer_name="somebody")


TENSORS = (numpy_helper.from_array(BIG, "a"), typed("b", BIG + 1), numpy_helper.from_array(BIG[0, :3], "small"),
           numpy_helper.from_array(HALVES, "h"), typed("i", np.arange(9000)))  # fmt: skip


@pytest.mark.parametrize("in_file", [True, False])
def test_large_data_stand_beside_the_message(tmp_path: Path, in_file: bool) -> None:
    proto = model(*TENSORS)
    source = tmp_path / "m.onnx"
    source.write_bytes(proto.SerializeToString())
    found = read_stripped(source if in_file else source.read_bytes())
    assert found is not None
    assert set(found.weights) == {"a", "b", "h"}
    np.testing.assert_array_equal(found.weights["a"], BIG)
    np.testing.assert_array_equal(found.weights["b"], BIG + 1)
    np.testing.assert_array_equal(found.weights["h"], HALVES)
    assert found.whole() == proto
    assert len(found.proto.graph.initializer[0].raw_data) == 0


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("in_file", [True, False])
def test_a_thread_reads_many_weights(
    tmp_path: Path, in_file: bool, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stripped, "MANY", 0)
    monkeypatch.setattr(wire, "_RUN", 1 << 30 if at_once else 100_000)  # all in one run, or one after the other
    if not at_once:
        monkeypatch.delattr(os, "preadv", raising=False)
    proto = model(*TENSORS)
    source = tmp_path / "m.onnx"
    source.write_bytes(proto.SerializeToString())
    found = read_stripped(source if in_file else source.read_bytes())
    assert found is not None
    tensors = found.tensors()
    assert [tuple(tensors[n].shape) for n in ("a", "h")] == [BIG.shape, HALVES.shape]
    np.testing.assert_array_equal(tensors["b"].numpy(), BIG + 1)
    np.testing.assert_array_equal(tensors["h"].numpy(), HALVES)
    assert found.whole() == proto


def test_a_file_that_became_shorter_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "m.onnx"
    source.write_bytes(model(*TENSORS).SerializeToString())
    data = wire.Data(source)
    found = wire.take_apart(data, stripped.LARGE)
    assert found is not None
    os.truncate(source, 60_000)
    with pytest.raises(OSError, match="shorter"):
        data.read_into([(p, np.empty(p.size, np.uint8)) for p in found.places.values()])
    data.close()


def test_weights_are_shared_and_read_only(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(model(*TENSORS).SerializeToString())
    found = read_stripped(tmp_path / "m.onnx")
    assert found is not None
    weight = found.weights["a"]
    with pytest.raises(ValueError, match="read-only"):
        weight[0] = 1
    assert lasting(weight) is weight
    mine = np.array(weight)
    shown = mine.view()
    shown.flags.writeable = False
    assert not np.shares_memory(lasting(mine), mine)
    assert not np.shares_memory(lasting(shown), mine)


def test_data_that_do_not_fit_stay_in_the_message() -> None:
    wrong = numpy_helper.from_array(BIG, "a")
    del wrong.dims[:]
    wrong.dims.extend([3, 3])
    proto = model(wrong)
    found = read_stripped(proto.SerializeToString())
    assert found is not None
    assert not found.weights
    assert found.whole() == proto


@pytest.mark.parametrize("part", [b"", b"not a model", model(*TENSORS).SerializeToString()[:50_000]])
def test_what_is_no_message_is_left_alone(part: bytes) -> None:
    assert read_stripped(part) is None


def test_two_graphs_are_left_to_protobuf() -> None:
    twice = model(*TENSORS).SerializeToString() + model(TENSORS[0]).SerializeToString()
    assert read_stripped(twice) is None


def test_two_initializers_of_one_name_are_left_to_protobuf() -> None:
    assert read_stripped(model(TENSORS[0], TENSORS[0]).SerializeToString()) is None
