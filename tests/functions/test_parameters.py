"""Which stored numbers are parameters, whatever place of the file holds them."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import popart_jax as popart

RNG = np.random.default_rng(1)
HEAD = 'ir_version: 8, opset_import: ["": 17]'


def array(name: str, *shape: int, dtype: Any = np.float32) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(RNG.normal(size=shape).astype(dtype), name)


def parse(text: str, *weights: onnx.TensorProto) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(weights)
    return model


def slope(fn: Any, params: Any, inputs: Any, name: str) -> np.ndarray:
    """Central differences of the sum of outputs by one parameter."""
    found = np.zeros(params[name].shape)
    for at in np.ndindex(found.shape):
        ends = []
        for sign in (1, -1):
            moved = np.array(params[name])
            moved[at] += sign * 1e-2
            ends.append(float(sum(np.sum(v) for v in fn({**params, name: moved}, inputs).values())))
        found[at] = (ends[0] - ends[1]) / 2e-2
    return found


IN_CONSTANTS = parse(
    f"<{HEAD}> g(float[N,2] x) => (float[N,2] y) {{ w = Constant<value = float[2,2] {{1.0, 2.0, 3.0, 4.0}}>() "
    "half = Constant<value_float = 0.5>() z = MatMul(x, w) y = Mul(z, half) }"
)
IN_BRANCHES = parse(
    f"<{HEAD}> g(bool flag, float[N,2] x) => (float[N,2] y) {{ y = If(flag) <then_branch = t() => (float[N,2] a) {{ "
    "w = Constant<value = float[2] {1.0, 2.0}>() a = Mul(x, w) }, else_branch = e() => (float[N,2] b) { "
    "w2 = Constant<value = float[2] {3.0, 4.0}>() b = Add(x, w2) }> }"
)
IN_A_FUNCTION = parse(
    '<ir_version: 8, opset_import: ["": 17, "l": 1]> g(float[N,2] x) => (float[N,2] y) '
    '{ a = l.scale(x) y = l.scale(a) } <domain: "l", opset_import: ["": 17]> scale(x) => (y) '
    "{ w = Constant<value = float[2] {1.5, 2.0}>() y = Mul(x, w) }"
)


@pytest.mark.parametrize(
    ("model", "inputs", "names"),
    [
        (IN_CONSTANTS, {}, {"w"}),
        (IN_BRANCHES, {"flag": np.array(True)}, {"w", "w2"}),
        (IN_BRANCHES, {"flag": np.array(False)}, {"w", "w2"}),
        (IN_A_FUNCTION, {}, {"scale/w"}),
    ],
    ids=["constant node", "taken branch", "other branch", "function called twice"],
)
def test_weights_outside_the_initializers(model: onnx.ModelProto, inputs: dict[str, Any], names: set[str]) -> None:
    fn, params = popart.to_jax(model)
    assert {n.replace("_2", "") for n in params} >= {n for n in names if "/" not in n}
    assert len(params) == len(names)
    inputs = {**inputs, "x": RNG.normal(size=(3, 2)).astype(np.float32)}
    theirs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0]
    np.testing.assert_allclose(fn(params, inputs)["y"], np.asarray(theirs), rtol=1e-5)
    gradients = jax.jit(jax.grad(lambda p: fn(p, inputs)["y"].sum()))(params)
    for name in params:
        np.testing.assert_allclose(gradients[name], slope(fn, params, inputs, name), rtol=2e-2, atol=1e-3)


def test_a_function_that_is_called_twice_has_one_weight() -> None:
    fn, params = popart.to_jax(IN_A_FUNCTION)
    (name,) = params
    x = np.ones((1, 2), np.float32)
    np.testing.assert_allclose(fn({name: np.array([3.0, 5.0], np.float32)}, x)["y"], [[9.0, 25.0]])


def test_a_function_that_nobody_calls_has_no_weights(tmp_path: Path) -> None:
    """`left` calls itself a function, `inner`, that the graph calls too; only what the graph reaches counts."""
    body = "(a) => (b) {{ w = Constant<value = float[2] {{1, {}}}>() c = {}(a) b = Mul(c, w) }}"
    text = f"""<{HEAD[:-1]}, "m": 1]> g (float[2] x) => (float[2] y) {{ y = m.used(x) }}
    <domain: "m", opset_import: ["": 17]> inner (a) => (b) {{ v = Constant<value = float[2] {{3, 4}}>() b = Add(a, v) }}
    <domain: "m", opset_import: ["": 17, "m": 1]> used {body.format(2, "m.inner")}
    <domain: "m", opset_import: ["": 17, "m": 1]> left {body.format(5, "m.inner")}"""
    model, x = onnx.parser.parse_model(text), np.array([1, -2], np.float32)
    fn, params = popart.to_jax(model)
    assert set(params) == {"w", "v"}
    np.testing.assert_allclose(fn(params, x)["y"], ReferenceEvaluator(model).run(None, {"x": x})[0], rtol=1e-6)
    fn.save(tmp_path / "m.onnx", {n: 2 * p for n, p in params.items()})
    kept = {f.name: f.node[0].attribute[0].t for f in onnx.load(tmp_path / "m.onnx").functions}
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(kept["used"]), [2, 4])
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(kept["left"]), [1, 5])


@pytest.mark.parametrize("other", ["float {0.25}", "int64[2] {7, 8}"])
def test_values_of_two_functions_may_share_a_name(other: str) -> None:
    """The first keeps it when functions are inlined; the second is the parameter of that name."""
    model = parse(
        '<ir_version: 8, opset_import: ["": 17, "l": 1]> g(float[N,2] x) => (float[N,2] y) '
        '{ a = l.first(x) y = l.second(a) } <domain: "l", opset_import: ["": 17]> first(x) => (y) '
        f"{{ w = Constant<value = {other}>() c = CastLike(w, x) y = Mul(x, c) }} "
        '<domain: "l", opset_import: ["": 17]> second(x) => (y) '
        "{ w = Constant<value = float[2] {3.0, 4.0}>() y = Add(x, w) }"
    )
    x = RNG.normal(size=(3, 2)).astype(np.float32)
    theirs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    fn, params = popart.to_jax(model)
    assert len(params) == 1
    np.testing.assert_allclose(fn(params, x)["y"], np.asarray(theirs), rtol=1e-6)


def test_constants_of_a_traced_program_are_no_parameters() -> None:
    """PyTorch's older exporter keeps parameters in initializers; its Constant nodes are what the program wrote out."""
    model = parse(
        f"<{HEAD}> g(float[N,2] x) => (float[N,2] y) {{ c = Constant<value = float[2] {{1.0, 2.0}}>() "
        "n = Sub(x, c) v = Constant<value = float[2] {3.0, 4.0}>() y = Mul(n, v) }"
    )
    model.graph.node[0].output[0] = model.graph.node[1].input[1] = "/norm/Constant_1_output_0"
    fn, params = popart.to_jax(model)
    assert set(params) == {"v"}
    assert fn.choice.frozen == {"/norm/Constant_1_output_0": "a constant of the program that was exported"}


