"""Forward, gradient and update ops of training graphs."""

from __future__ import annotations

import re
from dataclasses import replace

import onnx_ir as ir
import pytest

import patterns
from popart_jax.errors import popart_exception
from popart_jax.ir_view import ClipGroup, IrFacts, OptimizerFacts, ViewOptions, may_be_unlowered, unlowered
from popart_jax.ops import operators

from .helpers import conv, counts, find, inference, mlp, ops, parse, sgd, tensor_ids, training, with_patterns


def test_op_format():
    op = find(mlp(), "ReluGrad")[0]
    assert op["inputs"][0] == {"name": op["inputs"][0]["name"], "shape": "[2 4]", "type": "FLOAT", "index": "0"}
    assert op["outputs"] == [{"name": "Gradient___c", "index": "0"}]
    assert {
        "recompute": "NO",
        "tileSet": "0",
        "__execution_context": "Normal",
        "scope": "",
        "recomputetype": "Checkpoint",
        "schedulePriority": "0.000000",
    }.items() <= op["attributes"].items()


def test_forward_in_inference():
    got = counts(inference(mlp(), "p"))
    assert got["MatMul"] == 2
    assert got["SoftmaxInplace"] == 0 or got["Softmax"] == 0
    assert {"ReluInplace", "AddLhsInplace"} <= got.keys()
    assert "Nll" not in got  # nothing needs it


def test_flatten_is_a_reshape():
    text = "f (float[2,3] x) => (float[1,6] y) { a = Exp(x) b = Flatten<axis=0>(a) y = Exp(b) }"
    got = counts(inference(training(text, "", {"a": (2, 3), "b": (1, 6), "y": (1, 6)}), "y"), "f")
    assert (got["ReshapeInplace"], got["Flatten"], got["FlattenInplace"]) == (1, 0, 0)


def test_matmuls_of_training():
    products = find(mlp(), "MatMul")
    passes = [op["attributes"]["fully_connected_pass"] for op in products]
    assert sorted(passes) == ["0", "0", "1", "2", "2"]  # x needs no gradient
    assert all(i["shape"].count(" ") == 2 for op in products for i in op["inputs"])
    right = [op for op in products if op["attributes"]["fully_connected_pass"] == "2"]
    assert all(op["inputs"][1]["name"].startswith("Gradient___") for op in right)


def test_fully_connected_pass_switched_off():
    products = find(mlp(fully_connected_pass=False), "MatMul")
    assert {op["attributes"]["fully_connected_pass"] for op in products} == {"-1"}


def test_loss_patterns():
    facts = mlp(anchors="l")
    assert "NlllWithSoftmaxGradDirect" in counts(facts)
    assert {"Nll", "SoftmaxGradDirect"} <= counts(with_patterns(facts, NlllWithSoftmaxGradDirect=False)).keys()
    neither = counts(with_patterns(facts, SoftmaxGradDirect=False))
    assert {"NllGrad", "SoftmaxGrad"} <= neither.keys()


def test_loss_patterns_keep_anchored_gradient():
    assert {"NllGrad", "SoftmaxGrad"} <= counts(mlp(anchors="Gradient___p")).keys()


SLICES = """BuilderGraph_1 (float[2,3] x, float[3,6] w) => ()
  <int64[1] s0={0}, int64[1] e0={%d}, int64[1] s1={-4}, int64[1] e1={4}, int64[1] s2={4}, int64[1] e2={99},
   int64[1] k={-1}>
{
  a = MatMul(x, w)
  p = Slice(a, s0, e0, k) q = Slice(a, s1, e1, k) r = Slice(a, s2, e2, k)
  m = Mul(p, q) n = Mul(m, r) l = ReduceSum<keepdims=0>(n)
}"""


def test_gradients_of_slices_that_tile_are_joined():
    types = {"a": (2, 6), "l": ()} | dict.fromkeys("pqrmn", (2, 2))
    (joined,) = find(training(SLICES % 2, "w", types), "ConcatInplace")
    assert [i["name"] for i in joined["inputs"]] == ["Gradient___p", "Gradient___q", "Gradient___r"]
    assert joined["attributes"]["axis"] == "1"
    gap = counts(training(SLICES % 1, "w", types | {"p": (2, 1)}))
    assert (gap["SliceGrad"], gap["Sum"]) == (3, 1)


def test_no_inplace():
    assert not [t for t in counts(with_patterns(mlp(), InPlace=False)) if "Inplace" in t]


def test_anchored_activation_is_not_overwritten():
    assert counts(mlp(anchors="c"))["ReluInplace"] == 0
    assert counts(mlp())["ReluInplace"] == 1


