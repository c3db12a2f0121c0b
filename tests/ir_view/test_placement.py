"""IPUs, copies, pipeline stages, stashes, recomputation, serialised matmuls, outlining, host transfers."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from popart_jax.ir_view import Location, repeats

from .helpers import MLP_TYPES, conv, counts, find, inference, mlp, ops, sgd, tensor_ids, training, view

PLACED = """BuilderGraph_1 (float[2,3] x, float[3,4] w, float[4,4] v, float[4,4] u, int32[2] t) => () {
  a = MatMul<__ipu_number=0>(x, w)
  r = Relu<__ipu_number=0>(a)
  c = MatMul<__ipu_number=1>(r, v)
  q = Relu<__ipu_number=1>(c)
  d = MatMul<__ipu_number=2>(q, u)
  p = Softmax<axis=1, __ipu_number=2>(d)
  l = ai.graphcore.Nll<reduction="Sum", __ipu_number=2>(p, t)
}"""
TYPES = {"l": ()} | dict.fromkeys("arcqdp", (2, 4))


def placed(anchors="l", **options):
    return training(PLACED, "w v u", TYPES, anchors, **{"virtual_graphs": "Manual", **options})


def ipu(op):
    return op["attributes"].get("__ipu_number")


def stage(op):
    return op["attributes"].get("__pipeline_stage")


def test_copies_between_ipus():
    copies = find(placed(), "IpuCopy")
    names = {op["outputs"][0]["name"] for op in copies}
    assert {"r_c1", "q_c2", "Gradient___q_c1", "Gradient___r_c0"} == names
    first = next(op for op in copies if op["outputs"][0]["name"] == "r_c1")
    assert first["attributes"]["__sourceIpus"] == "[0]"
    assert first["attributes"]["__destIpu"] == "1"


def test_every_op_is_placed():
    assert all(ipu(op) in ("0", "1", "2") for op in ops(placed()))
    updates = {op["inputs"][0]["name"]: ipu(op) for op in find(placed(), "SGD0VarUpdate")}
    assert updates == {"w": "0", "v": "1", "u": "2"}


def test_off_ignores_annotations():
    got = ops(placed(virtual_graphs="Off"))
    assert not [op for op in got if op["type"] == "IpuCopy" or ipu(op) is not None]


def test_pipeline_stages():
    got = ops(placed(pipelining=True, accumulate=True, accumulation_factor=6))
    stages = {stage(op) for op in got}
    assert stages >= {"0", "1", "2", "3", "4"}
    gradient = next(op for op in got if any(o["name"] == "Gradient___w" for o in op["outputs"]))
    assert (ipu(gradient), stage(gradient)) == ("0", "4")


def test_backward_stages_are_one_later_where_a_program_runs_the_forward_ones_alone():
    """The stage of the loss is then not shared: what it keeps for its backward stage is stashed too."""
    facts = placed(pipelining=True, accumulate=True, accumulation_factor=6, forward_only_program=True)
    stages = {op["outputs"][0]["name"]: stage(op) for op in ops(facts)}
    assert {name: stages[f"Gradient___{name}"] for name in "wvu"} == {"w": "5", "v": "4", "u": "3"}
    assert {stage(op) for op in find(facts, "Stash")} == {"0", "1", "2"}


def test_stashes():
    facts = placed(pipelining=True, accumulate=True, accumulation_factor=6)
    stashes, restores = find(facts, "Stash"), [op for op in ops(facts) if op["type"].startswith("Restore")]
    assert len(stashes) == len(restores) > 0
    assert all(op["outputs"][0]["name"].startswith("Stashed___") for op in stashes)
    assert {stage(op) for op in stashes} == {"0", "1"}  # stage 2 runs forward and backward at once
    assert {stage(op) for op in restores} == {"3", "4"}
    order = [op["type"] for op in ops(facts)]
    assert order.index("Stash") < len(order) - order[::-1].index(restores[-1]["type"])


def test_stages_are_those_of_the_loss_also_where_nobody_reads_it():
    """Without an anchor of the loss its op is pruned; its stage is still the last forward one."""
    for mode in ("None", "Pipeline"):
        pipeline = {"pipelining": True, "accumulate": True, "accumulation_factor": 6, "recomputation": mode}
        with_loss, without = (ops(placed(anchors=anchors, **pipeline)) for anchors in ("l", "p"))
        kinds = [{(op["type"], stage(op), op["attributes"]["recompute"]) for op in got} for got in (with_loss, without)]
        assert kinds[1] - kinds[0] <= {("SoftmaxGradDirect", "2", "NO")}  # loss and gradient are one op, or two
        assert {stage(op) for op in without} == {"0", "1", "2", "3", "4"}


def test_what_is_computed_again_has_its_source_restored_in_place():
    facts = placed(pipelining=True, accumulate=True, accumulation_factor=6, recomputation="Pipeline")
    restores = [op for op in ops(facts) if op["type"].startswith("Restore")]
    assert {op["type"] for op in restores} >= {"RestoreInplace"}
    for op in restores:  # in place: nobody reads the result, the ops that are computed again read the tensor itself
        read = any(i["name"] == op["outputs"][0]["name"] for other in ops(facts) for i in other["inputs"])
        assert read == (op["type"] == "Restore")


def test_copies_of_explicit_recomputation_stand_in_the_stage_that_reads_them():
    facts = placed(pipelining=True, accumulate=True, accumulation_factor=6, recomputation="Pipeline",
                   explicit_recomputation=True, explicit_ir=True)  # fmt: skip
    copies = [op for op in ops(facts) if op["attributes"]["recomputetype"] == "Recomputed"]
    assert {(stage(op), ipu(op)) for op in copies} == {("3", "1"), ("4", "0")}  # none of another stage's ops
    assert {op["inputs"][0]["name"] for op in find(facts, "DynamicUpdate")} == {"x", "r_c1"}


@pytest.mark.parametrize("explicit", [False, True])
def test_what_a_stage_computes_again_overwrites_nothing(explicit):
    """But for views; with copies of their own in the list, both runs may."""
    facts = placed(pipelining=True, accumulate=True, accumulation_factor=6, recomputation="Pipeline",
                   explicit_recomputation=explicit, explicit_ir=explicit)  # fmt: skip
    form = "ReluInplace" if explicit else "Relu"
    assert {op["type"] for op in ops(facts) if op["type"] in ("Relu", "ReluInplace")} == {form}
    again = [op["type"] for op in ops(facts) if op["attributes"]["recompute"] == "YES"]
    assert "ReshapeInplace" in again


def test_what_runs_again_on_kept_operands_has_no_in_place_form():
    """Its operand must be there when it runs again. A copy of its own in the list may be in-place."""
    text = """BuilderGraph_1 (float[2,3] x, float[3] w) => () {
      a = Mul(x, w)
      b = ai.graphcore.Reshape<shape=[6]>(a)
      c = Exp(b)
      d = Sin(c)
      l = ReduceSum<keepdims=0>(d)
    }"""
    types = {"l": (), "a": (2, 3), "b": (6,), "c": (6,), "d": (6,)}
    facts = training(text, "w", types, "l", recomputation="RecomputeAll")
    again = [op["type"] for op in ops(facts) if op["attributes"]["recompute"] == "YES"]
    assert again[:3] == ["Mul", "ReshapeInplace", "ExpInplace"]  # what the last two read is made again as well
    text = text.replace("Mul(x, w)", "Identity(x)").replace("Exp(b)", "Exp<__recompute_output_in_backward_pass=1>(b)")
    kinds = {}
    for explicit in (False, True):
        facts = training(text, "", types, "l", recomputation="RecomputeAll", explicit_recomputation=explicit)
        kinds[explicit] = [op["type"] for op in ops(facts) if op["outputs"][0]["name"] in ("b", "d")]
    assert kinds[False] == ["Reshape", "Sin"]
    assert kinds[True][0] == "ReshapeInplace"


def test_inference_pipeline_has_no_stash():
    facts = inference(placed(pipelining=True), "p")
    assert not find(facts, "Stash")
    assert len(find(facts, "IpuCopy")) == 2


def test_recompute_pipeline_stashes_what_enters():
    facts = placed(pipelining=True, accumulate=True, accumulation_factor=6, recomputation="Pipeline")
    stashed = {op["inputs"][0]["name"] for op in find(facts, "Stash")}
    assert stashed == {"x", "r_c1"}


@pytest.mark.parametrize(
    ("mode", "types"),
    [
        ("RecomputeAll", {"MatMul", "ReluInplace"}),
        ("Standard", {"ReluInplace"}),
        ("NoRecompute", set()),
        ("NormOnly", set()),
    ],
)
def test_recompute_marks(mode, types):
    marked = {op["type"] for op in ops(mlp(recomputation=mode)) if op["attributes"]["recompute"] == "YES"}
    assert types <= marked
    assert bool(types) == bool(marked)


def test_explicit_recompute_copies():
    facts = mlp(anchors="l", recomputation="RecomputeAll", explicit_recomputation=True)
    copies = [op for op in ops(facts) if op["attributes"]["recomputetype"] == "Recomputed"]
    assert copies
    assert all(o["name"].endswith("__re") for op in copies for o in op["outputs"])
    assert counts(facts)["ReluInplace"] + counts(facts)["Relu"] == 2


def test_copies_are_not_outlined_with_what_they_copy():
    """Ops that are computed again and their copies differ for outlining, so both stay in the main graph."""
    options = {"recomputation": "RecomputeAll", "explicit_recomputation": True}
    apart, joined = (counts(conv(anchors="l", outlining=on, **options)) for on in (False, True))
    copies = [op for op in ops(conv(anchors="l", **options)) if op["attributes"]["recomputetype"] == "Recomputed"]
    assert copies
    inner = view(conv(anchors="l", outlining=True, **options))
    for name, body in inner.items():
        assert name == "maingraph" or len({op["attributes"]["recompute"] for op in body}) == 1
    assert joined.total() <= apart.total()


@pytest.mark.parametrize(
    ("mode", "join"), [("output_channels", "Concat"), ("input_channels", "Concat"), ("reducing_dim", "Add")]
)
def test_serialised_matmul(mode, join):
    text = f"""BuilderGraph_1 (float[4,6] x, float[6,8] w) => () {{
      a = MatMul<__serialize_matmul_mode="{mode}", __serialize_matmul_factor=2>(x, w)
      l = ReduceSum<keepdims=0>(a)
    }}"""
    facts = training(text, "w", {"a": (4, 8), "l": ()}, "l")
    got = counts(facts)
    assert got["MatMul"] == 4  # two forward, two for the gradient of w
    assert any(t.startswith(join) for t in got)
    shapes = {
        tuple(i["shape"] for i in op["inputs"])
        for op in find(facts, "MatMul")
        if op["attributes"]["fully_connected_pass"] == "0"
    }
    wanted = {
        "output_channels": ("[1 4 6]", "[1 6 4]"),
        "input_channels": ("[1 2 6]", "[1 6 8]"),
        "reducing_dim": ("[1 4 3]", "[1 3 8]"),
    }[mode]
    assert shapes == {wanted}
    assert [*counts(training(text, "w", {"a": (4, 8), "l": ()}, "l", outlining=True))].count("Call") == 1


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(("mode", "first"), [("input_channels", "2"), ("output_channels", "1"), ("reducing_dim", "1")])
def test_the_product_that_is_added_up_comes_first(mode, first, accumulate):
    """Of the two gradients of a serialised product; a weight's is added up by gradient accumulation too."""
    serial = f'<__serialize_matmul_mode="{mode}", __serialize_matmul_factor=2, __serialize_matmul_precision=1>'
    text = f"""BuilderGraph_1 (float16[4,6] x, float16[6,8] w) => () {{
      a = MatMul{serial}(x, w)
      l = ReduceSum<keepdims=0>(a)
    }}"""
    options = {"outlining": True, "accumulate": accumulate}
    facts = training(text, "w x", {"a": (4, 8), "l": ()}, "l", **options)
    facts = replace(facts, types={name: (ir.DataType.FLOAT16, shape) for name, (_, shape) in facts.types.items()})
    graphs = view(facts)
    passes = [op["attributes"]["fully_connected_pass"] for i in range(3) for op in graphs[f"call_subgraph({i})"]]
    first = "2" if accumulate else first
    assert passes == ["0", first, {"1": "2", "2": "1"}[first]]
    (cast,) = (op for op in graphs["maingraph"] if op["type"] == "Cast")  # what is added up is so in float32
    assert cast["inputs"][0]["type"] == "FLOAT"
    transposed = [op["inputs"][0]["name"] for op in graphs["maingraph"] if op["type"].startswith("Transpose")]
    assert not any(name.startswith("Gradient___") for name in transposed)


