"""Identity recognition and removal."""

from __future__ import annotations

import pytest

import patterns
from popart_jax.ops import facts

from .helpers import assert_same_outputs, check_declines, check_fires, model, op_types, set_shapes, sweep_one

CHANGES_NOTHING = {
    "Cast": "f (float[2,3] x) => (float[2,3] y) { y = Cast<to=1>(x) }",
    "Reshape": "f (float[2,3] x) => (float[2,3] y) <int64[2] s = {0, 3}> { y = Reshape(x, s) }",
    "Flatten": "f (float[2,3] x) => (float[2,3] y) { y = Flatten<axis=1>(x) }",
    "Transpose": "f (float[2,3] x) => (float[2,3] y) { y = Transpose<perm=[0,1]>(x) }",
    "Pad": "f (float[2,3] x) => (float[2,3] y) <int64[4] p = {0, 0, 0, 0}> { y = Pad(x, p) }",
    "Sum": "f (float[2,3] x) => (float[2,3] y) { y = Sum(x) }",
    "Concat": "f (float[2,3] x) => (float[2,3] y) { y = Concat<axis=0>(x) }",
    "ReduceSum": "f (float[1,3] x) => (float[1,3] y) { y = ReduceSum<axes=[0], keepdims=1>(x) }",
    "Dropout": "f (float[2,3] x) => (float[2,3] y) { y = Dropout<ratio=0.0>(x) }",
    "Tile": "f (float[2,3] x) => (float[2,3] y) <int64[2] r = {1, 1}> { y = Tile(x, r) }",
    "Slice": "f (float[2,3] x) => (float[2,3] y) <int64[1] a = {0}, int64[1] b = {9}> { y = Slice(x, a, b) }",
    "Scale": "f (float[2,3] x) => (float[2,3] y) { y = ai.graphcore.Scale<scale=1.0>(x) }",
    "ShapedDropout": "f (float[2,3] x) => (float[2,3] y) { y = ai.graphcore.ShapedDropout<ratio=0.0,shape=[2,1]>(x) }",
    "Subsample": "f (float[2,3] x) => (float[2,3] y) { y = ai.graphcore.Subsample<strides=[1,1]>(x) }",
}

NEAR_MISSES = {
    "Cast": "f (float[2,3] x) => (float16[2,3] y) { y = Cast<to=10>(x) }",
    "Reshape": "f (float[2,3] x) => (float[3,2] y) <int64[2] s = {3, 2}> { y = Reshape(x, s) }",
    "Transpose": "f (float[2,2] x) => (float[2,2] y) { y = Transpose<perm=[1,0]>(x) }",
    "Pad": "f (float[2,3] x) => (float[3,3] y) <int64[4] p = {0, 0, 1, 0}> { y = Pad(x, p) }",
    "Sum": "f (float[2,3] x, float[2,3] z) => (float[2,3] y) { y = Sum(x, z) }",
    "ReduceSum": "f (float[1,3] x) => (float[3] y) { y = ReduceSum<axes=[0], keepdims=0>(x) }",
    "Dropout": "f (float[2,3] x) => (float[2,3] y, bool[2,3] mask) { y, mask = Dropout<ratio=0.0>(x) }",
    "ShapedDropout": "f (float[2,3] x) => (float[2,3] y) { y = ai.graphcore.ShapedDropout<ratio=0.5,shape=[2,1]>(x) }",
    "Slice": "f (float[2] x) => "
    "(float[2] y) <int64[1] a = {-1}, int64[1] b = {-9}, int64[1] c = {0}, int64[1] d = {-1}>"
    " { y = Slice(x, a, b, c, d) }",
    "Scale": "f (float[2,3] x) => (float[2,3] y) { y = ai.graphcore.Scale<scale=2.0>(x) }",
}


@pytest.mark.parametrize("op", CHANGES_NOTHING)
def test_op_to_identity(op):
    check_fires(model(CHANGES_NOTHING[op], opset=11), "OpToIdentity", expect=["Identity"])


