"""Rules of popxl_addons that the supplement of the specification states: words, shapes, containers, sessions."""

from __future__ import annotations

import json

import numpy as np
import pytest

import popart_jax.popxl_addons as addons
import popart_jax.popxl_addons.ops as addons_ops
from popart_jax import popxl
from popart_jax.errors import popart_exception, popart_internal_exception
from popart_jax.popxl_addons import array_munging as munging
from popart_jax.popxl_addons.dot_tree import DotTree
from popart_jax.popxl_addons.graph_cache import argument_hash
from popart_jax.popxl_addons.layers import Embedding, LayerNorm, LayerNormDistributed, Linear
from popart_jax.popxl_addons.layers.linear_fp8 import LinearFP8
from popart_jax.popxl_addons.layers.linear_gq import LinearGQ
from popart_jax.popxl_addons.optimizers import AdamOptimizerStep
from popart_jax.popxl_addons.remote import (
    create_remote_buffer,
    load_remote,
    load_remote_graph,
    named_variable_buffers,
)
from popart_jax.popxl_addons.rts import reduce_replica_sharded_tensor
from popart_jax.popxl_addons.variable_factory import VariableFactory

from ..texts import says

SPEC = popxl.TensorSpec((4, 6), popxl.float32)


def kinds(graph):
    return [op.opType() for op in graph._pb_graph.getOps()]


# --- trees ---------------------------------------------------------------------------------------------------------


def test_words_of_trees():
    tree = DotTree(a=1)
    tree.insert(0, 5)
    for error, text, act in (
        (ValueError, "'a' already exists", lambda: tree.insert("a", 2)),
        (ValueError, "'a b' is not a valid python identifier", lambda: tree.insert("a b", 2)),
        (ValueError, "Numerical key cannot be negative: -1", lambda: tree.insert(-1, 2)),
        (ValueError, "Numerical key cannot be negative: -1", lambda: tree.insert("-1", 2)),
        (KeyError, "Key does not exist: b. Available keys:", lambda: tree.get("b")),
        (KeyError, "Numerical key does not exist: 3.", lambda: tree[3]),
        (KeyError, "Negative numerical key does not exist: -2.", lambda: tree[-2]),
        (KeyError, "Key exists (a) but is not a sub-DotTree of type DotTree", lambda: tree.get("a.b")),
        (AttributeError, "No attribute 'b'. Available Keys:", lambda: tree.b),
        (ValueError, "`keys` cannot contain duplicate values.", lambda: tree.filter_keys(["a", "a"])),
    ):
        with pytest.raises(error) as caught:
            act()
        assert caught.value.args[0].startswith(text)


def test_a_new_key_below_a_subtree_is_unseen_by_other_holders():
    inner = DotTree(a=1)
    tree, other = DotTree(x=inner), DotTree()
    other.update(tree)
    tree.insert("x.b", 2, overwrite=True)
    assert (inner.keys(), tree.x.keys(), other.x.keys()) == (["a"], ["a", "b"], ["a"])
    inner.insert("c", 3)
    assert other.x.keys() == ["a"]


def test_words_of_streams_factories_and_buffers():
    with popxl.Ir(replication=4).main_graph:
        streams = addons.InputStreams(a=((), popxl.float32))
        with pytest.raises(KeyError, match=r"No key 'b'\. Available Keys:"):
            streams["b"]
        with says(AttributeError, "No attribute 'b'."):
            streams.b  # noqa: B018
        with says(ValueError, "Passed callable via `data_iter` throws error."):
            VariableFactory(lambda: 1 / 0)
        with says(ValueError, "`data_iter` must be an iterable or callable."):
            VariableFactory(3)
        with says(ValueError, "`data_iter` must be of a numpy array, torch tensor or iterable. It provided: None."):
            VariableFactory(iter([None]))
        with pytest.raises(AssertionError):
            VariableFactory(lambda: np.zeros(8), shard_over=8)
        with says(ValueError, "Can't shard tensor with 6 elements over 4 replicas"):
            create_remote_buffer(popxl.TensorSpec((6,), popxl.float32), shard_over=4)
        factories, _ = Linear(4).create_graph(SPEC)
        with says(ValueError, "Invalid shard_over_dict int value: 5"):
            named_variable_buffers(factories, shard_over_dict=5)
        with says(ValueError, "shard_over_dict must be a dictionary, an integer or a boolean"):
            named_variable_buffers(factories, shard_over_dict=1.5)