def test_outlining():
    facts = conv(anchors="l", outlining=True)
    graphs = view(facts)
    total = sum(op["type"] == "Conv" for body in graphs.values() for op in body)
    calls = [op for op in graphs["maingraph"] if op["type"] == "Call"]
    assert len(calls) >= 4
    assert {op["attributes"]["callee"] for op in calls} <= graphs.keys()
    assert total < counts(conv(anchors="l"))["Conv"]
    inner = next(op for name, body in graphs.items() if name != "maingraph" for op in body)
    assert inner["attributes"]["__execution_context"] == "Subgraph"
    assert inner["inputs"][0]["name"].startswith("call_subgraph(")


LAYERS = """BuilderGraph_1 (float[4,4] x, float[4,4] w, float[4,4] v, float[4,4] u) => () {
  a = MatMul(x, w)
  b = Tanh(a)
  c = MatMul(b, v)
  d = Tanh(c)
  e = MatMul(d, u)
  f = Tanh(e)
  l = ReduceSum<keepdims=0>(f)
}"""
LAYER_TYPES = {"l": ()} | dict.fromkeys("abcdef", (4, 4))


def test_repeated_layers_become_one_subgraph():
    """The whole sequence of a layer is outlined, forward and backward; what is left of the last layer calls inside."""
    graphs = view(training(LAYERS, "w v u", LAYER_TYPES, "l", outlining=True))
    types = {name: [op["type"].removesuffix("Inplace") for op in ops] for name, ops in graphs.items()}
    called = Counter(op["attributes"]["callee"] for op in graphs["maingraph"] if op["type"] == "Call")
    forward = next(name for name, ops in types.items() if "Tanh" in ops)
    assert called[forward] == 3
    assert [t for t in types[forward] if t != "Reshape"] == ["MatMul", "Tanh"]
    assert not {"MatMul", "Tanh"} & set(types["maingraph"])
    assert sum(ops.count("MatMul") for ops in types.values()) == 3  # forward, and the two gradients


