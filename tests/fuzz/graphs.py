"""Random small graphs by recipe, for cases that single random nodes seldom reach: bodies, functions, rare types.

Each recipe draws one valid model; `judged` runs and compares it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..hostile.build import like

F32, I64 = np.float32, np.int64
node = helper.make_node
RECIPES: dict[str, Callable[[Any], str]] = {}


class _Draft:
    """A model under construction: nodes, feeds, weights and functions, and the random generator."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.feeds: dict[str, Any] = {}
        self.weights: dict[str, np.ndarray] = {}
        self.functions: list[onnx.FunctionProto] = []
        self.imports = {"": 25}
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def feed(self, x: Any) -> str:
        name = self.name()
        self.feeds[name] = np.asarray(x)
        return name

    def weight(self, x: Any, dtype: Any = None) -> str:
        name = self.name()
        self.weights[name] = np.asarray(x, dtype)
        return name

    def normal(self, *shape: int, dtype: Any = F32) -> np.ndarray:
        return self.rng.normal(size=shape).astype(dtype)

    def op(self, op: str, *inputs: str, n: int = 1, domain: str = "", **attributes: Any) -> Any:
        outputs = [self.name() for _ in range(n)]
        self.nodes.append(node(op, inputs, outputs, name=f"{op}_{self.count}", domain=domain, **attributes))
        return outputs[0] if n == 1 else tuple(outputs)

    def size(self) -> int:
        return self.dice.randint(1, 4)