@pytest.mark.parametrize(("name", "reason"), [("/norm/Constant_1_output_0", "a constant"), ("limit", "a mask")])
def test_constants_that_an_optimizer_made_initializers_are_no_parameters(name: str, reason: str) -> None:
    """ONNX Runtime's does; with weight decay an infinite one would become a NaN."""
    body = "{ a = Mul(x, w) y = Where(hide, c, a) }"
    model = parse(f"<{HEAD}> g(float[N,2] x, bool[N,2] hide) => (float[N,2] y) {body}")
    number = 0.0 if reason == "a constant" else -np.inf
    weights = array("w", 2), onnx.numpy_helper.from_array(np.array([number], np.float32), name)
    model.graph.node[1].input[1] = name
    model.graph.initializer.extend(weights)
    fn, params = popart.to_jax(model)
    assert set(params) == {"w"}
    assert fn.choice.frozen[name].startswith(reason)


@pytest.mark.parametrize("reader", ["Add", "Mul", "Div"])
def test_what_the_older_exporter_folds_stays_a_parameter(reader: str) -> None:
    """It names a slice, a transpose or a gather of a parameter after its reader, as it does a folded constant."""
    model = parse(f"<{HEAD}> g (float[3,4] x) => (float[3,4] y) {{ y = {reader} (x, folded) }}")
    folded = array(f"onnx::{reader}_106", 1, 4)
    model.graph.node[0].input[1] = folded.name
    model.graph.initializer.append(folded)
    assert set(popart.to_jax(model)[1]) == {folded.name}