def test_outlined_tensors_keep_what_is_asked_for():
    """Anchored tensors inside a repeated sequence stay tensors of the main graph."""
    graphs = view(training(LAYERS, "w v u", LAYER_TYPES, "l a c", outlining=True))
    shown = {t["name"] for op in graphs["maingraph"] for t in op["outputs"]}
    assert {"a", "b", "c", "d", "f", "l"} <= shown
    assert "e" in shown  # the callee has one list of outputs for all its calls


def test_no_sequence_below_the_threshold():
    assert len(view(training(LAYERS, "w v u", LAYER_TYPES, "l", outlining=True, outline_threshold=5000.0))) == 1


def test_cheap_ops_alone_are_outlined_by_a_negative_threshold():
    text = """BuilderGraph_1 (float[4] x) => () { a = Tanh(x) b = Exp(a) c = Tanh(b) d = Exp(c) }"""
    facts = inference(training(text, "", {}, "d"), "d")
    for threshold, calls in ((1.0, 0), (-1.0, 2)):
        options = replace(facts.options, outlining=True, outline_threshold=threshold)
        assert counts(replace(facts, options=options)).get("Call", 0) == calls


def test_repeats_against_enumeration():
    """All repeats of random words that can't be extended without losing an occurrence."""
    rng = random.Random(1)
    for _ in range(200):
        word = [rng.randrange(3) for _ in range(rng.randrange(1, 25))]
        places: dict[tuple[int, ...], list[int]] = {}
        for n in range(1, len(word)):
            for i in range(len(word) - n + 1):
                places.setdefault(tuple(word[i : i + n]), []).append(i)
        expected = {
            part: at
            for part, at in places.items()
            if len(at) > 1 and all(len(places.get((*part, c), ())) < len(at) for c in range(3))
        }
        order = repeats.suffixes(np.asarray(word))
        found = {}
        for r in repeats.all_repeats(word, order):
            at = sorted(order[r.left : r.right + 1].tolist())
            found[tuple(word[at[0] : at[0] + r.length])] = at
            assert (r.first, r.last) == (at[0], at[-1])
        assert found == expected


