"""Rows of sorts that the public table does not have, against rooflines by hand: operations, bytes, published peaks."""

from __future__ import annotations

import pytest

from ipu_model import published
from ipu_model.published import throughput, workload
from ipu_model.published.catalogue import network
from ipu_model.published.explain import explain
from ipu_model.published.hardware import system_size


def answer(family, what, unit, hardware="GC200, 1 IPU", precision="fp16", **config):
    return published.predict({"family": family, "what": what, "unit": unit, "config": config, "hardware": hardware,
                              "precision": precision})  # fmt: skip


@pytest.mark.parametrize(("expected", "asked"), [
    (15.8, ("memory_bound", "streaming memory read bandwidth", "GB/s", "M2000")),  # 20 GB/s an IPU, by its makers
    (50, ("memory_bound", "streaming memory copy time", "ms", "M2000", "any", "1 GiB")),
    (52, ("exchange", "transfer of 8 MiB between neighbouring IPUs", "us", "GC200, 2 IPU")),  # at 160 GB/s
    (12, ("exchange", "all-to-all exchange time, 64 KiB per tile", "us", "GC200", "any", "bytes_per_tile")),
    (0.33, ("exchange", "all-to-all exchange, as much per tile", "us", "GC200", "any", 1024)),
    (11, ("exchange", "broadcast of 64 KiB from one tile to all", "us", "C600")),  # 4 bytes a cycle
    (65, ("exchange", "gather to one tile, as much per tile", "us", "GC2, 1 IPU", "any", "tiles")),
    (7.8, ("memory_bound", "gather bandwidth of rows", "TB/s")),
    (0.55, ("exchange", "broadcast of 100 MB over links", "ms", "GC200 POD4")),
    (336, ("gemm", "fp8 dense matmul rate", "TFLOP/s", "C600", "fp8", "product")),  # of 560 at the peak
    (560, ("gemm", "peak rate", "TFLOP/s", "C600", "fp8")),
    (525, ("max_problem_size", "largest 3D heat grid that fits", "cells per side", "GC200, 4 IPU", "fp32", "3D heat")),
    (0.5, ("exchange", "IPU-Link latency, neighbouring IPUs", "us", "GC2, 2 IPU")),
    (2.3, ("exchange", "all-reduce time", "us", "GC200 POD4", "fp16", "1 KB")),  # six hops of a sync of 500 cycles
    (0.55, ("exchange", "all-gather of 100 MB", "ms", "GC200 POD4")),  # 3/4 of it at 137 GB/s
    (0.55, ("exchange", "reduce-scatter of 100 MB", "ms", "GC200 POD4")),
    (47, ("memory_bound", "total in-processor memory bandwidth", "TB/s")),  # 24 bytes a cycle and tile
    (31.3, ("memory_bound", "aggregate load bandwidth", "TB/s")),  # 16 of them
    (6, ("memory_bound", "local memory latency", "cycles", "GC2")),
    (10.6, ("memory_bound", "local copy bandwidth per tile", "GB/s", "GC200", "any", "64 KiB")),  # 8 bytes a cycle
    (1.4, ("gemm", "peak rate", "PFLOP/s", "Bow-2000")),
    (250, ("gemm", "theoretical peak matmul rate", "TFLOP/s")),
    (624, ("max_problem_size", "tile memory", "KiB")),
])  # fmt: skip
def test_rates_and_times_of_the_machine(expected, asked):
    family, what, unit, hardware, precision, size = (*asked, *("GC200, 1 IPU", "any", "")[len(asked) - 3 :])
    named = {"bytes_per_tile": {"bytes_per_tile": 65536}, "tiles": {"bytes_per_tile": 341},
             "product": dict.fromkeys("mkn", 4096),
             "3D heat": {"equation": "3D heat"}}  # fmt: skip
    config = named.get(size, {"bytes": size} if size else {})
    found = answer(family, what, unit, hardware, precision, **config)
    assert found == pytest.approx(expected, rel=0.4)


SPARSE = {"m": 4096, "k": 4096, "n": 1024, "block": 16, "density": "1/16"}


def test_sparse_products_of_other_sorts():
    static = answer("gemm", "static block-sparse matmul rate", "TFLOP/s", **SPARSE)
    assert answer("gemm", "dynamic block-sparse matmul rate", "TFLOP/s", **SPARSE) < static
    assert answer("gemm", "static block-sparse matmul rate", "TFLOP/s", precision="fp32", **SPARSE) < 0.6 * static
    dense = answer("gemm", "dense matmul time", "us", m=4096, k=4096, n=1024)
    ratio = dense / answer("gemm", "static block-sparse matmul time", "us", **SPARSE)
    assert answer("gemm", "speed-up of static sparse over dense", "ratio", **SPARSE) == pytest.approx(ratio)


