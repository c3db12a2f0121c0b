"""Rows in other words: one thing has one answer whatever it is called, and what the words do not tell is refused."""

from __future__ import annotations

import pytest

from ipu_model import published, target
from ipu_model.published.names import precision, program

from .rows import answer, row

CONV = {"field": [28, 28], "kernel-size": 3, "padding": 1, "input-channels": 64, "output-channels": 96, "batch-size": 2}
SAME_CONV = {"image": "28x28", "kernel": 3, "pad": 1, "in_channels": 64, "filters": 96, "bs": 2}
LSTM = {"batch-size": 4, "sequence-size": 5, "input-size": 128, "output-size": 128}
SAME_LSTM = {"batch": 4, "seq_len": 5, "in_features": 128, "hidden_size": 128}
BERT = {"model": "BERT-Base", "seq": 128, "batch": 16}
RESNET = {"model": "ResNet-18", "global_batch": 512}


@pytest.mark.parametrize(("one", "same"), [
    (row("conv", op="conv", params=CONV), row("conv", op="conv2d_layer", params=SAME_CONV)),
    (row("conv", op="conv", params=CONV), row("conv", **SAME_CONV)),
    (row("gemm", op="gemm", params={"m": 64, "k": 128, "n": 96}),
     row("gemm", op="MatMul", params={"size": "64x128x96"})),
    (row("rnn", op="lstm", params=LSTM), row("rnn", "LSTM, all cycles", **SAME_LSTM)),
    (row("reduce", op="reduction", params={"shape": [64, 32], "dims": [1], "operation": "ADD"}),
     row("reduce", op="reduce", params={"shape": "64x32", "axis": -1, "operation": "sum"})),
    (row("reduce", op="reduction", params={"shape": [64, 32], "dims": [1], "operation": "MAX"}),
     row("reduce", op="reduce-max", params={"shape": [64, 32], "dims": 1})),
    (row("solver", op="matrix_solver", type_="fp32", params={"a-rank": 16, "cholesky": True, "block-size": 16}),
     row("solver", op="Cholesky", type_="float", rank=16, block_size=16)),
    (row("conv", op="conv", type_="fp32", params=CONV), row("conv", op="conv", type_="Float32", params=CONV)),
    (row("conv", op="conv", params=CONV), row("conv", "the layer as a whole", op="conv", type_="half", params=CONV)),
    (row("conv", op="conv", hardware="GC2", params=CONV), row("conv", op="conv", hardware="ipu1", params=CONV)),
    (row("conv", op="conv", hardware="GC2", params=CONV), row("conv", op="conv", hardware="C2 card", params=CONV)),
    (row("conv", "max tile memory", "bytes", op="conv", params=CONV),
     row("conv", "memory of a tile at its peak: tile with the most", "bytes", op="conv", params=CONV)),
    (row("conv", "total memory", "bytes", op="conv", params=CONV),
     row("conv", "memory, all tiles", "bytes", op="conv", params=CONV)),
    (row("conv", "total memory", "bytes", op="conv", params=CONV),
     row("conv", "memory used", "bytes", op="conv", params=CONV)),
    (row("conv", op="conv", params=CONV),
     row("conv", N=2, H=28, W=28, kh=3, kw=3, pad=1, cin=64, cout=96)),
    (row("solver", op="matrix_solver", params={"a-rank": 16, "cholesky": True, "block-size": 16}),
     row("solver", op="cholesky", params={"n": 16, "block-size": 16})),
    (row("embedding", op="embedding", params={"shape": [1000, 64], "num-indices": 96}),
     row("embedding", op="embedding", params={"rows": 1000, "width": 64, "lookups": 96})),
    (row("ctc", op="ctc_loss", params={"max-time": 20, "max-label-length": 5, "num-classes": 4}),
     row("ctc", op="ctc_loss", params={"T": 20, "L": 5, "C": 4})),
    (row("conv", "run time", "us", op="conv", params=CONV),
     row("conv", "run time", "microseconds", op="conv", params=CONV)),
    (row("max_problem_size", "largest square matmul that fits", "matrix dimension"),
     row("max_problem_size", "largest square matrix product that fits", "rows")),
])  # fmt: skip
def test_other_words_for_a_row_have_one_answer(one, same):
    assert published.predict(one) == published.predict(same) > 0


@pytest.mark.parametrize(("text", "name"), [
    ("half", "fp16"), ("FP16.16", "fp16.16"), ("float16", "fp16"), ("f32", "fp32"), ("single", "fp32"), ("fp8", "fp8"),
    ("fp16 data, float partials", "fp16 data, fp32 partials"), ("", ""),
])  # fmt: skip
def test_names_of_types(text, name):
    assert precision(text) == name


def test_names_that_imply_parameters():
    assert program("avg_pool") == ("pooling", {"pooling-type": "avg"})
    assert program("Something Else") == ("something_else", {})


