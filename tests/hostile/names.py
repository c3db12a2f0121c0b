"""Names in several scopes, inputs and outputs that are left out, functions with their own opsets and overloads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .build import BOOL, EITHER, ERROR, F32, INT64, RAGGED, VALUE, Case, X, const, info, model, node, numbered

FED = {"x": X}
YES = np.array(True)
DOM = (("l", 1),)


def _graph(*nodes: onnx.NodeProto, inputs: Any = (), outputs: Any = (), weights: Any = ()) -> onnx.GraphProto:
    made = helper.make_graph(
        list(nodes), "g", list(inputs), [info(o, None) if isinstance(o, str) else o for o in outputs]
    )
    made.initializer.extend(weights)
    return made


def _if(then: onnx.GraphProto, other: onnx.GraphProto, outputs: Any = ("y",)) -> onnx.NodeProto:
    return node("If", ["c"], list(outputs), then_branch=then, else_branch=other, name="the_node")


def _loop(*nodes: onnx.NodeProto, state: str = "s", i: str = "i", c: str = "c", weights: Any = ()) -> onnx.NodeProto:
    """Two passes over x; the nodes make `out` from the state."""
    body = _graph(
        *nodes, node("Identity", [c], ["go"]),
        inputs=[info(i, (), INT64), info(c, (), BOOL), info(state)], outputs=[info("go", (), BOOL), info("out")],
        weights=weights,
    )  # fmt: skip
    return node("Loop", ["n", "", "x"], ["y"], body=body, name="the_node")


def scopes() -> Iterator[Case]:
    """One name for several things; what is right is that of the innermost scope, or an error."""
    neg, relu = _graph(node("Neg", ["x"], ["t"]), outputs=["t"]), _graph(node("Abs", ["x"], ["t"]), outputs=["t"])
    yes = {"inputs": {**FED, "c": YES}}
    fed = {**FED, "c": YES}
    yield Case("branches that use the same names", model(_if(neg, relu), **yes), fed, VALUE, want={"y": -X})
    five = _graph(node("Mul", ["x", "w"], ["t"]), outputs=["t"], weights=[const("w", F32(5))])
    two = {"weights": {"w": F32(2)}}
    yield Case(
        "an initializer that hides an outer one", model(_if(five, neg), **yes, **two), fed, EITHER, want={"y": 5 * X}
    )
    after = node("Mul", ["b", "w"], ["y"])
    made = model(_if(five, neg, ["b"]), after, **yes, **two)
    yield Case("a hidden initializer is read later", made, fed, EITHER, want={"y": 10 * X})
    hides = _graph(node("Mul", ["x", "k"], ["a"]), node("Neg", ["a"], ["t"]), outputs=["t"])
    made = model(
        node("Abs", ["x"], ["a"]), _if(hides, neg, ["b"]), node("Add", ["a", "b"], ["y"]), **yes, weights={"k": F32(3)}
    )
    yield Case("a node's output that hides an outer one", made, fed, EITHER, want={"y": -2 * X})
    own = _graph(node("Neg", ["x"], ["y"]), outputs=["y"])
    yield Case("a branch's output named as the node's", model(_if(own, own), **yes), fed, EITHER, want={"y": -X})
    outer = _graph(outputs=["x"])
    yield Case("a branch that hands out an outer value", model(_if(outer, neg), **yes), fed, EITHER, want={"y": X})
    held = _graph(outputs=["w"], weights=[const("w", X + 1)])
    yield Case("a branch that hands out its initializer", model(_if(held, neg), **yes), fed, VALUE, want={"y": X + 1})
    both = _graph(node("Neg", ["x"], ["t"]), outputs=["t", "t"])
    other = _graph(node("Abs", ["x"], ["t"]), node("Sign", ["x"], ["u"]), outputs=["t", "u"])
    made = model(_if(both, other, ["y", "z"]), **yes, outputs=["y", "z"])
    yield Case("a branch that hands out one value twice", made, fed, EITHER, want={"y": -X, "z": -X})
    made = model(_if(other, both, ["", "y"]), **yes)
    yield Case("a branch's first output left out", made, fed, EITHER, want={"y": np.sign(X)})
    deep = _graph(
        _if(_graph(node("Mul", ["x", "w"], ["u"]), outputs=["u"]), neg, ["t"]),
        outputs=["t"],
        weights=[const("w", F32(7))],
    )
    yield Case(
        "an initializer of the middle scope", model(_if(deep, neg), **yes, **two), fed, EITHER, want={"y": 7 * X}
    )
    unused = _graph(node("Neg", ["x"], ["t"]), outputs=["t"], weights=[const("x2", X), const("x2", X)])
    yield Case("a branch with two initializers of one name", model(_if(unused, neg), **yes), fed, ERROR)
    made_twice = _graph(node("Neg", ["x"], ["t"]), node("Abs", ["x"], ["t"]), outputs=["t"])
    yield Case("a branch that makes a value twice", model(_if(made_twice, neg), **yes), fed, ERROR)
    twice = _graph(node("Neg", ["v"], ["t"]), inputs=[info("v"), info("v")], outputs=["t"])
    yield Case(
        "a body with inputs of one name",
        model(node("Scan", ["x", "x"], ["y"], body=twice, num_scan_inputs=2), **yes),
        fed,
        ERROR,
    )
    count = {"weights": {"n": np.array(2), "w": F32(2)}, "inputs": FED}
    double = node("Mul", ["s", "w"], ["out"])
    yield Case("a loop", model(_loop(double), **count), FED, VALUE, want={"y": 4 * X})
    hidden = _loop(double, weights=[const("w", F32(3))])
    yield Case("a loop whose initializer hides one", model(hidden, **count), FED, EITHER, want={"y": 9 * X})
    same = _loop(node("Mul", ["x", "w"], ["out"]), state="x")
    yield Case("a loop's state that hides an input", model(same, **count), FED, EITHER, want={"y": 4 * X})
    counts = _loop(node("Mul", ["s", "w"], ["out"]), i="n")
    yield Case("a loop's counter that hides the count", model(counts, **count), FED, EITHER, want={"y": 4 * X})
    again = [_loop(double), _loop(double)]
    again[0].output[0], again[1].input[2] = "z", "z"
    again[0].name = "first"
    yield Case("two loops of the same names", model(*again, **count), FED, VALUE, want={"y": 16 * X})
    made = model(
        node("Neg", ["x"], ["X"]),
        node("Add", ["x", "X"], ["Y"]),
        node("Abs", ["Y"], ["y"]),
        inputs=FED,
        outputs=["y", "Y"],
    )
    yield Case("names that differ in case", made, FED, VALUE, want={"y": 0 * X, "Y": 0 * X}, session=False)
    for a, b, shown in (("é", "e\u0301", "in their composition"), ("a", "a ", "in a space"),
        ("a", "a\0", "in a zero byte"),
                        ("a", "\u0430", "in their alphabet"), ("a\u200b", "a", "in what can't be seen")):  # fmt: skip
        made = model(node("Neg", ["x"], [a]), node("Abs", ["x"], [b]), node("Sub", [a, b], ["y"]), inputs=FED)
        yield Case(f"names that differ {shown}", made, FED, VALUE, want={"y": -2 * X})
    for name in ("params", "self", "__class__", "0", "None", "rng", "key", "y/0", "x:0", "*", "[0]", "lambda", "-1",
        "nan", "x.x",
                 "Gradient___x", "\ufeffx", "\u202ex", "a" * 300):  # fmt: skip
        made = model(
            node("Mul", [name, "w"], ["t"], name=name),
            node("Neg", ["t"], ["y"], name=name),
            inputs={name: X},
            weights={"w": F32(2)},
        )
        yield Case(f"an input named {name[:20]!r}", made, {name: X}, VALUE, want={"y": -2 * X})
        made = model(node("Mul", ["x", name], ["t"]), node("Neg", ["t"], ["y"]), inputs=FED, weights={name: F32(2)})
        yield Case(f"a weight named {name[:20]!r}", made, FED, VALUE, want={"y": -2 * X})
        path = "/" in name or "*" in name or len(name) > 200
        made = model(node("Neg", ["x"], [name]), inputs=FED, outputs=[name])
        yield Case(
            f"an output named {name[:20]!r}",
            made,
            FED,
            EITHER if path else VALUE,
            says=".",
            want={} if path else {name: -X},
        )


def left_out() -> Iterator[Case]:
    """Optional inputs of no name, at the end and between, and outputs of no name."""
    r = np.random.default_rng(0)
    seq, w, rec = (
        r.normal(size=(3, 2, 4)).astype(F32),
        r.normal(size=(1, 12, 4)).astype(F32),
        r.normal(size=(1, 12, 3)).astype(F32),
    )
    picture = r.normal(size=(1, 2, 4, 4)).astype(F32)
    ones, kernel = np.ones(2, F32), np.ones((2, 2, 2, 2), F32)
    u8 = np.arange(6, dtype=np.uint8).reshape(2, 3)
    given: list[tuple[str, list[Any], list[str], dict[str, Any]]] = [
        ("Clip", [X, None, F32(2)], ["y"], {}), ("Clip", [X, None, None], ["y"], {}),
        ("Clip", [X, F32(1), None], ["y"], {}),
        ("Pad", [X, np.array([0, 1, 0, 1]), None, np.array([0, 1])], ["y"], {"opset": 18}),
        ("Pad", [X, np.array([0, 1, 0, 1]), None, None], ["y"], {"opset": 18}),
        ("Slice", [X, np.array([0]), np.array([2]), None, np.array([1])], ["y"], {}),
        ("Slice", [X, np.array([0]), np.array([2]), None, None], ["y"], {}),
        ("Resize", [picture, None, None, np.array([1, 2, 8, 8])], ["y"], {}),
        ("Resize", [picture, None, np.array([1, 1, 2, 2], F32), None], ["y"], {"static": [2]}),
        ("Conv", [picture, kernel, None], ["y"], {}), ("ConvTranspose", [picture, kernel, None], ["y"], {}),
        ("Gemm", [X, X.T.copy(), None], ["y"], {}),
        ("ReduceSum", [X, None], ["y"], {}),
        ("Squeeze", [X[None], None], ["y"], {"case": {"expect": VALUE, "want": {"y": X}}}),
        ("Dropout", [X, None, None], ["y", ""], {}), ("Dropout", [X, None], ["y", "z"], {}),
        ("Dropout", [X], ["", "z"], {}),
        ("MaxPool", [picture], ["", "z"], {"kernel_shape": [2, 2]}),
        ("MaxPool", [picture], ["y", ""], {"kernel_shape": [2, 2]}),
        ("TopK", [X, np.array([2])], ["", "z"], {}), ("TopK", [X, np.array([2])], ["y", ""], {}),
        ("Split", [X], ["", "z"], {"axis": 0}), ("Split", [X], ["y", ""], {"axis": 0}),
        ("LSTM", [seq, w, rec, None, None, None, None, None], ["", "", "z"], {"hidden_size": 3}),
        ("LSTM", [seq, w, rec, None, None, None, r.normal(size=(1, 2, 3)).astype(F32)], ["", "y", ""],
         {"hidden_size": 3}),
        ("LSTM", [seq, w, rec, None, np.array([3, 1], np.int32)], ["y", "", "z"], {"hidden_size": 3}),
        ("GRU", [seq, w[:, :9], rec[:, :9], None, None, r.normal(size=(1, 2, 3)).astype(F32)], ["", "y"],
         {"hidden_size": 3}),
        ("RNN", [seq, w[:, :3], rec[:, :3], None, np.array([2, 3], np.int32), None], ["y", ""], {"hidden_size": 3}),
        ("LayerNormalization", [X, np.ones(3, F32), None], ["y", "", "z"], {}),
        ("LayerNormalization", [X, np.ones(3, F32)], ["", "y"], {}),
        ("BatchNormalization", [picture, ones, ones, ones, ones], ["y", "", ""],
         {"case": {"expect": VALUE, "want": {"y": (picture - 1) / np.sqrt(F32(1 + 1e-5)) + 1}}}),
        ("BatchNormalization", [picture, ones, ones, ones, ones], ["y", "", "z"], {"training_mode": 1}),
        ("Unique", [np.array([3, 1, 3])], ["", "", "y"], {"case": RAGGED}),
        ("Unique", [np.array([3, 1, 3])], ["y", "", "", "z"], {"case": RAGGED}),
        ("QuantizeLinear", [X, F32(0.5), None], ["y"], {}), ("DequantizeLinear", [u8, F32(0.5), None], ["y"], {}),
        ("MatMulInteger", [u8, u8.T.copy(), None, np.uint8(1)], ["y"], {}),
        ("MatMulInteger", [u8, u8.T.copy(), None, None], ["y"], {}),
        ("ConvInteger", [u8[None, None], u8[None, None, :1, :2], None, None], ["y"], {}),
        ("NonMaxSuppression", [r.random((1, 3, 4)).astype(F32), r.random((1, 1, 3)).astype(F32), np.array([2]), None,
         F32([0.1])], ["y"], {"case": RAGGED}),
        ("NonMaxSuppression", [r.random((1, 3, 4)).astype(F32), r.random((1, 1, 3)).astype(F32), None, None, None],
         ["y"], {"case": RAGGED}),
        ("DequantizeLinear", [u8, F32([1, 2, 3]), None], ["y"], {"axis": 1}),
        ("STFT", [r.normal(size=(1, 8, 1)).astype(F32), np.array(2), None, np.array(4)], ["y"], {}),
        ("DFT", [r.normal(size=(1, 8, 1)).astype(F32), None], ["y"], {}),
        ("DFT", [r.normal(size=(1, 8, 1)).astype(F32), None, np.array(1)], ["y"], {"opset": 20}),
        ("Attention", [r.normal(size=(1, 2, 3, 4)).astype(F32)] * 3 + [None, None, None], ["y"], {"opset": 23}),
        ("SequenceInsert", [], ["y"], {}), ("OneHot", [np.array([1]), np.array(3), None], ["y"], {}),
        ("NegativeLogLikelihoodLoss", [X, np.array([0, 2]), None], ["y"], {}),
        ("SoftmaxCrossEntropyLoss", [X, np.array([0, 2]), None], ["", "y"], {}),
        ("Constant", [], [""], {"value_float": 1.0}), ("Relu", [None], ["y"], {}), ("Add", [None, None], ["y"], {}),
        ("Sum", [X, None, X], ["y"], {}), ("Concat", [None, X], ["y"], {"axis": 0}), ("Max", [None], ["y"], {}),
        ("Where", [None, X, X], ["y"], {}), ("Gather", [X, None], ["y"], {}), ("Reshape", [X, None], ["y"], {}),
        ("If", [None], ["y"], {}), ("Cast", [None], ["y"], {"to": 1}),
        ("Range", [np.array(0), None, np.array(1)], ["y"], {}),
    ]  # fmt: skip
    for number, (op, inputs, outputs, more) in enumerate(given):
        yield numbered(number, op, inputs, outputs, **more)


def local() -> Iterator[Case]:
    """Functions of the model: their names, opsets, overloads, defaults and optional operands."""

    def f(
        name: str, *nodes: onnx.NodeProto, inputs: Any = ("a",), outputs: Any = ("b",), opset: int = 17, **more: Any
    ) -> onnx.FunctionProto:
        return helper.make_function(
            "l", name, list(inputs), list(outputs), list(nodes),
            [helper.make_opsetid("", opset), helper.make_opsetid("l", 1)],
            more.get("attributes", []), more.get("defaults", []), overload=more.get("overload"),
        )  # fmt: skip

    def call(name: str = "F", inputs: Any = ("x",), outputs: Any = ("y",), **given: Any) -> onnx.NodeProto:
        return node(name, list(inputs), list(outputs), domain="l", **given)

    base: dict[str, Any] = {"inputs": FED, "imports": DOM, "ir": 10}
    cube = np.linspace(-1, 1, 12).astype(F32).reshape(2, 3, 2)
    flat = np.exp(cube.reshape(2, 6)) / np.exp(cube.reshape(2, 6)).sum(1, keepdims=True)
    old = f("F", node("Softmax", ["a"], ["b"]), opset=11)
    wide = {**base, "inputs": {"x": cube}}
    yield Case(
        "a function of an older opset",
        model(call(), functions=[old], **wide),
        {"x": cube},
        EITHER,
        want={"y": flat.reshape(cube.shape)},
    )
    both = model(
        call(outputs=["t"]),
        node("Softmax", ["x"], ["u"], axis=1),
        node("Sub", ["t", "u"], ["y"]),
        functions=[old],
        **wide,
    )
    last = np.exp(cube) / np.exp(cube).sum(1, keepdims=True)
    yield Case("two opsets of one operator", both, {"x": cube}, EITHER, want={"y": flat.reshape(cube.shape) - last})
    tmp = f("F", node("Neg", ["a"], ["t"]), node("Mul", ["t", "t"], ["b"]))
    for name in ("t", "F_t", "t_1", "b", "a", "F/t"):
        made = model(
            node("Abs", ["x"], [name]), call(outputs=["z"]), node("Add", ["z", name], ["y"]), functions=[tmp], **base
        )
        yield Case(f"a value {name!r} beside the function's", made, FED, VALUE, want={"y": X * X + abs(X)})
    made = model(call(outputs=["t"]), call(inputs=["t"]), functions=[tmp], **base)
    yield Case("a function called twice", made, FED, VALUE, want={"y": X**4})
    yield Case(
        "a function fed one value twice",
        model(call("G", ["x", "x"]), functions=[f("G", node("Sub", ["a", "c"], ["b"]), inputs=("a", "c"))], **base),
        FED,
        VALUE,
        want={"y": 0 * X},
    )
    then, other = _graph(node("Neg", ["a"], ["t"]), outputs=["t"]), _graph(node("Abs", ["a"], ["t"]), outputs=["t"])
    branch = f("F", node("If", ["c"], ["b"], then_branch=then, else_branch=other), inputs=("a", "c"))
    fed = {**FED, "c": YES}
    made = model(call(inputs=["x", "c"]), functions=[branch], **{**base, "inputs": fed})
    yield Case("a branch inside reads the function's input", made, fed, VALUE, want={"y": -X})
    made = model(
        node("Abs", ["x"], ["a"]),
        call(inputs=["x", "c"], outputs=["z"]),
        node("Add", ["z", "a"], ["y"]),
        functions=[branch],
        **{**base, "inputs": fed},
    )
    yield Case("a branch inside, its name outside too", made, fed, VALUE, want={"y": abs(X) - X})
    pair = [f("F", node("Neg", ["a"], ["b"]), overload="one"), f("F", node("Abs", ["a"], ["b"]), overload="two")]
    for overload, right in (("one", -X), ("two", abs(X))):
        made = model(call(overload=overload), functions=pair, **base)
        yield Case(f"overload {overload}", made, FED, VALUE, want={"y": right})
    yield Case("an overload nobody defines", model(call(overload="three"), functions=pair, **base), FED, ERROR)
    yield Case("no overload where there are two", model(call(), functions=pair, **base), FED, ERROR)
    slope = node("LeakyRelu", ["a"], ["b"])
    slope.attribute.add(name="alpha", ref_attr_name="s", type=onnx.AttributeProto.FLOAT)
    default = f("F", slope, defaults=[helper.make_attribute("s", 0.5)])
    minus = {**base, "inputs": {"x": -X}}
    yield Case("a default", model(call(), functions=[default], **minus), {"x": -X}, VALUE, want={"y": -X / 2})
    yield Case(
        "a default that is overridden",
        model(call(s=0.25), functions=[default], **minus),
        {"x": -X},
        VALUE,
        want={"y": -X / 4},
    )
    yield Case(
        "a default of another type",
        model(call(), functions=[f("F", slope, defaults=[helper.make_attribute("s", "x")])], **minus),
        {"x": -X},
        ERROR,
    )
    required = f("F", slope, attributes=["s"])
    yield Case(
        "an attribute that is missing is the operator's own default",
        model(call(), functions=[required], **minus),
        {"x": -X},
        EITHER,
        want={"y": F32(-0.01) * X},
    )
    inner = f("G", node("F", ["a"], ["b"], domain="l"))
    inner.node[0].attribute.add(name="s", ref_attr_name="r", type=onnx.AttributeProto.FLOAT)
    inner.attribute.append("r")
    yield Case(
        "an attribute through two functions",
        model(call("G", r=0.125), functions=[default, inner], **minus),
        {"x": -X},
        VALUE,
        want={"y": -X / 8},
    )
    clip = f("F", node("Clip", ["a", "lo", "hi"], ["b"]), inputs=("a", "lo", "hi"))
    for inputs, right in (
        (["x"], X),
        (["x", "", "k"], np.minimum(X, 2)),
        (["x", "k"], np.maximum(X, 2)),
        (["x", "k", ""], np.maximum(X, 2)),
    ):
        made = model(call(inputs=inputs), functions=[clip], weights={"k": F32(2)}, **base)
        yield Case(f"optional inputs through a function: {inputs}", made, FED, VALUE, want={"y": right})
    pairs = f("F", node("Neg", ["a"], ["b"]), node("Abs", ["a"], ["c"]), outputs=("b", "c"))
    yield Case(
        "an output of a call left out",
        model(call(outputs=["", "y"]), functions=[pairs], **base),
        FED,
        VALUE,
        want={"y": abs(X)},
    )
    yield Case(
        "a last output not taken", model(call(outputs=["y"]), functions=[pairs], **base), FED, VALUE, want={"y": -X}
    )
    held = node("Constant", [], ["k"])
    held.attribute.add(name="value", ref_attr_name="v", type=onnx.AttributeProto.TENSOR)
    made = model(
        call(v=const("v", F32(4))), functions=[f("F", held, node("Mul", ["a", "k"], ["b"]), attributes=["v"])], **base
    )
    yield Case("a tensor handed on", made, FED, VALUE, want={"y": 4 * X})
    through = f("F", outputs=("a",))
    made = model(call(outputs=["t"]), node("Neg", ["t"], ["y"]), functions=[through], **base)
    yield Case("a function that hands its input through", made, FED, EITHER, want={"y": -X})
    yield Case(
        "a graph output that is a call's input",
        model(call(), functions=[through], **base),
        FED,
        EITHER,
        says=".",
        want={"y": X},
    )
    rng = f("F", node("RandomNormalLike", ["a"], ["r"], seed=1.0), node("Sub", ["r", "r"], ["b"]))
    yield Case("random numbers inside", model(call(), functions=[rng], **base), FED, VALUE, want={"y": 0 * X})
