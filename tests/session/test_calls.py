"""Calls of one subgraph share its ops, so that their arguments must agree (semantics 2.6)."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax as popart

from . import nets


def called(*kinds: tuple[str, list[int]]) -> tuple[popart.Builder, list[str]]:
    """One subgraph, x + x, called once for each of these inputs."""
    builder = popart.Builder()
    callee = builder.createSubgraphBuilder()
    callee.setGraphName("twice")
    x = callee.addUntypedInputTensor("x")
    callee.addOutputTensor(callee.aiOnnx.add([x, x]))
    outs = [
        builder.aiGraphcore.call([builder.addInputTensor(*kind, f"in{i}")], 1, callee)[0]
        for i, kind in enumerate(kinds)
    ]
    return builder, outs


def test_calls_that_agree():
    builder, outs = called(("FLOAT", [2]), ("FLOAT", [2]))
    session = nets.infer(builder.getModelProto(), dict.fromkeys(outs, "All"))
    anchors = nets.run(session, in0=np.ones(2, np.float32), in1=np.full(2, 3, np.float32))
    assert [anchors[o].tolist() for o in outs] == [[2, 2], [6, 6]]


@pytest.mark.parametrize("kind", [("FLOAT", [3]), ("FLOAT", []), ("INT32", [2])])
def test_later_calls_take_what_the_first_took(kind):
    builder, outs = called(("FLOAT", [2]), kind)
    text = r"does not match callee input tensor \(@0\):\n in1 -> twice/x\n .* vs FLOAT   \[2\]"
    with pytest.raises(popart.popart_exception, match=text):
        nets.infer(builder.getModelProto(), dict.fromkeys(outs, "All"))