@pytest.mark.parametrize(
    ("name", "trained"),
    [("/attn/Sqrt_1_output_0", False), ("/Exp_output_0", False), ("/scale/Transpose_output_0", True), ("gain", True)],
)
def test_one_number_that_a_folded_node_computed_is_no_parameter(name: str, trained: bool) -> None:
    """onnxsim and ONNX Runtime fold the scale of attention in files of PyTorch's older exporter."""
    model = parse(f"<{HEAD}> g (float[3,4] x) => (float[3,4] y) {{ a = Mul(x, w) y = Mul(a, folded) }}")
    model.graph.node[1].input[1] = name
    model.graph.initializer.extend([array("w", 4), array(name, 1)])
    assert set(popart.to_jax(model)[1]) == {"w", *[name] * trained}


def test_what_no_gradient_should_move_is_left_out_with_a_reason() -> None:
    hidden = np.triu(np.full((4, 4), -3.4e38, np.float32), 1)
    model = parse(
        f"<{HEAD}> g(float[4,4] x) => (float[4,4] y) {{ q = QuantizeLinear(x, scale, zero) "
        "d = DequantizeLinear(q, scale, zero) m = Add(d, mask) a = MatMul(m, w) above = Greater(a, limit) "
        "f = Cast<to=1>(above) y = Mul(f, a) }",
        array("w", 4, 4),
        array("scale"),
        onnx.numpy_helper.from_array(np.int8(0), "zero"),
        onnx.numpy_helper.from_array(hidden, "mask"),
        array("limit", 4),
    )
    fn, params = popart.to_jax(model)
    assert set(params) == {"w"}
    assert set(fn.choice.frozen) == {"scale", "mask", "limit"}
    assert "quantisation" in fn.choice.frozen["scale"]
    assert "mask" in fn.choice.frozen["mask"]
    assert "no gradient" in fn.choice.frozen["limit"]


def list_parameters(model: onnx.ModelProto) -> None:
    """Note in a file what PyTorch's exporter does of a network with three parameters."""
    listed = ["p_w: PARAMETER target='w'", "p_cls_token: PARAMETER target='cls_token'", "p_mul: PARAMETER target='mul'"]
    listed += ["b_rope_table: BUFFER target='rope.table' persistent=False", "photo: USER_INPUT"]
    key = "pkg.torch.export.ExportedProgram.graph_signature"
    model.graph.metadata_props.add(key=key, value="\n# inputs\n" + "\n".join(listed))


def with_folded_table(sources: str) -> onnx.ModelProto:
    """A model of a weight and a table, which the exporter computed from these."""
    text = f"<{HEAD}> g(float[2,2] x) => (float[2,2] y) {{ a = MatMul(x, w) y = Add(a, table) }}"
    model = parse(text, array("w", 2, 2), array("table", 2, 2))
    info = onnx.helper.make_tensor_value_info("table", onnx.TensorProto.FLOAT, [2, 2])
    info.metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value=sources)
    model.graph.value_info.append(info)
    return model


@pytest.mark.parametrize(
    ("sources", "kept"),
    [
        ("['arange_1', 'val_3', 'eq']", False),
        ("['clone_2', 'lifted_tensor_2', 'add_24', 'val_13']", False),  # `torch.tensor([0.5])` in the program
        ("['_to_copy_1', 'arange', 'cat', 'cos', 'model.rotary_emb.inv_freq', 'mul']", False),
        ("['x', 'val_2', 'val_3']", False),  # zeros of the shape of an input: a mask
        ("['add', 'linspace_1', 'ones', 'pad_2', 'val_10']", False),  # the grid of `affine_grid`
        ("['out.weight', 'val_3']", True),
        ("['w']", True),
        ("['cos', 'scale']", True),
    ],
)
def test_what_an_exporter_worked_out_is_a_weight_if_it_came_from_one(sources: str, kept: bool) -> None:
    model = with_folded_table(sources)
    assert ("table" in popart.to_jax(model)[1]) is kept


@pytest.mark.parametrize(
    ("sources", "kept"),
    [
        ("['photo', 'ones_like', 'val_1']", False),  # an input, by its name before `input_names`
        ("['gelu', 'val_4', 'val_5']", False),  # the ones of a layer norm without weights
        ("['softmax', 'val_15', 'zeros']", False),
        ("['rope.table', 'cos']", False),  # a buffer
        ("['cls_token', 'val_10']", True),
        ("['mul', 'val_10']", True),  # a weight with the name of a step
    ],
)
def test_an_exporter_that_lists_the_parameters_says_what_came_from_one(sources: str, kept: bool) -> None:
    model = with_folded_table(sources)
    list_parameters(model)
    assert ("table" in popart.to_jax(model)[1]) is kept