def test_unused_branch_is_pruned():
    assert counts(mlp())["Neg"] == 0
    text = "BuilderGraph_1 (float[3] x, float[3] w) => () { a = Mul(x, w) n = Neg(a) l = ReduceSum<keepdims=0>(a) }"
    facts = training(text, "w", {})
    assert counts(facts)["Neg"] == 0
    assert counts(training(text, "w", {}, anchors="n"))["Neg"] == 1


def test_convolution_gradients():
    got = counts(conv(anchors="l"))
    assert got["ConvWeightsGrad"] == 3
    assert got["Conv"] == 5  # three forward, two data gradients: x needs none
    assert got["ConvFlipWeights"] == 2
    assert got["AddBiasInplace"] == 1
    assert got["AddBiasBiasGrad"] == 1
    assert got["AddLhsInplace"] + got["Add"] + got["AddRhsInplace"] == 1  # v is read twice
    attributes = find(conv(), "ConvWeightsGrad")[0]["attributes"]
    assert attributes["__kernelShape"] == "[3 3]"
    assert attributes["__batchsize"] == "2"


def test_gradients_of_several_readers():
    text = (
        "BuilderGraph_1 (float[3] x, float[3] w) => () "
        "{ a = Mul(x, w) b = Sin(w) c = Exp(w) d = Sum(a, b, c) l = ReduceSum<keepdims=0>(d) }"
    )
    got = counts(training(text, "w", {}, anchors="l"))
    assert got["Sum"] == 2  # forward and gradient
    chain = counts(training(text, "w", {}, anchors="l", decompose_grad_sum=True))
    assert chain["Sum"] == 1
    assert sum(chain[t] for t in ("Add", "AddLhsInplace", "AddRhsInplace")) == 2


UPDATES = {
    "plain": (sgd(), {"SGD0VarUpdate": 3}, set()),
    "combined": (
        sgd("w b v"),
        {"Accumulate": 3, "SGD1VarUpdate": 3, "SGD1AcclUpdate": 3},
        {"Accl___w", "AcclOutOfAcclUpdate___b"},
    ),
    "separate": (sgd("w b v", mode="Separate"), {"Accumulate": 3, "SGD2VarUpdate": 3}, {"Accl1___v"}),
    "nesterov": (sgd("w b v", nesterov=frozenset("wbv")), {"SGD1Nesterov": 3}, set()),
    "Adam": (
        OptimizerFacts("Adam", "Adam"),
        {"Accumulate": 9, "AdamUpdater": 3, "AdamVarUpdate": 3},
        {"Step___w", "Accl1___w", "Accl2___w"},
    ),
    "AdamNoBias": (OptimizerFacts("Adam", "AdamNoBias"), {"Accumulate": 6, "AdamVarUpdate": 3}, {"Accl1___w"}),
    "Lamb": (OptimizerFacts("Adam", "Lamb"), {"LambSquare": 6, "AdamVarUpdate": 3}, {"LambR1Sq___w", "LambR2Sq___w"}),
    "RMSProp": (
        OptimizerFacts("Adaptive", "RMSProp"),
        {"Accumulate": 3, "ScaledVarUpdate": 3},
        {"AdaptiveUpdater___w"},
    ),
    "AdaDelta": (OptimizerFacts("Adaptive", "AdaDelta"), {"Accumulate": 6, "ScaledVarUpdate": 3}, {"Accl2___w"}),
}


@pytest.mark.parametrize("kind", UPDATES)
def test_updates(kind):
    optimizer, wanted, tensors = UPDATES[kind]
    facts = mlp(optimizer=optimizer)
    got = counts(facts)
    assert {t: got[t] for t in wanted} == wanted
    assert tensors | {"UpdatedVar___w", "Gradient___w"} <= tensor_ids(facts)


def test_accumulation_and_replicas():
    facts = mlp(accumulate=True, accumulation_factor=4, replicas=2)
    outer = {op["type"] for op in ops(facts) if op["attributes"]["__execution_context"] == "AccumulateOuterFragment"}
    assert {"SGD0VarUpdate", "AccumulatorZero"} <= outer
    assert "Accumulate" not in outer
    reduce = [op for op in ops(facts) if op["type"].startswith("ReplicatedAllReduce")]
    assert len(reduce) == 3
    assert reduce[0]["attributes"]["__collectiveReplicaGrouping"] == "[2 1 2]"
    assert {"Accum___w", "FinalReducedGradient___w"} <= tensor_ids(facts)


