"""Predictions of published figures: they follow configurations and know no names."""

from __future__ import annotations

import copy
import inspect
import json
import re
from pathlib import Path

import jax
import pytest

from ipu_model import published, target
from ipu_model.published import (
    catalogue,
    formula,
    kernels,
    layers,
    networks,
    nn,
    rows,
    score,
    stencil,
    tables,
    throughput,
    workload,
)
from ipu_model.published.__main__ import main
from ipu_model.published.explain import explain

GC2 = "GC2 (ipu1) full 1216 tiles, Poplar IPUModel"
GC200 = "GC200 (ipu2) full 1472 tiles, Poplar IPUModel"
WHATS = {
    "cycles": "total cycles",
    "total": "total memory: sum over tiles of always-live bytes plus each tile's own not-always-live peak",
    "max": "max tile memory including gaps",
}


def row(op, params, what="cycles", hardware=GC2, family="conv", precision="fp16 data, fp32 partials", **config):
    unit = "cycles" if what == "cycles" else "bytes"
    body = {"case": "anything", "op": op, "params": params, **config}
    return {"family": family, "what": WHATS[what], "config": body, "hardware": hardware, "precision": precision,
            "unit": unit, "kind": "ipu_model_estimate"}  # fmt: skip


CONV = {"field": [14, 14], "kernel-size": 1, "input-channels": 1024, "output-channels": 256, "batch-size": 4}
EXAMPLES = {
    "conv": CONV,
    "oct_conv": {**CONV, "field": [16, 16], "alpha": 0.25},
    "fc": {"input-size": 256, "output-size": 512, "batch-size": 64},
    "gemm": {"m": 200, "k": 64, "n": 4000},
    "pooling": {"field": [17, 17], "kernel": [3, 3], "channels": 768, "stride": 1, "batch-size": 1,
                "fwd-chans-per-group": 8, "padding-upper": 1, "padding-lower": 1},
    "reduction": {"shape": [128, 16, 8, 16], "dims": [0, 2], "type": "half", "operation": "ADD"},
    "embedding": {"shape": [20000, 100], "num-indices": 500},
    "ctc_loss": {"max-time": 200, "max-label-length": 80, "num-classes": 10, "batch": 1},
    "matrix_solver": {"cholesky": True, "batches": 1, "a-rank": 32, "block-size": 16, "lower": "true"},
    "lstm": {"batch-size": 8, "sequence-size": 5, "input-size": 256, "output-size": 256},
    "gru": {"batch-size": 8, "sequence-size": 5, "input-size": 256, "output-size": 256},
}  # fmt: skip
LARGER = {"conv": "batch-size", "oct_conv": "batch-size", "fc": "batch-size", "gemm": "n", "pooling": "channels",
          "embedding": "num-indices", "ctc_loss": "max-time", "matrix_solver": "a-rank", "lstm": "sequence-size",
          "gru": "sequence-size"}  # fmt: skip


@pytest.mark.parametrize("op", EXAMPLES)
@pytest.mark.parametrize("what", WHATS)
def test_every_operation_and_figure_is_predicted(op, what):
    for hardware in (GC2, GC200):
        value = published.predict(row(op, EXAMPLES[op], what, hardware))
        assert value > 0


@pytest.mark.parametrize("op", LARGER)
def test_a_larger_problem_takes_longer(op):
    larger = dict(EXAMPLES[op])
    larger[LARGER[op]] = 4 * larger[LARGER[op]]
    small, big = published.predict(row(op, EXAMPLES[op])), published.predict(row(op, larger))
    assert 1.2 < big / small < 20


def test_a_longer_reduction_takes_longer():
    longer = {**EXAMPLES["reduction"], "shape": [1024, 16, 8, 16]}
    assert published.predict(row("reduction", longer)) > published.predict(row("reduction", EXAMPLES["reduction"]))


def test_more_tiles_are_faster():
    assert published.predict(row("conv", CONV, hardware=GC200)) < published.predict(row("conv", CONV))


