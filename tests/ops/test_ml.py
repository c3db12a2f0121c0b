# ruff: noqa: E501 - tables read better unwrapped
"""ai.onnx.ml against ONNX Runtime, on models trained here by scikit-learn and written node by node."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from sklearn import svm, tree
from sklearn.datasets import make_classification

from popart_jax import backend, popart_exception, to_jax
from popart_jax.ops.ml.trees import by_node_ids

RNG = np.random.default_rng(5)
X = RNG.normal(size=(40, 6)).astype(np.float32)
FEATURES, LABELS = make_classification(120, 6, n_informative=4, n_classes=3, random_state=2)


def model(op: str, x: np.ndarray, outputs: int = 1, at: int = 3, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(op, ["x"], [f"y{i}" for i in range(outputs)], domain="ai.onnx.ml", **attributes)
    kind = TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node], "ml", [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", at)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def check(op: str, x: np.ndarray, outputs: int = 1, at: int = 3, **attributes: Any) -> None:
    proto = model(op, x, outputs, at, **attributes)
    wanted = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    for ours, theirs in zip(backend.prepare(proto).run({"x": x}), wanted, strict=True):
        assert np.asarray(ours).dtype.kind == np.asarray(theirs).dtype.kind
        if np.asarray(theirs).dtype.kind in "OUS":
            assert np.asarray(ours).tolist() == theirs.tolist()
        else:
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


def nodes(trees: list[Any]) -> dict[str, Any]:
    """Attributes of the older tree operators from scikit-learn trees; modes and missing values vary."""
    out: dict[str, list] = {k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
                                            "missing_value_tracks_true")}  # fmt: skip
    for t, grown in enumerate(trees):
        for n in range(grown.node_count):
            leaf = grown.children_left[n] < 0
            row = (t, n, max(grown.feature[n], 0), "LEAF" if leaf else ("BRANCH_LEQ", "BRANCH_LT")[n % 2], float(grown.threshold[n]),
                   max(grown.children_left[n], 0), max(grown.children_right[n], 0), n % 2)  # fmt: skip
            for column, value in zip(out.values(), row, strict=True):
                column.append(value)
    return {f"nodes_{k}": [int(v) if isinstance(v, np.integer) else v for v in values] for k, values in out.items()}


def leaves(trees: list[Any]) -> list[tuple[int, int, np.ndarray]]:
    return [
        (t, n, g.value[n].ravel()) for t, g in enumerate(trees) for n in range(g.node_count) if g.children_left[n] < 0
    ]


def grown(kind: Any, target: Any, count: int = 3) -> list[Any]:
    return [kind(max_depth=4, random_state=s).fit(FEATURES, target).tree_ for s in range(count)]


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_regressor(aggregate: str) -> None:
    trees = grown(tree.DecisionTreeRegressor, FEATURES @ np.arange(6.0))
    rows = leaves(trees)
    x = X.copy()
    x[::7, 2] = np.nan
    check("TreeEnsembleRegressor", x, n_targets=1, aggregate_function=aggregate, base_values=[0.25], **nodes(trees),
          target_treeids=[r[0] for r in rows], target_nodeids=[r[1] for r in rows], target_ids=[0] * len(rows),
          target_weights=[float(r[2][0]) for r in rows])  # fmt: skip


@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_leaves_with_several_weights_for_one_target(aggregate: str, targets: int) -> None:
    trees = grown(tree.DecisionTreeRegressor, FEATURES @ np.arange(6.0))
    rows = [(t, n, i % targets, float(w[0]) + i) for t, n, w in leaves(trees) for i in range(4)]
    names, ids, target, weights = (list(c) for c in zip(*rows, strict=True))
    check("TreeEnsembleRegressor", X, n_targets=targets, aggregate_function=aggregate, **nodes(trees),
          target_treeids=names, target_nodeids=ids, target_ids=target, target_weights=weights)  # fmt: skip


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_tree_classifier(transform: str) -> None:
    trees = grown(tree.DecisionTreeClassifier, LABELS)
    rows = [(t, n, c, float(w)) for t, n, weights in leaves(trees) for c, w in enumerate(weights)]
    names, ids, classes, weights = (list(c) for c in zip(*rows, strict=True))
    check("TreeEnsembleClassifier", X, 2, **nodes(trees), class_treeids=names, class_nodeids=ids, class_ids=classes,
          class_weights=weights, classlabels_strings=["a", "b", "c"], post_transform=transform)  # fmt: skip


@pytest.mark.parametrize("weighted", [0, 1])
@pytest.mark.parametrize(("shift", "transform"), [(0.0, "NONE"), (0.4, "NONE"), (0.4, "LOGISTIC")])
def test_tree_classifier_with_weights_of_one_class(weighted: int, shift: float, transform: str) -> None:
    trees = grown(tree.DecisionTreeClassifier, LABELS > 0, 1)
    rows = leaves(trees)
    check("TreeEnsembleClassifier", X, 2, **nodes(trees), class_treeids=[r[0] for r in rows], class_nodeids=[r[1] for r in rows],
          class_ids=[weighted] * len(rows), class_weights=[float(r[2][1] / r[2].sum()) - shift for r in rows],
          classlabels_int64s=[5, 8], post_transform=transform)  # fmt: skip


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "sigmoid"])
@pytest.mark.parametrize("probability", [False, True])
def test_svm_classifier(kernel: str, probability: bool) -> None:
    fitted = svm.SVC(kernel=kernel, gamma=0.2, coef0=0.5, degree=3).fit(FEATURES, LABELS)
    pairs = len(fitted.intercept_)
    fit = {"prob_a": [-1.0, -1.5, -0.5][:pairs], "prob_b": [0.1, -0.2, 0.0][:pairs]} if probability else {}
    check("SVMClassifier", X, 2, coefficients=fitted.dual_coef_.ravel().tolist(), kernel_params=[0.2, 0.5, 3.0],
          kernel_type=kernel.upper(), rho=fitted.intercept_.tolist(), support_vectors=fitted.support_vectors_.ravel().tolist(),
          vectors_per_class=fitted.n_support_.tolist(), classlabels_ints=[0, 1, 2], **fit)  # fmt: skip


def test_svm_regressor() -> None:
    fitted = svm.SVR(gamma=0.3).fit(FEATURES, FEATURES[:, 0])
    check("SVMRegressor", X, coefficients=fitted.dual_coef_.ravel().tolist(), kernel_params=[0.3, 0.0, 3.0], kernel_type="RBF",
          rho=fitted.intercept_.tolist(), support_vectors=fitted.support_vectors_.ravel().tolist(),
          n_supports=len(fitted.support_))  # fmt: skip


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_classifier(transform: str, classes: int) -> None:
    check("LinearClassifier", X, 2, coefficients=RNG.normal(size=6 * classes).tolist(), intercepts=RNG.normal(size=classes).tolist(),
          classlabels_strings=list("abc")[:classes], post_transform=transform)  # fmt: skip


def test_intercepts_say_how_many_classes_a_linear_classifier_has() -> None:
    """ONNX Runtime's own example, logreg_iris.onnx, has coefficients that nothing reads."""
    intercepts = RNG.normal(size=3).tolist()
    check(
        "LinearClassifier",
        X,
        2,
        coefficients=RNG.normal(size=36).tolist(),
        intercepts=intercepts,
        classlabels_ints=[0, 1, 2],
    )
    short = model("LinearClassifier", X, 2, coefficients=[1.0] * 17, intercepts=intercepts, classlabels_ints=[0, 1, 2])
    with pytest.raises(
        popart_exception, match="3 intercepts and rows of 6 numbers need 18 coefficients; the node has 17"
    ):
        backend.prepare(short).run({"x": X})


