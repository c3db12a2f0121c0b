"""Rules of popxl_addons that the supplement of the specification states: operators, sessions and operations."""

from __future__ import annotations

import re

import numpy as np
import pytest

import popart_jax.popxl_addons as addons
import popart_jax.popxl_addons.ops as addons_ops
from popart_jax import popxl
from popart_jax.errors import popart_exception
from popart_jax.popxl import ops
from popart_jax.popxl_addons import task_session

from ..texts import says


def kinds(graph):
    return [op.opType() for op in graph._pb_graph.getOps()]


# --- operators -----------------------------------------------------------------------------------------------------


def test_tensor_parallel_reductions_name_their_outputs_and_reductions():
    with popxl.Ir(replication=2).main_graph:
        t = popxl.variable(np.zeros(4, np.float32))
        names = {
            addons_ops.replicated_all_reduce: "replicated_all_reduce_TP_out",
            addons_ops.replicated_all_reduce_strided: "replicated_all_reduce_strided_out",
            addons_ops.replicated_all_gather_strided: "replicated_all_gather_strided_out",
            addons_ops.replicated_reduce_scatter_strided: "replicated_reduce_scatter_strided_out",
        }
        for fn, name in names.items():
            assert fn(t).name == name
        for fn in (addons_ops.replicated_all_reduce_strided, addons_ops.replicated_reduce_scatter_strided):
            fn(t, "mean")
            with pytest.raises(popart_exception):
                fn(t, "max")
        with says(
            popart_exception,
            "Cannot create ReplicatedAllReduceTPOp op. CollectiveOperator::Add is the only collective operator that is "
            "currently implemented.",
        ):
            addons_ops.replicated_all_reduce(t, "mean")
        with says(ValueError, "Not a valid op: x. Must choose from: add, mean, mul, min, max, and, or, square_add"):
            addons_ops.replicated_all_reduce(t, "x")


@pytest.mark.parametrize("strided", [False, True])
def test_gradients_of_reductions_exchange_their_flags(strided):
    """The gradient is an operator of the same type; where its inputs are identical, only the pattern lets it run."""
    plain, inputs, grads = (
        getattr(addons_ops, f"replicated_all_reduce{'_strided' * strided}{end}")
        for end in ("", "_identical_inputs", "_identical_grad_inputs")
    )

    def flags(graph):
        (op,) = (op for op in graph._ops.values() if op.opType() != "Sum")
        return op.opType(), {n for n in ("identical_inputs", "identical_grad_inputs") if n in op._node.attributes}

    kind = "ReplicatedAllReduceStrided" if strided else "ReplicatedAllReduceTP"
    for fn, opposite in ((plain, set()), (inputs, {"identical_grad_inputs"}), (grads, {"identical_inputs"})):
        ir = popxl.Ir(replication=2)
        with ir.main_graph, popxl.in_sequence():
            t = popxl.variable(np.ones(3, np.float32))
            graph = ir.create_graph(fn, t)
            info = popxl.transforms.autodiff(graph)
            assert flags(info.graph) == (kind, opposite)
            (g,) = ops.call(info.graph, popxl.constant(np.full(3, 2, np.float32)))
            stream = addons_ops.host_store(g)
        if "identical_inputs" in opposite:
            with says(popart_exception, "You need to run the `OpToIdentityPattern` pattern before running the IR."):
                popxl.Session(ir, "ipu_hw")
            addons.apply_pre_alias_patterns(ir)
        with popxl.Session(ir, "ipu_hw") as session:
            np.testing.assert_array_equal(
                session.run()[stream], np.full((2, 3), 2 if opposite == {"identical_inputs"} else 4)
            )


def test_a_strided_gather_is_the_gradient_of_slices():
    ir = popxl.Ir(replication=2)
    with ir.main_graph, popxl.in_sequence():
        t = popxl.variable(np.ones((2, 2), np.float32))
        info = popxl.transforms.autodiff(ir.create_graph(addons_ops.replicated_all_gather_strided, t))
        (g,) = ops.call(info.graph, popxl.variable(np.arange(8, dtype=np.float32)))
        stream = addons_ops.host_store(g)
        with says(popart_exception, "ReplicatedReduceScatter"):
            popxl.transforms.autodiff(ir.create_graph(addons_ops.replicated_reduce_scatter_strided, t))
    with popxl.Session(ir, "ipu_hw") as session:
        np.testing.assert_array_equal(session.run()[stream], np.arange(8).reshape(2, 2, 2))