@pytest.mark.parametrize("op", EXAMPLES)
def test_names_play_no_part(op):
    plain = row(op, EXAMPLES[op])
    renamed = copy.deepcopy(plain)
    renamed["config"]["case"] = "resnet50_tr_bs4_bm512L0A1"
    nameless = copy.deepcopy(plain)
    del nameless["config"]["case"]
    assert published.predict(plain) == published.predict(renamed) == published.predict(nameless)


def test_the_value_of_a_row_is_never_read():
    plain = row("fc", EXAMPLES["fc"])
    assert published.predict({**plain, "value": 1}) == published.predict({**plain, "value": 10**9})


@pytest.mark.parametrize(
    "module", [rows, layers, tables, kernels, stencil, throughput, networks, formula, catalogue, nn, workload]
)
def test_no_predictor_reads_a_label_or_a_value(module):
    source = inspect.getsource(module)
    assert not re.search(r"""["'](case|value|caution|note|source)["']""", source)


def test_rounded_figures_of_the_benchmark_table():
    # a handful of published rows, far from exact on purpose: they show that units and chips are right
    known = [
        (row("conv", CONV), 54955),
        (row("conv", CONV, hardware=GC200), 46333),
        (row("gemm", {"m": 200, "k": 512, "n": 10000}, family="gemm"), 62001),
        (row("fc", {"input-size": 1024, "output-size": 4096, "batch-size": 128}, family="gemm"), 110146),
        (row("conv", CONV, "max"), 136728),
    ]
    for figure, value in known:
        assert published.predict(figure) == pytest.approx(value, rel=0.06)


def test_on_tile_products_reach_the_measured_rate():
    chip = target.get("bow")
    for n, measured in ((32, 96.7), (128, 211.1), (512, 299.8), (1920, 334.1)):
        figure = {"family": "gemm", "what": "aggregate rate", "unit": "TFLOP/s", "precision": "fp16.16",
                  "hardware": "Bow IPU, 1 IPU", "config": {"N": n, "inner": 16, "out": 16, "tiles": 1472}}  # fmt: skip
        assert published.predict(figure, chip) == pytest.approx(measured, rel=0.01)


def throughput_row(what, batch, family="inference", hardware="C600, 1 IPU", **config):
    return {"family": family, "what": what, "unit": "samples/s" if family == "inference" else "items/s",
            "precision": "fp16", "hardware": hardware, "config": {"batch": batch, **config}}  # fmt: skip


def test_throughput_grows_with_the_batch_and_falls_with_the_sequence():
    name = "BERT-Base inference throughput"
    small = published.predict(throughput_row(name, 1, seq=128))
    large = published.predict(throughput_row(name, 16, seq=128))
    long = published.predict(throughput_row(name, 16, seq=384))
    assert small < large
    assert long < large / 2


def test_partial_results_are_of_the_type_that_a_row_says_else_as_servers_and_trainers_have_them():
    def took(family, precision):
        row = {**throughput_row("BERT-Base throughput", 4, family, seq=128), "precision": precision}
        return published.predict(row), explain(row).assumed

    for family, usual in (("inference", "half"), ("training", "float")):
        half, single = took(family, "fp16.16")[0], took(family, "fp16.32")[0]
        assert single < 0.8 * half
        value, assumed = took(family, "fp16")
        assert (value, f"{usual} partial results" in assumed) == (half if usual == "half" else single, True)


def test_training_scales_with_the_system_but_not_perfectly():
    name = "ResNet-50 v1.5 training throughput"
    pods = [published.predict(throughput_row(name, 16, "training", f"Bow Pod{n}")) for n in (16, 64)]
    assert 3 < pods[1] / pods[0] < 4


def test_the_exchange_and_sync_of_a_stencil_are_those_of_the_chip():
    chip = target.get("mk1")
    step = {"family": "exchange", "unit": "cycles", "hardware": "GC2, 1 IPU", "precision": "fp16",
            "config": {"image": "2200x1122", "vector": "half4"}}  # fmt: skip
    for part, changes in (
        ("exchange", {"exchange_setup_cycles": 2 * chip.exchange_setup_cycles,
                      "exchange_bytes_per_cycle": chip.exchange_bytes_per_cycle / 2}),
        ("sync", {"sync_cycles": 2 * chip.sync_cycles}),
    ):  # fmt: skip
        row = {**step, "what": f"Gaussian blur step: {part}"}
        slower = published.predict(row, chip.replace(**changes))
        assert slower == pytest.approx(2 * published.predict(row, chip))