@pytest.mark.parametrize("listed", [False, True])
def test_what_is_stored_in_a_loop_is_no_parameter_of_an_exporter_that_lists_them(listed: bool) -> None:
    """As the empty row of an exported EmbeddingBag."""
    text = f"""<{HEAD}> g(float[2,2] x) => (float[2,2] y) {{
        y = Loop(two, , x) <body = b(int64 i, bool go, float[2,2] old) => (bool on, float[2,2] new) {{
            on = Identity(go)
            h = MatMul(old, w)
            row = Constant<value = float[2] {{0.5, 2.5}}>()
            new = Mul(h, row)
        }}>
    }}"""
    model = parse(text, array("w", 2, 2), onnx.numpy_helper.from_array(np.array(2, np.int64), "two"))
    if listed:
        list_parameters(model)
    assert ("row" in popart.to_jax(model)[1]) is not listed


MLP = parse(
    f"<{HEAD}> g(float[N,3] x) => (float[N,2] y) {{ a = Gemm(x, w1, b1) b = Relu(a) y = Gemm(b, w2, b2) }}",
    array("w1", 3, 4), array("b1", 4), array("w2", 4, 2), array("b2", 2),
)  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("w1", {"w1"}),
        ("w*", {"w1", "w2"}),
        (["b1", "*2"], {"b1", "w2", "b2"}),
        (re.compile("^b"), {"b1", "b2"}),
        (lambda name, value: value.ndim == 2, {"w1", "w2"}),
    ],
)
def test_the_user_says_what_is_trained(asked: Any, names: set[str]) -> None:
    fn, params = popart.to_jax(MLP, trainable=asked)
    assert set(params) == names
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    full, everything = popart.to_jax(MLP)
    np.testing.assert_allclose(fn(params, x)["y"], full(everything, x)["y"], rtol=1e-6)
    assert set(fn.choice.frozen) == set(everything) - names


def test_a_pattern_that_fits_nothing_is_refused_by_name() -> None:
    with pytest.raises(popart.popart_exception, match=r"'w9' fits no float weight.*\n.*b1, b2"):
        popart.to_jax(MLP, trainable=["w1", "w9"])


