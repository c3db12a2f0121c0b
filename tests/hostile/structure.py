"""Inconsistent graphs, versions, names, attributes, functions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import onnx

from .build import ERROR, F32, I64, VALUE, Case, X, case_of, const, info, model, node

RELU = node("Relu", ["x"], ["y"], name="the_node")
SUM = node("Add", ["x", "w"], ["y"], name="the_node")
FED = {"x": X}
DOM = (("l", 1),)


def versions() -> Iterator[Case]:
    """Versions of the format and of operator sets, and domains."""
    for ir in (-3, 0, 1 << 40, 999, -(1 << 63), 15):
        yield Case(f"IR version {ir}", model(RELU, inputs=FED, ir=ir), FED, ERROR, says="IR version")
    for ir in (3, 7, 8, 10, 12):
        yield Case(f"IR version {ir}", model(RELU, inputs=FED, ir=ir, opset=13), FED, VALUE, want={"y": X})
    for opset in (0, -1, 99, 1 << 40, -(1 << 63)):
        yield Case(f"opset {opset}", model(RELU, inputs=FED, opset=opset), FED, ERROR, says="opset")
    yield Case("no opset", model(RELU, inputs=FED, opset=None), FED, ERROR, says="opset")
    yield Case("opset twice, different", model(RELU, inputs=FED, imports=(("", 11),)), FED, ERROR, says="opset")
    yield Case("opset twice, the same", model(RELU, inputs=FED, imports=(("", 17),)), FED, "either")
    yield Case("ai.onnx and the empty name", model(RELU, inputs=FED, imports=(("ai.onnx", 17),)), FED, "either")
    yield Case("ai.onnx at two versions", model(RELU, inputs=FED, imports=(("ai.onnx", 7),)), FED, ERROR, says="opset")
    yield Case(
        "a domain nobody knows, unused", model(RELU, inputs=FED, imports=(("mine", 3),)), FED, VALUE, want={"y": X}
    )
    for domain, op in (
        ("com.microsoft", "Gelu"),
        ("ai.onnx.ml", "Normalizer"),
        ("mine", "Relu"),
        ("\udcff"[:0] + "ai.graphcore", "Gelu"),
    ):
        yield Case(f"{domain} not imported", model(node(op, ["x"], ["y"], domain=domain), inputs=FED), FED, ERROR)
    yield case_of("operator of no name", "", X, case={"expect": ERROR})
    yield case_of("operator nobody knows", "NoSuchThing", X, case={"expect": ERROR, "says": "NoSuchThing"})
    yield case_of("operator of an unknown domain", "Relu", X, domain="mine", case={"expect": ERROR})
    for op, opset in (("Upsample", 17), ("Scatter", 17), ("GroupNormalization", 6), ("Gelu", 13), ("Attention", 12)):
        yield case_of(f"{op} in opset {opset}", op, X, X, opset=opset, case={"expect": ERROR, "session": False})
    yield Case(
        "ai.onnx as a domain's name", model(node("Relu", ["x"], ["y"], domain="ai.onnx"), inputs=FED), FED, "either"
    )
    yield Case("experimental op GRUUnit", model(node("GRUUnit", ["x"], ["y"]), inputs=FED), FED, ERROR, session=False)


def graphs() -> Iterator[Case]:
    """Edges, order, names."""
    yield Case(
        "cycle of two", model(node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), RELU, inputs=FED), FED, ERROR
    )
    yield Case("cycle of one", model(node("Add", ["x", "y"], ["y"]), inputs=FED), FED, ERROR)
    yield Case(
        "cycle nobody reads", model(node("Neg", ["b"], ["a"]), node("Neg", ["a"], ["b"]), RELU, inputs=FED), FED, ERROR
    )
    yield Case("unsorted", model(node("Relu", ["a"], ["y"]), node("Neg", ["x"], ["a"]), inputs=FED), FED)
    yield Case("value made twice", model(RELU, node("Neg", ["x"], ["y"]), inputs=FED), FED, ERROR)
    yield Case("value made twice by one node", model(node("Split", ["x"], ["y", "y"], axis=0), inputs=FED), FED, ERROR)
    yield Case("input made by a node", model(node("Neg", ["x"], ["x"]), RELU, inputs=FED), FED, ERROR)
    yield Case(
        "initializer made by a node", model(node("Neg", ["x"], ["w"]), SUM, inputs=FED, weights={"w": X}), FED, ERROR
    )
    yield Case("inputs of one name", model(RELU, inputs=[info("x"), info("x")]), FED, ERROR, says="repeated name")
    yield Case("weights of one name", model(SUM, inputs=FED, weights=[const("w", X), const("w", X)]), FED, ERROR)
    yield Case("outputs of one name", model(RELU, inputs=FED, outputs=["y", "y"]), FED, "either")
    yield Case(
        "nodes of one name",
        model(node("Neg", ["x"], ["a"], name="n"), node("Relu", ["a"], ["y"], name="n"), inputs=FED),
        FED,
        "either",
    )
    yield Case("input of no name", model(RELU, inputs=[info("x"), info("")]), FED, "either")
    yield Case("initializer of no name", model(RELU, inputs=FED, weights=[const("", X)]), FED, "either")
    yield Case("output of no name", model(RELU, inputs=FED, outputs=["y", ""]), FED, "either")
    yield Case("no output", model(RELU, inputs=FED, outputs=[]), FED, "either")
    yield Case("no node", model(inputs=FED, outputs=["x"]), FED, "either", want={"x": X})
    yield Case("nothing at all", model(outputs=[]), {}, "either", says=".")
    yield Case("node without outputs", model(node("Relu", ["x"], []), RELU, inputs=FED), FED, "either")
    yield Case("node with an unnamed output", model(node("Relu", ["x"], [""]), RELU, inputs=FED), FED, "either")
    yield Case("tensor nobody makes", model(SUM, inputs=FED), FED, ERROR, says="w")
    yield Case("output nobody makes", model(node("Relu", ["x"], ["z"]), inputs=FED), FED, ERROR, says="y")
    yield Case("required input left out", model(node("Add", ["x", ""], ["y"]), inputs=FED), FED, ERROR)
    yield Case("first input left out", model(node("Add", ["", "x"], ["y"]), inputs=FED), FED, ERROR)
    yield Case("too few inputs", model(node("Add", ["x"], ["y"]), inputs=FED), FED, ERROR)
    yield Case("no inputs", model(node("Relu", [], ["y"])), {}, ERROR)
    yield Case("too many inputs", model(node("Relu", ["x", "x"], ["y"]), inputs=FED), FED, ERROR)
    yield Case("too many outputs", model(node("Relu", ["x"], ["y", "z"]), inputs=FED), FED, ERROR)
    yield Case("Concat of nothing", model(node("Concat", [], ["y"], axis=0)), {}, ERROR)
    yield Case(
        "an output that is an input", model(RELU, inputs=FED, outputs=["x", "y"]), FED, VALUE, want={"x": X, "y": X}
    )
    yield Case(
        "an output that is an initializer",
        model(SUM, inputs=FED, weights={"w": X}, outputs=["w", "y"]),
        FED,
        VALUE,
        want={"w": X, "y": 2 * X},
    )
    yield Case(
        "an initializer overridden by a feed",
        model(SUM, inputs=[info("x"), info("w")], weights={"w": X}),
        {"x": X, "w": 5 * X},
        VALUE,
        want={"y": 6 * X},
        by={"session": {"y": 2 * X}},  # PopART asks for streams alone
    )
    yield Case(
        "an initializer that is an input, not fed",
        model(SUM, inputs=[info("x"), info("w")], weights={"w": X}),
        FED,
        VALUE,
        want={"y": 2 * X},
    )
    yield Case(
        "an initializer of another shape than its input",
        model(SUM, inputs=[info("x"), info("w", (7,))], weights={"w": X}),
        FED,
        ERROR,
        says="w",
    )
    yield Case(
        "an initializer of another type than its input",
        model(SUM, inputs=[info("x"), info("w", (2, 3), 7)], weights={"w": X}),
        FED,
        ERROR,
        says="w",
    )
    yield Case("unused input", model(RELU, inputs=[info("x"), info("u")]), {"x": X, "u": X}, VALUE, want={"y": X})
    yield Case(
        "unused initializer of unknown type",
        model(RELU, inputs=FED, weights=[onnx.TensorProto(name="w", dims=[1])]),
        FED,
        "either",
    )
    yield Case(
        "output declared as another type", model(RELU, inputs=FED, outputs=[info("y", (2, 3), 7)]), FED, "either"
    )
    yield Case("output declared as another shape", model(RELU, inputs=FED, outputs=[info("y", (5, 5))]), FED, "either")
    yield Case("value info that is wrong", _with_info(info("a", (9, 9), 7)), FED, "either")
    yield Case("value info of nothing", _with_info(info("nothing")), FED, VALUE, want={"y": X})
    chain = ["x", *(f"t{i}" for i in range(800))]
    deep = [node("Neg", [a], [b]) for a, b in pairwise(chain)]
    yield Case(
        "a chain of 800 nodes", model(*deep, node("Relu", [chain[-1]], ["y"]), inputs=FED), FED, VALUE, want={"y": X}
    )
    wide = [node("Neg", ["x"], [f"t{i}"]) for i in range(500)]
    yield Case(
        "a sum of 500",
        model(*wide, node("Sum", [f"t{i}" for i in range(500)], ["y"]), inputs=FED),
        FED,
        VALUE,
        want={"y": -500 * X},
        session=False,
    )
    yield Case(
        "a name of 1 MB",
        model(node("Neg", ["x"], ["a" * 1_000_000]), node("Neg", ["a" * 1_000_000], ["y"]), inputs=FED),
        FED,
        VALUE,
        want={"y": X},
    )
    for name in ("\0", "a\nb", "../../etc/passwd", "ü", "💥", " ", "a/b:0", "%s%n", "{0}", "'; drop"):
        yield Case(
            f"a tensor named {name!r}",
            model(node("Neg", ["x"], [name]), node("Neg", [name], ["y"]), inputs=FED),
            FED,
            VALUE,
            want={"y": X},
        )


def _with_info(value: onnx.ValueInfoProto) -> onnx.ModelProto:
    made = model(node("Neg", ["x"], ["a"]), node("Neg", ["a"], ["y"]), inputs=FED)
    made.graph.value_info.append(value)
    return made


def attributes() -> Iterator[Case]:
    """Attributes of wrong names, types and values."""
    refused = {"expect": ERROR}
    yield case_of(
        "unknown attribute", "LeakyRelu", X, alhpa=0.5, case={"expect": ERROR, "says": "alhpa", "session": False}
    )
    yield case_of("attribute of type float", "Softmax", X, axis=1.5, case=refused)
    yield case_of("attribute of type string", "Softmax", X, axis="1", case=refused)
    yield case_of("attribute of type ints", "Softmax", X, axis=[1], case=refused)
    yield case_of("attribute of type tensor", "Softmax", X, axis=const("t", 1), case=refused)
    yield case_of("attribute of type graph", "Softmax", X, axis=model(RELU).graph, case=refused)
    yield case_of("required attribute missing", "Cast", X, case={"expect": ERROR, "says": "to"})
    yield case_of("perm missing an axis", "Transpose", X, perm=[0], case=refused)
    yield case_of("perm with an axis twice", "Transpose", X, perm=[0, 0], case=refused)
    yield case_of("perm of too many", "Transpose", X, perm=[0, 1, 2], case=refused)
    yield case_of("axis out of range", "Concat", X, X, axis=5, case=refused)
    yield case_of("axis twice", "ReduceSum", X, np.array([0, 0]), fixed=[1], case=refused)
    yield case_of("axis out of range, reduced", "ReduceMax", X, axes=[7], opset=13, case=refused)
    yield case_of("unknown mode", "Pad", X, np.zeros(4, I64), fixed=[1], mode="nonsense", case=refused)
    yield case_of(
        "unknown mode of Resize", "Resize", X, None, np.ones(2, F32), fixed=[2], mode="nonsense", case=refused
    )
    yield case_of(
        "unknown coordinates",
        "Resize",
        X,
        None,
        np.ones(2, F32),
        fixed=[2],
        coordinate_transformation_mode="x",
        case=refused,
    )
    yield case_of("unknown auto_pad", "MaxPool", X[None, None], kernel_shape=[1, 1], auto_pad="MAYBE", case=refused)
    yield case_of(
        "unknown direction", "BitShift", np.array([1], np.uint8), np.array([1], np.uint8), direction="UP", case=refused
    )
    yield case_of("unknown reduction", "ScatterND", X, np.array([[0]]), X[:1], opset=18, reduction="what", case=refused)
    yield case_of(
        "unknown activation",
        "RNN",
        np.ones((1, 1, 1), F32),
        np.ones((1, 1, 1), F32),
        np.ones((1, 1, 1), F32),
        n=2,
        hidden_size=1,
        activations=["What"],
        case=refused,
    )
    yield case_of("cast to 0", "Cast", X, to=0, case=refused)
    yield case_of("cast to 99", "Cast", X, to=99, case=refused)
    yield case_of("cast to -1", "Cast", X, to=-1, case=refused)
    yield case_of("cast to 2^40", "Cast", X, to=1 << 40, case=refused)
    yield case_of("equation without sense", "Einsum", X, X, equation="ij,,->", case=refused)
    yield case_of("equation of other rank", "Einsum", X, equation="ijk->i", case=refused)
    yield case_of("equation with digits", "Einsum", X, equation="1j->j", case=refused)
    yield case_of("empty equation", "Einsum", X, equation="", case=refused)
    yield case_of("too few pads", "MaxPool", X[None, None], kernel_shape=[1, 1], pads=[0, 0], case={"expect": "either"})
    yield case_of("odd pads", "MaxPool", X[None, None], kernel_shape=[1, 1], pads=[1, 1, 1], case=refused)
    yield case_of("too many strides", "MaxPool", X[None, None], kernel_shape=[1, 1], strides=[1, 1, 1], case=refused)
    yield case_of("kernel of another rank", "MaxPool", X[None, None], kernel_shape=[1], case=refused)
    yield case_of(
        "kernel_shape beside W",
        "Conv",
        np.ones((1, 1, 3, 3), F32),
        np.ones((1, 1, 2, 2), F32),
        kernel_shape=[3, 3],
        case=refused,
    )
    yield case_of(
        "Conv of other channels", "Conv", np.ones((1, 2, 3, 3), F32), np.ones((1, 3, 2, 2), F32), case=refused
    )
    yield case_of("Gemm of rank 3", "Gemm", np.ones((1, 2, 3), F32), np.ones((3, 2), F32), case=refused)
    yield case_of("Gemm that does not fit", "Gemm", X, X, case=refused)
    yield case_of("MatMul that does not fit", "MatMul", X, X, case=refused)
    yield case_of("MatMul of scalars", "MatMul", F32(2), F32(3), case=refused)
    yield case_of("Add that does not fit", "Add", X, np.ones(2, F32), case=refused)
    yield case_of("Add of two types", "Add", X, np.ones(3, I64), case=refused)
    yield case_of("Relu of booleans", "Relu", np.array([True]), case=refused)
    yield case_of("And of floats", "And", X, X, case=refused)
    yield case_of("Concat of two ranks", "Concat", X, np.ones(3, F32), axis=0, case=refused)
    yield case_of("Concat of other sizes", "Concat", X, np.ones((2, 2), F32), axis=0, case=refused)
    yield case_of("Constant of nothing", "Constant", case=refused)
    yield case_of("Constant of two", "Constant", value_float=1.0, value_int=2, case=refused)
    twice = model(node("Softmax", ["x"], ["y"], axis=0, name="the_node"), inputs=FED)
    twice.graph.node[0].attribute.add(name="axis", i=1, type=onnx.AttributeProto.INT)
    yield Case("attribute twice", twice, FED, ERROR, says="axis")
    for what, kind in (
        ("of no type", 0),
        ("of an unknown type", 77),
        ("of another type than it holds", 1),
        ("of strings", 8),
    ):
        made = model(node("Softmax", ["x"], ["y"], axis=0, name="the_node"), inputs=FED)
        made.graph.node[0].attribute[0].type = min(kind, 14)
        data = made.SerializeToString()
        if kind == 77:
            made.graph.node[0].attribute[0].type = 13
            data = made.SerializeToString().replace(b"\xa0\x01\x0d", b"\xa0\x01\x4d")
        yield Case(f"attribute {what}", data, FED, "either" if kind == 0 else ERROR)
    three, zeros = np.array([5, -5, 7]), np.array([3, 0, -3])
    for op in ("Div", "Mod"):
        yield case_of(f"{op} of whole numbers by a stored zero", op, three, zeros, fixed=[1], case=refused)
    for op, flag, inputs, more in (
        ("Mod", "fmod", (three, three), {}),
        ("MaxPool", "storage_order", (X[None, None],), {"kernel_shape": [1, 1]}),
        ("ReduceSum", "keepdims", (X,), {}),
        ("TopK", "largest", (X, np.array([2])), {"n": 2, "fixed": [1]}),
        ("ReduceSum", "noop_with_empty_axes", (X,), {}),
    ):
        yield case_of(f"{flag} of 2", op, *inputs, **more, **{flag: 2})
    for places in ([0, 1], [[0], [0]]):
        made = model(
            node("SequenceConstruct", ["x", "x"], ["s"]),
            node("SequenceAt", ["s", "i"], ["y"], name="the_node"),
            inputs=FED,
            weights={"i": np.array(places)},
        )
        yield Case(f"SequenceAt {places}", made, FED, ERROR, says="is one number, not 2")
    yield case_of("GatherND of more batches than indices", "GatherND", X[:1], np.array([0]), batch_dims=1, case=refused)
    nameless = model(node("Softmax", ["x"], ["y"], axis=0, name="the_node"), inputs=FED)
    nameless.graph.node[0].attribute[0].name = ""
    yield Case("attribute of no name", nameless, FED, ERROR, session=False)
    outside = model(node("Softmax", ["x"], ["y"], axis=0, name="the_node"), inputs=FED)
    outside.graph.node[0].attribute[0].ref_attr_name = "axis"
    yield Case("reference to an attribute outside of functions", outside, FED, ERROR)
    bad = model(node("Einsum", ["x"], ["y"], equation="ij->j", name="the_node"), inputs=FED)
    bad.graph.node[0].attribute[0].s = b"\xff\xfe->"
    yield Case("attribute with broken text", bad, FED, ERROR)
