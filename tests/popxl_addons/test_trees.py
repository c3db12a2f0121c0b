"""DotTree, named tensors, array helpers."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax import popxl_addons as addons
from popart_jax.popxl_addons import array_munging as munging
from popart_jax.popxl_addons.dot_tree import DotTree


def test_dotted_and_numeric_keys():
    tree = DotTree(a=1)
    tree.insert("b.c", 2)
    tree.insert(0, DotTree(x=5))
    assert tree.b.c == tree["b.c"] == 2
    assert tree[0].x == tree["-1.x"] == 5
    assert tree.to_dict() == {"a": 1, "b.c": 2, "0.x": 5}
    assert tree.unpack() == (("0.x", "a", "b.c"), (5, 1, 2))
    assert "b.c" in tree
    assert "b.z" not in tree
    assert DotTree.from_dict(tree.to_dict()).to_dict() == tree.to_dict()
    assert tree.map(lambda v: -v).to_dict() == {"a": -1, "b.c": -2, "0.x": -5}
    assert DotTree().unpack() == ([], [])


def test_inserting_under_a_taken_key_needs_overwrite_and_changes_nothing():
    tree = DotTree()
    tree.insert("b.c", 2)
    with pytest.raises(ValueError, match="'b'"):
        tree.insert("b.d", 3)
    assert tree.to_dict() == {"b.c": 2}
    tree.insert("b.d", 3, overwrite=True)
    assert tree.to_dict() == {"b.c": 2, "b.d": 3}
    for key in ("a b", -1, "x.1a", "x.", None, 1.5):
        with pytest.raises(ValueError):
            tree.insert(key, 0)
    with pytest.raises(AttributeError, match=r"Available Keys: \['b'\]"):
        tree.missing  # noqa: B018


def test_a_dictionary_leaves_the_trees_in_it_as_they_are():
    inner = DotTree(x=1)
    assert DotTree.from_dict({"a": inner, "a.y.z": 2, "a.y.w": 3}).to_dict() == {"a.x": 1, "a.y.z": 2, "a.y.w": 3}
    assert inner.to_dict() == {"x": 1}
    with pytest.raises(ValueError, match="'a' already exists"):
        DotTree.from_dict({"a": 1, "a.b": 2})


def test_clear_keeps_linked_trees():
    inner = DotTree(x=1)
    outer = DotTree(a=2)
    outer.insert("inner", inner)
    outer._clear()
    assert outer.to_dict() == {}
    inner.insert("y", 3)
    assert outer.to_dict() == {"inner.y": 3}


def test_named_tensors_print_leaves_as_tensors():
    with popxl.Ir().main_graph:
        w, b = popxl.variable(np.zeros((2, 3), np.float32), name="w"), popxl.variable(np.zeros(3, np.float32), name="b")
        tree = addons.NamedTensors.from_dict({"layer.weight": w, "layer.bias": b})
    assert repr(w) == "Variable[w popxl.dtypes.float32 (2, 3)]"
    assert repr(tree.layer) == (
        "{'weight': Tensor[w popxl.dtypes.float32 (2, 3)], 'bias': Tensor[b popxl.dtypes.float32 (3,)]}"
    )
    assert tree.tensors == (b, w)
    assert tree.tensors[:-1] == (b,)
    assert tree.to_mapping(tree) == {w: w, b: b}


def test_shards_and_repeats_are_undone():
    x = np.arange(24).reshape(4, 6)
    np.testing.assert_array_equal(munging.unshard(munging.shard(x, 3, 1), 1), x)
    np.testing.assert_array_equal(munging.unshard2D(munging.shard2D(x, 2, 3, 0, 1), 2, 3, 0, 1), x)
    assert munging.repeat(x, 2).shape == (2, 4, 6)
    assert munging.repeat_axis(x, 2, 1).shape == (4, 12)
    strided = munging.repeat_shard(x, 2, 2, 0, "strided")
    np.testing.assert_array_equal(strided[0], strided[1])
    with pytest.raises(IndexError):
        munging.handle_negative_axis(x, 2)


def test_factories_say_what_is_wrong_with_their_data(tmp_path):
    with popxl.Ir().main_graph:
        few = addons.VariableFactory([np.zeros(2)], name="few")
        few.next_data()
        with pytest.raises(ValueError, match="'few' has no more elements"):
            few.next_data()
        addons.VariableFactory(lambda: np.zeros(2)).next_memmap(str(tmp_path), "w")
        for other in (1, 3):  # NumPy would read a part of the file, or write zeros to it
            with pytest.raises(ValueError, match="it holds another variable"):
                addons.VariableFactory(lambda n=other: np.zeros(n)).next_memmap(str(tmp_path), "w")
        assert (tmp_path / "w.npy").stat().st_size == 8