def test_rotary_embedding_rounds_each_product():
    """Tables vary along the second axis, per sample too; values and the gradient are those of NumPy to the last bit.

    Numbers that are not finite stay so.
    """
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=(2, 2, 5, 3, 8)).astype(np.float32)
    x[0, 0, 0, 0], x[0, 0, 0, 2] = np.inf, np.nan
    sin, cos = rng.normal(size=(2, 2, 5, 3)).astype(np.float32)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        t, *tables = (popxl.variable(a) for a in (x, sin, cos))
        graph = ir.create_graph(addons_ops.rotary_pos_embed, t, *tables, rotary_dim=6)
        info = popxl.transforms.autodiff(graph, grads_required=graph.inputs[:1])
        site = ops.call_with_info(graph, t, *tables)
        (dx,) = ops.call(info.graph, popxl.variable(dy), inputs_dict=info.inputs_dict(site))
        streams = [addons_ops.host_store(v) for v in (site.outputs[0], dx)]
        flat = popxl.constant(sin[0])
        before = len(kinds(ir.main_graph))
        addons_ops.rotary_pos_embed(t, flat, flat, 6)
        assert kinds(ir.main_graph)[before:] == ["Reshape", "Reshape", "RotaryPosEmbed"]
        with pytest.raises(popart_exception):
            addons_ops.rotary_pos_embed(t, flat, flat, 5)
    with popxl.Session(ir, "ipu_hw") as session:
        found = session.run()
    s, c = sin[:, :, None], cos[:, :, None]
    for stream, value, sign in ((streams[0], x, 1), (streams[1], dy, -1)):
        even, odd = value[..., 0:6:2], value[..., 1:6:2]
        np.testing.assert_array_equal(found[stream][..., 0:6:2], even * c - odd * (sign * s))
        np.testing.assert_array_equal(found[stream][..., 1:6:2], odd * c + even * (sign * s))
        np.testing.assert_array_equal(found[stream][..., 6:], value[..., 6:])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_tables_are_computed_in_their_type(dtype):
    kind = np.dtype(dtype)
    theta = 10000 ** (-np.arange(0, 6, 2, dtype=kind) / 6)
    phi = np.outer(np.arange(4, dtype=kind), theta)
    for found, expected in zip(addons_ops.trig_tables(4, 6, np_dtype=dtype), (np.sin(phi), np.cos(phi)), strict=True):
        assert found.dtype == kind
        np.testing.assert_array_equal(found, expected)
    with popxl.Ir().main_graph:
        sin, _ = addons_ops.trig_table_constants(4, 6, dtype=popxl.float16)
        np.testing.assert_array_equal(sin._host, addons_ops.trig_tables(4, 6, np_dtype="float16")[0])


def test_group_quantisation():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(3, 8)).astype(np.float32)
    for bad in (np.nan, np.inf):
        with says(ValueError, "Cannot compress t which contains non-finite values"):
            addons_ops.group_quantize_compress_numpy(np.where(w == w[0, 0], bad, w), 4)
    for size in (0, -4, 3):
        with pytest.raises(ValueError, match="must be a multiple of 4"):
            addons_ops.group_quantize_compress_numpy(w, size)
    packed, scale, bias = addons_ops.group_quantize_compress_numpy(w, 4)
    groups = w.reshape(3, 2, 4)
    low, high = (f(-1, keepdims=True).astype(np.float16) for f in (groups.min, groups.max))
    np.testing.assert_array_equal(bias, low)
    np.testing.assert_array_equal(scale, (high - low) / np.float16(15))
    codes = np.clip(np.round((groups - low) / scale), 0, 15).astype(int)
    np.testing.assert_array_equal(packed[..., 0], codes @ [4096, 256, 16, 1])
    with popxl.Ir().main_graph as main:
        t, s, b = (popxl.constant(a) for a in (packed, scale[..., 0], bias))
        addons_ops.group_quantize_decompress(t, s, b)
        assert kinds(main) == ["Reshape", "GroupQuantizeDecompress"]
        with pytest.raises(NotImplementedError):
            addons_ops.group_quantize_decompress(popxl.constant(packed[0]), s, b)
        with pytest.raises(ValueError):
            addons_ops.group_quantize_decompress(t, popxl.constant(scale[:2]), b)