def test_a_forest_of_many_trees_is_made_in_a_moment() -> None:
    """Its time once grew with trees times nodes: minutes for these."""
    count = 40_000
    names = {"treeids": np.repeat(np.arange(count), 3), "nodeids": np.tile([0, 1, 2], count)}
    names |= {"truenodeids": np.tile([1, 0, 0], count), "falsenodeids": np.tile([2, 0, 0], count)}
    rest = {"modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * count, "featureids": [0] * 3 * count, "values": [0.5] * 3 * count}
    given = {**names, **rest, "missing": (), "values_as_tensor": None}
    leaf = names["treeids"], names["nodeids"], [0] * 3 * count, np.ones(3 * count)
    started = time.process_time()
    forest = by_node_ids(given, leaf, 1)
    assert time.process_time() - started < 10
    assert forest.roots.tolist() == [*range(0, 3 * count, 3)]
    assert forest.yes[:3].tolist() == [1, 1, 2]


def test_linear_regressor() -> None:
    check("LinearRegressor", X, coefficients=RNG.normal(size=12).tolist(), intercepts=[0.5, -1.0], targets=2)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Scaler", {"offset": [0.5] * 6, "scale": [2.0] * 6}),
        ("Normalizer", {"norm": "L1"}),
        ("Normalizer", {"norm": "L2"}),
        ("Binarizer", {"threshold": 0.2}),
        ("Imputer", {"imputed_value_floats": [9.0], "replaced_value_float": float("nan")}),
    ],
)
def test_features(op: str, attributes: dict[str, Any]) -> None:
    x = X.copy()
    if op == "Imputer":
        x[3, 2] = np.nan
    check(op, x, **attributes)


def test_labels() -> None:
    texts = np.array([["b", "x"], ["a", "b"]], object)
    check("LabelEncoder", texts, keys_strings=["a", "b"], values_int64s=[4, 7], default_int64=-3)
    check(
        "LabelEncoder",
        np.array([1, 5, 2], np.int64),
        keys_int64s=[1, 2],
        values_strings=["one", "two"],
        default_string="?",
    )
    check("CategoryMapper", texts, cats_strings=["a", "b"], cats_int64s=[10, 20])
    check("OneHotEncoder", texts.reshape(-1), cats_strings=["a", "b", "c"])
    check("OneHotEncoder", np.array([3, 1, 3], np.int64), cats_int64s=[1, 2, 3])