def test_remote_graphs_raise_entries_and_merge_their_exchanges():
    with popxl.Ir().main_graph:
        factories, _ = Linear(4).create_graph(SPEC)
        buffers = named_variable_buffers(factories, entries=3, shard_over_dict=False)
        graph, names = load_remote_graph(buffers, entries=5)
        load_remote_graph(buffers, entries=2)
        assert [b.entries for b in buffers.values_flat()] == [5, 5]
        assert names == ["bias", "weight"]
        assert kinds(graph.graph).count("MultiExchange") == 1
        store = addons.store_remote_graph(buffers)
        assert kinds(store.graph) == ["MultiExchange"]


def test_reductions_of_shards_take_the_shortest_way():
    with popxl.Ir(replication=4).main_graph as main:
        ir = popxl.gcg().ir
        t = popxl.variable(np.zeros((4, 2), np.float32))
        odd = popxl.variable(np.zeros(3, np.float32))
        pair, alone = ir.replica_grouping(group_size=2), ir.replica_grouping(group_size=1)

        def made(*args):
            before = len(kinds(main))
            reduce_replica_sharded_tensor(*args)
            return kinds(main)[before:]

        assert made(t) == ["ReplicatedReduceScatter"]
        assert made(t, "add", None, pair) == ["ReplicatedAllReduce", "ReplicatedReduceScatter"]
        assert made(t, "add", alone, pair) == ["ReplicatedReduceScatter"]
        assert made(odd) == ["ReplicatedAllReduce"]


def test_memory_maps_of_factories(tmp_path):
    draws = iter(np.arange(12, dtype=np.float32).reshape(3, 4))
    with popxl.Ir(replication=2).main_graph:
        each = popxl.gcg().ir.replica_grouping(group_size=1)
        factories = addons.NamedVariableFactories(w=VariableFactory(draws, name="w", replica_grouping=each))
        v = factories.init("model", memmap_dir=str(tmp_path)).w
        file = tmp_path / "model.w.npy"
        np.testing.assert_array_equal(np.fromfile(file, np.float32).reshape(2, 4), np.arange(8).reshape(2, 4))
        assert isinstance(v._memmap_arr, np.memmap)
        v._memmap_arr.base.flush()
        again = factories.init("model", memmap_dir=str(tmp_path), read_only_if_exists=True).w
        assert again._memmap_arr.mode == "r"
        assert next(draws).tolist() == [8, 9, 10, 11]


# --- arrays, groupings, caches -------------------------------------------------------------------------------------


def test_words_of_array_helpers():
    x = np.zeros((4, 2))
    with says(ValueError, "tensor parallel factor `tp` is not less than replication factor `rf`: 4 > 2"):
        munging.tensor_parallel_input(x, 4, 2)
    with pytest.raises(ValueError, match="does not equally divide replication factor"):
        munging.tensor_parallel_input(x, 2, 3)
    with says(IndexError, "Array is 0-dimensional"):
        munging.handle_negative_axis(np.zeros(()), 0)
    with says(IndexError, "Axis is out of range. Axis: 2. Array Rank: 2"):
        munging.handle_negative_axis(x, 2)
    with says(ValueError, "sharded_tensor should be either 'contiguous' or 'strided'. Not: x"):
        munging.repeat_shard(x, 2, 2, 0, "x")
    for split in (lambda: munging.shard(x, 0, 0), lambda: munging.split2D(x, 2, 0, 0, 1)):
        with says(ValueError, "An array can't be split into 0 parts."):
            split()