def test_a_sparse_matrix_times_a_vector_is_no_peak():
    config = {"rows": 1_000_000, "nnz": 5_000_000}
    for family in ("memory_bound", "gemm"):
        assert 50 < answer(family, "SpMV rate", "GFLOP/s", "GC2, 1 IPU", "fp32", **config) < 1000
    with pytest.raises(ValueError, match="how many zeros"):
        answer("memory_bound", "SpMV rate", "GFLOP/s")


def test_the_energy_of_an_item_is_the_rated_power_for_its_time():
    asked = "inference", "ResNet-50 energy per inference"
    each = answer(*asked, "mJ", "C600, 1 IPU", batch=4)
    rate = answer("inference", "ResNet-50 inference throughput", "samples/s", "C600, 1 IPU", batch=4)
    assert each * rate / 1000 == pytest.approx(185)


def test_shares_of_an_application_and_memory_of_a_network_are_those_of_its_own():
    halo = answer("exchange", "LBM halo exchange share", "%", "GC2, 1 IPU", "fp32", app="LBM D2Q9")
    spent = answer("exchange", "share of run time spent in exchange, LBM", "%", "GC2, 1 IPU", "fp32", app="LBM D2Q9")
    assert halo == spent
    named = answer("max_problem_size", "memory of ResNet-18 training at batch 2", "MiB", batch=2)
    assert named == answer("max_problem_size", "memory", "MiB", model="ResNet-18 training", batch=2) != 897
    updates = answer("memory_bound", "LBM rate", "MLUP/s", "GC2, 1 IPU", "fp32", app="LBM D2Q9", grid="512x512")
    assert updates == answer("memory_bound", "LBM rate", "MLUPS", "GC2, 1 IPU", "fp32", app="LBM D2Q9", grid="512x512")
    assert network("LSTM language model", 1, {}).kind == "recurrent"


def test_what_is_not_said_is_refused():
    with pytest.raises(ValueError, match="channels go in and out"):
        answer("conv", "convolution of a layer of ResNet", "TFLOP/s", image="14x14", kernel="3x3")
    with pytest.raises(ValueError, match="no rule knows a time"):
        answer("exchange", "gather of rows", "cycles")


def test_an_application_and_its_steps_may_stand_in_the_configuration():
    run = {"app": "LBM D2Q9", "grid": "512x512"}
    one, ten = (answer("memory_bound", "run time", "s", "GC2, 1 IPU", "fp32", steps=n, **run) for n in (100, 1000))
    assert ten == pytest.approx(10 * one)


@pytest.mark.parametrize(("what", "config", "flop"), [
    ("ResNeXt-101 32x8d", {"batch": 1}, 33e9), ("ViT-H/14", {"batch": 1}, 335e9),
    ("TinyBERT", {"batch": 8, "seq": 128}, 1.2e9), ("MiniLM", {"batch": 8, "seq": 128}, 5.6e9),
    ("Whisper-tiny encoder", {"batch": 1}, 25e9), ("Faster R-CNN ResNet-50", {"batch": 1}, 250e9),
    ("YOLOv5s", {"batch": 1, "image": 640}, 16.5e9),
])  # fmt: skip
def test_networks_take_a_sensible_share_of_the_peak(what, config, flop):
    rate = answer("inference", f"{what} inference throughput", "samples/s", "C600, 1 IPU", **config)
    assert 0.005 < rate * flop / 280e12 < 0.6


def test_detectors_take_images_of_their_own_size():
    sides = {name: network(name, 1, {}).inputs[0].shape[-1]
             for name in ("EfficientDet-D2", "YOLOv3", "Mask R-CNN ResNet-50", "SSD-ResNet34")}  # fmt: skip
    assert sides == {"EfficientDet-D2": 768, "YOLOv3": 416, "Mask R-CNN ResNet-50": 800, "SSD-ResNet34": 300}


def test_diffusion_models():
    once, whole = network("Stable Diffusion UNet", 1, {}), network("Stable Diffusion", 1, {"steps": 20})
    assert workload.parameters(once) == pytest.approx(860e6, rel=0.1)  # as released
    assert once.items == pytest.approx(20 * whole.items)


