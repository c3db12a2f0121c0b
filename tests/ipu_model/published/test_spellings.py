"""Sizes, units and settings in other spellings: one workload has one answer, and what is not understood is refused."""

from __future__ import annotations

import pytest

from ipu_model import published, target
from ipu_model.published import fallback, throughput
from ipu_model.published.words import numbers, ratio

from .rows import answer, row

CONV = {"field": [14, 14], "kernel-size": 3, "padding": 1, "input-channels": 32, "output-channels": 48, "batch-size": 2}
OCT = {"field": [16, 16], "kernel-size": 1, "input-channels": 64, "output-channels": 64, "batch-size": 2}
GEMM = {"m": 64, "k": 96, "n": 128}
LSTM = {"batch-size": 4, "sequence-size": 5, "input-size": 64, "output-size": 64}
SOLVER = {"a-rank": 32, "block-size": 16}
HEAT = {"equation": "2D heat", "grid": "8000x8000", "steps": 10}
SPARSE = {"m": 512, "k": 512, "n": 256, "block": 16, "density": "1/16"}
TINY = {"model": "BERT-tiny"}


def program(op, params, what="total cycles", unit="cycles", type_="fp16", passes=""):
    return published.predict(row("conv", what, unit, type_=type_, op=op, params=params, **{"pass": passes}))


@pytest.mark.parametrize(("op", "params", "same"), [
    ("conv", CONV, {f"--{name}": value for name, value in CONV.items()}),
    ("conv", CONV, {"field": "14, 14", "kernelSize": "3x3", "padding": 1, "inputChannels": 32, "outputChannels": 48.0,
                    "batchSize": "2"}),
    ("oct_conv", {**OCT, "alpha": 0.25}, {**OCT, "alphaIn": "25%", "alpha_out": "1/4"}),
    ("gemm", GEMM, {"m": 64.0, "K": 96, "N": "128"}),
    ("embedding", {"shape": [1000, 64], "num-indices": 96},
     {"num-embeddings": 1000, "embedding-size": 64, "numIndices": 96}),
    ("matrix_solver", {**SOLVER, "cholesky": True}, {"n": 32, "block": 16, "cholesky": 1}),
])  # fmt: skip
def test_parameters_of_programs(op, params, same):
    assert program(op, params) == program(op, same) > 0


@pytest.mark.parametrize(("name", "op", "params"), [
    ("CTCLoss", "ctc_loss", {"max-time": 20, "max-label-length": 5, "num-classes": 4}),
    ("ReduceSum", "reduction", {"shape": [64, 32], "dims": [0]}),
    ("Conv2D", "conv", CONV),
    ("Cholesky decomposition", "cholesky", SOLVER),
])  # fmt: skip
def test_names_of_programs(name, op, params):
    assert program(name, params) == program(op, params)


@pytest.mark.parametrize("text", [
    '{"m": 64, "k": 96, "n": 128}', "--m=64 --k 96 --n=128",
])  # fmt: skip
def test_parameters_as_text(text):
    assert program("gemm", text) == program("gemm", GEMM)
    with pytest.raises(ValueError, match="expected sizes by name, JSON or flags"):
        program("gemm", "m is 64")
    with pytest.raises(ValueError, match="no JSON"):
        program("gemm", "{m: 64}")


def test_tiles_in_use():
    few = answer("reduce", op="reduction", shape=[512, 32], dims=[0], hardware="GC200 with 64 tiles")
    assert few == answer("reduce", op="reduction", shape=[512, 32], dims=[0], tiles=64)
    assert few > answer("reduce", op="reduction", shape=[512, 32], dims=[0])


def test_the_reduction_of_partial_results_is_a_part_of_a_product():
    parts = [program("gemm", GEMM, f"{part} cycles") for part in ("exchange", "compute", "reduction")]
    assert 0 < parts[2] < program("gemm", GEMM)
    reduction = {"shape": [64, 32], "dims": [0]}
    assert program("reduction", reduction, "cycles of the reduction") == program("reduction", reduction)


def test_rates_of_operations():
    rates = [program("gemm", GEMM, "rate", unit) for unit in ("TFLOP/s", "TOPS", "Gops/s", "GMAC/s")]
    assert rates == pytest.approx([rates[0], rates[0], 1000 * rates[0], 500 * rates[0]])


