"""Rows of the published forms with other contents: all are answered, and move as physics says."""

from __future__ import annotations

import json
import math

import pytest

from ipu_model import published, target
from ipu_model.published import folds, perturb, score, throughput, workload
from ipu_model.published.catalogue import network, number
from ipu_model.published.explain import explain
from ipu_model.published.layers import conv_params
from ipu_model.published.octave import octave, octave_form

GC2 = "GC2 (ipu1) full 1216 tiles, Poplar IPUModel"
GC200 = "GC200 (ipu2) full 1472 tiles, Poplar IPUModel"


def row(family, what, unit, config, hardware="GC200, 1 IPU", precision="fp16"):
    return {
        "family": family, "what": what, "unit": unit, "config": config, "hardware": hardware, "precision": precision,
    }  # fmt: skip


def dense(batch, ins, outs, what="total cycles", hardware=GC2, data="float"):
    params = {"batch-size": batch, "input-size": ins, "output-size": outs, "data-type": data}
    unit = "bytes" if "memory" in what else "cycles"
    return row("gemm", what, unit, {"op": "fc", "params": params}, hardware)


@pytest.mark.parametrize(
    ("batch", "hardware", "address"),
    [(1, GC2, 32_952), (4, GC2, 134_936), (8, GC2, 134_936), (1, GC200, 216_088), (4, GC200, 216_088)],
)
def test_highest_address_of_dense_layers_in_float(batch, hardware, address):
    # published figures; they hold to the byte only when the plan is the library's: joint, eight convolution units,
    # and dot products (nothing interleaved) where a batch of one does not fill the units
    assert published.predict(dense(batch, 1000, 1000, "max tile memory", hardware)) == address


@pytest.mark.parametrize(("hardware", "address"), [(GC2, 145_432), (GC200, 225_304)])
def test_highest_address_of_an_lstm_in_training(hardware, address):
    # published figures; the three passes share one partition, and the update of a batch of 16 writes halves at once
    params = {"batch-size": 16, "sequence-size": 25, "input-size": 1024, "output-size": 1024, "data-type": "half"}
    config = {"op": "lstm", "params": params, "pass": "fwd+bwd+weight update"}
    assert published.predict(row("rnn", "max tile memory", "bytes", config, hardware)) == address


CONV = {"field": [28, 28], "kernel-size": 3, "padding": 1, "input-channels": 32, "output-channels": 32,
        "batch-size": 4}  # fmt: skip
POOL = {"field": [14, 14], "kernel-size": 2, "stride": 2, "channels": 64, "batch-size": 4}
WHOLE = {"field": [7, 7], "kernel-size": 7, "channels": 64, "batch-size": 4}
TABLE = {"shape": [1000, 64], "num-indices": 200}


@pytest.mark.parametrize(
    ("op", "params", "parts"),
    [
        ("conv", CONV, ("fwd", "bwd", "wu")),
        ("pooling", POOL, ("fwd", "bwd")),
        ("pooling", WHOLE, ("fwd", "bwd")),
        ("embedding", TABLE, ("gather", "scatter-add update")),
    ],
)
def test_passes_that_ran_are_priced_and_no_others(op, params, parts):
    def cycles(passes, what="total cycles"):
        return published.predict(row(op, what, "cycles", {"op": op, "params": params, "pass": passes}))

    each = [cycles(part) for part in parts]
    assert sum(each) == pytest.approx(cycles("+".join(parts))) == pytest.approx(cycles(""))
    assert min(each) > 0
    assert cycles(" and ".join(parts), f"cycles of the {parts[0]} pass") == each[0]  # the words come first


def test_a_pass_needs_the_memory_of_its_own_tensors():
    def memory(op, params, passes):
        return published.predict(row(op, "total memory", "bytes", {"op": op, "params": params, "pass": passes}))

    for op, params in (("conv", CONV), ("pooling", POOL), ("pooling", WHOLE)):
        assert memory(op, params, "fwd") < memory(op, params, "fwd+bwd")


def test_passes_that_a_program_has_not_are_refused():
    product = {"op": "gemm", "params": {"m": 64, "k": 64, "n": 64}}
    for passes in ("fwd+bwd+weight update", "bwd"):
        with pytest.raises(ValueError, match="gemm runs as one program"):
            published.predict(row("gemm", "total cycles", "cycles", {**product, "pass": passes}))
    assert published.predict(row("gemm", "total cycles", "cycles", {**product, "pass": "forward only"})) > 0