def test_words_of_sharded_losses():
    with popxl.Ir(replication=2).main_graph:
        logits, labels = popxl.variable(np.zeros((3, 4), np.float32)), popxl.variable(np.zeros(3, np.int32))
        with pytest.raises(popart_exception):
            addons_ops.cross_entropy_sharded_loss(labels, labels)
        with says(ValueError, "Not a valid reduction: x. Must choose from: mean, sum, none"):
            addons_ops.cross_entropy_sharded_loss(logits, labels, reduction="x")
        with says(ValueError, "You must provide the same number of logits and indices."):
            addons_ops.cross_entropy_sharded_wr_loss([logits], [], [0])
        with popxl.ipu(1):
            there = labels + 0
        with says(ValueError, "The logits and indices IPUs do not match."):
            addons_ops.cross_entropy_sharded_wr_loss([logits], [there], [0])


def test_sparse_products_use_float32_and_random_sparse_keeps_something():
    sparse = pytest.importorskip("scipy.sparse")
    rhs = sparse.csr_matrix(np.array([[1 + 2.0**-12, 0], [2.0**-12, 3]]))
    ir = popxl.Ir()
    with ir.main_graph:
        lhs = popxl.variable(np.array([[1, -1]], np.float16))
        stream = addons_ops.host_store(addons_ops.dense_const_sparse_matmul(lhs, rhs, 2))
    with popxl.Session(ir, "ipu_hw") as session:
        np.testing.assert_array_equal(session.run()[stream], [[1, -3]])
    np.random.seed(0)
    for _ in range(50):
        assert np.count_nonzero(addons_ops.random_sparse(np.ones((2, 2)), 0.01)) >= 1


# --- sessions and operations ---------------------------------------------------------------------------------------


def task(**state):
    ir = popxl.Ir()
    with ir.main_graph:
        named = addons.NamedTensors.from_dict({n: popxl.variable(np.float32(v)) for n, v in state.items()})
        out = addons.OutputStreams(y=((), popxl.float32))
        ops.host_store(out.y, named.values_flat()[0] + 1.0)
    return addons.TaskSession(addons.InputStreams(), out, named, ir=ir, device_desc="ipu_hw")


def test_checkpoints_replace_the_state_and_report_names_on_both_sides(tmp_path):
    first, second = task(a=1, b=2), task(b=5, c=6)
    first.add_session_state_info({"epoch": 3})
    with first:
        first.run()
        first.save_checkpoint(str(tmp_path / "one"))
    with second:
        with pytest.raises(ValueError) as caught:
            second.load_checkpoint(str(tmp_path / "one"), "error")
        assert str(caught.value) == "Checkpoint keys not in state: {'a'}\nstate keys not in checkpoint: {'c'}"
        second.load_checkpoint(str(tmp_path / "one"))
        assert second.session_state == {"steps": 1, "epoch": 3}
        assert {n: float(v) for n, v in second.get_named_tensors_data().to_dict().items()} == {"b": 2, "c": 6}
        (tmp_path / "one" / "session_info.json").unlink()
        second.load_checkpoint(str(tmp_path / "one"), "none")
        assert second.session_state == {"steps": 0}


def test_variables_in_files_are_left_alone_where_a_checkpoint_is_loaded_without_them(tmp_path):
    """A file that is only read can't take its own values again."""
    np.ones(2, np.float32).tofile(tmp_path / "mapped.npy")
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        mapped = popxl.variable(np.memmap(tmp_path / "mapped.npy", np.float32, "r", shape=(2,)))
        rest = popxl.variable(np.ones(2, np.float32))
        out = addons_ops.host_store(ops.var_updates.accumulate_(rest, mapped))
    state = addons.NamedTensors.from_dict({"mapped": mapped, "rest": rest})
    with addons.TaskSession((), (out,), state, ir=ir, device_desc="ipu_hw") as session:
        session.save_checkpoint(str(tmp_path / "saved"))
        session.run()
        session.load_checkpoint(str(tmp_path / "saved"), "error", skip_memmap=True)
        np.testing.assert_array_equal(session.run()[out], [2, 2])