def test_best_repeats_share_nothing():
    word = [9, *[1, 2, 3] * 5, 8, 1, 2]
    found = list(repeats.best_repeats(word, lambda a, b: float(sum(word[a:b])), lambda n, starts: starts))
    assert found == [(3, [1, 4, 7, 10, 13])]
    unlike = list(repeats.best_repeats(word, lambda a, b: float(b - a), lambda n, starts: starts[::2]))
    assert unlike[0] == (3, [1, 7, 13])


def test_outline_attributes_keep_ops_apart():
    text = """BuilderGraph_1 (float[2,4] x, float[4,4] w) => () {
      a = MatMul<__outline=["part", "one"]>(x, w)
      b = MatMul<__outline=["part", "two"]>(a, w)
    }"""
    facts = inference(training(text, "w", MLP_TYPES), "b")
    facts = replace(facts, options=replace(facts.options, outlining=True))
    assert counts(facts)["MatMul"] == 2
    assert {op["attributes"]["part"] for op in find(facts, "MatMul")} == {"part:one", "part:two"}


def test_host_copy_ops():
    got = counts(mlp(anchors="l", host_copy_ops=True))
    assert got["HostLoad"] == 2
    assert got["HostStore"] == 1
    assert got["Init"] == 2


def test_transfers_on_io_tiles():
    """What is loaded and stored there is copied from and to the compute tiles."""
    facts = mlp(anchors="l", host_copy_ops=True, on_io_tiles=frozenset("xl"))
    assert counts(facts)["IoTileCopy"] == 2
    (load,) = (o for o in find(facts, "HostLoad") if o["attributes"]["hostloadstream"] == "x")
    (store,) = find(facts, "HostStore")
    fetched, sent = find(facts, "IoTileCopy")
    assert load["outputs"][0]["name"] == fetched["inputs"][0]["name"]
    assert sent["outputs"][0]["name"] == store["inputs"][0]["name"]
    assert sent["inputs"][0]["name"] == "l"
    assert [o["attributes"]["tileSet"] for o in (load, fetched, sent, store)] == ["1", "0", "1", "1"]
    assert {o["attributes"]["tileSet"] for o in find(facts, "MatMul")} == {"0"}