NAMES = (
    "BERT-Large", "DistilBERT", "DeBERTa", "ALBERT", "ResNet-18", "ResNet-101", "ResNeXt-101", "EfficientNet-B0",
    "EfficientNet-B7 group-16", "MobileNetV2", "VGG-16", "YOLOv4", "ViT-Large", "Swin-Small", "CLIP", "GPT2-S",
    "GPT-2 large", "GPT-J 6B", "T5-large", "Conformer-small", "RNN-T", "DeepVoice 3", "FastSpeech2", "wav2vec2-base",
    "U-Net medical", "DLRM", "NeRF", "SchNet", "Some Brand New Network",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_networks_of_all_sorts_are_described(name):
    net = network(name, 2, {})
    assert net.items > 0
    assert len(workload.weights_of(net)) > 3
    fitted = published.target_of({}).fitted
    # a kind without a constant of its own would silently cost nothing extra
    for group, plain in throughput.AS_PROGRAMMED.items():
        assert (net.kind in plain) != (f"{group}.{net.kind}" in fitted)


LATENCY = ("inference", "BERT-Base inference latency", "ms")


def test_a_request_waits_for_the_batches_that_the_row_says_are_in_flight():
    alone, factor = row(*LATENCY, {"batch": 2, "in_flight": 1}), published.target_of({}).fitted["latency.server"]
    assert published.predict(alone) == pytest.approx(published.predict(row(*LATENCY, {"batch": 2})) / factor)
    for name in throughput.IN_FLIGHT:
        queued = row(*LATENCY, {"batch": 2, name: 7})
        assert published.predict(queued) == pytest.approx(7 * published.predict(alone))
        assert not any("in flight" in text for text in explain(queued).assumed)


def test_an_iteration_of_nanogpt_accumulates_as_its_script_does():
    config = {"params": "10.67M", "d": 384, "heads": 6, "layers": 6, "seq": 1024, "batch": 4}
    what = ("training", "nanoGPT training step rate", "iterations/s")
    asked, one = (row(*what, each, "Bow, 1 IPU") for each in (config, {**config, "global_batch": 4}))
    once = published.predict(one)
    assert 35 < once / published.predict(asked) < 42  # the host's start of a step is paid once
    assert any("accumulation 40" in text for text in explain(asked).assumed)
    # 6 n flop for each token, and the scores of attention: below a tenth of the chip's peak, above a hundredth
    flop = 40 * 4 * 1024 * (6 * 10.67e6 + 6 * 2 * 6 * 384 * 1024)
    assert 0.01 < published.predict(asked) * flop / 350e12 < 0.3


@pytest.mark.parametrize("hardware", ["GC200, 1 IPU", "C600, 1 IPU"])
@pytest.mark.parametrize(
    "names", [("ALBERT", "ResNet-18", "RNN-T", "NeRF", "DLRM"), pytest.param(NAMES, marks=pytest.mark.sweep)]
)
def test_batches_in_flight_that_a_row_does_not_say_are_an_assumption(hardware, names):
    for name in names:
        why = explain(row("inference", f"{name} latency", "ms", {"batch": 1}, hardware))
        assert any("in flight" in text for text in why.assumed), name


@pytest.mark.parametrize("name", ["DistilBERT", "MobileNetV2", "RNN-T", "DLRM", "Some Brand New Network"])
def test_networks_without_a_figure_of_their_own_are_answered(name):
    for unit in ("samples/s", "ms"):
        value = published.predict(row("inference", f"{name} inference throughput", unit, {"batch": 1}))
        assert math.isfinite(value)
        assert value > 0


def test_larger_networks_and_batches():
    def rate(name, **config):
        return published.predict(row("inference", f"{name} inference throughput", "samples/s", config))

    assert rate("ResNet-18", batch=4) > rate("ResNet-50", batch=4)
    assert rate("BERT-Base", batch=8, seq=128) > rate("BERT-Large", batch=8, seq=128)
    assert rate("BERT-Base", batch=8, seq=128) > rate("BERT-Base", batch=8, seq=384)
    assert rate("GPT2 small", batch=1) > rate("GPT2 medium", batch=1)
    assert rate("ResNet-50", batch=4) > rate("ResNet-50", batch=1)
    assert rate("ViT", batch=8, image=224) > rate("ViT", batch=8, image=384)


def test_unknown_network_follows_its_configuration():
    small, large = (network("brand new", 1, {"params": size}) for size in ("10M", "1.5B"))
    assert workload.parameters(large) > 50 * workload.parameters(small)
    assert network("brand new", 1, {"image": 224}).served == "image"


@pytest.mark.parametrize(
    ("family", "what", "unit", "config"),
    [
        ("exchange", "aggregate exchange bandwidth", "TB/s", {}),
        ("exchange", "IPU-Link bandwidth", "GB/s", {}),
        ("exchange", "external sync", "cycles", {}),
        ("exchange", "latency of a transfer", "ns", {"bytes": 1024}),
        ("exchange", "latency increase under full load, IPU link", "ratio", {}),
        ("memory_bound", "streaming memory bandwidth", "GB/s", {}),
        ("memory_bound", "local copy", "cycles", {"bytes": 4096}),
        ("memory_bound", "compute rate", "TFLOP/s", {}),
        ("memory_bound", "share of something", "fraction", {}),
        ("max_problem_size", "total memory", "bytes", {"model": "ResNet-18 training graph"}),
        ("max_problem_size", "something fits", "outcome", {}),
        ("gemm", "peak matmul rate", "TFLOP/s", {}),
        ("gemm", "static block-sparse matmul rate", "TFLOP/s", {"density": "1/4", "block": 8}),
    ],
)
def test_rows_without_a_rule_get_the_rates_of_the_chip(family, what, unit, config):
    value = published.predict(row(family, what, unit, config))
    assert math.isfinite(value)
    assert value in (0.0, 1.0) if unit == "outcome" else value > 0


@pytest.mark.parametrize("text", ["65,536", "64k", 65536, "1x65536"])
def test_sizes_are_read_however_they_are_written(text):
    assert number({"batch": text}, "batch", 1) == 65536


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": {"batch": 0}}, "batch is 0, expected a whole number of at least 1"),
        ({"config": {"batch": "-4"}}, "batch is -4"),
        ({"hardware": "NVIDIA A100"}, "hardware is 'NVIDIA A100'; figures of IPUs are predicted"),
    ],
)
def test_rows_of_nothing_that_is_priced_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        published.predict({**row("inference", "BERT-Base inference throughput", "samples/s", {}), **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"N": "64-128"}, "N is '64-128', a range"),
        ({"out": "16 to 32"}, "out is '16 to 32', a range"),
        ({"tiles": -1472}, "tiles is -1472, expected no negative number"),
    ],
)
def test_sizes_of_kernels_are_single_and_not_negative(change, message):
    config = {"N": 64, "inner": 16, "out": 16, "tiles": 1472}
    what = "aggregate rate of an on-tile fp16 matmul [N,16]x[16,16] run on every tile"
    with pytest.raises(ValueError, match=message):
        published.predict(row("gemm", what, "TFLOP/s", config | change))
    assert published.predict(row("gemm", what, "TFLOP/s", config | {"sdk": "2.2-3.1"})) > 0


