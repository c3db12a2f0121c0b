"""Step I/O from generators and loaders: values, order, errors, positions, and that data are drawn ahead."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import popart_jax as popart
from popart_jax import Stream

from . import nets

TEXT = """g (float[2,3] x, float[2] s) => (float loss) { m = Mul(x, w) n = Mul(m, x)
    r = ReduceSum<axes = [1], keepdims = 0>(n) y = Mul(r, s) loss = ai.graphcore.IdentityLoss<reduction = "Sum">(y) }"""
STEPS = 5


def session(**options):
    proto = nets.model(TEXT, w=np.ones(3, np.float32))
    return nets.train(proto, {"loss": "All"}, nets.sgd(0.01), batches=2, **options)


def data(steps=STEPS):
    rng = np.random.default_rng(0)
    return [
        {"x": rng.normal(size=(2, 2, 3)).astype(np.float32), "s": np.ones((2, 2), np.float32)} for _ in range(steps)
    ]


def expected():
    one = session()
    losses = [nets.run(one, **item)["loss"].copy() for item in data()]
    return losses, nets.weights_of(one, w=np.empty(3, np.float32))["w"]


def pieces():
    """Micro-batches of half a step, as tuples in the order of the inputs."""
    for item in data():
        yield from ((item["x"][i], item["s"][i]) for i in range(2))


SOURCES = {
    "whole steps": (data, 1),
    "nothing ahead": (data, 0),
    "two ahead": (data, 2),
    "generator": (lambda: iter(data()), 1),
    "pieces": (pieces, 1),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_streams_give_what_arrays_give(kind):
    source, ahead = SOURCES[kind]
    one, losses = session(), []
    with Stream(source, one.initAnchorArrays(), prefetch=ahead) as stream:
        while stream.more(one):
            one.run(stream)
            losses.append(stream.outputs["loss"].copy())
        with pytest.raises(popart.popart_runtime_error, match="ended after 5 steps"):
            one.run(stream)
    want, weight = expected()
    np.testing.assert_array_equal(losses, want)
    np.testing.assert_array_equal(nets.weights_of(one, w=weight)["w"], weight)


def test_pytorch_and_grain_loaders():
    torch, grain = pytest.importorskip("torch"), pytest.importorskip("grain.python")
    rows = data()
    arrays = [np.stack([r[n] for r in rows]) for n in ("x", "s")]
    tensors = torch.utils.data.TensorDataset(*map(torch.from_numpy, arrays))
    loaders = [
        torch.utils.data.DataLoader(tensors, batch_size=1),
        grain.MapDataset.source(rows).to_iter_dataset(),
    ]
    for loader in loaders:
        one = session()
        with Stream(loader, one.initAnchorArrays()) as stream:
            while stream.more(one):
                one.run(stream)
        np.testing.assert_array_equal(nets.weights_of(one, w=np.empty(3, np.float32))["w"], expected()[1])


@pytest.mark.parametrize("kind", ["list", "grain"])
def test_a_stream_goes_on_where_another_stood(kind):
    source = data()
    if kind == "grain":
        source = pytest.importorskip("grain.python").MapDataset.source(source).to_iter_dataset()
    one = session()
    first = Stream(source, one.initAnchorArrays(), prefetch=2)
    for _ in range(3):
        one.run(first)
    position = first.position()
    assert (position["state"] is not None) == (kind == "grain")
    first.close()
    with Stream(source, one.initAnchorArrays()) as second:
        second.seek(position)
        while second.more(one):
            one.run(second)
        assert second.position()["steps"] == STEPS
        with pytest.raises(popart.popart_runtime_error, match="can't change any more"):
            second.seek(position)
    np.testing.assert_array_equal(nets.weights_of(one, w=np.empty(3, np.float32))["w"], expected()[1])


def test_the_next_step_is_drawn_while_this_one_waits():
    drawn = threading.Event()

    def source():
        for i, item in enumerate(data()):
            if i == 1:
                drawn.set()
            yield item

    one = session()
    with Stream(source, one.initAnchorArrays()) as stream:
        one.run(stream)
        assert drawn.wait(10)


def test_closing_ends_the_thread():
    one = session()
    stream = Stream(lambda: iter(data(1000)), one.initAnchorArrays(), prefetch=3)
    one.run(stream)
    before = threading.active_count()
    stream.close()
    limit = time.monotonic() + 10
    while threading.active_count() >= before:
        assert time.monotonic() < limit
        time.sleep(0.01)


def broken():
    yield data()[0]
    raise ValueError("the disk is gone")


WRONG = {
    "ends inside": (lambda: [{n: x[:1] for n, x in data()[0].items()}], "ended inside a step"),
    "too large": (lambda: [{n: np.concatenate([x, x, x]) for n, x in data()[0].items()}], "18 more|has 36 elements"),
    "lacks": (lambda: [{"x": data()[0]["x"]}], r"lacks \['s'\]"),
    "number": (lambda: [(data()[0]["x"],)], "has 1 arrays"),
    "type": (lambda: [{n: x.astype(np.float64) for n, x in data()[0].items()}], "Type discrepancy"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("ahead", [0, 1])
def test_wrong_items(what, ahead):
    source, text = WRONG[what]
    one = session()
    refusal = pytest.raises(popart.popart_runtime_error, match=text)
    with Stream(source, one.initAnchorArrays(), prefetch=ahead) as stream, refusal:
        one.run(stream)


def test_errors_of_the_source_reach_the_program():
    one = session()
    with Stream(broken, one.initAnchorArrays()) as stream:
        one.run(stream)
        with pytest.raises(ValueError, match="the disk is gone"):
            one.run(stream)


def test_wrong_anchors_are_refused():
    one = session()
    with Stream(data, {}) as stream, pytest.raises(popart.popart_runtime_error, match="No tensor loss provided"):
        one.run(stream)
    with pytest.raises(popart.popart_exception, match="prefetch is -1"):
        Stream(data, {}, prefetch=-1)