def test_user_subgraph():
    text = """BuilderGraph_1 (float[3] x, float[3] w) => () {
      a = ai.graphcore.Call<callee = BuilderGraph_2 (float[3] i, float[3] j)
        => (float[3] o) { m = Mul(i, j) o = Exp(m) }>(x, w)
      l = ReduceSum<keepdims=0>(a)
    }"""
    facts = training(text, "w", {"a": (3,), "l": ()}, "l")
    graphs = view(facts)
    calls = [op for op in graphs["maingraph"] if op["type"] == "Call"]
    assert [op["attributes"]["callee"] for op in calls] == ["BuilderGraph_2", "BuilderGraph_2_bwd"]
    assert {op["type"].removesuffix("LhsInplace") for op in graphs["BuilderGraph_2"]} == {"Mul", "ExpInplace"}
    assert any(o["name"] == "Gradient___w" for o in calls[1]["outputs"])


def test_calls_of_one_builder_share_their_graph():
    callee = "callee = BuilderGraph_2 (float[3] i, float[3] j) => (float[3] o) { m = Mul(i, j) o = Exp(m) }"
    text = f"""BuilderGraph_1 (float[3] x, float[3] w) => () {{
      a = ai.graphcore.Call<{callee}>(x, w)
      b = ai.graphcore.Call<{callee}>(a, w)
    }}"""
    graphs = view(inference(training(text, "w", {"a": (3,), "b": (3,)}), "b"))
    assert list(graphs) == ["maingraph", "BuilderGraph_2"]
    assert [op["type"] for op in graphs["maingraph"]] == ["Call", "Call"]