def test_shares_of_arithmetic_and_of_the_rest_of_a_step():
    for app in ("LBM D2Q9", "3x3 stencil"):
        shares = [answer("memory_bound", f"share of run time spent in {part}, {app}", "fraction", "GC2, 1 IPU", app=app)
                  for part in ("compute", "exchange and rearrangement")]  # fmt: skip
        assert sum(shares) == pytest.approx(1)
        assert shares[0] > shares[1]


def test_the_ceiling_of_a_stencil_is_that_of_its_type():
    half, single = (answer("memory_bound", "fraction of stencil roofline ceiling reached", "fraction", "GC2, 1 IPU",
                           precision, ceiling_tflops=4.11) for precision in ("fp16", "fp32"))  # fmt: skip
    assert single < half / 2  # of vectors of four halves, one float


def test_a_kernel_works_on_groups_of_columns_after_its_call():
    def kernel(what):
        return answer("gemm", f"AMP kernel {what}, interleaved operand", "cycles", "C600, 1 IPU")

    assert kernel("for 64 columns") == pytest.approx(294 + 4 * kernel("per 16-column group"), rel=0.01)


@pytest.mark.parametrize(("asked", "message"), [
    (("training", "BERT-tiny time per epoch", "s"), "an epoch has is known of images only"),
    (("max_problem_size", "stack", "bytes"), "'stack' of a layer is not known"),
])  # fmt: skip
def test_what_would_be_another_figure_is_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        answer(*asked, layer="Dense 4096->1024")


@pytest.mark.parametrize("what", ["MCMC samples", "3D U-Net", "PageRank"])
def test_programs_that_are_no_known_network_are_refused(what):
    with pytest.raises(ValueError, match="no network of this sort"):
        answer("training", f"{what} throughput", "samples/s")


def test_a_deep_pipeline_has_enough_micro_batches_to_fill():
    system = throughput.layout(network("GPT-3 6.7B", 1, {"seq": 1024}), 64, 0, published.target_of({}))
    assert system.ipus == 64
    filling = system.ipus / (system.accumulation + system.ipus)
    assert filling <= 0.2


def layer(what="total cycles", unit="cycles", **config):
    params = {"batch-size": 8, "input-size": 64, "output-size": 32}
    return answer("gemm", what, unit, op="fc", params=params, **config)


def test_a_time_of_one_item_is_a_share_of_the_batch():
    assert layer(unit="cycles per sample") == layer("total cycles per sample", "cycles") == layer() / 8
    assert layer("total cycles per sample", "cycles/sample") == layer() / 8  # said twice, shared out once
    network_row = ("inference", "BERT-tiny inference")
    batch = answer(*network_row, "ms", batch=4, seq=16)
    assert answer(*network_row, "us per sample", batch=4, seq=16) == pytest.approx(1000 * batch / 4)
    assert answer(*network_row, "ms/batch", batch=4, seq=16) == batch


def test_units_that_count_thousands_and_steps():
    one = ("inference", "BERT-tiny inference throughput")
    assert answer(*one, "thousand samples/s", seq=16) == pytest.approx(answer(*one, "samples/s", seq=16) / 1000)
    step = ("training", "MNIST linear model training")
    rate = answer(*step, "steps/s")
    assert answer(*step, "ms/step") == pytest.approx(1000 / rate)
    with pytest.raises(ValueError, match="asked for in 'epochs/s'"):
        answer(*step, "epochs/s")


@pytest.mark.parametrize(("family", "what", "hardware", "config", "flop"), [
    ("inference", "ResNet-50 inference", "C600, 1 IPU", {"batch": 4}, 8.2e9),
    ("inference", "BERT-Base inference", "Bow-2000", {"batch": 4, "seq": 128}, 2 * 85e6 * 128 * 1.05),
    # six operations for each weight and token, and the scores; what is repeated to save memory is not counted
    ("training", "BERT-Large pretrain training", "Bow Pod16", {"seq": 128, "global_batch": 256}, 6 * 320e6 * 128),
])  # fmt: skip
def test_networks_are_answered_in_operations_and_shares_of_the_peak(family, what, hardware, config, flop):
    items, rate, each, share = (
        answer(family, f"{what} throughput", unit, hardware, **config)
        for unit in ("items/s", "TFLOP/s", "TFLOP/s per IPU", "%")
    )
    assert rate * 1e12 == pytest.approx(items * flop, rel=0.1)
    ipus = system_size(hardware)
    assert each == pytest.approx(rate / ipus)
    peak = {"C600, 1 IPU": 280, "Bow-2000": 4 * 350, "Bow Pod16": 16 * 350}[hardware]  # published, TFLOP/s
    assert share == pytest.approx(100 * rate / peak, rel=0.02)