def draw(seed: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The random case with this number: a model, and its feeds."""
    draft = _Draft(seed)
    recipe = list(RECIPES.values())[seed % len(RECIPES)]
    results = recipe(draft)
    made = onnx.ModelProto(ir_version=11)
    for domain, version in draft.imports.items():
        made.opset_import.add(domain=domain, version=version)
    made.graph.name = recipe.__name__
    made.graph.node.extend(draft.nodes)
    made.graph.input.extend(like(n, x) for n, x in draft.feeds.items())
    made.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in draft.weights.items())
    made.graph.output.extend(onnx.ValueInfoProto(name=r) for r in results.split())
    made.functions.extend(draft.functions)
    return made, draft.feeds


def _recipe(make: Callable[[_Draft], str]) -> Callable[[_Draft], str]:
    RECIPES[make.__name__] = make
    return make


def _body(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[str],
    outputs: Sequence[str],
    types: Mapping[str, int] | None = None,
) -> onnx.GraphProto:
    kinds = types or {}

    def declared(names: Sequence[str]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), () if n in kinds else None) for n in names
        ]

    return helper.make_graph(list(nodes), "body", declared(inputs), declared(outputs))


def _chain(g: _Draft, x: str) -> str:
    for _ in range(g.dice.randint(1, 4)):
        op = g.dice.choice(("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Exp", "Softplus", "Mul", "Add", "Max", "Softmax"))
        x = g.op(op, x, x) if op in ("Mul", "Add", "Max") else g.op(op, x)
    return x


@_recipe
def normalised(g: _Draft) -> str:
    groups = g.size()
    channels = groups * g.size()
    x = g.feed(g.normal(g.size(), channels, *(g.size() for _ in range(g.dice.randint(1, 3)))))
    g.imports[""] = g.dice.choice((21, 23, 25))
    scale, bias = g.weight(g.normal(channels)), g.weight(g.normal(channels))
    return _chain(g, g.op("GroupNormalization", x, scale, bias, num_groups=groups, epsilon=g.dice.choice((1e-5, 0.1))))


@_recipe
def deformed(g: _Draft) -> str:
    channels, offsets = g.dice.choice(((2, 1), (2, 2), (4, 2)))
    kernel, pad, stride = g.dice.randint(1, 2), g.dice.randint(0, 1), g.dice.randint(1, 2)
    size = g.dice.randint(3, 5)
    out = (size + 2 * pad - kernel) // stride + 1
    inputs = [g.feed(g.normal(1, channels, size, size)), g.weight(g.normal(3, channels, kernel, kernel))]
    inputs.append(g.feed(g.normal(1, offsets * kernel * kernel * 2, out, out)))
    mask = g.dice.random() < 0.5
    inputs += [g.weight(g.normal(3)), *([g.feed(g.normal(1, offsets * kernel * kernel, out, out))] if mask else [])]
    return g.op(
        "DeformConv", *inputs, offset_group=offsets, pads=[pad] * 4, strides=[stride] * 2, kernel_shape=[kernel] * 2
    )


@_recipe
def sequences(g: _Draft) -> str:
    parts = [g.feed(g.normal(g.dice.randint(1, 3), 3)) for _ in range(g.dice.randint(1, 4))]
    sequence = g.op("SequenceConstruct", *parts)
    if g.dice.random() < 0.5:
        where = [g.weight(g.dice.randint(-len(parts), len(parts)), I64)] if g.dice.random() < 0.7 else []
        sequence = g.op("SequenceInsert", sequence, g.feed(g.normal(2, 3)), *where)
        parts.append("")
    if g.dice.random() < 0.4:
        sequence = g.op("SequenceErase", sequence, g.weight(g.dice.randint(-len(parts), len(parts) - 1), I64))
        parts.pop()
    if not parts:
        return g.op("SequenceLength", sequence)
    at = g.op("SequenceAt", sequence, g.weight(g.dice.randint(-len(parts), len(parts) - 1), I64))
    return f"{_chain(g, at)} {g.op('SequenceLength', sequence)} {g.op('ConcatFromSequence', sequence, axis=0)}"


@_recipe
def optionals(g: _Draft) -> str:
    x = g.feed(g.normal(2, g.size()))
    held = g.op("Optional", x if g.dice.random() < 0.5 else g.op("SequenceConstruct", x, x))
    if g.nodes[0].op_type == "SequenceConstruct":
        found = g.op("SequenceAt", g.op("OptionalGetElement", held), g.weight(1, I64))
    else:
        found = g.op("OptionalGetElement", held)
    return f"{_chain(g, found)} {g.op('OptionalHasElement', held)}"


@_recipe
def mapped(g: _Draft) -> str:
    parts = [g.feed(g.normal(g.dice.randint(1, 3))) for _ in range(g.dice.randint(1, 3))]
    body = _body([node("Mul", ["e", "k"], ["r"])], ["e", "k"], ["r"])
    made = g.op("SequenceMap", g.op("SequenceConstruct", *parts), g.weight(F32(g.dice.random())), body=body)
    return g.op("ConcatFromSequence", made, axis=0)


@_recipe
def trained(g: _Draft) -> str:
    channels = g.size()
    x = g.feed(g.normal(g.dice.randint(2, 4), channels, 3))
    held = [g.weight(g.normal(channels)) for _ in range(3)] + [g.weight(np.abs(g.normal(channels)) + 0.1)]
    y, mean, spread = g.op("BatchNormalization", x, *held, n=3, training_mode=1, momentum=g.dice.random())
    dropped, mask = g.op("Dropout", y, g.weight(F32(0)), g.weight(True), n=2)
    return f"{_chain(g, dropped)} {mean} {spread} {mask}"


@_recipe
def drawn(g: _Draft) -> str:
    op, shape = g.dice.choice(("RandomNormal", "RandomUniform")), [g.size(), g.size()]
    x = g.op(op, shape=shape, dtype=TensorProto.FLOAT, seed=1.0)
    like_it = g.op(f"{op}Like", x)
    coin = g.op("Bernoulli", g.op("Sigmoid", like_it), dtype=g.dice.choice((1, 6, 9)))
    return f"{_chain(g, like_it)} {coin} {g.op('Multinomial', x, sample_size=g.size(), dtype=7)}"


NARROW = (
    TensorProto.FLOAT8E4M3FN,
    TensorProto.FLOAT8E5M2,
    TensorProto.BFLOAT16,
    TensorProto.FLOAT16,
    TensorProto.INT4,
    TensorProto.UINT4,
)


@_recipe
def narrow(g: _Draft) -> str:
    x = g.feed(np.clip(g.normal(2, 2 * g.size()) * g.dice.choice((1, 2)), -6, 6))
    kind = g.dice.choice(NARROW)
    x = g.op("Abs", x) if kind == TensorProto.UINT4 else x
    there = g.op("Transpose", g.op("Cast", x, to=kind), perm=[1, 0])
    return g.op("Cast", g.op("Reshape", there, g.weight([-1], I64)), to=TensorProto.FLOAT)


@_recipe
def half_way(g: _Draft) -> str:
    dtype = g.dice.choice((ml_dtypes.bfloat16, np.float16, np.float64))
    x, w = g.feed(g.normal(3, 4, dtype=dtype)), g.weight(g.normal(4, 2, dtype=dtype))
    y, axis = g.op("MatMul", x, w), g.weight([g.dice.randint(-2, 1)], I64)
    return f"{g.op('Relu', y)} {g.op('ReduceSum', y, axis, keepdims=g.dice.randint(0, 1))}"


@_recipe
def cached(g: _Draft) -> str:
    batch, length, new = g.size(), g.dice.randint(3, 6), g.dice.randint(1, 3)
    mode = g.dice.choice(("linear", "circular"))
    most = length - new if mode == "linear" else length - 1
    past = g.feed(g.normal(batch, 2, length, 3))
    places = g.feed(np.array([g.dice.randint(0, most) for _ in range(batch)], I64))
    return g.op("TensorScatter", past, g.feed(g.normal(batch, 2, new, 3)), places, mode=mode, axis=-2)


@_recipe
def classical(g: _Draft) -> str:
    g.imports |= {"ai.onnx.ml": 3}
    width, classes = g.size(), g.dice.randint(2, 3)
    ml: dict[str, Any] = {"domain": "ai.onnx.ml"}
    x = g.feed(g.normal(g.size(), width))
    x = g.op("Scaler", x, offset=g.normal(width).tolist(), scale=g.normal(width).tolist(), **ml)
    x = g.op("Normalizer", x, norm=g.dice.choice(("MAX", "L1", "L2")), **ml)
    weights = {"coefficients": g.normal(classes * width).tolist(), "intercepts": g.normal(classes).tolist()}
    transform = g.dice.choice(("NONE", "SOFTMAX", "LOGISTIC"))
    if g.dice.random() < 0.5:
        return g.op("LinearRegressor", x, targets=classes, **weights, **ml)
    label, scores = g.op(
        "LinearClassifier", x, n=2, classlabels_ints=list(range(classes)), post_transform=transform, **weights, **ml
    )
    return f"{label} {scores} {g.op('Binarizer', scores, threshold=0.5, **ml)}"


@_recipe
def composed(g: _Draft) -> str:
    g.imports |= {"mine": 1}
    inner = g.dice.choice(("Neg", "Relu", "Exp"))
    opsets = [helper.make_opsetid("", 25), helper.make_opsetid("mine", 1)]
    slope = node("LeakyRelu", ["b"], ["c"])
    slope.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    g.functions += [
        helper.make_function("mine", "Inner", ["a"], ["b"], [node(inner, ["a"], ["b"])], opsets),
        helper.make_function(
            "mine", "Outer", ["a"], ["c"], [node("Inner", ["a"], ["b"], domain="mine"), slope], opsets, ["slope"]
        ),
    ]
    x = g.op("Outer", g.feed(g.normal(2, 3)), domain="mine", slope=g.dice.random())
    return g.op("Outer", _chain(g, x), domain="mine", slope=g.dice.random())


def _quantised(g: _Draft, x: str, out: str) -> list[onnx.NodeProto]:
    scale, zero = g.weight(F32(0.05)), g.weight(g.dice.randint(0, 9), g.dice.choice((np.uint8, np.int8)))
    there, clear = g.name(), g.name()
    return [
        node("QuantizeLinear", [x, scale, zero], [there]),
        node("DequantizeLinear", [there, scale, zero], [clear]),
        node(g.dice.choice(("Relu", "Neg", "Identity")), [clear], [out]),
    ]


@_recipe
def branched(g: _Draft) -> str:
    x = g.feed(g.normal(2, 3))
    condition = g.feed(g.dice.random() < 0.5)
    yes = _body(_quantised(g, x, "yes"), [], ["yes"])
    no = _body([node("Add", [x, x], ["no"])], [], ["no"])
    return _chain(g, g.op("If", condition, then_branch=yes, else_branch=no))


@_recipe
def looped(g: _Draft) -> str:
    x = g.feed(g.normal(2, 3))
    rounds = g.dice.randint(0, 4)
    flags = {"i": TensorProto.INT64, "t": TensorProto.BOOL, "go": TensorProto.BOOL}
    nodes = [node("Identity", ["t"], ["go"]), *_quantised(g, "s", "n"), node("Identity", ["n"], ["each"])]
    body = _body(nodes, ["i", "t", "s"], ["go", "n", "each"], flags)
    count = g.feed(np.array(rounds)) if g.dice.random() < 0.5 else g.weight(rounds, I64)
    last, every = g.op("Loop", count, "", x, n=2, body=body)
    return f"{_chain(g, last)} {every}" if rounds else last


@_recipe
def scanned(g: _Draft) -> str:
    body = _body([*_quantised(g, "e", "q"), node("Add", ["s", "q"], ["n"]), node("Mul", ["n", "e"], ["r"])],
                 ["s", "e"], ["n", "r"])  # fmt: skip
    steps = g.feed(g.normal(g.dice.randint(1, 4), 3))
    backwards: dict[str, Any] = {"scan_input_directions": [1]} if g.dice.random() < 0.5 else {}
    last, every = g.op("Scan", g.feed(g.normal(3)), steps, n=2, body=body, num_scan_inputs=1, **backwards)
    return f"{last} {_chain(g, every)}"