def test_explicit_main_loops():
    facts = mlp(anchors="l", main_loops=True, batches=3, accumulate=True, accumulation_factor=2, host_copy_ops=True)
    graphs = view(facts)
    assert list(graphs)[:1] == ["maingraph"]
    assert [op["type"] for op in graphs["maingraph"]] == ["Loop"]
    outer, inner = graphs["loop_subgraph(1)"], graphs["loop_subgraph(0)"]
    assert {"Loop", "SGD0VarUpdate", "AccumulatorZero"} == {op["type"] for op in outer}
    assert {"HostLoad", "MatMul", "Accumulate", "HostStore"} <= {op["type"] for op in inner}
    loop = next(op for op in outer if op["type"] == "Loop")
    assert loop["attributes"]["tripCountValue"] == "2"
    assert "loop_subgraph(1)/Accum___w" in {i["name"] for i in loop["inputs"]}
    assert {"Gradient___w", "Accum___w"} <= tensor_ids(facts)


def test_no_loops_for_single_batches():
    assert counts(mlp(main_loops=True))["Loop"] == 0
    assert counts(mlp(main_loops=True, batches=2))["Loop"] == 1


def test_sharded_weights():
    facts = mlp(replicas=2, weights=Location(sharded=True, least_sharded=10))
    got = counts(facts)
    assert got["ReplicatedAllGather"] == 2  # w and v; b is too small
    assert got["ReplicatedReduceScatter"] == 2
    assert got["ReplicatedAllReduce"] + got["ReplicatedAllReduceInplace"] == 1
    readers = [op["type"] for op in ops(facts) for i in op["inputs"] if i["name"] == "w"]
    assert sorted(readers) == ["ReplicatedAllGather", "SGD0VarUpdate"]
    assert counts(mlp(weights=Location(sharded=True, least_sharded=0)))["ReplicatedAllGather"] == 0


def test_off_chip_tensors():
    facts = mlp(optimizer=sgd("w b v"), accumulators=Location(off_chip=True), located={"Accl___b": Location()})
    got = counts(facts)
    assert (got["RemoteLoad"], got["RemoteStore"], got["Init"]) == (2, 2, 2)
    loaded = {op["attributes"]["bufferid"] for op in find(facts, "RemoteLoad")}
    assert loaded == {"Accl___w", "Accl___v"}


def test_branches_have_names_of_their_own():
    """A branch that the program has not named is `then_block` or `else_block`; names do not occur twice."""
    choice = """If (c) <
        then_branch = {} () => (float[3] {}) {{ {} = Relu(x) }},
        else_branch = {} () => (float[3] {}) {{ {} = Neg(x) }}>"""
    first = choice.format("BuilderGraph_2", "p", "p", "BuilderGraph_3", "q", "q")
    second = choice.format("mine", "r", "r", "BuilderGraph_4", "s", "s")
    text = f"BuilderGraph_1 (float[3] x, bool c) => () {{ a = {first} b = {second} }}"
    graphs = view(inference(training(text, "", {"a": (3,), "b": (3,)}), "a b"))
    assert set(graphs) == {"maingraph", "then_block", "else_block", "mine", "else_block_subgraph(0)"}