@pytest.mark.parametrize(
    ("group", "shown"), [("", "[4 1 4]"), ("1, 2", "[4 1 2]"), ("2, 2", "[4 2 2]"), ("3, 0", "[4 1 1]")]
)
@pytest.mark.parametrize("collective", ["ReplicatedAllReduce", "ReplicatedReduceScatter"])
def test_collectives_of_the_program_show_their_groups(collective, group, shown):
    """All replicas, consecutive ones, every second one, each alone: as replicas, stride and size."""
    attributes = "__collectiveOperator=4" + (f", __collectiveCommGroup=[{group}]" if group else "")
    text = f"""BuilderGraph_1 (float[2] x) => () {{
      y = ai.graphcore.{collective}<{attributes}>(x)
    }}"""
    facts = inference(training(text, "", {"y": (2,)}, replicas=4), "y")
    op = next(op for op in ops(facts) if op["type"].startswith(collective))
    assert op["attributes"]["__collectiveReplicaGrouping"] == shown
    assert op["attributes"]["__collectiveOperator"] == "4"


def test_streamed_scalars():
    optimizer = sgd(nonconst={"learningRate": frozenset({""}), "lossScaling": frozenset({""})})
    names = tensor_ids(mlp(optimizer=optimizer))
    assert {
        "scaledLearningRate0___default___FLOAT",
        "weightDecayScaleFactor0___default___FLOAT",
        "lossScaling_FLOAT",
    } <= names
    assert not [n for n in tensor_ids(mlp()) if "___default___" in n]
    specific = sgd(nonconst={"learningRate": frozenset({"w"})}, specific=frozenset({"w"}))
    names = tensor_ids(mlp(optimizer=specific))
    assert "scaledLearningRate0___specific___w" in names
    assert "scaledLearningRate0___default___FLOAT" not in names


def test_clipping():
    optimizer = sgd(clips=(ClipGroup(("w", "b"), 1.0), ClipGroup(("v",), 2.0)))
    facts = mlp(optimizer=optimizer)
    got = counts(facts)
    assert got["ReduceSumSquare"] == 3
    assert (got["Sqrt"], got["Max"], got["Div"]) == (2, 2, 2)
    assert {"GlobalNorm___0", "GlobalNorm___1"} <= tensor_ids(facts)
    with pytest.raises(popart_exception, match="Could not find a varupdate op for tensor nobody"):
        ops(mlp(optimizer=sgd(clips=(ClipGroup(("nobody",), 1.0),))))


def test_clipping_of_adam_feeds_both_moments():
    facts = mlp(optimizer=OptimizerFacts("Adam", "Adam", clips=(ClipGroup(None, 1.0),)))
    readers = [op for op in find(facts, "Accumulate") if any("clipped" in i["name"] for i in op["inputs"])]
    assert len(readers) == 6


def test_batch_norm_copies_its_statistics():
    text = """BuilderGraph_1 (float[2,3,4] x, float[3] s, float[3] h, float[3] m, float[3] v) => () {
      y, m1, v1, bm, bv = BatchNormalization(x, s, h, m, v)
      l = ReduceSum<keepdims=0>(y)
    }"""
    facts = training(text, "s h m v", {"y": (2, 3, 4), "m1": (3,), "v1": (3,), "bm": (3,), "bv": (3,)})
    got = counts(facts)
    assert got["CopyVarUpdate"] == 2
    assert got["SGD0VarUpdate"] == 2
    assert got["BatchNormalizationGrad"] == 1
    assert {"UpdatedVar___m", "UpdatedVar___v"} <= tensor_ids(facts)


def test_random_ops_have_seeds():
    text = (
        "BuilderGraph_1 (float[3] x, float[3] w) => () "
        "{ a = Mul(x, w) d = Dropout<ratio=0.5>(a) l = ReduceSum<keepdims=0>(d) }"
    )
    got = counts(training(text, "w", {}, anchors="l"))
    assert (got["GetRandomSeed"], got["ModifyRandomSeed"]) == (1, 1)
    assert got["Dropout"] + got["DropoutInplace"] == 1
    assert got["DropoutGrad"] == 1
    assert "randomSeed___fromHost" in tensor_ids(training(text, "w", {}))


def test_detached_path_has_no_gradient():
    text = (
        "BuilderGraph_1 (float[3] x, float[3] w) => () "
        "{ a = Mul(x, w) d = ai.graphcore.Detach(a) b = Mul(d, x) l = ReduceSum<keepdims=0>(b) }"
    )
    facts = training(text, "w", {"d": (3,), "b": (3,), "l": ()})
    assert "Gradient___w" not in tensor_ids(facts)
    assert counts(facts)["SGD0VarUpdate"] == 0