def test_the_oldest_checkpoint_goes_first(tmp_path):
    session = task(a=1)
    with session:
        for name in "abc":
            session.save_checkpoint(str(tmp_path / name))
            assert [p.name for p in tmp_path.iterdir()] == [name]


def test_words_of_data_loaders(monkeypatch):
    session = task(a=1)
    with says(ValueError, "Dataloader must implement save and resume methods"):
        session.dataloader = 3
    messages = []
    monkeypatch.setattr(task_session._logger, "warning", lambda text, *args: messages.append(text))
    assert session.dataloader is None
    assert session.dataloader is None
    assert [m[:18] for m in messages] == ["No dataloader set."] * 2


def test_operations_are_nested_by_type(capsys):
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        x, v = popxl.variable(np.ones((2, 2), np.float32)), popxl.variable(np.ones(2, np.float32))

        def inner(x):
            return x @ x + x

        graph = ir.create_graph(inner, x)
        (y,) = ops.call(graph, x)
        ops.repeat(graph, 3, y)
        v @ v, v @ x
    found = addons.evaluate_FLOPs(ir.main_graph)
    matmul, add = (next(op.id for op in graph._ops.values() if op.opType() == kind) for kind in ("MatMul", "Add"))
    call = next(k for k in found["Add"] if str(k).startswith("Call"))
    loop = next(k for k in found["Add"] if str(k).startswith("Loop"))
    assert re.fullmatch(r"Call_\d+\(.*inner\)", call)
    assert found["Add"][call] == {add: 4}
    assert found["MatMul"][call] == {matmul: 16}
    ((_, times),) = found["Add"][loop].items()
    assert times == {add: 12}
    assert found["TOT"] == 4 * 20 + 4 + 8
    assert addons.total_FLOPs(ir) == 2 * found["TOT"]
    addons.print_FLOPs(found, "type")
    table = capsys.readouterr().out.splitlines()
    assert [c.strip() for c in table[0].split("|")] == ["Op Type", "FLOPs", "%"]
    assert [c.strip() for c in table[2].split("|")] == ["MatMul", "76.000E+00", "82.6"]
    addons.print_FLOPs(found, "flat")
    table = capsys.readouterr().out.splitlines()
    assert [c.strip() for c in table[0].split("|")] == ["Op Type", "FLOPs", "Op Name"]
    assert ["TOT", "92.000E+00", ""] in [[c.strip() for c in line.split("|")] for line in table]
    with says(ValueError, "Unknown mode specified. Please use `type` or `flat`."):
        addons.print_FLOPs(found, "x")


def test_operations_in_scientific_form():
    for value, text in ((972, "0.972E+03"), (64, "64.000E+00"), (0, "0.000E+00"), (1.5e9, "1.500E+09")):
        assert addons.format_flops_scientific(value) == text
    assert addons.format_flops_scientific(2e6, "K") == "2000.000E+03"
    assert addons.format_flops_scientific(2e12, "T") == "2.000E+12"
    with says(ValueError, "unknown format specified"):
        addons.format_flops_scientific(1, "x")


def test_proportions_reach_called_graphs_and_convolutions():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.ones((1, 1, 4, 4), np.float32))

        def inner(x):
            return ops.conv(x, popxl.constant(np.ones((1, 1, 2, 2), np.float32))) @ popxl.constant(
                np.ones((3, 3), np.float32)
            )

        graph = ir.create_graph(inner, x)
        with popxl.ipu(1):
            outside = ir.create_graph(inner, x)
        ops.call(graph, x)
        addons.set_graph_available_memory_proportion_by_ipu(ir.main_graph, [0.1, 0.2])

        def proportions(graph):
            conv, product = (
                next(op for op in graph._ops.values() if op.opType() == kind) for kind in ("Conv", "MatMul")
            )
            return conv.getConvOptions().availableMemoryProportions, product.getAvailableMemoryProportion()

        assert proportions(graph) == ([0.1], 0.1)
        assert proportions(outside)[0] == []
        addons.set_available_memory_proportion_by_ipu(ir, [0.1, 0.2])
        assert proportions(outside) == ([0.2], 0.2)