def test_numbers_are_looked_up_inside_a_trace() -> None:
    x = np.array([[1.0, 7.0, np.nan, 5.0]], np.float32)
    proto = model("LabelEncoder", x, keys_floats=[1.0, 7.0, 1.0], values_floats=[4.0, 9.0, 3.0], default_float=-1.0)
    with pytest.warns(UserWarning, match="no trainable"):
        fn, params = to_jax(proto)
    for call in (fn, fn.jit):
        np.testing.assert_array_equal(next(iter(call(params, x).values())), [[3.0, 9.0, -1.0, -1.0]])
    keys = model("LabelEncoder", x, keys_floats=[1.0, np.nan], values_int64s=[1, 2])
    with pytest.warns(UserWarning, match="no trainable"):
        fn, params = to_jax(keys)
    for call in (fn, fn.jit):
        np.testing.assert_array_equal(next(iter(call(params, x).values())), [[1, -1, 2, -1]])
    whole = np.array([[2, 1, 5]])
    for proto, expected in (
        (model("LabelEncoder", whole, keys_int64s=[1, 2], values_int64s=[7, 9]), [[9, 7, -1]]),
        (model("OneHotEncoder", whole, cats_int64s=[1, 2], zeros=0), [[[0, 1], [1, 0], [0, 0]]]),
    ):
        with pytest.warns(UserWarning, match="no trainable"):
            fn, params = to_jax(proto)
        np.testing.assert_array_equal(next(iter(jax.jit(fn)(params, whole).values())), expected)
    texts = model("LabelEncoder", x, keys_floats=[1.0], values_strings=["one"])
    with pytest.warns(UserWarning, match="no trainable"):
        fn, params = to_jax(texts)
    with pytest.raises(popart_exception, match="it makes texts, which stay on the host; call the function outside jit"):
        fn.jit(params, x)


def test_dictionaries() -> None:
    scores = np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)
    (rows,) = backend.run_model(model("ZipMap", scores, classlabels_strings=["no", "yes"]), {"x": scores})
    assert rows == [{"no": 0.25, "yes": 0.75}, {"no": 0.5, "yes": 0.5}]
    given = model("DictVectorizer", scores, string_vocabulary=["yes", "maybe", "no"])
    (vector,) = backend.run_model(given, {"x": {"no": 2.0, "yes": 1.0}})
    assert vector.tolist() == [[1.0, 0.0, 2.0]]


LABELLED = """<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 1]> g(float[N,2] x) => (string[M] label, float[N,3] scores)
    <string[3] names = {"a", "bb", "c"}, int64[1] all = {-1}, float[2,3] w = {1.0, 0.0, -1.0, 0.5, 1.0, -0.5}>
    { y = MatMul(x, w) z = Softmax<axis = 1>(y) scores = Mul(z, z) best = ArgMax<axis = 1>(scores)
      %s label = Reshape(found, all) }"""


@pytest.mark.parametrize(
    "pick", ["found = ai.onnx.ml.ArrayFeatureExtractor(names, best)", "found = Gather(names, best)"]
)
def test_scores_are_computed_under_jit_where_labels_are_texts(pick: str) -> None:
    model = onnx.parser.parse_model(LABELLED % pick)
    fn, params = to_jax(model)
    x = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    label, scores = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    assert len(set(label)) > 1
    for _ in range(2):
        np.testing.assert_array_equal(fn(params, x)["label"], label)
    for found in (jax.jit(fn)(params, x), fn.jit(params, x), fn.with_weights(params)(x)):
        np.testing.assert_allclose(found["scores"], scores, rtol=1e-5)
        with pytest.raises(popart_exception, match="outside jit, for texts"):
            np.asarray(found["label"])
    slope = jax.jit(jax.grad(lambda p: fn(p, x)["scores"][:, 0].sum()))(params)["w"]
    step = np.zeros((2, 3), np.float32)
    step[0, 1] = 1e-2
    moved = [fn({"w": params["w"] + way * step}, x)["scores"][:, 0].sum() for way in (1, -1)]
    np.testing.assert_allclose(slope[0, 1], (moved[0] - moved[1]) / 2e-2, rtol=1e-2)


def test_a_branch_to_a_node_that_is_not_there_names_the_node() -> None:
    tree_of_one = {"nodes_treeids": [3], "nodes_nodeids": [0], "nodes_featureids": [1], "nodes_values": [0.5],
                   "nodes_modes": ["BRANCH_LT"], "nodes_truenodeids": [4], "nodes_falsenodeids": [5], "target_ids": [0],
                   "target_nodeids": [0], "target_treeids": [3], "target_weights": [1.0], "n_targets": 1}  # fmt: skip
    fn, params = to_jax(model("TreeEnsembleRegressor", X, **tree_of_one))
    with pytest.raises(popart_exception, match=r"no node 4 in tree 3, whose nodes are \[0\]"):
        fn(params, X)