@pytest.mark.parametrize("vector", ["half4", "scalar float"])
def test_borders_cross_between_ipus_at_the_rate_of_a_link(vector):
    chip = target.get("mk1")
    row = {"family": "exchange", "unit": "cycles", "hardware": "GC2, 16 IPU", "precision": "fp16",
           "what": "Gaussian blur step: global exchange",
           "config": {"image": "2200x1122", "vector": vector}}  # fmt: skip
    halved = chip.replace(link_bytes_per_second=chip.link_bytes_per_second / 2)
    sent = (2200 / 4 + 1122 / 4) * (8 if vector == "half4" else 16)
    link = chip.link_bytes_per_second * chip.link_efficiency / chip.clock_hz
    assert published.predict(row, halved) - published.predict(row, chip) == pytest.approx(sent / link)


def test_a_sync_between_ipus_takes_what_the_chip_says_by_the_links_that_it_passes():
    def sync(count):
        return published.predict({
            "family": "exchange", "unit": "cycles", "hardware": f"GC2, {count} IPU", "precision": "fp16",
            "what": "Gaussian blur step: sync", "config": {"image": "2200x1122", "vector": "half4"}})  # fmt: skip

    whole = target.get("mk1").external_sync_cycles
    assert [sync(count) for count in (2, 4, 8, 16)] == pytest.approx([whole * n / 5 for n in (1, 2, 3, 5)])


def test_one_worker_copies_the_pieces_of_a_border():
    def copies(vector):
        return published.predict({
            "family": "exchange", "unit": "cycles", "hardware": "GC2, 16 IPU", "precision": "fp16",
            "what": "Gaussian blur step: pre-exchange copies",
            "config": {"image": "2200x1122", "vector": vector}})  # fmt: skip

    chip = target.get("mk1")
    border = 4 * (2200 * 1122 / 16 / chip.tiles) ** 0.5
    assert copies("scalar float") - copies("half4") == pytest.approx(chip.workers * border)


def test_stencils_scale_with_the_grid():
    def heat(side):
        return {"family": "memory_bound", "what": "run time", "unit": "s", "precision": "fp32",
                "hardware": "GC200, 1 IPU", "config": {"equation": "2D heat", "grid": f"{side}x{side}"}}  # fmt: skip

    assert published.predict(heat(8000)) == pytest.approx(4 * published.predict(heat(4000)), rel=0.01)


def test_a_pixel_and_a_cell_cost_the_instructions_of_their_vertices():
    def blur(vector):
        figure = {"family": "memory_bound", "what": "Gaussian blur step: compute", "unit": "cycles",
                  "precision": "fp32", "hardware": "GC2, 1 IPU",
                  "config": {"image": "2200x1122", "vector": vector}}  # fmt: skip
        return published.model(figure).alternatives[0]["stencil.compute"]

    pixels = 2200 * 1122 / target.get("mk1").machine.tiles
    assert [round(blur(v) / pixels) for v in ("half4", "float2", "scalar float")] == [31, 54, 100]
    flat, cube = (
        {"family": "memory_bound", "what": "run time", "unit": "s", "precision": "fp32", "hardware": "GC200, 1 IPU",
         "config": {"equation": "heat", "grid": grid}} for grid in ("4096x4096", "256x256x256")
    )  # fmt: skip
    # seven loads where the plane has five, beside a store and three for the loop
    assert published.predict(cube) / published.predict(flat) == pytest.approx(11 / 9)


def test_predictions_are_differentiable():
    figure = row("conv", CONV)
    model, chip = published.model(figure), published.target_of(figure)
    slope = jax.grad(lambda t: model(t))(chip)
    assert float(slope.fitted["conv.compute"]) == pytest.approx(model.alternatives[0]["conv.compute"], rel=1e-4)
    assert float(slope.exchange_bytes_per_cycle) < 0
    memory = published.model(row("conv", CONV, "max"))
    jax.grad(lambda t: memory(t))(chip)


