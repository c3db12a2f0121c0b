"""Runs a function of tensors as a PopXL program, forward or differentiated."""

from __future__ import annotations

import numpy as np

from popart_jax import popxl
from popart_jax.popxl import ops


def _plain(graph, provided, required):
    return popxl.transforms.autodiff(graph, grads_provided=provided, grads_required=required)


def forward(fn, *arrays):
    """Results of ``fn(*tensors)`` with the arrays streamed in."""
    ir = popxl.Ir()
    with ir.main_graph:
        streams = [popxl.h2d_stream(a.shape, popxl.dtype.as_dtype(a)) for a in arrays]
        out = fn(*[ops.host_load(s) for s in streams])
        outs = [out] if isinstance(out, popxl.Tensor) else list(out)
        sinks = [popxl.d2h_stream(t.shape, t.dtype) for t in outs]
        for sink, t in zip(sinks, outs, strict=True):
            ops.host_store(sink, t)
    with popxl.Session(ir) as session:
        sent = session.run(dict(zip(streams, arrays, strict=True)))
    found = [sent[s] for s in sinks]
    return found[0] if len(found) == 1 else found


def gradients(fn, arrays, seed, wanted=None):
    """Gradients of sum(fn(*arrays) * seed) with respect to the wanted arguments, by `transforms.autodiff`."""
    return differentiated(fn, arrays, lambda shape: seed, wanted)[0]


def differentiated(fn, arrays, seed_of, wanted=None, autodiff=_plain):
    """Gradients of sum(fn(*arrays) * seed), the seed made for its shape, and the operators of the gradient graph."""
    ir = popxl.Ir()
    with ir.main_graph:
        values = [popxl.variable(a, name=f"v{i}") for i, a in enumerate(arrays)]
        graph = ir.create_graph(lambda *xs: fn(*xs), *values)
        which = list(range(len(arrays))) if wanted is None else wanted
        info = autodiff(graph, graph.outputs[:1], [graph.inputs[i] for i in which])
        types = [op.opType() for op in info.graph._pb_graph.getOps()]
        seed = popxl.constant(seed_of(graph.outputs[0].shape))
        site = ops.call_with_info(graph, *values)
        grad = ops.call_with_info(info.graph, seed, inputs_dict=info.inputs_dict(site))
        sinks = [popxl.d2h_stream(t.shape, t.dtype) for t in grad.outputs]
        for sink, t in zip(sinks, grad.outputs, strict=True):
            ops.host_store(sink, t)
    with popxl.Session(ir) as session:
        sent = session.run()
    return [sent[s] for s in sinks], types


def rng(seed=0):
    """A generator for test data."""
    return np.random.default_rng(seed)