def test_unknown_loss():
    facts = mlp()
    with pytest.raises(popart_exception, match="Could not find loss tensor 'nothing'"):
        ops(replace(facts, loss="nothing"))


def test_graph_is_not_changed():
    facts = mlp()
    before = str(facts.graph)
    ops(facts)
    assert str(facts.graph) == before


@pytest.mark.parametrize(
    ("expression", "pattern", "text"),
    [
        (
            "b = Exp(a)",
            "ExpGradOp",
            "Could not create opx for 'ai.graphcore.ExpGrad:1'. This op should have been removed by pattern ExpGradOp",
        ),
        ("b = Sin(a)", "SinGradOp", '"SinGradOp" pattern is required'),
        ("b = Mul(a, x)", "MulArgGradOp", '"MulArgGradOp" pattern is required'),
        ("b = Sub(x, a)", "SubtractArg1GradOp", "removed by pattern SubtractArg1GradOp"),
        ("b = Cosh(a)", "CoshOp", "'ai.onnx.Cosh:9'"),
    ],
)
def test_ops_that_need_their_pattern(expression, pattern, text):
    graph = f"BuilderGraph_1 (float[3] x, float[3] w) => () {{ a = Neg(w) {expression} l = ReduceSum<keepdims=0>(b) }}"
    facts = training(graph, "w", {})
    assert unlowered(facts) == ()
    messages = unlowered(with_patterns(facts, **{pattern: False}))
    assert len(messages) >= 1
    assert text in messages[0]


def test_patterns_that_ops_need_are_on_by_default():
    needed = {row.removed_by for row in operators().values() if row.removed_by}
    assert len(needed) > 20
    assert needed <= patterns.at_level("Default").enabled
    assert not may_be_unlowered(patterns.at_level("Default"))
    assert may_be_unlowered(patterns.with_pattern(patterns.at_level("Default"), "UpsampleToResize", False))
    assert not may_be_unlowered(patterns.with_pattern(patterns.at_level("Default"), "SumToAdd", False))


def test_graph_name():
    facts = mlp()
    graph = parse("mine (float[2] x) => () { a = Neg(x) }")
    assert [*counts(replace(inference(facts, "a"), graph=graph), "mine")] == ["Neg"]


def test_an_empty_parameter_has_the_type_of_its_data(caplog):
    """PyTorch writes an empty region of interest; guessing its type was logged by another package."""
    text = """BuilderGraph_1 (float[1,1,2,2] x) => () {
      roi = Constant<value = float[0] {}>()
      scales = Constant<value = float[4] {1, 1, 2, 2}>()
      a = Resize<mode = "nearest">(x, roi, scales)
    }"""
    facts = replace(inference(mlp(), "a"), graph=parse(text))
    assert "Resize" in counts(facts)
    assert not caplog.records


TIED = """BuilderGraph_1 (float[6,4] w) => () {
  i = Constant<value = int32[3] {0, 2, 5}>()
  e = Gather<axis=0>(w, i)
  t = Transpose<perm=[1,0]>(w)
  y = MatMul(e, t)
  l = ReduceSum<keepdims=0>(y)
}"""
TIED_TYPES = {"e": (3, 4), "t": (4, 6), "y": (3, 6), "l": ()}


def tied(accumulate=True, optimizer=None, serial="", **options):
    text = TIED.replace("y = MatMul(e, t)", f"y = MatMul{serial}(e, t)")
    facts = training(text, "w", TIED_TYPES, "l", optimizer, accumulate=accumulate, accumulation_factor=2, **options)
    return with_patterns(facts, "All")


def test_tied_gather_accumulates_rows():
    got = counts(tied())
    assert (got["PopartTiedGather"], got["PopartSparseAccumulate"], got["TiedGatherGrad"]) == (1, 1, 0)
    assert {op["attributes"]["fully_connected_pass"] for op in find(tied(), "MatMul")} == {"-1"}
    assert [op["name"] for op in find(tied(mean_reduction=True, running_mean=True), "Div")] == [
        "mean_accumulate_inverse"
    ]


def test_rows_are_accumulated_in_the_stage_of_the_gather():
    """BERT reads its table in the first stage and multiplies by it in the last: of 2 + 1 + 2 stages, 4 has the rows."""
    text = TIED.replace("Gather<axis=0>", "Gather<axis=0, __pipeline_stage=0>")
    text = re.sub(r"(Transpose|MatMul|ReduceSum)(<|\()", r"\1<__pipeline_stage=2>\2", text)
    text = text.replace("><", ", ")
    facts = training(text, "w", TIED_TYPES, "l", accumulate=True, accumulation_factor=5, pipelining=True)
    (rows,) = find(with_patterns(facts, "All"), "PopartSparseAccumulate")
    assert rows["attributes"]["__pipeline_stage"] == "4"


