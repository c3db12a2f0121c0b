"""Units and words of rows: one figure in several units, as a rate, of one step, of a part, by other names."""

from __future__ import annotations

import pytest

from ipu_model import published, target
from ipu_model.published.units import Unit, parse, size_in_bytes

GEMM = {"op": "gemm", "params": {"m": 64, "k": 128, "n": 256}}
LSTM = {"op": "lstm", "params": {"batch-size": 4, "sequence-size": 5, "input-size": 64, "output-size": 64}}
HEAT = {"equation": "2D heat", "grid": "8000x8000", "steps": 1000}
BLUR = {"image": "499x302", "vector": "half4"}
PRODUCT = {"m": 512, "k": 512, "n": 512}
BERT = {"model": "BERT-tiny", "seq": 128, "batch": 2}


def asked(family, what, unit, config, hardware="GC200, 1 IPU", precision="fp16.16"):
    row = {"family": family, "what": what, "unit": unit, "config": config, "hardware": hardware, "precision": precision}
    return published.predict(row)


@pytest.mark.parametrize(("unit", "found"), [
    ("TFLOP/s", Unit("flop/s", 1e12)), ("GFLOPS", Unit("flop/s", 1e9)), ("TB/s", Unit("byte/s", 1e12)),
    ("GiB/s", Unit("byte/s", 2.0**30)), ("Gbit/s", Unit("byte/s", 1e9 / 8)), ("graphs/s", Unit("item/s", 1.0)),
    ("images per second", Unit("item/s", 1.0)), ("images/s/IPU", Unit("item/s", 1.0, each=True)),
    ("iterations/s", Unit("step/s", 1.0)), ("MLUPS", Unit("cell/s", 1e6)), ("Gpixel/s", Unit("cell/s", 1e9)),
    ("tokens/s", Unit("token/s", 1.0)), ("qps", Unit("item/s", 1.0)), ("kilocycles", Unit("cycles", 1e3)),
    ("cycles per fragment", Unit("cycles", 1.0)), ("us", Unit("time", 1e-6)), ("hours", Unit("time", 3600.0)),
    ("minutes", Unit("time", 60.0)), ("MiB", Unit("bytes", 2.0**20)), ("bytes", Unit("bytes", 1.0)),
    ("%", Unit("share", 0.01)), ("fraction", Unit("share", 1.0)), ("matrix dimension", Unit("number", 1.0)),
])  # fmt: skip
def test_units_as_rows_spell_them(unit, found):
    assert parse(unit) == found


@pytest.mark.parametrize(("text", "size"), [(8192, 8192), ("64 KiB", 65536), ("1.5 MB", 1.5e6), ("525,496 B", 525496)])
def test_sizes_as_rows_spell_them(text, size):
    assert size_in_bytes(text) == size
    with pytest.raises(ValueError, match="'much' is no number of bytes"):
        size_in_bytes("much")


CLOCK = target.get("mk2").clock_hz
CELLS = 8000 * 8000 * 1000


@pytest.mark.parametrize(("one", "other", "factor"), [  # one figure is so many times the other, or its inverse times it
    (("gemm", "total cycles", "cycles", GEMM), ("gemm", "time", "us", GEMM), CLOCK / 1e6),
    (("gemm", "dense matmul rate", "TFLOP/s", PRODUCT), ("gemm", "dense matmul rate", "GFLOP/s", PRODUCT), 1e-3),
    (("gemm", "dense matmul rate", "TFLOP/s", PRODUCT), ("gemm", "rate", "TFLOP/s", {"shape": "512x512x512"}), 1),
    (("gemm", "product, share of peak", "%", PRODUCT), ("gemm", "product, share of peak", "fraction", PRODUCT), 100),
    (("memory_bound", "run time", "s", HEAT), ("memory_bound", "time per step", "us", HEAT), 1e-3),
    (("memory_bound", "run time", "s", HEAT), ("memory_bound", "run time", "cycles", HEAT), 1 / CLOCK),
    (("memory_bound", "Gaussian blur, 400 iterations, total device time", "ms", BLUR),
     ("memory_bound", "Gaussian blur, 200 iterations, total device time", "s", BLUR), 2000),
    (("rnn", "cycles", "cycles", LSTM), ("rnn", "cycles per step", "cycles", LSTM), 5),
    (("inference", "BERT-tiny throughput", "sequences/s", BERT), ("inference", "BERT-tiny", "tokens/s", BERT), 1 / 128),
    (("inference", "BERT-tiny latency", "s", BERT), ("inference", "BERT-tiny latency", "ms", BERT), 1e-3),
    (("inference", "BERT-tiny", "items/s", {"batch_size": 2, "sequence_length": 128}),
     ("inference", "BERT-tiny", "items/s", BERT), 1),
    (("memory_bound", "STREAM add bandwidth", "TB/s", {}), ("memory_bound", "STREAM copy bandwidth", "TB/s", {}), 1.5),
    (("max_problem_size", "tile needing 525,496 B", "outcome", {}),
     ("max_problem_size", "fits", "outcome", {"bytes_per_tile_needed": 525496}), 1),
])  # fmt: skip
def test_one_figure_in_two_forms(one, other, factor):
    assert asked(*one) == pytest.approx(factor * asked(*other), rel=1e-6)


@pytest.mark.parametrize(("rate", "time", "work"), [
    (("gemm", "rate", "FLOP/s", GEMM), ("gemm", "time", "s", GEMM), 2 * 64 * 128 * 256),
    (("memory_bound", "cell updates", "Mcell/s", HEAT), ("memory_bound", "run time", "s", HEAT), CELLS / 1e6),
    (("memory_bound", "blur, pixels", "pixel/s", {**BLUR}), ("memory_bound", "blur", "s", BLUR), 499 * 302 * 200),
])  # fmt: skip
def test_a_rate_is_work_over_time(rate, time, work):
    assert asked(*rate) * asked(*time) == pytest.approx(work)


def test_exchange_and_vertices_are_parts_of_the_cycles():
    whole, exchange, vertices = (asked("gemm", f"{w} cycles", "cycles", GEMM) for w in ("total", "exchange", "compute"))
    assert 0 < exchange + vertices < whole
    with pytest.raises(ValueError, match="exchange and the vertices of this program are not known apart"):
        asked("reduce", "exchange cycles", "cycles", {"op": "reduction", "params": {"shape": [64, 64], "dims": [0]}})


def test_rates_of_one_ipu_are_a_share_of_the_systems():
    ask = ("inference", "BERT-tiny throughput")
    assert asked(*ask, "items/s/IPU", BERT, "Bow Pod16") * 16 == asked(*ask, "items/s", BERT, "Bow Pod16")


@pytest.mark.parametrize(("family", "what", "unit", "config", "message"), [
    ("inference", "BERT-tiny voltage", "V", BERT, "in 'V', expected one of cycles, times and rates of its work"),
    ("training", "BERT-tiny time to train", "minutes", BERT, None),
    ("training", "nanoGPT time to train", "minutes", {"seq": 64, "d": 64, "layers": 1},
     "how many items it takes to train this network"),
])  # fmt: skip
def test_what_words_do_not_carry_is_refused(family, what, unit, config, message):
    if message is None:
        assert asked(family, what, unit, config) > 0
        return
    with pytest.raises(ValueError, match=message):
        asked(family, what, unit, config)
