"""Calibration recovers constants, validates on other workloads and stores what it found."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ipu_model import published, target
from ipu_model.calibrate import Calibration, calibrate, split_by_case, summary

MK2 = target.get("mk2")


def figures(truth, noise=0.0):
    rng = np.random.default_rng(1)
    rows = []
    for m, k, n in ((64, 64, 512), (128, 128, 2048), (200, 256, 1024), (64, 512, 4096), (256, 64, 8192), (16, 64, 64)):
        config = {"op": "gemm", "params": {"m": m, "k": k, "n": n}}
        figure = {"family": "gemm", "what": "total cycles", "unit": "cycles", "hardware": "GC200", "precision": "fp16"}
        figure |= {"kind": "ipu_model_estimate", "config": config}
        value = published.model(figure)(published.target_of(figure).with_fitted(truth))
        rows.append({**figure, "value": value * (1 + noise * rng.standard_normal())})
    return rows


def test_known_constants_are_recovered():
    truth = {"conv.passes": 2000.0, "conv.compute": 1.2}
    fit = calibrate(figures(truth), names=("conv.passes", "conv.compute"), keep=1)
    assert fit.constants["conv.compute"] == pytest.approx(1.2, rel=0.03)
    assert fit.constants["conv.passes"] == pytest.approx(2000, rel=0.1)
    assert fit.train["gemm [cycles]"]["median"] < 0.01
    assert fit.target.fitted["conv.passes"] == fit.constants["conv.passes"]
    assert set(fit.constants) == {"conv.passes", "conv.compute"}


def test_errors_are_reported_for_workloads_that_were_held_back():
    fit = calibrate(figures({"conv.passes": 1500.0}, noise=0.02), names=("conv.passes",), keep=0.5)
    assert fit.train["gemm [cycles]"]["count"] == fit.validation["gemm [cycles]"]["count"] == 3
    assert fit.validation["gemm [cycles]"]["median"] < 0.1


def test_split_does_not_depend_on_other_families():
    rows = figures({})
    other = [{**r, "family": "conv"} for r in rows]
    alone, _ = split_by_case(rows)
    mixed, _ = split_by_case(rows + other)
    assert alone == [r for r in mixed if r["family"] == "gemm"]


def test_summary_of_errors():
    assert summary([0.1, -0.2, 0.3]) == pytest.approx({"median": 0.2, "p90": 0.28, "bias": 0.1, "count": 3})


def test_stored_constants_keep_their_starting_values(tmp_path):
    file = tmp_path / "fitted.json"
    file.write_text(json.dumps({"constants": {"a": {"value": 1.0, "start": 0.5, "source": "book"},
                                              "b": {"value": 2.0, "source": "book"}}}))  # fmt: skip
    Calibration(MK2, {"a": 3.14159265}).save(file, "a test")
    rows = json.loads(file.read_text())["constants"]
    assert rows["a"] == {"value": 3.1416, "source": "a test", "start": 0.5}
    assert rows["b"]["value"] == 2.0


def test_a_target_of_ones_own_can_be_fitted():
    chip = MK2.replace(tiles=100).with_fitted({"conv.passes": 500.0})
    rows = figures({"conv.passes": 900.0})
    rows = [{**r, "value": published.model(r, chip)(chip.with_fitted({"conv.passes": 900.0}))} for r in rows]
    fit = calibrate(rows, chip, names=("conv.passes",), keep=1)
    assert fit.constants["conv.passes"] == pytest.approx(900, rel=0.05)
    assert fit.target.tiles == 100