def test_a_model_without_parameters_says_why() -> None:
    with pytest.warns(UserWarning, match="no trainable parameters: it stores no float weights"):
        popart.to_jax(parse(f"<{HEAD}> g(float[N] x) => (float[N] y) {{ y = Relu(x) }}"))
    with pytest.warns(UserWarning, match="limit: no gradient reaches it"):
        popart.to_jax(parse(f"<{HEAD}> g(float[2] x) => (bool[2] y) {{ y = Less(x, limit) }}", array("limit", 2)))
    body = "{ h = Clip(x, , hi) y = Mul(h, half) }"
    model = parse(f"<{HEAD}> g(float[2] x) => (float[2] y) {body}", array("hi"), array("half"))
    formula, constant = "a number of a formula", "a constant of the program"
    reasons = {
        "a/mul/y:0": formula,
        "helper.constant.2": formula,
        "dpa_scale_0": formula,
        "ConstantFolding/a/truediv_recip:0": formula,
        "a/rescaling/Cast_1:0": formula,
        "/a/Constant_1_output_0": constant,
    }
    for name, why in reasons.items():  # TensorFlow's; Paddle's; jax2onnx's; PyTorch's after ONNX Runtime's optimizer
        model.graph.initializer[1].name = model.graph.node[1].input[1] = name
        with pytest.warns(UserWarning, match=rf"hi: the limit of a Clip; {name}: {why}") as told:
            popart.to_jax(model)
        assert told[0].filename == __file__
    gates = (
        array("w", 1, 8, 2),
        array("r", 1, 8, 2),
        onnx.numpy_helper.from_array(np.zeros((1, 3, 2), np.float32), "h0"),
    )
    text = f"<{HEAD}> g(float[4,3,2] x) => (float[4,1,3,2] y) {{ y = LSTM<hidden_size=2>(x, w, r, , , h0, h0) }}"
    assert popart.to_jax(parse(text, *gates))[0].choice.frozen == {"h0": "the zeros that a recurrent layer starts from"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        popart.to_jax(MLP)


def test_parameters_that_do_not_fit_are_named() -> None:
    fn, params = popart.to_jax(MLP)
    x = np.zeros((1, 3), np.float32)
    with pytest.raises(popart.popart_exception, match=r"missing \['w1'\], unknown \['w9'\]"):
        fn({"w9" if n == "w1" else n: p for n, p in params.items()}, x)
    with pytest.raises(popart.popart_exception, match=r"'w1' has shape \[4, 3\]; the model has \[3, 4\]"):
        fn({**params, "w1": params["w1"].T}, x)


def test_merged_initializers_are_told_apart_again() -> None:
    model = parse(
        f"<{HEAD}> g(float[N,4] x) => (float[N,4] y) {{ [first] a = Mul(x, s) [second] b = Mul(a, s) "
        "t = Identity(s) y = Mul(b, t) }",
        array("s", 4),
    )
    x = np.ones((1, 4), np.float32)
    fn, params = popart.to_jax(model)
    assert set(params) == {"s"}
    apart, each = popart.to_jax(model, split=True)
    assert set(each) == {"s", "s@second", "t"}
    np.testing.assert_allclose(apart(each, x)["y"], fn(params, x)["y"], rtol=1e-6)
    moved = {**each, "t": each["t"] * 2}
    np.testing.assert_allclose(apart(moved, x)["y"], 2 * fn(params, x)["y"], rtol=1e-6)
    with pytest.raises(popart.popart_exception, match="'nothing' fits no shared initializer"):
        popart.to_jax(model, split="nothing")


@pytest.mark.parametrize(
    ("end", "rows"),
    [
        ("i = Cast<to = 7>(share)", 0),
        ("t = Mul(share, six) i = Cast<to = 7>(t)", 3),
        ("n = Shape<start = 0, end = 1>(x) f = Cast<to = 1>(n) t = Mul(f, share) r = Floor(t) i = Cast<to = 7>(r)", 4),
    ],
)
def test_numbers_that_end_in_sizes_are_no_parameters(end: str, rows: int) -> None:
    """They must be known where the shapes are, under `jit` and beside fixed weights too."""
    text = f"<{HEAD}> g(float[8,2] x) => (float[N,2] y) {{ {end} a = Slice(x, zero, i) y = Mul(a, w) }}"
    numbers = {"share": np.float32([0.5]), "six": np.float32([6]), "zero": np.array([0])}
    used = [onnx.numpy_helper.from_array(x, name) for name, x in numbers.items() if name in end or name == "zero"]
    fn, params = popart.to_jax(parse(text, array("w", 2), *used))
    assert list(params) == ["w"]
    x = RNG.normal(size=(8, 2)).astype(np.float32)
    want = x[:rows] * params["w"]
    for found in (fn(params, x), jax.jit(fn)(params, x), fn.with_weights(params)(x)):
        np.testing.assert_allclose(found["y"], want, rtol=1e-6)


def test_what_ends_in_labels_stays_a_parameter() -> None:
    text = f"<{HEAD}> g(float[N,2] x) => (int64[N,1] y) {{ a = Mul(x, w) b = Add(a, c) y = ArgMax<axis = 1>(b) }}"
    assert set(popart.to_jax(parse(text, array("w", 2), array("c", 2)))[1]) == {"w", "c"}


@pytest.mark.parametrize("producer", ["skl2onnx", "OnnxMLTools"])
def test_whole_numbers_beside_what_was_fitted_are_no_parameters(producer: str) -> None:
    """A converter writes ``(1 - x) ** 2 * scale + shift / 2`` with all five numbers as tensors of one element."""
    numbers = {"one": 1, "square": 2, "scale": 0.3, "shift": -0.7, "half": 0.5}
    weights = [onnx.numpy_helper.from_array(np.float32([x]), name) for name, x in numbers.items()]
    steps = "a = Sub(one, x) b = Pow(a, square) c = Mul(b, scale) d = Mul(shift, half) y = Add(c, d)"
    model = parse(f"<{HEAD}> g(float[N,2] x) => (float[N,2] y) {{ {steps} }}", *weights)
    assert set(popart.to_jax(model)[1]) == numbers.keys()  # a network's own may start at a whole number
    model.producer_name = producer
    assert set(popart.to_jax(model)[1]) == {"scale", "shift"}


def test_half_precision_names_what_stays() -> None:
    model = parse(
        f"<{HEAD}> g(float[N,3,4,4] x) => (float[N,2,8,8] y) {{ a = Conv(x, w) "
        'y = Resize<mode = "nearest">(a, , scales) }',
        array("w", 2, 3, 1, 1), onnx.numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"),
    )  # fmt: skip
    fn, params = popart.to_jax(model, dtype="bfloat16")
    assert params["w"].dtype == "bfloat16"
    assert "scales" in fn.float32
    x = RNG.normal(size=(1, 3, 4, 4)).astype(np.float32)
    full, weights = popart.to_jax(model)
    y = fn(params, x)["y"]
    assert y.dtype == "bfloat16"
    np.testing.assert_allclose(np.asarray(y, np.float32), full(weights, x)["y"], rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_half_precision_follows_the_arrays_of_a_call(kind: str) -> None:
    """As hand-written JAX: all in one half precision is computed in that, anything else is promoted to float32."""
    fn, params = popart.to_jax(MLP)
    half, wanted = popart.to_jax(MLP, dtype=kind)
    x = RNG.normal(size=(5, 3)).astype(np.float32)
    halved, less = jax.tree.map(lambda p: p.astype(kind), (params, x))
    want = half(wanted, less)["y"]
    assert not np.array_equal(want.astype(np.float32), fn(params, x)["y"])  # so it can be told which one was computed
    for found in (fn(halved, less), jax.jit(fn)(halved, less), fn.jit(halved, less), fn.with_weights(halved)(less)):
        assert found["y"].dtype == kind
        # kernels of GPUs round less often
        again = 0 if jax.default_backend() == "cpu" else 4 * jax.numpy.finfo(kind).eps
        np.testing.assert_allclose(found["y"].astype(np.float32), want.astype(np.float32), rtol=0, atol=again)
    rounded = jax.tree.map(lambda p: p.astype(np.float32), halved)
    np.testing.assert_array_equal(fn(halved, x)["y"], fn(rounded, x)["y"])
    np.testing.assert_array_equal(fn.jit(params, less)["y"], fn(params, less.astype(np.float32))["y"])
    slopes = jax.grad(lambda p: fn(jax.tree.map(lambda q: q.astype(kind), p), less)["y"].sum().astype(np.float32))
    assert {g.dtype.name for g in slopes(params).values()} == {"float32"}


def test_running_statistics_stay_float32_where_parameters_are_in_half_precision() -> None:
    text = f"<{HEAD}> g(float[N,2] x) => (float[N,2] y) {{ a = Mul(x, w) y = BatchNormalization(a, s, b, m, v) }}"
    fn, params = popart.to_jax(parse(text, *(array(n, 2) for n in "wsbmv")))
    x = RNG.normal(size=(6, 2)).astype(np.float32)
    halved, less = jax.tree.map(lambda p: p.astype("bfloat16"), (params, x))
    found, state = fn(halved, less, state=fn.initial_state, training=True)
    want, wanted = fn(params, x, state=fn.initial_state, training=True)
    assert found["y"].dtype == "bfloat16"
    assert {s.dtype.name for s in state.values()} == {"float32"}
    np.testing.assert_allclose(found["y"].astype(np.float32), want["y"], rtol=5e-2, atol=5e-2)
    for name in state:
        np.testing.assert_allclose(state[name], wanted[name], rtol=2e-2, atol=2e-2)


def test_float8_parameters_are_stored_only() -> None:
    fn, params = popart.to_jax(MLP, dtype="float8_e4m3fn")
    assert {p.dtype.itemsize for p in params.values()} == {1}
    assert fn(params, np.ones((1, 3), np.float32))["y"].dtype == np.float32
    with pytest.raises(popart.popart_exception, match="floating point numbers, got int8"):
        popart.to_jax(MLP, dtype=np.int8)


def test_one_input_may_be_the_array_itself_and_a_function_shows_itself_briefly() -> None:
    fn, params = popart.to_jax(MLP)
    x = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(fn(params, x)["y"], fn(params, {"x": x})["y"])
    assert repr(fn) == "<OnnxFunction 'g': x -> y; 4 parameters with 26 numbers>"
    assert "<td>x</td><td>FLOAT[N, 3]</td>" in fn._repr_html_()
    assert fn.inputs["x"].shape == ("N", 3)
    assert fn.outputs["y"].dtype == "FLOAT"


def test_a_weight_that_a_body_hands_out_as_it_is() -> None:
    """PyTorch writes such loops for embedding bags."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {
      three = Constant<value_int=3>() on = Constant<value=bool {1}>()
      ws, vs = Loop(three, on) <body = b (int64 i, bool c) => (bool d, float[2] w, float[2] v)
        <float[2] w = {1.0, 2.0}> { d = Identity(c) v = Mul(w, x) }>
      first = Constant<value_ints=[0]>() sums = Add(ws, vs) y = ReduceSum<keepdims=0>(sums, first) }""")
    fn, params = popart.to_jax(model)
    x = np.array([3.0, 4.0], np.float32)
    (w,) = params.values()
    np.testing.assert_allclose(fn(params, x)["y"], 3 * (w + w * x), rtol=1e-6)
    (slope,) = jax.grad(lambda p: fn(p, x)["y"].sum())(params).values()
    np.testing.assert_allclose(slope, 3 * (1 + x), rtol=1e-6)


@pytest.mark.parametrize("from_file", [True, False])
def test_donated_parameters_leave_the_model_as_it_was(tmp_path: Path, from_file: bool) -> None:
    """Weights may share memory with the model; a step that writes over its arguments must not write there."""
    weight = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N,256] x) => (float[N,256] y) { y = MatMul(x, w) }'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="data", size_threshold=0)
    source = tmp_path / "m.onnx" if from_file else onnx.load(tmp_path / "m.onnx")
    _, params = popart.to_jax(source)
    step = jax.jit(lambda p: jax.tree.map(lambda x: x * 0 + 7, p), donate_argnums=0)
    for _ in range(3):
        params = step(params)
    assert float(params["w"][3, 4]) == 7
    assert (tmp_path / "data").read_bytes() == weight.tobytes()
    _, again = popart.to_jax(source)
    np.testing.assert_array_equal(again["w"], weight)