@pytest.mark.parametrize("op", NEAR_MISSES)
def test_op_to_identity_declines(op):
    check_declines(model(NEAR_MISSES[op], opset=11), "OpToIdentity")


def test_dropout_of_training_stays():
    m = model("f (float[2,3] x) => (float[2,3] y) { y = Dropout<ratio=0.5>(x) }")
    check_declines(m, "OpToIdentity", mode="training")
    check_fires(m, "OpToIdentity", expect=["Identity"], mode="inference")


def test_identity_loss_of_scalar():
    m = model('f (float x) => (float y) { y = ai.graphcore.IdentityLoss<reduction="Mean">(x) }')
    assert sweep_one(m, "OpToIdentity").counts() == {"OpToIdentity": 1}
    m = model('f (float[2] x) => (float y) { y = ai.graphcore.IdentityLoss<reduction="Mean">(x) }')
    assert not sweep_one(m, "OpToIdentity").fired


def test_sole_reader_takes_the_name():
    m = model("f (float[2] x) => (float[2] y) { a = Neg(x) y = Identity(a) }")
    after = check_fires(m, "PreUniRepl", expect=["Neg"])
    assert after.graph.outputs[0].name == "y"


@pytest.mark.parametrize("body", ["a = Neg(x) y = Identity(a) z = Relu(a)", "a = Neg(x) y = Identity(a) z = Relu(x)"])
def test_sole_reader_declines(body):
    m = model(f"f (float[2] x) => (float[2] y, float[2] z) {{ {body} }}")
    log = sweep_one(m, "PreUniRepl", protected=("a",))
    assert not log.fired
    assert "must keep its name" in log.declined[0].outcome


def test_copy_is_removed():
    m = model("f (float[2] x) => (float[2] y, float[2] z) { a = Identity(x) y = Neg(a) z = Relu(a) }")
    check_fires(m, "PostNRepl", expect=["Neg", "Relu"])


def test_copy_declines_protected():
    m = model("f (float[2] x) => (float[2] y) { a = Identity(x) y = Neg(a) }")
    log = sweep_one(m, "PostNRepl", protected=("a",))
    assert "'a' must keep its name" in log.declined[0].outcome
    assert op_types(m) == ["Identity", "Neg"]


def test_checkpoint_identity_stays():
    m = model(
        "f (float[2] x) => (float[2] y) "
        "{ b = Neg(x) a = Identity<__recompute_output_in_backward_pass=1>(b) y = Neg(a) }"
    )
    check_declines(m, "PostNRepl", "PreUniRepl", why="checkpoint")


def test_excluded_node_stays():
    m = model('f (float[2] x) => (float[2] y) { a = Identity<__exclude_patterns=["PostNRepl"]>(x) y = Neg(a) }')
    check_declines(m, "PostNRepl", why="excludePatterns")


def test_inside_subgraph():
    text = """f (bool c, float[2] x) => (float[2] y) {
        y = If (c) <then_branch = t () => (float[2] a) { b = Identity(x) a = Neg(b) },
                    else_branch = e () => (float[2] a) { b = Neg(x) a = Identity(b) }>
    }"""
    m = model(text)
    before = m.clone()
    assert sweep_one(m, "PostNRepl", "PreUniRepl").counts() == {"PostNRepl": 1, "PreUniRepl": 1}
    assert_same_outputs(before, m)


@pytest.mark.parametrize(
    ("perms", "shape", "expect"),
    [
        (((1, 0, 2), (1, 0, 2)), None, ["Identity"]),
        (((2, 0, 1), (1, 2, 0)), None, ["Identity"]),
        (((1, 0, 2), (1, 2, 0)), (3, 2, 2, 2), None),
        (((0, 2, 1), (0, 2, 3, 1)), (2, 4, 3, 1), ["Reshape"]),
    ],
)
def test_transposes_cancel(perms, shape, expect):
    first, second = (str(list(p)) for p in perms)
    middle = "b = Identity(a)" if shape is None else f"b = ai.graphcore.Reshape<shape={list(shape)}>(a)"
    m = model(
        f"f (float[2,3,4] x) => (float[N,M,K] y) "
        f"{{ a = Transpose<perm={first}>(x) {middle} y = Transpose<perm={second}>(b) }}"
    )
    mid = tuple((2, 3, 4)[p] for p in perms[0])
    last = shape or mid
    if shape and len(perms[1]) != len(shape):
        return
    set_shapes(m, a=mid, b=last, y=tuple(last[p] for p in perms[1]))
    check_fires(m, "TransposeToIdentityOrReshapePattern", expect=expect)