def test_what_a_network_row_asks_in_bytes_is_its_memory_and_other_precisions_are_named():
    figure = row("inference", "BERT-Base total memory", "MB", {"layers": 1, "batch": 1}, precision="fp32")
    assert 10 < published.predict(figure) < 200
    assert "half precision in place of fp32" in explain(figure).assumed


def test_rows_say_what_does_not_fit_and_whose_rate_is_given():
    config = {"layers": 2, "batch": 1, "seq": 64}
    large = row("inference", "LLaMA-7B throughput per IPU", "samples/s", config | {"hidden": 12288})
    said = explain({**large, "hardware": "Bow Pod16"}).assumed
    assert any("larger chip: it takes" in words and "MiB" in words for words in said)
    assert "an equal share for each of 16 IPUs" in said
    assert not any("share" in words for words in explain({**large, "hardware": "GC200, 1 IPU"}).assumed)


def test_larger_links_answer_faster_and_slower_paths_slower():
    def rate(words):
        return published.predict(row("exchange", words, "GB/s", {}))

    assert rate("aggregate exchange bandwidth") > rate("IPU-Link bandwidth") > rate("host transfer bandwidth")


def test_missing_sizes_are_named():
    with pytest.raises(ValueError, match="needs 'm' in its params"):
        published.predict(row("gemm", "total cycles", "cycles", {"op": "gemm", "params": {"k": 1, "n": 2}}))