def test_weights_in_a_file_may_be_looked_at_before_and_after(tmp_path: Path) -> None:
    """An array that somebody holds keeps its file mapped; the tensor can't be released then."""
    weight = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="data", size_threshold=0)
    read = ir.load(tmp_path / "m.onnx")
    tensor = read.graph.initializers["w"].const_value
    assert tensor is not None
    held = tensor.numpy()[1:]
    fn, params = popart.to_jax(read)
    np.testing.assert_array_equal(params["w"], weight)
    np.testing.assert_array_equal(held, weight[1:])
    np.testing.assert_array_equal(tensor.numpy(), weight)
    np.testing.assert_allclose(fn(params, np.ones(4, np.float32))["y"], weight.sum(0), rtol=1e-5)
    (tmp_path / "data").write_bytes(weight.tobytes()[:60])
    with pytest.raises(popart.popart_exception, match=r"has 64 bytes, of which '.*data' has 60 now"):
        popart.to_jax(read)


@pytest.mark.parametrize("kind", ["float", "float16", "bfloat16", "double"])
def test_weights_of_any_type_are_read_from_their_place_in_a_file(tmp_path: Path, kind: str) -> None:
    text = f"<{HEAD}> g ({kind}[3,5] x) => ({kind}[3,5] y) {{ a = Add(x, v) y = Mul(a, w) }}"
    model = onnx.parser.parse_model(text)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    values = {n: np.random.default_rng(i).normal(size=(3, 5)).astype(dtype) for i, n in enumerate("vw")}
    for name, value in values.items():
        model.graph.initializer.append(
            onnx.helper.make_tensor(name, onnx.helper.np_dtype_to_tensor_dtype(dtype), (3, 5), value)
        )
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="data", size_threshold=0)
    _, params = popart.to_jax(tmp_path / "m.onnx")
    for name, value in values.items():
        assert params[name].dtype == dtype
        np.testing.assert_array_equal(np.asarray(params[name]), value)


def test_weights_that_a_sequence_splits_are_parameters() -> None:
    """As PyTorch's exporter writes the bias of three projections, without optimisation."""
    model = onnx.parser.parse_model(
        f"<{HEAD}> g (float[2] x) => (float[2] y) {{ n = Constant<value = int64 {{2}}>() "
        "s = SplitToSequence(bias, n) i = Constant<value = int64 {1}>() b = SequenceAt(s, i) y = Add(x, b) }"
    )
    model.graph.initializer.append(array("bias", 6))
    fn, params = popart.to_jax(model)
    slope = jax.grad(lambda p: fn(p, np.ones(2, np.float32))["y"].sum())(params)
    np.testing.assert_array_equal(slope["bias"], [0, 0, 1, 1, 0, 0])