def test_half_partial_results_follow_from_the_precision():
    params = {"m": 64, "k": 2048, "n": 96}
    assert answer("gemm", op="gemm", type_="fp16.16", params=params) == answer(
        "gemm", op="gemm", params={**params, "partials-type": "half"}
    )


@pytest.mark.parametrize("op", ["conv", "embedding", "gru"])
def test_rates_of_programs_count_their_items(op):
    sizes = {"conv": (CONV, 2), "embedding": ({"shape": [1000, 64], "num-indices": 96}, 96), "gru": (LSTM, 4)}
    params, items = sizes[op]
    seconds = answer("conv", op=op, params=params) / target.get("mk2").clock_hz
    assert answer("conv", "throughput", "items/s", op=op, params=params) == pytest.approx(items / seconds)


def test_a_rate_of_one_tile():
    whole, one = (answer("memory_bound", f"read bandwidth{each}", "GB/s") for each in ("", " per tile"))
    assert whole == pytest.approx(one * target.get("mk2").tiles)


@pytest.mark.parametrize(("family", "config", "names"), [
    ("inference", BERT, ("compute", "exchange", "sync", "host")),
    ("training", RESNET, ("forward pass", "backward pass", "weight update", "collectives")),  # host traffic is hidden
])  # fmt: skip
def test_shares_of_the_parts_of_a_network(family, config, names):
    found = [answer(family, f"share of the {name}", "%", **config) for name in names]
    assert all(0 <= share < 100 for share in found)
    assert 60 < sum(found) < 100.1


def test_the_time_of_a_part_is_part_of_the_time_of_a_batch():
    batch = answer("inference", "time per batch", "ms", **BERT)
    parts = [answer("inference", f"{name} time", "ms", **BERT) for name in ("compute", "exchange", "sync", "host")]
    assert sum(parts) == pytest.approx(batch, rel=0.01)
    assert answer("inference", "latency", "ms", **BERT) >= batch


def test_a_limit_of_batches_where_the_network_stands_in_the_words():
    most = answer("inference", "largest batch size that fits, BERT-tiny", "texts", seq=128)
    assert most == answer("max_problem_size", "maximum batch size", "texts", model="BERT-tiny", seq=128)


def test_a_matrix_that_does_not_fit_is_no_limit_of_a_solver():
    rank = answer("solver", "largest rank that fits", "rank", op="solver", type_="fp32", rank=4096, b_rank=64)
    chip = target.get("mk2")
    assert 2 * 4 * rank**2 < chip.memory  # the matrix, and its clone with one triangle masked
    assert rank > 4096


@pytest.mark.parametrize(("asked", "words"), [
    (row("memory_bound", "run time", "s", equation="2D heat", grid="400x400"), "1,000 steps"),
    (row("memory_bound", "time of 9 steps", "s", equation="2D wave", grid="40x40"), "a step of 2D wave as one of heat"),
    (row("gemm", hardware="", op="gemm", params={"m": 8, "k": 8, "n": 8}), "mk2 for ''"),
    (row("inference", "Foo rate", "samples/s", layers=1, hidden=64, seq=8), "a network of unknown name, priced by "),
])  # fmt: skip
def test_what_a_row_leaves_out_is_said(asked, words):
    assert any(assumed.startswith(words) for assumed in published.explain(asked).assumed)


def test_a_grid_fits_up_to_the_largest_that_does():
    largest = answer("max_problem_size", "largest grid that fits", "grid points per dimension", equation="2D heat")
    fits = [answer("max_problem_size", "does it fit", "outcome", equation="2D heat", grid=f"{n}x{n}")
            for n in (int(largest), int(largest) + 1)]  # fmt: skip
    assert fits == [1, 0]


def test_bytes_between_tiles_cross_the_exchange():
    chip = target.get("mk2")
    rate = chip.exchange_bytes_per_cycle * chip.tiles * chip.clock_hz
    assert answer("exchange", "tile to tile bandwidth", "byte/s") == pytest.approx(rate)


@pytest.mark.parametrize(("asked", "message"), [
    (row("training", "U-Net training time", "hours", hardware="Bow Pod16"), "how long it trains is not said"),
    (row("max_problem_size", "largest batch that fits", "batch"), "of which network is not said"),
    (row("reduce", "cycles of the local stage", op="reduction", shape=[64, 32], dims=[1]), "stage .* not known apart"),
    (row("conv", "energy", op="conv", params=CONV), "not 'energy'"),
    (row("memory_bound", "run time", "s", grid="100x100"), 'no rule knows a time of .run time'),
    (row("conv", "3x3 convolution of an image", "us"), "named as op, with its sizes"),
    (row("inference", "GPT-2 text generation", "tokens/s", batch=4), "token by token is not priced"),
    (row("inference", "BERT-Base greedy decoding", "ms"), "token by token is not priced"),
])  # fmt: skip
def test_what_the_words_do_not_tell_is_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        published.predict(asked)
