"""Peculiarities of protobuf: packed fields, fields without effect on results, repeated fields, unusual encodings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .build import EITHER, ERROR, F32, FLOAT, VALUE, Case, X, const, field, info, model, node, varint

FED = {"x": X}
RELU = node("Relu", ["x"], ["y"], name="the_node")
SUM = node("Add", ["x", "w"], ["y"], name="the_node")
_NUMBERS = {k: v for k, v in TensorProto.DataType.items() if k not in ("UNDEFINED", "STRING", "FLOAT", "COMPLEX64")}
_VALUES = [1, 0, 1, 1, 0]
_SIGNED = [1, -2, 0.5, -1, 0]


def packed() -> Iterator[Case]:
    """Every element type in its typed field and in raw data, in odd counts, one and none."""
    for name, kind in _NUMBERS.items():
        if name in ("COMPLEX128", "FLOAT6E2M3", "FLOAT6E3M2"):
            continue
        numpy = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
        signed = numpy.kind not in "ub" and not name.startswith(("UINT", "FLOAT8E8"))
        for shape in ((5,), (), (0, 3), (3, 1)):
            count = int(np.prod(shape))
            values = np.array((_SIGNED if signed else _VALUES)[:count], np.float64)
            if name == "FLOAT8E8M0":
                values += 1
            held = values.astype(F32).astype(numpy).reshape(shape)
            for raw in (False, True):
                tensor = _tensor("w", kind, held, raw)
                cast = node("Cast", ["w"], ["y"], to=FLOAT, name="the_node")
                for inner in (False, True) if shape == (5,) else (False,):
                    nodes = (node("Constant", [], ["w"], value=tensor), cast) if inner else (cast,)
                    made = model(*nodes, weights=[] if inner else [tensor], opset=25, ir=13)
                    shown = f"{name} of {list(shape)}, {'raw' if raw else 'typed'}{', Constant' * inner}"
                    yield Case(shown, made, {}, VALUE, want={"y": held.astype(F32)}, session=numpy.itemsize <= 4)


def _tensor(name: str, kind: int, held: np.ndarray, raw: bool) -> TensorProto:
    made = onnx.numpy_helper.from_array(held, name)
    assert made.data_type == kind
    if raw:
        return made
    data = helper.make_tensor(name, kind, held.shape, held.astype(F32).ravel() if held.dtype.kind == "V" else held)
    assert not data.HasField("raw_data")
    return data


def unused() -> Iterator[Case]:
    """Fields of a model that change no result."""

    def changed(name: str, change: Any, *, expect: str = VALUE, **more: Any) -> Case:
        made = model(node("Neg", ["x"], ["a"], name="n"), node("Neg", ["a"], ["y"], name="the_node"), inputs=FED, ir=11)
        change(made)
        return Case(name, made, FED, expect, want={"y": X}, **more)

    def twice(entries: Any) -> None:
        for value in "ab":
            entries.add(key="k", value=value)

    yield changed("metadata of one key twice", lambda m: twice(m.metadata_props))
    yield changed("metadata of a graph", lambda m: twice(m.graph.metadata_props))
    yield changed("metadata of a node", lambda m: twice(m.graph.node[0].metadata_props))
    yield changed("metadata of a value", lambda m: twice(m.graph.input[0].metadata_props))
    yield changed("metadata of no key", lambda m: m.metadata_props.add())
    yield changed("metadata of 1 MB", lambda m: m.metadata_props.add(key="k" * 1_000_000, value="v" * 1_000_000))
    yield changed("a doc_string with a zero byte", lambda m: setattr(m, "doc_string", "a\0b"))
    for what in ("doc_string", "producer_name", "producer_version", "domain"):
        yield changed(f"{what} of 1 MB", lambda m, what=what: setattr(m, what, "ü" * 500_000))
    yield changed("a model version of -2^63", lambda m: setattr(m, "model_version", -(1 << 63)))
    yield changed("a doc_string of a node", lambda m: setattr(m.graph.node[0], "doc_string", "\0" * 99))

    def trained(made: onnx.ModelProto) -> None:
        info = made.training_info.add()
        info.algorithm.node.add(op_type="NoSuchThing", input=["nowhere"], output=["y"])
        info.update_binding.add(key="w", value="nothing")

    yield changed("training_info of nonsense", trained)

    def annotated(made: onnx.ModelProto) -> None:
        for name in ("a", "a", "nowhere", ""):
            made.graph.quantization_annotation.add(tensor_name=name).quant_parameter_tensor_names.add(
                key="SCALE_TENSOR", value="nothing"
            )

    yield changed("quantization_annotation of nonsense", annotated)

    def placed(made: onnx.ModelProto) -> None:
        for number in (-1, 2):
            made.configuration.add(name="c", num_devices=number, device=["d"])
        entry = made.graph.node[0].device_configurations.add(configuration_id="none", pipeline_stage=-7)
        entry.sharding_spec.add(tensor_name="nowhere", device=[-1, 99])

    yield changed("device configurations of nonsense", placed)
    yield changed("value_info of one name twice", lambda m: m.graph.value_info.extend([info("a"), info("a")]))
    yield changed(
        "value_info contradicts itself",
        lambda m: m.graph.value_info.extend([info("a"), info("a", (7,))]),
        expect=EITHER,
    )
    yield changed("value_info of an input", lambda m: m.graph.value_info.append(info("x")))
    yield changed("value_info without a type", lambda m: m.graph.value_info.add(name="a"))
    yield changed("value_info of no name", lambda m: m.graph.value_info.append(info("")))
    yield changed("denotations", lambda m: setattr(m.graph.input[0].type, "denotation", "IMAGE\0"))
    yield changed("a graph of no name", lambda m: m.graph.ClearField("name"))
    yield changed("a graph named with a path", lambda m: setattr(m.graph, "name", "../../\n\0"))
    yield changed("nodes of no name", lambda m: [n.ClearField("name") for n in m.graph.node])
    yield changed("an overload of an operator", lambda m: setattr(m.graph.node[0], "overload", "o"), expect=EITHER)
    for place in ("doc_string", "producer_name"):
        good = changed("", lambda m, place=place: setattr(m, place, "battery!")).model.SerializeToString()
        yield Case(
            f"broken text as {place}", good.replace(b"battery!", b"\xff\xfe" * 4), FED, EITHER, says=".", want={"y": X}
        )


_LARGE = np.arange(1 << 13, dtype=F32)


def wire() -> Iterator[Case]:
    """Unusual wire formats that protobuf accepts; our own reader of large tensors must read them alike."""
    add = node("Add", ["x", "w"], ["y"], name="the_node")
    shell = model(add, inputs=FED, outputs=[info("y", (1 << 13, 3))], weights=()).graph
    shell.ClearField("initializer")
    shell.input[0].CopyFrom(info("x", (1,)))
    shell.output[0].CopyFrom(info("y", None))
    fed, head, opset = {"x": np.ones(1, F32)}, b"\x08\x09", field(8, b"\x10\x11")
    graph, data = shell.SerializeToString(), _LARGE.tobytes()
    dims, kind, name = b"\x08" + varint(_LARGE.size), b"\x10\x01", field(8, b"w")
    raw, typed = field(9, data), field(4, data)
    loose = b"".join(b"\x25" + data[i : i + 4] for i in range(0, len(data), 4))
    half = len(data) // 2
    right, other = _LARGE + 1, _LARGE[::-1] + 1

    def whole(*tensors: bytes, at: int = 0) -> bytes:
        return head + field(7, graph + b"".join(field(5, t) for t in tensors)) + opset

    for what, tensor, want in (
        ("as usual", dims + kind + name + raw, right),
        ("data first", raw + name + kind + dims, right),
        ("data in the middle", name + raw + dims + kind, right),
        ("raw data twice", dims + kind + name + field(9, _LARGE[::-1].tobytes()) + raw, right),
        ("raw data twice, the other way", dims + kind + name + raw + field(9, _LARGE[::-1].tobytes()), other),
        ("typed data in two runs", dims + kind + name + field(4, data[:half]) + field(4, data[half:]), right),
        ("typed data one by one", dims + kind + name + loose, right),
        ("dims packed", field(1, varint(_LARGE.size)) + kind + name + typed, right),
        ("dims in two fields", dims + b"\x08\x01" + kind + name + typed, right[:, None]),
        ("the name twice", dims + kind + field(8, b"v") + name + raw, right),
        ("the type twice", dims + b"\x10\x07" + kind + name + raw, right),
        ("a varint with padding", dims + b"\x10\x81\x80\x80\x00" + name + raw, right),
        ("a tag with padding", dims + kind + name + b"\xca\x80\x00" + raw[1:], right),
        ("an unknown field", dims + kind + name + field(15, b"?" * 99) + raw, right),
        ("an unknown field of 2^29-1", dims + kind + name + b"\xfa\xff\xff\xff\x0f\x01?" + raw, right),
        ("an unknown group", dims + kind + name + b"\xa3\x06\xa4\x06" + raw, right),
        ("a group without end", dims + kind + name + b"\xa3\x06" + raw, ERROR),
        ("an end without a group", dims + kind + name + b"\xa4\x06" + raw, ERROR),
        ("field 0", dims + kind + name + b"\x02\x00" + raw, ERROR),
        ("data as a number", dims + kind + name + b"\x48\x01" + raw, right),
        ("the type as text", dims + kind + name + field(2, b"FLOAT") + raw, right),
        ("wire type 7", dims + kind + name + b"\x4f" + raw, ERROR),
        ("a varint of 11 bytes", dims + b"\x10" + b"\x80" * 10 + b"\x01" + name + raw, ERROR),
        ("raw data of one byte too few", dims + kind + name + field(9, data[:-1]), ERROR),
        ("raw data of one element too many", dims + kind + name + field(9, data + data[:4]), ERROR),
        ("typed data of one byte too few", dims + kind + name + field(4, data[:-1]), ERROR),
        ("typed data of one element too many", dims + kind + name + field(4, data + data[:4]), ERROR),
        ("raw and typed data", dims + kind + name + raw + typed, ERROR),
        ("raw data, then none", dims + kind + name + raw + field(9, b""), ERROR),
        ("typed data of another type", dims + b"\x10\x07" + name + typed, ERROR),
        ("dims of -1", b"\x08" + b"\xff" * 9 + b"\x01" + kind + name + raw, ERROR),
        ("the length of the data 2^63", dims + kind + name + b"\x4a" + b"\x80" * 9 + b"\x01" + data, ERROR),
        ("the length of the data too large", dims + kind + name + b"\x4a" + varint(len(data) + 9) + data, ERROR),
        ("external and raw", dims + kind + name + raw + b"\x70\x01", ERROR),
        ("a segment", dims + kind + name + raw + field(3, b"\x08\x00\x10\x05"), EITHER),
    ):
        expect, wanted = (want, {"y": right}) if isinstance(want, str) else (VALUE, {"y": want})
        yield Case(f"a large weight: {what}", whole(tensor), fed, expect, says=".", want=wanted)
    good = dims + kind + name + raw
    for what, made, expect in (
        ("the graph in two pieces", head + field(7, graph) + opset + field(7, field(5, good)), VALUE),
        ("the graph twice", whole(good) + whole(good), ERROR),
        ("the version twice", b"\x08\x05" + whole(good), VALUE),
        ("a weight of the same name later", whole(good, dims + kind + name + typed), ERROR),
        ("opset of no domain and no version", head + field(7, graph + field(5, good)) + field(8, b""), ERROR),
        ("the graph as a number", head + b"\x38\x01" + whole(good), VALUE),
        ("fields after the end", whole(good) + b"\x0a", ERROR),
        ("all twice as long by empty fields", whole(good) + field(8, b"\x10\x11")[:0] + field(15, b"") * 9999, VALUE),
    ):
        yield Case(what, made, fed, expect, says=".", want={"y": right})
    yield Case("weights of 1,000 dims of one", model(SUM, inputs=FED, weights=[_ones(1000)]), FED, EITHER)
    yield Case("weights of 40 dims of one", model(SUM, inputs=FED, weights=[_ones(40)]), FED, EITHER)


def _ones(rank: int) -> TensorProto:
    return TensorProto(name="w", data_type=FLOAT, dims=[1] * rank, float_data=[1])


_NAMES = (
    "__ipu_number", "__pipeline_stage", "__execution_phase", "__recompute_output_in_backward_pass",
    "__output_tensor_location", "__schedule_priority", "__partials_type", "__available_memory",
    "__enable_conv_dithering", "__serialize_matmul_mode", "__serialize_matmul_factor", "__inplace_op_names",
    "__inplace_op_priorities", "__exclude_patterns", "__outline", "__collectiveCommGroup", "__debug_info_id",
    "__size", "__fill_value", "__replicationFactor",
)  # fmt: skip
_ODD: dict[str, Any] = {
    "-1": -1, "2^62": 1 << 62, "a text": "x\0", "NaN": float("nan"), "numbers": [3, -3], "texts": ["a", ""],
    "a tensor": const("t", [1.5]), "a graph": model(RELU).graph,
}  # fmt: skip


def reserved() -> Iterator[Case]:
    """Names that PopART gives a meaning, with values that have none."""
    for name in _NAMES:
        for shown, value in _ODD.items():
            made = model(
                node("MatMul", ["x", "w"], ["y"], name="the_node", **{name: value}), inputs=FED, weights={"w": X.T}
            )
            yield Case(f"{name} of {shown}", made, FED, EITHER, says=".", want={"y": X @ X.T})
    for key in ("tile_set", "exchange_strategy", "replicated_stream_mode", "comm_group_type", "comm_group_size",
                "variable_settings", "debug_id/input"):  # fmt: skip
        for value in ("", "-1", "99999999999999999999", "x", "\u0664"):
            made = model(node("MatMul", ["x", "w"], ["y"], name="the_node"), inputs=FED, weights={"w": X.T})
            for tensor in ("x", "w"):
                made.metadata_props.add(key=f"__{key}/{tensor}", value=value)
            yield Case(f"metadata {key} of {value!r}", made, FED, EITHER, says=".", want={"y": X @ X.T})
