"""Scan, Loop, PackedDataBlock, LSTM and collectives in elementary form."""

from __future__ import annotations

import numpy as np
import pytest

import patterns

from .helpers import check_declines, check_fires, feeds_of, model, op_types, run, run_ort, run_ort_all, sweep_one

SCAN = """f (float[2] s, float[5,2] x, float[2,5] z) => (float[2] last, float[5,2] ys, float[2,5] zs)
{{ last, ys, zs = Scan<num_scan_inputs=2, scan_input_axes=[0,1], scan_output_axes=[0,1],
     scan_input_directions=[{backwards},0], scan_output_directions=[0,{backwards}],
     body = b (float[2] a, float[2] p, float[2] q) => (float[2] n, float[2] y, float[2] w) {{
       n = Add(a, p) y = Mul(n, q) w = Sub(n, q) }}>(s, x, z) }}"""


@pytest.mark.parametrize("backwards", [0, 1])
def test_scan(backwards):
    m = model(SCAN.format(backwards=backwards))
    before = m.clone()
    assert sweep_one(m, "ScanToLoop").fired
    assert "Scan" not in op_types(m)
    got = run(m, feeds_of(m))
    for name, wanted in zip(("last", "ys", "zs"), run_ort_all(before, feeds_of(m)), strict=True):
        np.testing.assert_allclose(got[name], wanted, rtol=1e-6)


def test_scan_backwards_values():
    m = model(SCAN.format(backwards=1))
    feeds = feeds_of(m)
    sweep_one(m, "ScanToLoop")
    got = run(m, feeds)
    sums = feeds["s"] + np.cumsum(feeds["x"][::-1], 0)
    np.testing.assert_allclose(got["ys"], sums * feeds["z"].T, rtol=1e-5)
    np.testing.assert_allclose(got["zs"], (sums - feeds["z"].T)[::-1].T, rtol=1e-5)


def test_scan_declines_unknown_length():
    text = """f (float[2] s, float[N,2] x) => (float[2] last)
    { last = Scan<num_scan_inputs=1, body = b (float[2] a, float[2] p) => (float[2] n) { n = Add(a, p) }>(s, x) }"""
    check_declines(model(text), "ScanToLoop", why="not static")


LOOP = """f (float[2] s) => (float[2] last, float[3,2] ys) <int64 n = {{3}}, bool go = {{1}}>
{{ last, ys = Loop<body = b (int64 i, bool c, float[2] a) => (bool d, float[2] r, float[2] y) {{
     d = Identity(c) r = Add(a, a) y = Neg(r) }}>(n, go, s) }}"""


def test_scan_outputs_of_loop():
    m = check_fires(model(LOOP.format()), "LoopScanOut", expect=["Init", "Loop"])
    assert len(m.graph[-1].inputs) == 4


def test_loop_without_scan_outputs_stays():
    text = """f (float[2] s) => (float[2] last) <int64 n = {3}, bool go = {1}>
    { last = Loop<body = b (int64 i, bool c, float[2] a)
      => (bool d, float[2] r) { d = Identity(c) r = Add(a, a) }>(n, go, s) }"""
    check_declines(model(text), "LoopScanOut")


def test_both_together():
    m = model(SCAN.format(backwards=0))
    before = m.clone()
    counts = sweep_one(m, "ScanToLoop", "LoopScanOut").counts()
    assert counts == {"ScanToLoop": 1, "LoopScanOut": 1}
    np.testing.assert_allclose(run(m, feeds_of(m))["ys"], run_ort_all(before, feeds_of(m))[1], rtol=1e-6)


PACKED = """f (float[9,2] x, uint32[4] xo, uint32[4] xl, uint32[4] ro, uint32[4] rl) => (float[{size},2] y)
{{ y = ai.graphcore.PackedDataBlock<resultSize=10, callbackBatchSize=2, maxSequenceLengths=[3],
     callback = c (float[2,3,2] a) => (float[2,3,2] b) {{ b = Exp(a) }}>(x, xo, xl, ro, rl) }}"""


def test_packed_data_block():
    m = model(PACKED.format(size=10))
    before = m.clone()
    assert sweep_one(m, "PackedDataBlock").fired
    assert op_types(m) == ["Init", "Loop"]
    u = lambda *v: np.array(v, np.uint32)  # noqa: E731
    lengths = u(3, 2, 1, 3)
    feeds = {
        "x": np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32),
        "xo": u(0, 3, 5, 6),
        "xl": lengths,
        "ro": u(7, 5, 4, 0),
        "rl": lengths,
    }
    np.testing.assert_allclose(run(m, feeds)["y"], run(before, feeds)["y"], rtol=1e-6)


def test_packed_data_block_declines():
    check_declines(model(PACKED.format(size="N")), "PackedDataBlock", why="not static")


LSTM = """f (float[5,2,3] x, float[1,16,3] w, float[1,16,4] r{more})
  => (float[5,1,2,4] y, float[1,2,4] h, float[1,2,4] c)
{{ y, h, c = LSTM<hidden_size=4{attributes}>(x, w, r{arguments}) }}"""


@pytest.mark.parametrize(
    ("more", "arguments"),
    [
        ("", ""),
        (", float[1,32] b", ", b"),
        (", float[1,32] b, float[1,2,4] h0, float[1,2,4] c0", ", b, , h0, c0"),
    ],
)
def test_lstm(more, arguments):
    m = model(LSTM.format(more=more, arguments=arguments, attributes=""))
    before = m.clone()
    assert sweep_one(m, "LSTMOp").fired
    feeds = feeds_of(before)
    np.testing.assert_allclose(run(m, feeds)["y"], run_ort(before, feeds), rtol=1e-5, atol=1e-6)
    got = run(m, feeds)
    np.testing.assert_allclose(got["h"][0], got["y"][-1, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "why"),
    [(', direction="reverse"', "forward only"), (", layout=1", "batch axis"), (", clip=1.0", "clipped")],
)
def test_lstm_declines(attributes, why):
    check_declines(model(LSTM.format(more="", arguments="", attributes=attributes)), "LSTMOp", why=why)


REDUCE = (
    "f (float[2] a, float[2] b) => (float[2] x, float[2] y) "
    "{{ x, y = ai.graphcore.AllReduce<identicalInputs={same}>(a, b) }}"
)


def test_all_reduce_of_equals():
    check_fires(model(REDUCE.format(same=1)), "AllReduceToIdentity", expect=["Identity", "Identity"])


def test_all_reduce_declines():
    check_declines(model(REDUCE.format(same=0)), "AllReduceToIdentity", why="differ")


def test_replaced_bodies_no_longer_read():
    m = model(SCAN.format(backwards=0))
    sweep_one(m, "ScanToLoop", "LoopScanOut")
    x = m.graph.inputs[1]
    alive = set(m.graph.all_nodes())
    assert all(reader in alive for reader in x.consumers())
    assert patterns.static_shape(m.graph.outputs[1]) == (5, 2)
