"""Rows that ask for a part of a benchmark or for a limit are answered as far as their words carry."""

from __future__ import annotations

import pytest

from ipu_model import published, target
from ipu_model.published.words import PASS_WORDS, named, size_asked_for

CONV = {"field": [14, 14], "kernel-size": 3, "padding": 1, "input-channels": 32, "output-channels": 48, "batch-size": 2}
FC = {"batch-size": 16, "input-size": 256, "output-size": 512}
POOL = {"field": [16, 16], "kernel": 3, "stride": 1, "padding": 1, "channels": 64, "batch-size": 2,
        "fwd-chans-per-group": 8}  # fmt: skip
ALL = "fwd+bwd+weight update"


def row(op: str, params: dict, what: str = "total cycles", passes: str = "", unit: str = "") -> dict:
    unit = unit or ("bytes" if "memory" in what else "cycles")
    config = {"op": op, "params": params, "pass": passes}
    return {"family": "conv", "what": what, "unit": unit, "hardware": "GC200 (ipu2)", "precision": "fp16",
            "config": config}  # fmt: skip


@pytest.mark.parametrize(("words", "found"), [
    ("fwd+bwd+weight update", (0, 1, 2)), ("fwd", (0,)), ("backward pass", (1,)), ("wu", (2,)), ("", ()),
    ("forward only, C = alpha*A.B", (0,)), ("gather (both passes)", ()), ("inference", (0,)),
])  # fmt: skip
def test_passes_that_words_name(words, found):
    assert named(words, PASS_WORDS) == found


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
    assert whole == published.predict(row("conv", CONV)) > published.predict(row("conv", CONV, passes="fwd"))
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


EMBEDDING = {"shape": [30522, 1024], "num-indices": 512}
CTC = {"max-time": 100, "max-label-length": 20, "num-classes": 30, "batch": 2}
LSTM = {"batch-size": 4, "sequence-size": 5, "input-size": 128, "output-size": 128}
OCT = {"field": [16, 16], "kernel-size": 1, "input-channels": 64, "output-channels": 64, "batch-size": 2}


@pytest.mark.parametrize(("one", "same"), [  # two ways to say a thing
    (("oct_conv", {**OCT, "alpha-in": 0.0, "alpha-out": 0.25}), ("oct_conv", {**OCT, "alpha": [0.0, 0.25]})),
    (("oct_conv", {**OCT, "alpha_in": 0.5, "alpha_out": 0.25}), ("oct_conv", {**OCT, "alpha": "{0.5,0.25}"})),
    (("conv", CONV), ("conv", {**CONV, "field": "{14,14}", "kernel-size": "[3, 3]", "input-channels": "32"})),
    (("pooling", POOL), ("pooling", {**{k: v for k, v in POOL.items() if k != "kernel"}, "kernel_size": 3})),
    (("embedding", EMBEDDING, "gather cycles"), ("embedding", EMBEDDING, "look-up cycles")),
])  # fmt: skip
def test_spellings_of_a_row_have_one_answer(one, same):
    assert published.predict(row(*one)) == published.predict(row(*same)) > 0


def test_a_gather_and_an_update_add_up_to_both():
    parts = (published.predict(row("embedding", EMBEDDING, f"cycles of the {name}")) for name in ("gather", "update"))
    assert sum(parts) == pytest.approx(published.predict(row("embedding", EMBEDDING)))


def test_the_forward_pass_of_a_recurrent_layer_costs_less_than_its_training():
    passes = (published.predict(row("lstm", LSTM, what, ALL)) for what in ("forward cycles", "total cycles"))
    assert 0 < 2 * next(passes) < next(passes)


@pytest.mark.parametrize(("unit", "of_seconds", "what"), [
    ("us", 1e6, "run time"), ("ms", 1e3, "latency"), ("s", 1.0, "total cycles"), ("minutes", 1 / 60, "execution time"),
])  # fmt: skip
def test_times_of_a_program_follow_the_clock(unit, of_seconds, what):
    seconds = published.predict(row("conv", CONV)) / target.get("mk2").clock_hz
    assert published.predict(row("conv", CONV, what, unit=unit)) == pytest.approx(seconds * of_seconds)


def test_memory_in_other_units():
    in_bytes, in_mib = (published.predict(row("conv", CONV, "total memory", unit=unit)) for unit in ("bytes", "MiB"))
    assert in_bytes == pytest.approx(in_mib * 2**20)


@pytest.mark.parametrize(("rows", "answer"), [(1000, 1.0), (10_000_000, 0.0)])
def test_whether_a_program_fits_is_an_outcome(rows, answer):
    table = {"shape": [rows, 200], "num-indices": 16}
    assert published.predict(row("embedding", table, "fits", unit="fits outcome")) == answer


@pytest.mark.parametrize(("of", "message"), [
    (("ctc_loss", CTC, "cycles of the gradient"), "ctc_loss runs as one program"),
    (("lstm", LSTM, "cycles of the backward pass", ALL), "a recurrent layer runs as one program"),
    (("pooling", POOL, "cycles of the weight update"), "pooling has no weights"),
    (("embedding", EMBEDDING, "total memory of the gather"), "memory is that of the whole program"),
    (("deconv", CONV), "no benchmark program 'deconv'; there are conv, ctc_loss"),
    (("conv", CONV, "total cycles", "", "furlongs"), "asked for in 'furlongs', expected one of cycles"),
    (("conv", CONV, "total memory", "", "cycles"), "asked for in 'cycles', expected one of bytes"),
    (("conv", CONV, "temporary memory", "", "bytes"), "cycles, total memory and max tile memory, not 'temporary"),
    (("conv", {**CONV, "input-channels": "many"}), "in_channels is 'many', expected a whole number"),
    (("oct_conv", {**OCT, "alpha": "most"}), "alpha-in is 'most', expected a number between 0 and 1"),
])  # fmt: skip
def test_what_a_program_has_not_is_refused_with_the_reason(of, message):
    with pytest.raises(ValueError, match=message):
        published.predict(row(*of))


@pytest.mark.sweep
def test_the_largest_batch_of_a_network_fits():
    def ask(what, unit, **more):
        config = {"model": "BERT-tiny", **more}
        return published.predict({"family": "max_problem_size", "what": what, "unit": unit, "config": config})

    most = ask("largest batch size that fits", "samples")
    filled = ask("total memory", "bytes", batch=int(most)) / target.get("mk2").memory
    assert 0.9 < filled < 1.05
    with pytest.raises(ValueError, match="no rule answers 'colour' in 'nm'"):
        ask("colour", "nm")


@pytest.mark.parametrize(("what", "name"), [
    ("largest batch size that fits", "batch-size"), ("Maximum n that fits on one IPU", "n"), ("total cycles", None),
    ("max tile memory including gaps", None), ("largest square matmul that fits", "square-matmul"),
    ("largest BERT-Base batch that fits", "batch"),
])  # fmt: skip
def test_sizes_that_words_ask_for(what, name):
    assert size_asked_for(what) == name