def test_an_image_of_a_diffusion_model_waits_for_all_evaluations():
    once, whole = (
        answer("inference", "Stable Diffusion latency", "s", "Bow, 1 IPU", steps=steps, batch=1) for steps in (1, 20)
    )
    assert whole == pytest.approx(20 * once)
    assert whole == pytest.approx(1 / answer("inference", "Stable Diffusion", "images/s", "Bow, 1 IPU", steps=20))


def test_speech_networks_and_t5_by_their_own_sizes():
    assert network("HuBERT", 1, {}) is network("wav2vec 2.0", 1, {})
    assert workload.parameters(network("T5-Large", 1, {})) == pytest.approx(770e6, rel=0.1)  # as released
    assert workload.parameters(network("T5-Base", 1, {})) == pytest.approx(220e6, rel=0.15)
    assert workload.parameters(network("BART-Large", 1, {})) == pytest.approx(406e6, rel=0.15)


GEMM = {"m": 128, "k": 256, "n": 512}


def test_a_rate_of_one_ipu_may_be_asked_for_in_words():
    words = ("throughput", "throughput per IPU")
    whole, each = (answer("inference", f"ResNet-50 {what}", "samples/s", "Bow Pod16", batch=16) for what in words)
    assert whole == pytest.approx(16 * each)


def test_memory_of_a_tile_on_average_and_of_a_pass():
    total, mean = (answer("gemm", what, "bytes", op="gemm", params=GEMM) for what in ("total memory", "mean per tile"))
    assert mean == pytest.approx(total / 1472)
    layer = {"field": [14, 14], "kernel-size": 3, "input-channels": 32, "output-channels": 32, "batch-size": 2}
    words = ("memory of the forward pass", "total memory")
    forward, whole = (answer("conv", what, "KiB", op="conv", params=layer) for what in words)
    assert 0 < forward < whole


def test_a_batch_of_products_is_so_many_products():
    one, groups = (
        answer("gemm", "total cycles", "cycles", op="gemm", params=GEMM, **more) for more in ({}, {"batch": 8})
    )
    alike = answer("gemm", "total cycles", "cycles", op="gemm", params={**GEMM, "num-groups": 8})
    assert one < groups == alike


def test_types_that_programs_do_not_have_are_said():
    for precision, said in (("fp8", True), ("int8", True), ("bf16", True), ("fp16", False), ("Float32", False)):
        asked = {
            "family": "gemm",
            "what": "total cycles",
            "unit": "cycles",
            "hardware": "GC200",
            "precision": precision,
        }
        assumed = explain({**asked, "config": {"op": "gemm", "params": GEMM}}).assumed
        assert any(f"in place of {precision}" in text for text in assumed) == said


def test_less_memory_for_plans_takes_longer():
    large = {"m": 2048, "k": 2048, "n": 2048}
    less = {**large, "available-memory-proportion": 0.05}
    usual, tight = (answer("gemm", "total cycles", "cycles", op="gemm", params=sizes) for sizes in (large, less))
    assert tight > usual


def test_bytes_that_a_reduction_reads_in_a_second():
    sizes = {"shape": [1024, 512], "dims": [0], "type": "half"}
    rate, cycles = (answer("reduce", what, unit, op="reduction", params=sizes)
                    for what, unit in (("bandwidth", "GB/s"), ("cycles", "cycles")))  # fmt: skip
    assert rate == pytest.approx(1024 * 512 * 2 / (cycles / 1.33e9) / 1e9)


def test_stacks_of_recurrent_layers_are_refused():
    sizes = {"sequence-size": 5, "hidden": 64, "inputs": 64, "batch": 8}
    for more in ({"layers": 2}, {"bidirectional": True}):
        with pytest.raises(ValueError, match="a recurrent layer alone"):
            answer("rnn", "total cycles", "cycles", op="lstm", params={**sizes, **more})


@pytest.mark.parametrize(
    ("what", "config"),
    [("Gaussian blur 5x5, 200 iterations", {}), ("Gaussian blur", {"kernel": 7}), ("Gaussian blur, 3 channels", {})],
)
def test_blurs_of_other_kernels_are_refused(what, config):
    # they were answered as the blur of 3 x 3 on four channels
    with pytest.raises(ValueError, match="blurs of 3 x 3 on 4 channels"):
        answer("memory_bound", what, "s", "GC2, 1 IPU", image="1000x1000", vector="half4", **config)