def test_sparse_products_between_two_block_sizes():
    rates = [
        published.predict(row("gemm", "static block-sparse matmul rate", "TFLOP/s",
                              {"m": 4096, "k": 4096, "n": 4096, "block": block, "density": "1/8"}))
        for block in (1, 4, 8, 16)
    ]  # fmt: skip
    assert rates == sorted(rates)


def test_folds_keep_a_workload_together():
    rows = [
        {**dense(b, 64, 64, what, hardware), "value": 1.0}
        for b in range(1, 8)
        for what in ("total cycles", "total memory")
        for hardware in (GC2, GC200)
    ]
    place = folds.places(rows, 3, seed=0)
    assert set(place) == {0, 1, 2}
    by_workload = {}
    for figure, part in zip(rows, place, strict=True):
        by_workload.setdefault(folds.workload(figure), set()).add(part)
    assert all(len(parts) == 1 for parts in by_workload.values())
    assert folds.places(rows, 3, seed=1) != place


def test_order_of_cells_is_no_workload_of_its_own():
    plain = row("rnn", "total cycles", "cycles", {"op": "gru", "params": {"batch-size": 2}})
    other = json.loads(json.dumps(plain))
    other["config"]["params"]["cell-order"] = "{update,cell,reset}"
    assert folds.workload(plain) == folds.workload(other)


def test_a_grid_over_more_ipus_pays_for_directions_not_for_ipus():
    def blur(ipus):
        config = {"vector": "half4", "scaling": "weak"}
        what = "Gaussian blur weak scaling, 200 iterations, total device time"
        return published.predict(row("exchange", what, "s", config, f"GC2, {ipus} IPU"))

    one, two, four, sixteen = map(blur, (1, 2, 4, 16))
    assert one < two < four
    assert sixteen == pytest.approx(four, rel=0.02)  # both grids are cut in two directions


def test_a_sync_takes_longer_the_more_links_it_passes():
    config = {"vector": "half4", "image": "800x800"}
    rows = [row("exchange", "Gaussian blur step: sync", "cycles", config, f"GC2, {n} IPU") for n in (2, 4, 8, 16)]
    two, four, eight, sixteen = map(published.predict, rows)
    assert [four / two, eight / two, sixteen / two] == pytest.approx([2, 3, 5])  # a ladder, passed from its middle


@pytest.mark.parametrize("what", ["Gaussian blur, 200 iterations", "Gaussian blur step: compute"])
def test_the_size_of_an_image_that_a_row_does_not_give_is_an_assumption(what):
    def assumed(**config):
        return explain(row("memory_bound", what, "cycles", {"vector": "half4", **config})).assumed

    assert "an image of 980 x 980 pixels" in assumed(image="leaf test image (middle size)")
    assert "an image of 780 x 780 pixels" in assumed(scaling="weak")
    assert not any("image" in text for text in assumed(image="499x302"))


def test_a_run_is_its_steps_in_turn():
    config = {"image": "2200x1122", "vector": "half4"}
    steps = ("sync", "exchange", "pre-exchange copies", "post-exchange copies", "compute")
    rows = [row("exchange", f"Gaussian blur step: {step}", "cycles", config, "GC2, 1 IPU") for step in steps]
    run = row("memory_bound", "Gaussian blur 3x3, 200 iterations, total device time", "s", config, "GC2, 1 IPU")
    assert published.predict(run) * 1.6e9 == pytest.approx(200 * sum(map(published.predict, rows)))


def test_a_fit_that_saw_no_row_of_a_kind_says_nothing_of_it():
    figure = {**row("gemm", "AMP kernel call constant", "cycles", {}, "C600"), "value": 294}
    assert len(score.errors([figure])) == 1
    assert score.errors([figure], {}) == []
    assert score.errors([figure], {"kernel.call": 300.0})[0][1] == pytest.approx(6 / 294)


def test_slabs_between_others_have_two_neighbours():
    def heat(ipus):
        # cells per tile and a face of 400 x 400 stay; only the number of neighbours differs
        config = {"equation": "3D heat", "grid": f"{100 * ipus}x400x400", "steps": 1000}
        return published.predict(row("memory_bound", "run time", "s", config, f"GC200, {ipus} IPU"))

    assert heat(4) > heat(2)


