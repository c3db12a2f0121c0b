"""Model-local functions, and If, Loop and Scan whose bodies do not match their operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from .build import BOOL, ERROR, F32, VALUE, Case, X, const, field, head, info, model, node

RELU = node("Relu", ["x"], ["y"], name="the_node")
SUM = node("Add", ["x", "w"], ["y"], name="the_node")
FED = {"x": X}
DOM = (("l", 1),)


def _f(
    name: str, *calls: onnx.NodeProto, inputs=("a",), outputs=("b",), opsets=(("", 17), ("l", 1)), attributes=()
) -> onnx.FunctionProto:
    return helper.make_function(
        "l", name, list(inputs), list(outputs), list(calls), [helper.make_opsetid(*o) for o in opsets], list(attributes)
    )


def functions() -> Iterator[Case]:
    """Functions that the model defines."""
    call = node("F", ["x"], ["y"], domain="l", name="the_node")
    neg = _f("F", node("Neg", ["a"], ["b"]))
    given = {"inputs": FED, "imports": DOM}
    yield Case("a function", model(call, functions=[neg], **given), FED, VALUE, want={"y": -X})
    yield Case(
        "two functions of one name",
        model(call, functions=[neg, _f("F", node("Relu", ["a"], ["b"]))], **given),
        FED,
        ERROR,
    )
    twice = {"outputs of one name": {"outputs": ("b", "b")}, "inputs of one name": {"inputs": ("a", "a")}}
    for what, names in twice.items():
        yield Case(f"function with {what}", model(call, functions=[_f("F", *neg.node, **names)], **given), FED, ERROR)
    yield Case("function of no name", model(RELU, functions=[_f("", *neg.node)], **given), FED, ERROR, says="no name")
    yield Case("the same function twice", model(call, functions=[neg, neg], **given), FED, ERROR)
    yield Case("recursion", model(call, functions=[_f("F", node("F", ["a"], ["b"], domain="l"))], **given), FED, ERROR)
    both = [_f("F", node("G", ["a"], ["b"], domain="l")), _f("G", node("F", ["a"], ["b"], domain="l"))]
    yield Case("recursion of two", model(call, functions=both, **given), FED, ERROR)
    inner = helper.make_graph([node("F", ["a"], ["t"], domain="l")], "t", [], [info("t")])
    other = helper.make_graph([node("Neg", ["a"], ["e"])], "e", [], [info("e")])
    hidden = _f(
        "F",
        node("Constant", [], ["c"], value=const("c", True)),
        node("If", ["c"], ["b"], then_branch=inner, else_branch=other),
    )
    yield Case("recursion inside a branch", model(call, functions=[hidden], **given), FED, ERROR)
    yield Case("recursion nobody calls", model(RELU, functions=both, **given), FED, "either")
    yield Case("function that does not exist", model(call, **given), FED, ERROR)
    yield Case(
        "function of unknown operators",
        model(call, functions=[_f("F", node("What", ["a"], ["b"]))], **given),
        FED,
        ERROR,
    )
    yield Case(
        "function of unknown operators, not called",
        model(RELU, functions=[_f("F", node("What", ["a"], ["b"]))], **given),
        FED,
        "either",
    )
    yield Case(
        "call with too many inputs",
        model(node("F", ["x", "x"], ["y"], domain="l"), functions=[neg], **given),
        FED,
        ERROR,
    )
    yield Case(
        "call with too few inputs", model(node("F", [], ["y"], domain="l"), functions=[neg], **given), FED, ERROR
    )
    yield Case(
        "call with too many outputs",
        model(node("F", ["x"], ["y", "z"], domain="l"), functions=[neg], **given),
        FED,
        ERROR,
    )
    yield Case(
        "function whose output nobody makes",
        model(call, functions=[_f("F", node("Neg", ["a"], ["c"]))], **given),
        FED,
        ERROR,
    )
    yield Case(
        "function that reads the outside",
        model(call, functions=[_f("F", node("Add", ["a", "x"], ["b"]))], **given),
        FED,
        ERROR,
    )
    yield Case(
        "function whose output is its input",
        model(call, functions=[_f("F", outputs=("a",))], **given),
        FED,
        "either",
        says=".",
    )
    yield Case(
        "function without imports",
        model(call, functions=[_f("F", node("Neg", ["a"], ["b"]), opsets=())], **given),
        FED,
        "either",
    )
    yield Case(
        "function unsorted",
        model(call, functions=[_f("F", node("Neg", ["c"], ["b"]), node("Neg", ["a"], ["c"]))], **given),
        FED,
    )
    yield Case(
        "function with a value made twice",
        model(call, functions=[_f("F", node("Neg", ["a"], ["b"]), node("Relu", ["a"], ["b"]))], **given),
        FED,
        ERROR,
    )
    leaky = node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    slope = _f("F", leaky, attributes=["slope"])
    yield Case(
        "attribute handed on",
        model(node("F", ["x"], ["y"], domain="l", slope=0.5), functions=[slope], **given),
        FED,
        VALUE,
        want={"y": X},
    )
    yield Case("attribute not given", model(call, functions=[slope], **given), FED, "either")
    yield Case(
        "attribute of a wrong type handed on",
        model(node("F", ["x"], ["y"], domain="l", slope="x"), functions=[slope], **given),
        FED,
        ERROR,
    )
    yield Case(
        "attribute the function lacks",
        model(node("F", ["x"], ["y"], domain="l", other=1), functions=[neg], **given),
        FED,
        "either",
    )
    many = [
        _f(f"F{i}", node(f"F{i + 1}", ["a"], ["c"], domain="l"), node(f"F{i + 1}", ["c"], ["b"], domain="l"))
        for i in range(40)
    ]
    many.append(_f("F40", node("Neg", ["a"], ["b"])))
    yield Case(
        "2^40 calls", model(node("F0", ["x"], ["y"], domain="l"), functions=many, **given), FED, ERROR, says="nodes"
    )
    chain = [_f(f"F{i}", node(f"F{i + 1}", ["a"], ["b"], domain="l")) for i in range(300)]
    chain.append(_f("F300", node("Neg", ["a"], ["b"])))
    yield Case(
        "300 functions nested", model(node("F0", ["x"], ["y"], domain="l"), functions=chain, **given), FED, "either"
    )
    shadow = helper.make_function("", "Relu", ["a"], ["b"], [node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 17)])
    yield Case("a function called as an operator of ONNX is", model(RELU, functions=[shadow], **given), FED, "either")


def bodies() -> Iterator[Case]:
    """If, Loop and Scan whose bodies do not match their operands, and deep nesting."""
    yes, two = np.array(True), np.array([True, False])
    changed = helper.make_graph(
        [node("Identity", ["t"], ["go"]), node("Cast", ["s"], ["n"], to=TensorProto.INT64)],
        "changed",
        [info("i", (), TensorProto.INT64), info("t", (), BOOL), info("s", None)],
        [info("go", (), BOOL), info("n", None)],
    )
    loop = node("Loop", ["k", "", "x"], ["y"], body=changed, name="the_node")
    yield Case("loop state of another type", model(loop, inputs=FED, weights={"k": np.array(3)}), FED, ERROR)
    later = helper.make_graph([node("Relu", ["z"], ["e"])], "later", [], [info("e")])
    early = node("If", ["c"], ["y"], then_branch=later, else_branch=later, name="the_node")
    made = model(early, node("Abs", ["x"], ["z"]), inputs={**FED, "c": yes})
    yield Case("branch that reads what comes later", made, {**FED, "c": yes})
    then = helper.make_graph([node("Neg", ["x"], ["t"])], "t", [], [info("t")])
    plain = helper.make_graph([node("Relu", ["x"], ["e"])], "e", [], [info("e")])
    both = helper.make_graph([node("Relu", ["x"], ["e"]), node("Neg", ["x"], ["f"])], "e", [], [info("e"), info("f")])
    taking = helper.make_graph([node("Relu", ["q"], ["e"])], "e", [info("q")], [info("e")])
    empty = onnx.GraphProto(name="empty")
    unknown = helper.make_graph([node("Relu", ["nowhere"], ["e"])], "e", [], [info("e")])
    for flag, shown in (
        (yes, "fixed"),
        (two[:1], "of one element"),
        (two, "of two elements"),
        (np.array([], bool), "of none"),
        (F32(1), "of float"),
    ):
        made = model(
            node("If", ["c"], ["y"], then_branch=then, else_branch=plain, name="the_node"), inputs={"x": X, "c": flag}
        )
        expect = VALUE if shown in ("fixed", "of one element") else ERROR
        yield Case(f"condition {shown}", made, {"x": X, "c": flag}, expect, want={"y": -X} if expect == VALUE else {})
    for other, shown in (
        (both, "of two outputs"),
        (taking, "that takes an input"),  # which PopART allows
        (empty, "without anything"),
        (unknown, "that reads nothing"),
    ):
        made = model(
            node("If", ["c"], ["y"], then_branch=then, else_branch=other, name="the_node"), inputs={"x": X, "c": yes}
        )
        yield Case(f"branch {shown}", made, {"x": X, "c": yes}, ERROR, session=other is not taking)
    yield Case(
        "a branch missing",
        model(node("If", ["c"], ["y"], then_branch=then), inputs={"x": X, "c": yes}),
        {"x": X, "c": yes},
        ERROR,
    )
    whole = helper.make_graph([node("Cast", ["x"], ["e"], to=7)], "e", [], [info("e", (2, 3), 7)])
    yield Case(
        "branches of two types",
        model(node("If", ["c"], ["y"], then_branch=then, else_branch=whole), inputs={"x": X, "c": yes}),
        {"x": X, "c": yes},
        "either",
    )
    cut = helper.make_graph([node("ReduceSum", ["x"], ["e"])], "e", [], [info("e", (1, 1))])
    yield Case(
        "branches of two shapes",
        model(node("If", ["c"], ["y"], then_branch=then, else_branch=cut), inputs={"x": X, "c": yes}),
        {"x": X, "c": yes},
        "either",
    )
    for depth in (30, 300, 10_000):
        yield Case(
            f"If nested {depth} deep",
            _nested(depth),
            {"x": X, "c": yes},
            VALUE if depth < 100 else "either",
            says=".",
            want={"y": -X} if depth < 100 else {},
        )
    count = {"n": np.array(3)}
    for name, body, expect in (
        ("too few inputs", _body([info("i", (), 7), info("c", (), BOOL)]), ERROR),
        ("no inputs", _body([]), ERROR),
        ("too many inputs", _body([info("i", (), 7), info("c", (), BOOL), info("v"), info("u")]), ERROR),
        ("too few outputs", _body([info("i", (), 7), info("c", (), BOOL), info("v")], 1), ERROR),
        ("an unused scan output", _body([info("i", (), 7), info("c", (), BOOL), info("v")], 3), "either"),
    ):
        made = model(node("Loop", ["n", "", "x"], ["y"], body=body, name="the_node"), inputs=FED, weights=count)
        yield Case(f"loop body with {name}", made, FED, expect, session=name != "too many inputs")
    good = _body([info("i", (), 7), info("c", (), BOOL), info("v")], 2)
    for inputs, weights, shown in (
        (["n", "", "x"], {"n": np.array([3, 4])}, "count of two elements"),
        (["n", "", "x"], {"n": F32(3)}, "count of float"),
        (["n", "k", "x"], {"n": np.array(3), "k": F32(1)}, "condition of float"),
        (["n", "", ""], count, "state left out"),
        ([], {}, "nothing"),
    ):
        yield Case(
            f"loop with {shown}",
            model(node("Loop", inputs, ["y"], body=good, name="the_node"), inputs=FED, weights=weights),
            FED,
            ERROR,
        )
    yield Case(
        "loop without end",
        model(node("Loop", ["", "", "x"], ["y"], body=good, name="the_node"), inputs=FED),
        FED,
        ERROR,
    )
    yield Case(
        "loop without end, its condition true",
        model(
            node("Loop", ["", "k", "x"], ["y"], body=good, name="the_node"), inputs=FED, weights={"k": np.array(True)}
        ),
        FED,
        ERROR,
    )
    scan = helper.make_graph([node("Neg", ["v"], ["w"])], "b", [info("v", (3,))], [info("w", (3,))])
    for given, shown in (
        ({"num_scan_inputs": 1}, "as it should"),
        ({"num_scan_inputs": 5}, "of five inputs"),
        ({"num_scan_inputs": -1}, "of -1"),
        ({"num_scan_inputs": 0}, "of none"),
        ({"num_scan_inputs": 1, "scan_input_axes": [9]}, "at axis 9"),
        ({"num_scan_inputs": 1, "scan_input_directions": [7]}, "in direction 7"),
        ({"num_scan_inputs": 1 << 62}, "of 2^62"),
    ):
        made = model(node("Scan", ["x"], ["y"], body=scan, name="the_node", **given), inputs=FED)
        yield Case(
            f"scan {shown}",
            made,
            FED,
            VALUE if shown == "as it should" else ERROR,
            want={"y": -X} if shown == "as it should" else {},
        )


def _nested(depth: int) -> Callable[[Path], Path]:
    """A file of nested branches; each level contains the next one, so its bytes are written from both ends."""

    def write(folder: Path) -> Path:
        other = helper.make_graph([node("Relu", ["x"], ["e"])], "e", [], [info("e")]).SerializeToString()
        second = field(5, field(1, b"else_branch") + field(6, other) + b"\xa0\x01\x05")
        begins, ends = [], []
        size = len(leaf := node("Neg", ["x"], ["y0"]).SerializeToString())
        for i in range(1, depth):
            graph = head(1, size), field(2, b"t") + field(12, info(f"y{i - 1}").SerializeToString())
            size += sum(map(len, graph))
            branch = field(1, b"then_branch") + head(6, size), b"\xa0\x01\x05"
            size += sum(map(len, branch))
            made = field(1, b"c") + field(2, f"y{i}".encode()) + field(4, b"If") + head(5, size), second
            size += sum(map(len, made))
            begins += [graph[0], branch[0], made[0]]
            ends += [graph[1], branch[1], made[1]]
        whole = model(inputs={"x": X, "c": np.array(True)}, outputs=["y"])
        whole.graph.node.append(node("Identity", [f"y{depth - 1}"], ["y"]))
        tail = whole.graph.SerializeToString()
        whole.ClearField("graph")
        graph = b"".join([head(1, size), *reversed(begins), leaf, *ends, tail])
        path = folder / "m.onnx"
        path.write_bytes(whole.SerializeToString() + field(7, graph))
        return path

    return write


def _body(inputs: list[onnx.ValueInfoProto], outputs: int = 2) -> onnx.GraphProto:
    calls = [node("Constant", [], ["d"], value=const("d", True)), node("Neg", ["x"], ["w"]), node("Neg", ["x"], ["u"])]
    return helper.make_graph(calls, "b", inputs, [info("d", (), TensorProto.BOOL), info("w"), info("u")][:outputs])