def test_transposes_decline():
    m = model(
        "f (float[2,3,4] x) => (float[N,M,K] y) { a = Transpose<perm=[1,0,2]>(x) y = Transpose<perm=[0,2,1]>(a) }"
    )
    set_shapes(m, a=(3, 2, 4), y=(3, 4, 2))
    check_declines(m, "TransposeToIdentityOrReshapePattern", why="do not undo")


def test_views_collapse():
    m = model(
        "f (float[2,3] x) => (float[6] y) "
        "{ a = ai.graphcore.Reshape<shape=[3,2]>(x) y = ai.graphcore.Reshape<shape=[6]>(a) }"
    )
    check_fires(m, "ViewSimplifyPattern", expect=["Reshape"])


@pytest.mark.parametrize(
    "views", ["Flatten<axis=2>(x) {}Reshape<shape=[3,4]>(a)", "{}Reshape<shape=[3,4]>(x) Flatten(a)"]
)
def test_a_flatten_is_a_view_like_a_reshape(views):
    first, second = views.format("ai.graphcore.").split(" ")
    m = model(f"f (float[2,3,2] x) => (float[3,4] y) {{ a = {first} y = {second} }}")
    check_fires(m, "ViewSimplifyPattern", expect=["Reshape"])


@pytest.mark.parametrize(
    ("last", "shape", "left"),
    [("ai.graphcore.Reshape<shape=[6]>(a)", "6", "Reshape"), ("Identity(a)", "2,3", "Identity")],
)
def test_an_identity_before_a_view_collapses_too(last, shape, left):
    m = model(f"f (float[2,3] x) => (float[{shape}] y) {{ a = Identity(x) y = {last} }}")
    check_fires(m, "ViewSimplifyPattern", expect=[left])


def test_views_around_transposes_that_cancel_collapse_as_well():
    """What only the removed operators read no longer counts as a reader."""
    m = model(
        "f (float[6] x) => (float[6] y) { a = ai.graphcore.Reshape<shape=[2,3]>(x) b = Transpose<perm=[1,0]>(a) "
        "c = Transpose<perm=[1,0]>(b) y = ai.graphcore.Reshape<shape=[6]>(c) }"
    )
    set_shapes(m, a=(2, 3), b=(3, 2), c=(2, 3))
    check_fires(m, "TransposeToIdentityOrReshapePattern", "ViewSimplifyPattern", "PostNRepl", expect=["Reshape"])


def test_views_decline_second_reader():
    m = model(
        "f (float[2,3] x) => (float[6] y, float[3,2] z) "
        "{ a = ai.graphcore.Reshape<shape=[3,2]>(x) y = ai.graphcore.Reshape<shape=[6]>(a) z = Neg(a) }"
    )
    check_declines(m, "ViewSimplifyPattern", why="needed")


def test_views_decline_another_place():
    m = model(
        "f (float[2,3] x) => (float[6] y) { a = ai.graphcore.Reshape<shape=[3,2], __pipeline_stage=0>(x) "
        "y = ai.graphcore.Reshape<shape=[6], __pipeline_stage=1>(a) }"
    )
    check_declines(m, "ViewSimplifyPattern", why="one place to another")


def test_gradient_anchor_protects_the_forward_tensor():
    m = model("f (float[2] x) => (float[2] y) { a = Neg(x) b = Identity(a) y = Relu(b) }")
    patterns.apply(
        m, patterns.at_level(), facts, mode="training", protected=frozenset({"Gradient___b", "Gradient___a"})
    )
    assert op_types(m) == ["Neg", "Identity", "Relu"]