def test_smooth_maximum_of_a_figure_has_the_slopes_of_both_alternatives():
    chip = published.target_of({})
    highest = formula.Formula(({"a": 3.0, "": 10.0}, {"b": 2.0}))
    at = chip.with_fitted({"a": 1.0, "b": 6.5})  # 13 and 13: a kink of the exact maximum
    with jax.enable_x64(True):
        slope = jax.grad(lambda t: highest(t, smooth=2.0))(at)
        for name in ("a", "b"):
            up, down = (at.with_fitted({name: at.fitted[name] + s}) for s in (1e-5, -1e-5))
            difference = float(highest(up, 2.0) - highest(down, 2.0)) / 2e-5
            assert float(slope.fitted[name]) == pytest.approx(difference, rel=1e-6)
            assert difference == pytest.approx({"a": 1.5, "b": 1.0}[name], rel=1e-3)
    assert highest(at) == 13.0


def test_unknown_rows_are_refused_by_name():
    with pytest.raises(ValueError, match=r"family 'weather'.*'sunshine'"):
        published.predict({**row("sun", {}, family="weather"), "what": "sunshine"})
    with pytest.raises(ValueError, match="not 'watts'"):
        published.predict({**row("conv", CONV), "what": "watts"})
    forward = {**row("conv", CONV), "what": "forward"}
    assert published.predict(forward) == published.predict({**forward, "what": "forward cycles"})


@pytest.mark.parametrize(
    ("hardware", "name", "tiles"),
    [(GC2, "mk1", 1216), (GC200, "mk2", 1472), ("Bow Pod16", "bow", 1472), ("C600, 1 IPU", "c600", 1472),
     ("GC2 (ipu1) 1024 tiles used, Poplar IPUModel", "mk1", 1024), ("GC200 POD64", "mk2", 1472)],
)  # fmt: skip
def test_hardware_names(hardware, name, tiles):
    chip = published.target_of({"hardware": hardware})
    assert (chip.name, chip.tiles) == (name, tiles)


def test_scoring_command(tmp_path: Path, capsys):
    figures = []
    for op in ("gemm", "fc"):
        for hardware in (GC2, GC200):
            figure = row(op, EXAMPLES[op], hardware=hardware, family="gemm")
            figures.append({**figure, "value": 1.1 * published.predict(figure)})
    figures.append({**row("gemm", EXAMPLES["gemm"]), "value": "OOM"})
    file = tmp_path / "figures.json"
    file.write_text(json.dumps({"figures": figures}))
    assert main([str(file), "--rows"]) == 0
    text = capsys.readouterr().out
    line = next(line for line in text.splitlines() if " gemm " in line)
    assert [cell.strip() for cell in line.split("│")[3:-1]] == ["", "cycles", "all", "4", "9.1%", "9.1%", "-9.1%"]
    assert "half A" in text
    assert "half B" in text
    assert "its value is not a number: 'OOM'" in text
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n## Table\nold\n")
    assert main([str(file), "--page", str(page)]) == 0
    written = page.read_text()
    assert written.startswith("# Page\n\n## Table\n")
    assert "old" not in written
    cells = next(line for line in written.splitlines() if line.startswith("| estimate | gemm | fc |")).split(" | ")
    assert cells[4:] == ["2", cells[5], "9.1 / 9.1", "-", cells[8]]
    page.write_text("# Page\n")
    with pytest.raises(SystemExit):
        main([str(file), "--page", str(page)])


def test_halves_share_no_workload():
    figures = [
        {**row("gemm", {"m": 8 * m, "k": 64, "n": 256}, hardware=h, family="gemm"), "value": 1.0}
        for m in range(1, 9)
        for h in (GC2, GC200)
    ]
    from ipu_model.calibrate import case_key, split_by_case

    one, two = split_by_case(figures)
    assert len(one) == len(two) == 8
    assert not {case_key(f) for f in one} & {case_key(f) for f in two}


def test_every_group_of_the_fit_names_existing_constants():
    known = target.get("mk2").fitted
    for _, prefixes in score.GROUPS:
        for prefix in prefixes:
            assert any(name.startswith(prefix) for name in known), prefix
