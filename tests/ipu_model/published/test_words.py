"""Rows that ask for a part of a benchmark or for a limit are answered as far as their words carry."""

from __future__ import annotations

import pytest

from ipu_model import published, target
from ipu_model.published.words import passes_of, size_asked_for

CONV = {"field": [14, 14], "kernel-size": 3, "padding": 1, "input-channels": 32, "output-channels": 48, "batch-size": 2}
FC = {"batch-size": 16, "input-size": 256, "output-size": 512}
POOL = {"field": [16, 16], "kernel": 3, "stride": 1, "padding": 1, "channels": 64, "batch-size": 2,
        "fwd-chans-per-group": 8}  # fmt: skip
ALL = "fwd+bwd+weight update"


def row(op: str, params: dict, what: str = "total cycles", passes: str = "", unit: str = "cycles") -> dict:
    config = {"op": op, "params": params, "pass": passes}
    return {"family": "conv", "what": what, "unit": unit, "hardware": "GC200 (ipu2)", "precision": "fp16",
            "config": config}  # fmt: skip


@pytest.mark.parametrize(("words", "found"), [
    ("fwd+bwd+weight update", (0, 1, 2)), ("fwd", (0,)), ("backward pass", (1,)), ("wu", (2,)), ("", (0, 1, 2)),
    ("forward only, C = alpha*A.B", (0,)), ("gather and scatter-add update (both passes)", (0, 1, 2)),
])  # fmt: skip
def test_passes_that_words_name(words, found):
    assert passes_of(words) == found


@pytest.mark.parametrize(("op", "params"), [
    ("conv", CONV), ("fc", FC), ("oct_conv", {**CONV, "field": [16, 16], "alpha": 0.25}), ("pooling", POOL),
])  # fmt: skip
def test_cycles_of_the_passes_add_up(op, params):
    whole = published.predict(row(op, params, passes=ALL))
    names = ("forward", "backward", "weight update")[: 2 if op == "pooling" else 3]
    each = [asked(op, params, name) for name in names]
    assert sum(each) == pytest.approx(whole)
    assert all(cycles > 0 for cycles in each)


def asked(op: str, params: dict, name: str) -> float:
    return published.predict(row(op, params, what=f"cycles of the {name} pass", passes=ALL))


def test_layers_run_all_passes_unless_the_figure_is_that_of_one():
    whole = published.predict(row("conv", CONV, passes=ALL))
    assert whole == published.predict(row("conv", CONV, passes="fwd"))
    assert asked("conv", CONV, "backward") == published.predict(row("conv", CONV, what="bwd cycles")) < whole


def test_a_forward_pass_alone_holds_no_gradients():
    alone = published.predict(row("conv", CONV, "total memory of the forward pass"))
    assert alone < published.predict(row("conv", CONV, "total memory: sum over tiles"))


def test_the_largest_size_that_fits_fits_and_the_next_does_not():
    what, chip = "largest n that fits", target.get("mk1")
    gemm = {"m": 512, "k": 512, "n": 1}
    ask = {**row("gemm", gemm, what, unit="columns"), "hardware": "GC2"}
    n = int(published.predict(ask))
    assert n > 1000

    def highest(columns: int) -> float:
        return published.predict({**row("gemm", {**gemm, "n": columns}, "max tile memory"), "hardware": "GC2"})

    assert highest(n) <= chip.machine.tile_memory < highest(n + n // 100)


def test_a_limit_of_what_the_row_has_not_is_refused_by_name():
    with pytest.raises(ValueError, match=r"'height'.*'k', 'm', 'n'"):
        published.predict(row("gemm", {"m": 8, "k": 8, "n": 8}, "largest height that fits"))
    with pytest.raises(ValueError, match="not 'watts'"):
        published.predict(row("conv", CONV, "watts"))


@pytest.mark.parametrize(("what", "name"), [
    ("largest batch size that fits", "batch-size"), ("Maximum n that fits on one IPU", "n"), ("total cycles", None),
    ("max tile memory including gaps", None), ("largest square matmul that fits", "square-matmul"),
])  # fmt: skip
def test_sizes_that_words_ask_for(what, name):
    assert size_asked_for(what) == name