def test_groupings_within_a_link_domain(monkeypatch):
    from popart_jax.popxl_addons.named_replica_grouping import get_ild_replica_grouping

    monkeypatch.setenv("POPLAR_TARGET_OPTIONS", json.dumps({"ipuLinkDomainSize": 4}))
    with popxl.Ir(replication=8).main_graph:
        ir = popxl.gcg().ir
        assert get_ild_replica_grouping() == ir.replica_grouping(group_size=4)
        assert get_ild_replica_grouping(ir.replica_grouping(stride=2)).assignment == [0, 1, 0, 1, 2, 3, 2, 3]
        with says(ValueError, "replica grouping stride must be < IPU Link Domain size"):
            get_ild_replica_grouping(ir.replica_grouping(stride=4))
        with says(ValueError, "Assignment pattern is different across instances"):
            get_ild_replica_grouping(ir.replica_grouping_from_assignments([0, 0, 1, 1, 0, 1, 0, 1]))


def test_caches_hash_their_arguments():
    assert argument_hash([1, {"a": (2, SPEC)}]) == argument_hash([1, {"a": (2, SPEC)}])
    with pytest.raises(TypeError):
        argument_hash(np.zeros(2))


def test_a_negative_number_names_no_inputs():
    class Twice(addons.Module):
        def build(self, x):
            factories, _ = Linear(4).create_graph(x)
            self.add_variable_inputs(-1, factories)
            return x

    with popxl.Ir().main_graph, says(ValueError, "Name of int type must be positive. Value: -1"):
        Twice().create_graph(SPEC)


# --- layers --------------------------------------------------------------------------------------------------------