def test_rows_are_scaled_as_the_dense_gradient_is():
    """SGD with momentum accumulates with its dampening, not with a mean: no Div, and the same factor for both."""
    facts = tied(mean_reduction=True, running_mean=True, optimizer=sgd("w"))
    assert find(facts, "Div") == []
    (dense,), (rows,) = find(facts, "Accumulate"), find(facts, "PopartSparseAccumulate")
    assert [v["name"] for v in dense["inputs"][2:]] == [v["name"] for v in rows["inputs"] if v["index"] == "2"]


def test_slices_of_a_tied_product_keep_their_layout():
    serial = '<__serialize_matmul_mode="output_channels", __serialize_matmul_factor=2>'
    facts = tied(serial=serial, serialized_matmuls=True)
    products = find(facts, "MatMul")
    assert len(products) > 2
    assert {op["attributes"]["fully_connected_pass"] for op in products} == {"-1"}


def test_tied_gather_alone_gives_no_gradient():
    facts = with_patterns(tied(), "All", TiedGatherAccumulate=False)
    got = counts(facts)
    assert got["PopartTiedGather"] == 1
    assert got["PopartSparseAccumulate"] + got["TiedGatherGrad"] == 0


def test_tied_gather_needs_accumulation():
    got = counts(tied(accumulate=False))
    assert (got["Gather"], got["GatherGrad"], got["PopartTiedGather"]) == (1, 1, 0)


HALF = """BuilderGraph_1 (float16[2,4] x, float16[4,4] w, float16[4,4] v) => () {
  a = MatMul(x, w)
  r = Relu(a)
  d = MatMul(r, v)
  l = ReduceSum<keepdims=0>(d)
}"""


def half(**options):
    half_type = ir.DataType.FLOAT16
    facts = IrFacts(
        graph=parse(HALF, "w v"),
        types={"l": (half_type, ()), **dict.fromkeys("ard", (half_type, (2, 4)))},
        variables=frozenset({"w", "v"}),
        anchors=frozenset({"l"}),
        loss="l",
        optimizer=sgd(nonconst={"lossScaling": frozenset({""})}),
    )
    return replace(facts, options=ViewOptions(outlining=False, automatic_loss_scaling=True, **options))


def test_automatic_loss_scaling():
    got = counts(half())
    assert got["LossScaleUpdate"] == 1
    assert got["Histogram"] > 0
    assert got["Div"] == 1
    assert {"finalLossScale", "lossScaling_FLOAT16", "lossScaleUpdateFactor", "finalInverseLossScale_0"} <= tensor_ids(
        half()
    )
    products = counts(half(tracking="ConvAndMatmulGradients"))
    assert products["Histogram"] == 3  # two weights and one activation
    chosen = counts(half(tracking="GradientsOfUserSpecifiedTensors", tracked=frozenset({"r"})))
    assert chosen["Histogram"] <= 1


def test_histogram_priority_and_period():
    assert {op["attributes"]["schedulePriority"] for op in find(half(histograms_first=True), "Histogram")} == {"inf"}
    got = counts(half(loss_scale_period=2))
    assert got["Histogram"] == 0
    assert got["If"] == counts(half())["Histogram"] + 1


def test_partials_type():
    assert {op["attributes"]["partialsType"] for op in find(mlp(), "MatMul")} == {"FLOAT"}
    assert {op["attributes"]["partialsType"] for op in find(mlp(matmul_partials="HALF"), "MatMul")} == {"HALF"}


@pytest.mark.parametrize(
    "node",
    ["Mod<fmod=1>(k, k)", "ai.graphcore.Remainder(k, k)", "SpaceToDepth<blocksize=2>(s)"],
)
def test_rewritten_forms_of_what_folds_fold_too(node):
    constants = "float[1] k = {3}, float[1,1,2,2] s = {1, 2, 3, 4}"
    graph = parse(f"f (float[1,1,1,1] x) => (float[1,4,2,2] y) <{constants}> {{ a = {node} y = Add(x, a) }}")
    facts = inference(training("f (float[1] x) => (float[1] y) { y = Exp(x) }", "", {}), "y")
    assert counts(replace(facts, graph=graph), "f") == {"Add": 1}