def test_a_second_type_is_that_of_partial_results():
    own = program("gemm", {**GEMM, "k": 2048, "partials-type": "half"})
    for types in ("fp16.16", "half.half", "fp16 data, fp16 partials", "fp16 with fp16 accumulate"):
        assert program("gemm", {**GEMM, "k": 2048}, type_=types) == own
    assert program("gemm", {**GEMM, "k": 2048}, type_="fp16.32") > own


def test_a_program_that_runs_one_pass_is_priced_with_it_alone():
    forward = program("conv", CONV, "forward cycles")
    for flag in ({"single-phase": "fwd"}, {"phase": "fwd"}, {"inference-only": True}):
        assert program("conv", {**CONV, **flag}) == forward < program("conv", CONV)


def test_a_recurrent_layer_is_trained_whatever_the_pass_is_called():
    whole = program("lstm", LSTM, passes="fwd+bwd+weight update")
    for passes in ("fwd+bwd+wu", "all", "training"):
        assert program("lstm", LSTM, passes=passes) == whole
    assert program("lstm_train", LSTM) == program("lstm", LSTM, "cycles of training") == whole
    assert program("lstm", LSTM, passes="fwd") == program("lstm", LSTM) < whole
    assert program("lstm", LSTM, unit="cycles/step") == pytest.approx(program("lstm", LSTM) / 5)


def test_parameters_without_effect_are_said():
    said = published.explain(row("rnn", op="lstm", params={**LSTM, "cell-order": "{a}", "colour": "red"})).assumed
    assert "no effect of cell-order, colour" in said


@pytest.mark.parametrize(("what", "unit", "config"), [
    ("BERT-tiny, batch 4, sequence length 16", "samples/s", {}),
    ("BERT-tiny (bs=4, seq 16)", "samples/s", {}),
    ("rate", "samples/s", {**TINY, "micro_batch_size": 4, "seqLength": 16}),
])  # fmt: skip
def test_sizes_of_networks(what, unit, config):
    assert answer("inference", what, unit, **config) == answer("inference", "rate", unit, **TINY, batch=4, seq=16)


def trained(**config) -> float:
    return answer("training", "rate", "items/s", "Bow Pod16", "fp16.16", **TINY, seq=16, **config)


def test_settings_of_training(monkeypatch):
    monkeypatch.setattr(throughput, "training_cycles", lambda net, target, system: 1e6 * system.accumulation)
    monkeypatch.setattr(throughput, "training_flops", lambda *_: 1.0)
    whole = trained(batch=8, global_batch=8 * 4 * 16)
    assert whole == trained(micro_batch=8, gradient_accumulation=4, replicas=16)
    assert whole == trained(effective_batch=8 * 4 * 16, gradient_accumulation_steps=4)
    assert trained(batch=8, accumulation=4, replicas=8) == pytest.approx(whole / 2)
    with pytest.raises(ValueError, match="3 replicas do not share 16 IPUs"):
        trained(replicas=3)


def test_the_time_to_train_is_mlperfs_figure(monkeypatch):
    monkeypatch.setattr(throughput, "training_cycles", lambda *_: 1e6)
    asked = [answer("training", what, unit, "GC200 POD16", "fp16.16") for what, unit in (
        ("ResNet-50 time to train", "min"), ("ResNet-50 time-to-train", "h"), ("MLPerf ResNet-50", "s"))]  # fmt: skip
    assert asked == pytest.approx([asked[0], asked[0] / 60, asked[0] * 60])


def test_a_latency_without_the_host_is_less_than_a_batch():
    batch, host = (answer("inference", f"{what} of a batch", "us", **TINY, seq=16) for what in ("time", "host time"))
    assert answer("inference", "latency without host", "us", **TINY, seq=16) == pytest.approx(batch - host)


@pytest.mark.parametrize(("unit", "factor"), [
    ("samples/min", 60), ("Ksamples/hour", 3.6), ("samples per day", 86400), ("samples/s/W", 1 / 185),
    ("samples/J", 1 / 185), ("samples/s/IPU", 1),
])  # fmt: skip
def test_units_of_rates(unit, factor):
    rate = ("inference", "rate"), {**TINY, "seq": 16, "hardware": "C600, 1 IPU"}
    assert answer(*rate[0], unit, **rate[1]) == pytest.approx(factor * answer(*rate[0], "samples/s", **rate[1]))


