"""Runs whose data come from generators and loaders: the values of arrays, drawn ahead, with positions."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from popart_jax import Stream, popart_runtime_error, popxl
from popart_jax.popxl import ops

STEPS, TRANSFERS = 4, 2


def program(replicas: int):
    """w += sum(x) * s in each transfer; what it was before is sent back."""
    ir = popxl.Ir(replication=replicas)
    ir.num_host_transfers = TRANSFERS
    with ir.main_graph, popxl.in_sequence():
        x, s = popxl.h2d_stream((3,), popxl.float32, "x"), popxl.h2d_stream((), popxl.int32, "s")
        sink, w = popxl.d2h_stream((), popxl.float32), popxl.variable(np.float32(0), name="w")
        for _ in range(TRANSFERS):
            ops.host_store(sink, w)
            total = ops.collectives.replicated_all_reduce(ops.sum(ops.host_load(x)))
            ops.add_(w, total * ops.cast(ops.host_load(s), popxl.float32))
    return popxl.Session(ir, "ipu_hw"), x, s, sink, w


def data(replicas: int):
    rng = np.random.default_rng(0)
    lead = (TRANSFERS, replicas) if replicas > 1 else (TRANSFERS,)
    return [(rng.normal(size=(*lead, 3)).astype(np.float32), rng.integers(1, 5, lead)) for _ in range(STEPS)]


def pieces(replicas: int):
    """Single transfers."""
    return lambda: iter([(x[i], s[i]) for x, s in data(replicas) for i in range(TRANSFERS)])


def sources(session_streams, replicas: int):
    x, s = session_streams
    return {
        "sequences": data(replicas),
        "pieces": pieces(replicas),
        "names": [{"x": a, "s": b} for a, b in data(replicas)],
        "streams": [{s: b, x: a} for a, b in data(replicas)],
    }


def trained(replicas: int, kind: str | None, ahead: int = 1):
    session, x, s, sink, w = program(replicas)
    losses = []
    with session:
        if kind is None:
            losses += [session.run({x: a, s: b})[sink] for a, b in data(replicas)]
        else:
            with Stream(sources((x, s), replicas)[kind], prefetch=ahead) as stream:
                while stream.more(session):
                    losses.append(session.run(stream)[sink])
                with pytest.raises(popart_runtime_error, match="ended after 4 steps"):
                    session.run(stream)
    return np.stack(losses), session.get_tensor_data(w)


@pytest.mark.parametrize("replicas", [1, 2])
def test_streams_give_what_arrays_give(replicas):
    losses, weight = trained(replicas, None)
    for kind, ahead in (("sequences", 1), ("pieces", 2), ("names", 0), ("streams", 1)):
        found, last = trained(replicas, kind, ahead)
        np.testing.assert_array_equal(found, losses)
        np.testing.assert_array_equal(last, weight)


def test_the_next_step_is_drawn_while_one_runs():
    session, *_ = program(1)
    drawn, second = [], threading.Event()

    def source():
        for item in data(1):
            drawn.append(item)
            if len(drawn) == 2:
                second.set()
            yield item

    with session, Stream(source) as stream:
        session.run(stream)
        assert second.wait(20)
        assert stream.position()["steps"] == 1
    session, _, _, sink, _ = program(1)
    with session, Stream(source) as stream:
        stream.seek({"steps": 3, "processes": 1, "state": None})
        np.testing.assert_array_equal(session.run(stream)[sink][0], 0)
        assert not stream.more(session)


def test_sources_that_do_not_fit_are_named():
    session, *_ = program(1)
    with session:
        for item, text in (
            ({"x": np.zeros((2, 3), np.float32)}, r"lacks \['s'\]"),
            ((np.zeros((2, 3), np.float32), np.zeros(2)), "Type discrepancy for tensor s"),
            ((np.zeros((3, 3), np.float32), np.zeros(2, np.int32)), "9 elements for tensor x, where the step takes 6"),
        ):
            with Stream([item]) as stream, pytest.raises(popart_runtime_error, match=text):
                session.run(stream)
    with Stream([]) as stream, pytest.raises(ValueError, match="Must be attached"):
        stream.more(session)