def test_variants_of_a_row_are_answered():
    params = {"input-size": 64, "output-size": 32, "batch-size": 8, "num-groups": 2, "data-type": "half"}
    rows = [
        row("gemm", "total cycles", "cycles", {"op": "fc", "params": params}, GC2),
        row("exchange", "aggregate exchange bandwidth", "TB/s", {"tiles": 1472}),
    ]
    found = list(perturb.findings(rows))
    assert len(found) > 30
    assert not [f for f in found if f is not None]


def test_variants_that_cannot_be_answered_are_found():
    sizes = {"input-size": 64, "output-size": 32}
    broken = row("gemm", "total cycles", "cycles", {"op": "fc", "params": sizes}, GC2)
    problems = {f.problem for f in perturb.findings([broken]) if f is not None}
    assert any("needs 'batch-size'" in problem for problem in problems)


def test_a_row_without_an_entry_may_be_refused():
    gone = row("memory_bound", "run time", "s", {"equation": "2D heat", "grid": "8000x8000", "steps": 1000})
    assert set(perturb.findings([gone])) == {None}


def test_one_row_of_each_form_is_varied():
    rows = [dense(batch, 64, 32) for batch in (1, 2, 4)] + [dense(4, 64, 32, "total memory")]
    assert list(perturb.of_each_form(rows, 1)) == [rows[0], rows[3]]
    assert list(perturb.of_each_form(rows, 2)) == [rows[0], rows[1], rows[3]]


def test_cheaper_work_is_found(monkeypatch):
    params = {"input-size": 64, "output-size": 32, "batch-size": 8}
    figure = row("gemm", "total cycles", "cycles", {"op": "fc", "params": params}, GC2)
    monkeypatch.setattr(perturb, "model", lambda row, target: lambda t: 1e6 / row["config"]["params"]["batch-size"])
    problems = {f.problem for f in perturb.findings([figure]) if f is not None}
    assert "twice the work takes 0.50 of the time" in problems


def test_every_ipu_of_a_system_serves():
    name = "ResNet-50 inference throughput"
    one, four = (
        published.predict(row("inference", name, "samples/s", {"batch": 1}, hardware=h)) for h in ("GC200", "IPU-M2000")
    )
    assert four == pytest.approx(4 * one)


def test_shares_of_coarse_channels_may_differ_between_inputs_and_outputs():
    params = {"field": [16, 16], "kernel-size": 3, "padding": 1, "input-channels": 64, "output-channels": 32}
    whole = octave_form(conv_params(params, "half"), 0.25, 0.5).parts
    assert [(c.field[0], c.in_channels, c.out_channels) for c in whole] == [
        (16, 48, 16), (8, 48, 16), (8, 16, 16), (8, 16, 16)
    ]  # fmt: skip
    first = octave_form(conv_params(params, "half"), 0, 0.5).parts
    assert [(c.field[0], c.in_channels, c.out_channels) for c in first] == [(16, 64, 16), (8, 64, 16)]
    [plain] = octave_form(conv_params(params, "half"), 0, 0).parts
    assert plain == conv_params(params, "half")


def test_a_row_with_shares_for_each_side_is_answered():
    params = {"field": [16, 16], "kernel-size": 3, "padding": 1, "input-channels": 64, "output-channels": 64}
    chip = target.get("mk2")
    both, same, first = (
        octave({**params, **more}, "half", chip).cycles(chip)
        for more in ({"alpha-in": 0.25, "alpha-out": 0.25}, {"alpha": 0.25}, {"alpha-in": 0.0, "alpha": 0.25})
    )
    assert both == same
    assert first != same
    with pytest.raises(ValueError, match=r"alpha-in is 1\.5, expected a number between 0 and 1"):
        octave({**params, "alpha-in": 1.5, "alpha-out": 0.5}, "half", chip)


@pytest.mark.parametrize(
    ("family", "op", "params", "tiles"),
    [
        ("rnn", "lstm", {"batch-size": 1, "sequence-size": 19, "input-size": 183, "output-size": 43}, 1216),
        ("pooling", "pooling", {"field": [20, 82], "kernel": 3, "padding": 1, "channels": 440, "batch-size": 2}, 1472),
    ],
)
def test_the_fullest_tile_holds_no_less_than_the_mean(family, op, params, tiles):
    hardware = GC2 if tiles == 1216 else GC200
    config = {"op": op, "pass": "fwd", "params": {**params, "data-type": "float"}}
    total, highest = (
        published.predict(row(family, what, "bytes", config, hardware, "fp32"))
        for what in ("total memory", "max tile memory")
    )
    assert highest >= total / tiles
