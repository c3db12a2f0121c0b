"""VirtualGraphMode.Auto."""

from __future__ import annotations

import pytest

from popart_jax.errors import popart_exception

from .helpers import find, inference, ops, training

WIDTHS = (8, 8, 8, 8)


def chain(ipus, ratios=(), widths=WIDTHS, **options):
    """MatMuls in a row: the weight of each is its cost."""
    sizes = [4, *widths]
    inputs = "".join(f", float[{a},{b}] w{i}" for i, (a, b) in enumerate(zip(sizes, widths, strict=False)))
    body = "".join(f" h{i + 1} = MatMul(h{i}, w{i})" for i in range(len(widths)))
    text = f"BuilderGraph_1 (float[2,4] h0{inputs}) => () {{{body} }}"
    types = {f"h{i + 1}": (2, w) for i, w in enumerate(widths)}
    facts = training(
        text,
        " ".join(f"w{i}" for i in range(len(widths))),
        types,
        virtual_graphs="Auto",
        ipus=ipus,
        split_ratios=tuple(ratios),
        **options,
    )
    return inference(facts, f"h{len(widths)}")


def places(facts):
    return [int(op["attributes"]["__ipu_number"]) for op in find(facts, "MatMul")]


def test_one_ipu():
    assert places(chain(1)) == [0, 0, 0, 0]


def test_equal_shares():
    assert places(chain(2, widths=(4, 4, 4, 4))) == [0, 0, 1, 1]
    assert places(chain(4, widths=(4, 4, 4, 4))) == [0, 1, 2, 3]


def test_ratios():
    assert places(chain(2, (0.25, 0.75), widths=(4, 4, 4, 4))) == [0, 1, 1, 1]
    assert places(chain(2, (0.75, 0.25), widths=(4, 4, 4, 4))) == [0, 0, 0, 1]


def test_every_op_has_an_ipu_and_copies_are_made():
    facts = chain(2, widths=(4, 4, 4, 4))
    assert all("__ipu_number" in op["attributes"] for op in ops(facts))
    assert [op["outputs"][0]["name"][-3:] for op in find(facts, "IpuCopy")] == ["_c1"]


def test_too_few_splits():
    with pytest.raises(
        popart_exception, match=r"\[AutoVirtualGraph\] Couldn't find enough splits for 4 IPUs. Only found 2"
    ):
        ops(chain(4, widths=(4, 4)))


def test_no_cut_through_a_residual():
    text = """BuilderGraph_1 (float[2,4] x, float[4,4] a, float[4,4] b, float[4,4] c) => () {
      h = MatMul(x, a)
      i = MatMul(h, b)
      j = Add(h, i)
      k = MatMul(j, c)
    }"""
    types = dict.fromkeys("hijk", (2, 4))
    facts = inference(training(text, "a b c", types, virtual_graphs="Auto", ipus=2), "k")
    by_output = {
        op["outputs"][0]["name"]: op["attributes"]["__ipu_number"] for op in ops(facts) if op["type"] != "IpuCopy"
    }
    assert by_output["j"] == by_output["i"]
    assert len(find(facts, "IpuCopy")) == 1