def test_rates_of_a_watt_are_those_of_the_rated_power_of_all_ipus():
    asked = row("inference", "rate", "samples/s/W", "2 x C600", **TINY, seq=16)
    assert "185 W for each IPU, its rated power" in published.explain(asked).assumed
    assert published.predict(asked) == answer("inference", "rate", "samples/s/W", "C600", **TINY, seq=16)
    with pytest.raises(ValueError, match="only rates for each watt"):
        answer("inference", "time", "ms/W", **TINY, seq=16)


@pytest.mark.parametrize("grid", ["8k x 8k", "8000^2", [8000, 8000], "8000×8000"])
def test_grids(grid):
    assert answer("memory_bound", "time", "s", **{**HEAT, "grid": grid}) == answer("memory_bound", "time", "s", **HEAT)
    named = {"pde": "2D heat", "nx": 8000, "ny": 8000, "iterations": 10}
    assert answer("memory_bound", "time", "s", **named) == answer("memory_bound", "time", "s", **HEAT)


@pytest.mark.parametrize("config", [
    {"image": [2200, 1122], "vector": "Half4"}, {"width": 2200, "height": 1122}, {"image": "2200 x 1122"},
])  # fmt: skip
def test_images_of_a_blur(config):
    blur = ("memory_bound", "Gaussian blur, 200 iterations", "s", "GC2")
    assert answer(*blur, **config) == answer(*blur, image="2200x1122", vector="half4")


@pytest.mark.parametrize("config", [{"density": "1:16"}, {"sparsity": "93.75%"}, {"nnz": 512 * 512 // 16}])
def test_zeros_of_a_product(config):
    rest = {name: value for name, value in SPARSE.items() if name not in ("density", "block")}
    asked = ("gemm", "static block-sparse matmul rate", "TFLOP/s")
    assert answer(*asked, **rest, block_size=16, **config) == answer(*asked, **SPARSE)
    with pytest.raises(ValueError, match="how many zeros"):
        answer(*asked, **rest)


def test_limits_of_the_sizes_of_a_network(monkeypatch):
    monkeypatch.setattr(fallback, "memory", lambda net, target, training: 1000 * net.inputs[0].shape[1])
    longest = answer("max_problem_size", "maximum sequence length of BERT-tiny that fits", "tokens")
    assert longest == pytest.approx(target.get("mk2").memory / 1000, rel=0.004)


def test_a_limit_may_say_of_what():
    asked = ("conv", "largest batch-size of a convolution that fits", "images")
    assert answer(*asked, op="conv", params={**CONV, "batch-size": 2048}) > 1000


def test_the_size_of_a_network_may_stand_beside_its_name():
    named = [answer("inference", "BERT", "samples/s", seq=16, **more) for more in (
        {"size": "Tiny"}, {"model": "BERT-tiny"}, {"variant": "tiny"})]  # fmt: skip
    assert len(set(named)) == 1
    said = published.explain(row("inference", "BERT-tiny", "samples/s", seq=16, sdk="3.0", colour="red")).assumed
    assert "no effect of colour, sdk" in said


@pytest.mark.parametrize("asked", [
    {"seq": "128-512"}, {"seq": [128, 512]}, {"batch": "auto"}, {"batch": "1, 2, 4"}, {"batch": 0},
])  # fmt: skip
def test_sizes_that_are_not_one_number_are_refused(asked):
    with pytest.raises(ValueError, match=next(iter(asked))):
        answer("inference", "rate", "samples/s", **TINY, **asked)


@pytest.mark.parametrize("padding", ["same", 1.5])
def test_padding_is_a_number(padding):
    with pytest.raises(ValueError, match="expected whole numbers"):
        program("conv", {**CONV, "padding": padding})


def test_shares_and_sizes_as_texts():
    assert [ratio(text) for text in ("1/16", "1:16", "6.25 %", 0.0625)] == [0.0625] * 4
    assert numbers("403^3") == numbers("403x403x403") == numbers([403, 403, 403])
    assert numbers("2.5k x 1k") == [2500, 1000]
    assert numbers("1000²") == [1000, 1000]
    with pytest.raises(ValueError, match="no share"):
        ratio("most")


def test_chips_have_a_rated_power():
    assert {target.get(name).power_watts for name in ("mk1", "mk2", "bow", "c600")} == {150, 300, 185}
