"""Programs that choose while they run: a beam search that ends by itself, updates that are left out."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.popxl import ops

from ..run import rng

torch = pytest.importorskip("torch")
WORDS, BEAMS, STEPS, END, START = 7, 3, 5, 0, 3
NEVER = -1e9


def longer(tokens, scores, ended, last, table):
    """The best continuations of all beams; one that has ended goes on with the end alone, at no cost."""
    word = ops.flatten(ops.dynamic_slice(tokens, last, [1], [1], True))
    costs = ops.log(ops.softmax(ops.gather(table, word), -1))
    only_end = popxl.constant(np.where(np.arange(WORDS) == END, 0, NEVER).astype(np.float32))
    costs = ops.where(ops.reshape(ops.equal(ended, popxl.constant(1)), (BEAMS, 1)), only_end, costs)
    every = ops.flatten(ops.reshape(scores, (BEAMS, 1)) + costs)
    scores, place = ops.topk(every, BEAMS, 0, True, True)
    parent, word = place / WORDS, place % WORDS
    last = last + 1
    tokens = ops.dynamic_update(
        ops.gather(tokens, parent), last, ops.reshape(word, (BEAMS, 1)), [1], [1], no_overlap=True
    )
    now = ops.cast(ops.equal(word, popxl.constant(END)), popxl.int32)
    return tokens, scores, ops.maximum(ops.gather(ended, parent), now), last


def unchanged(*state):
    return tuple(ops.identity(t) for t in state)


def step(*given):
    """One round, unless all beams have ended."""
    ir, state = popxl.gcg().ir, given[:-1]
    over = ops.equal(ops.min(state[2]), popxl.constant(1))
    stay, go_on = ir.create_graph(unchanged, *state), ir.create_graph(longer, *given)
    return ops.conditional(over, stay, go_on, state, given)


def expected_beams(table):
    costs = table - np.log(np.exp(table).sum(1, keepdims=True))
    beams = [([START], 0.0)]
    for _ in range(STEPS):
        if all(words[-1] == END for words, _ in beams):
            break
        ended = [([*words, END], score) for words, score in beams if words[-1] == END]
        alive = [([*w, n], s + costs[w[-1], n]) for w, s in beams if w[-1] != END for n in range(WORDS)]
        beams = sorted(ended + alive, key=lambda beam: -beam[1])[:BEAMS]
    return beams


@pytest.mark.parametrize("pull", [0, 4])
def test_beams_end_by_themselves(pull):
    """Where the end is likely, all beams reach it before the last round."""
    table = rng(2).normal(size=(WORDS, WORDS)).astype(np.float32) * 2
    table[:, END] += pull
    ir = popxl.Ir()
    with ir.main_graph:
        first = np.zeros((BEAMS, STEPS + 1), np.int32)
        first[:, 0] = START
        scores = np.array([0] + [NEVER] * (BEAMS - 1), np.float32)
        start = [first, scores, np.zeros(BEAMS, np.int32), np.zeros(1, np.uint32), table]
        state = [popxl.constant(a) for a in start]
        found = ops.repeat(ir.create_graph(step, *state), STEPS, *state)
        sinks = [popxl.d2h_stream(t.shape, t.dtype) for t in found]
        for sink, t in zip(sinks, found, strict=True):
            ops.host_store(sink, t)
    with popxl.Session(ir) as session:
        sent = session.run()
    tokens, scores, ended, last = (sent[s] for s in sinks)
    wanted = expected_beams(table)
    assert last == len(wanted[0][0]) - 1
    assert (last[0] < STEPS, ended.all()) == (pull > 0, pull > 0)
    np.testing.assert_array_equal(tokens[:, : int(last[0]) + 1], [words for words, _ in wanted])
    np.testing.assert_allclose(scores, [score for _, score in wanted], rtol=1e-4)


def test_an_update_that_overflows_is_left_out_and_the_scale_halved():
    """Half precision with weights in float32: where a gradient is not finite, the loss scale changes in its place."""
    rows, steps = 4, 6
    draws = rng(0)
    xs = draws.normal(size=(steps, rows, 5)).astype(np.float16)
    ys = (draws.normal(size=(steps, rows, 1)) * 8).astype(np.float16)
    start = draws.normal(size=(5, 1)).astype(np.float32)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        sources = [popxl.h2d_stream(a.shape[1:], popxl.float16) for a in (xs, ys)]
        x, y = (ops.host_load(s) for s in sources)
        weight, scale = popxl.variable(start), popxl.variable(np.float32(2**15))
        half = ops.cast(weight, popxl.float16)

        def loss(w, x, y):
            error = x @ w - y
            return ops.mean(error * error)

        graph = ir.create_graph(loss, half, x, y)
        info = popxl.transforms.autodiff(graph, grads_required=graph.inputs[:1])
        site = ops.call_with_info(graph, half, x, y)
        (grad,) = ops.call(info.graph, ops.cast(scale, popxl.float16), inputs_dict=info.inputs_dict(site))
        grad = ops.cast(grad, popxl.float32)
        finite = ops.equal(ops.sum(ops.cast(ops.isfinite(grad), popxl.int32)), popxl.constant(5))
        learn = ir.create_graph(lambda w, g, s: (w - g * (0.05 / s), s * 1.0), weight, grad, scale)
        skip = ir.create_graph(lambda w, s: (w * 1.0, s * 0.5), weight, scale)
        new, halved = ops.conditional(finite, learn, skip, [weight, grad, scale], [weight, scale])
        ops.var_updates.copy_var_update_(weight, new)
        ops.var_updates.copy_var_update_(scale, halved)
        sink = popxl.d2h_stream((), popxl.float32)
        ops.host_store(sink, halved)
    with popxl.Session(ir) as session:
        found = [float(session.run(dict(zip(sources, pair, strict=True)))[sink]) for pair in zip(xs, ys, strict=True)]
    w, s, wanted = start.copy(), np.float32(2**15), []
    for x, y in zip(xs, ys, strict=True):
        leaf = torch.tensor(w.astype(np.float16), requires_grad=True)
        error = torch.tensor(x) @ leaf - torch.tensor(y)
        (g,) = torch.autograd.grad((error * error).mean(), leaf, torch.tensor(s, dtype=torch.float16))
        if torch.isfinite(g).all():
            w = w - g.float().numpy() * (0.05 / s)
        else:
            s = s / 2
        wanted.append(float(s))
    assert found == wanted
    assert 1 < len({2.0**15, *wanted}) <= steps  # some steps were left out, some were not
    np.testing.assert_allclose(session.get_tensor_data(weight), w, rtol=2e-2, atol=2e-3)
