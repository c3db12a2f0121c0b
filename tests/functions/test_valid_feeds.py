"""Feeds that are valid whatever their layout: by `to_jax`, `backend` and the command `run`; and those that are not."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import jax
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import popart_jax as popart
from popart_jax import backend
from popart_jax.__main__ import main

BASE = np.arange(24, dtype=np.float32).reshape(4, 6)
LAYOUTS = {
    "fortran": np.asfortranarray(BASE),
    "strided": np.arange(96, dtype=np.float32).reshape(8, 12)[::2, ::2],
    "reversed": BASE[::-1, ::-1],
    "broadcast": np.broadcast_to(np.float32(3), (4, 6)),
    "transposed": np.ascontiguousarray(BASE.T).T,
    "other byte order": BASE.astype(">f4"),
    "no rows": np.zeros((0, 6), np.float32),
    "unaligned": np.frombuffer(b"x" + BASE.tobytes(), np.float32, 24, 1).reshape(4, 6),
}

Run = Callable[[onnx.ModelProto, dict[str, np.ndarray]], list[np.ndarray]]


def model(text: str, **initializers: np.ndarray) -> onnx.ModelProto:
    """From ONNX's text form."""
    made = parser.parse_model('<ir_version: 9, opset_import: ["" : 17]>\n' + text)
    made.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in initializers.items())
    return made


def by_to_jax(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that nothing can be trained
        call, parameters = popart.to_jax(proto, trainable=[])
    return [np.asarray(x) for x in call(parameters, feeds).values()]


def by_backend(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return list(backend.run_model(proto, feeds))


both = pytest.mark.parametrize("run", [by_to_jax, by_backend])


@both
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(run: Run, layout: str) -> None:
    x = LAYOUTS[layout]
    (y,) = run(model("g (float[N,6] x) => (float[N,6] y) { y = Add(x, x) }"), {"x": x})
    np.testing.assert_array_equal(y, x * 2)


@both
def test_an_output_that_is_an_input(run: Run) -> None:
    np.testing.assert_array_equal(run(model("g (float[4,6] x) => (float[4,6] x) { }"), {"x": BASE}), [BASE])
    twice = model("g (float[4,6] x) => (float[4,6] x, float[4,6] y) { y = Add(x, x) }")
    np.testing.assert_array_equal(run(twice, {"x": BASE}), [BASE, 2 * BASE])


@both
def test_an_initializer_is_overridden_by_a_feed(run: Run) -> None:
    proto = model("g (float[4,6] x, float[4,6] w) => (float[4,6] y) { y = Add(x, w) }", w=np.ones((4, 6), np.float32))
    np.testing.assert_array_equal(run(proto, {"x": BASE})[0], BASE + 1)
    np.testing.assert_array_equal(run(proto, {"x": BASE, "w": BASE})[0], 2 * BASE)


@both
@pytest.mark.parametrize("x", [BASE[None], BASE[0], BASE[:, :5]])
def test_another_rank_or_size_is_refused(run: Run, x: np.ndarray) -> None:
    with pytest.raises(popart.popart_exception, match=r"Input 'x' has shape \[.*\]; the model declares \[N, 6\]"):
        run(model("g (float[N,6] x) => (float[N,6] y) { y = Add(x, x) }"), {"x": x})


@both
def test_an_attribute_that_no_translation_takes_is_refused(run: Run) -> None:
    """ONNX has no schema of the operator, so what its translation takes decides."""
    proto = model("g (float[4,6] x) => (float[4,6] y) { y = Relu(x) }")
    node = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft", foo=1)
    proto.graph.node[0].CopyFrom(node)
    proto.opset_import.add(domain="com.microsoft", version=1)
    with pytest.raises(popart.popart_exception, match=r"com\.microsoft\.Gelu has an unknown attribute 'foo'"):
        run(proto, {"x": BASE})
    proto.graph.node[0].attribute[0].name = "__foo"  # PopART's annotations are no attributes of the operator
    run(proto, {"x": BASE})


@pytest.mark.parametrize("layout", ["fortran", "other byte order"])
def test_the_command_takes_them_too(layout: str, tmp_path: Path) -> None:
    onnx.save(model("g (float[4,6] x) => (float[4,6] y) { y = Add(x, x) }"), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", LAYOUTS[layout])
    main(["run", str(tmp_path / "m.onnx"), "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", str(tmp_path / "out")])
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), BASE * 2)


def test_a_fixed_batch_takes_others_in_groups_of_its_size() -> None:
    """The refusal says so, and only where groups would help."""
    fixed = model("g (float[2,3] x) => (float[2,1] y) { y = MatMul(x, w) }", w=np.float32([[1], [2], [3]]))
    call, parameters = popart.to_jax(fixed)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    with pytest.raises(popart.popart_exception, match=r"for 2 at a time under jax\.vmap"):
        call(parameters, x)
    grouped = jax.vmap(lambda group: call(parameters, group)["y"])(x.reshape(2, 2, 3))
    np.testing.assert_array_equal(grouped.reshape(4, 1), x @ np.float32([[1], [2], [3]]))
    for other in (np.zeros((2, 4)), np.zeros((4, 4)), np.zeros(3)):
        with pytest.raises(popart.popart_exception, match="declares") as refused:
            call(parameters, other.astype(np.float32))
        assert "vmap" not in str(refused.value)


@pytest.mark.filterwarnings("ignore:The model has no trainable parameters")
def test_compiled_functions_take_one_array_as_the_function_does() -> None:
    fn, params = popart.to_jax(model("g (float[N,6] x) => (float[N,6] y) { y = Add(x, x) }"))
    kinds = [BASE.astype(">f4"), BASE.tolist(), MappingProxyType({"x": BASE}), np.ma.array(BASE)]
    for given, call in itertools.product(kinds, [fn, fn.jit]):
        np.testing.assert_array_equal(call(params, given)["y"], BASE * 2)
    for given in kinds:
        np.testing.assert_array_equal(fn.with_weights(params)(given)["y"], BASE * 2)


@pytest.mark.parametrize("nodes", [1, 8])
def test_parameters_and_state_of_the_other_byte_order_are_turned(nodes: int) -> None:
    """A graph of several nodes is compiled by a plain call too, and stays so."""
    chain = "".join(f"h{i} = Tanh(h{i - 1}) " for i in range(1, nodes))
    steps = f"h0 = Mul(x, w) {chain} y = BatchNormalization(h{nodes - 1}, w, w, m, v)"
    text = f"g (float[N,6] x) => (float[N,6] y) {{ {steps} }}"
    fn, params = popart.to_jax(model(text, w=BASE[0] + 1, m=BASE[1], v=BASE[2] + 1))
    want = fn(params, BASE)["y"]
    foreign, state = ({n: np.asarray(x).astype(">f4") for n, x in held.items()} for held in (params, fn.initial_state))
    for call in (fn, fn.jit):
        np.testing.assert_allclose(call(foreign, BASE)["y"], want, rtol=1e-6)
        found, after = call(params, BASE, state=state)
        np.testing.assert_allclose(found["y"], want, rtol=1e-6)
        assert after.keys() == state.keys()
    np.testing.assert_allclose(fn.with_weights(foreign)(BASE)["y"], want, rtol=1e-6)
    assert not fn._never_compiled