def test_variables_have_the_type_of_the_input():
    half = popxl.TensorSpec((4, 64), popxl.float16)
    with popxl.Ir().main_graph:
        for layer in (Linear(4), LinearFP8(4), LayerNorm()):
            factories, _ = layer.create_graph(half)
            assert {f.dtype for f in factories.values_flat()} == {popxl.float16}
        factories, _ = LinearFP8(4).create_graph(SPEC)
        assert {f.dtype for f in factories.values_flat()} == {popxl.float32}
        for dim, rows, columns in ((-1, 64, 32), (0, 32, 64)):
            factories, _ = LinearGQ(32, group_size=16, dim=dim).create_graph(half)
            assert factories.weight_compressed.shape == (rows, columns // 16, 4)
            assert factories.weight_compressed.dtype == popxl.uint16
            for name in ("weight_decompression_scale", "weight_decompression_bias"):
                assert (factories.get(name).shape, factories.get(name).dtype) == ((rows, columns // 16, 1), half.dtype)


def test_words_of_layers():
    with popxl.Ir().main_graph:
        with says(
            ValueError, "The scale_metric option x is not available. Please provide one of the following options"
        ):
            LinearFP8(4, scale_metric="x")
        with says(ValueError, "The input tensor must be of shape N x C. Please flatten all extra dimensions."):
            LayerNorm().create_graph(popxl.TensorSpec((2, 3, 4), popxl.float32))
        with pytest.raises(popart_internal_exception):
            LayerNormDistributed().create_graph(popxl.TensorSpec((2, 3, 4), popxl.float32))
        with pytest.raises(AssertionError):
            AdamOptimizerStep().create_graph(SPEC, SPEC, lr=1.0, global_norm=popxl.TensorSpec((), popxl.float32))


def test_a_distributed_norm_shares_rows_in_its_group():
    with popxl.Ir(replication=8).main_graph:
        ir = popxl.gcg().ir
        group = ir.replica_grouping(stride=2, group_size=2)
        factories, graph = LayerNormDistributed(group).create_graph(SPEC)
        assert all(f.replica_grouping == group.transpose() for f in factories.values_flat())
        attributes = next(op for op in graph.graph._ops.values())._node.attributes
        assert list(attributes["groups"].value) == [8, 2, 2]


def test_offsets_of_an_embedding():
    with popxl.Ir(replication=4).main_graph:
        layer = Embedding(popxl.float32, 100, 8, replica_grouping=popxl.gcg().ir.replica_grouping(group_size=1))
    np.testing.assert_array_equal(layer.offsets, np.arange(4) * 32)


@pytest.mark.parametrize("metric", ["amax", "manual_scale"])
def test_a_float8_layer_multiplies_what_the_host_casts(metric):
    """Values of the forward pass and of both gradients, step by step, with the host's casts."""
    from popart_jax.popxl.fp8_utils import host_pow2scale_cast_from_fp8, host_pow2scale_cast_to_fp8

    rng = np.random.default_rng(0)
    x, w, dy = (rng.normal(size=s).astype(np.float32) for s in ((4, 6), (6, 3), (4, 3)))
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        t, seed = popxl.variable(x), popxl.variable(dy)
        factories, graph = LinearFP8(3, scale_metric=metric, scale=2).create_graph(t)
        backward = graph.autodiff()
        variables = factories.init()
        site = graph.bind(variables).call_with_info(t)
        results = backward.call(seed, args=backward.grad_graph_info.inputs_dict(site))
        streams = [addons_ops.host_store(r) for r in (site.outputs[0], *results)]
    assert [s.dtype for s in streams] == [popxl.float32, popxl.float16, popxl.float16, popxl.float32]
    with popxl.Session(ir, "ipu_hw") as session:
        session.write_variables_data({variables.weight: w})
        found = session.run()

    def cast(a, kind, top, less=0):
        scale = int(np.floor(np.log2(top / np.abs(a).max()))) if metric == "amax" else 2
        scale = int(np.clip(scale - less, -31, 31))
        return host_pow2scale_cast_from_fp8(host_pow2scale_cast_to_fp8(a, kind, scale), popxl.float32), scale

    (x8, sx), (w8, sw) = cast(x, popxl.float8_143, 240), cast(w, popxl.float8_143, 240)
    dy8, sd = cast(dy, popxl.float8_152, 57344, 3)
    expected = [
        x8 @ w8 * 2.0 ** (-sw - sx),
        dy8 @ w8.T * 2.0 ** (-sw - sd),
        (dy8.T @ x8 * 2.0 ** (-sx - sd)).T,
        dy.sum(0),
    ]
    for stream, wanted in zip(streams, expected, strict=True):
        np.testing.assert_allclose(found[stream].astype(np.float32), wanted, rtol=2e-3, atol=2e-3)


class Sharded(addons.Module):
    """A product with a weight of which each replica holds a part."""

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        weight = self.add_replica_sharded_variable_input("w", lambda: np.eye(4, dtype=np.float32) * 3)
        return x @ addons.gather_replica_sharded_tensor(weight)


def test_sharded_factories_make_their_variables_in_buffers():
    ir = popxl.Ir(replication=2)
    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable(np.arange(8, dtype=np.float32).reshape(2, 4))
        factories, graph = Sharded().create_graph(x)
        buffers = named_variable_buffers(factories)
        factories.init_remote(buffers)
        (y,) = graph.bind(load_remote(buffers)).call(x)
        sink = popxl.d2h_stream(y.shape, y.dtype)
        popxl.ops.host_store(sink, y)
    with popxl.Session(ir, "ipu_model") as session:
        found = session.run()[sink]
    np.testing.assert_array_equal(found, np.stack([3 * np.arange(8).reshape(2, 4)] * 2))


def test_sharded_factories_make_whole_variables():
    """`init` gives the whole weight (section 28); the graph takes a shard of it and refuses the whole."""
    ir = popxl.Ir(replication=2)
    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable(np.arange(8, dtype=np.float32).reshape(2, 4))
        factories, graph = Sharded().create_graph(x)
        weights = factories.init("layer")
        assert (weights.w.name, weights.w.shape, weights.w.meta_shape) == ("layer.w", (4, 4), ())
        with pytest.raises(popart_exception, match="does not match callee input tensor"):
            graph.bind(weights).call(x)
        shard = popxl.ops.collectives.replica_sharded_slice(weights.w)
        (y,) = graph.bind(addons.NamedTensors(w=shard)).call(x)
        sink = popxl.d2h_stream(y.shape, y.dtype)
        popxl.ops.host_store(sink, y)
    with popxl.Session(ir, "ipu_model") as session:
        found = session.run()[sink]
        np.testing.assert_array_equal(session.get_tensor_data(weights.w), np.eye(4) * 3)
    np.testing.assert_array_equal(found, np.stack([3 * np.arange(8).reshape(2, 4)] * 2))
