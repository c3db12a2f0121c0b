"""A training session that started from a file becomes one made in full, after failures and beside threads too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popart_jax as popart
from popart_jax.session import parts as session_parts

from ..platforms import ON_CPUS
from .starting import LABELS, OPTIMIZERS, RATE, W1, W2, X, model, prepared, read, session, steps

pytestmark = ON_CPUS


def refused(given: tuple[Any, str], act: Callable[[Any, popart.PyStepIO], None], name: str) -> str:
    made = session(given, OPTIMIZERS["momentum"](0.1), name=name)
    anchors = {given[1]: np.empty(2, np.float32), "w2": np.empty_like(W2)}
    with pytest.raises(popart.popart_exception) as caught:
        act(made, popart.PyStepIO({"x": X, "labels": LABELS}, anchors))
    return str(caught.value)


def without_weights(made: Any, stepio: popart.PyStepIO) -> None:
    made.prepareDevice()
    made.run(stepio)


def unfetched(made: Any, _: popart.PyStepIO) -> None:
    made.prepareDevice()
    made.readWeights(popart.PyWeightsIO({"w1": np.empty_like(W1)}))


def of_another_size(made: Any, _: popart.PyStepIO) -> None:
    made.prepareDevice()
    made.weightsToHost()
    made.readWeights(popart.PyWeightsIO({"w1": np.empty(3, np.float32)}))


REFUSED: dict[str, Callable[[Any, popart.PyStepIO], None]] = {
    "not prepared": lambda made, _: made.weightsFromHost(),
    "not prepared, to host": lambda made, _: made.weightsToHost(),
    "weights not sent": without_weights,
    "not fetched": unfetched,
    "another size": of_another_size,
    "another optimizer": lambda made, _: made.updateOptimizerFromHost(popart.ConstSGD(0.1)),
    "no optimizer for it": lambda made, _: made.updateOptimizerFromHost(popart.Adam({RATE: (0.1, False)})),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_refused_as_ever(case: str, cache: Path) -> None:
    given = model()
    prepared(given, OPTIMIZERS["momentum"](0.1))
    assert refused(given, REFUSED[case], "training") == refused(given, REFUSED[case], "made in full")


def test_a_run_that_fails_leaves_the_weights(
    cache: Path, made_in_full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, optimizer = model(), OPTIMIZERS["Adam"](0.1)
    made, stepio = prepared(given, optimizer)
    wanted = steps(made, stepio, 3)
    second, stepio = prepared(given, optimizer)

    def fail(*_: Any) -> None:
        raise RuntimeError("lost")

    first = second._parts.first
    found = steps(second, stepio, 1)
    before = read(second, "w1", "w2")
    with monkeypatch.context() as patch:
        patch.setattr(first, "_put_hyper", fail)
        with pytest.raises(RuntimeError, match="lost"):
            second.run(stepio)
    with pytest.raises(popart.popart_exception):
        second.run(popart.PyStepIO({"x": X.astype(np.float64), "labels": LABELS}, stepio.outputs))
    assert read(second, "w1", "w2") == before
    assert found + steps(second, stepio, 2) == wanted


def test_a_first_run_that_fails_is_made_in_full(
    cache: Path, made_in_full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, optimizer = model(), OPTIMIZERS["Adam"](0.1)
    wanted = steps(*prepared(given, optimizer), 3)
    made, stepio = prepared(given, optimizer)

    def fail(*_: Any) -> None:
        raise RuntimeError("lost")

    monkeypatch.setattr(made._parts.first, "call", fail)
    assert steps(made, stepio, 3) == wanted
    assert made_in_full == ["session"] * 2


def test_a_session_that_can_not_be_made_goes_on(
    cache: Path, made_in_full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, optimizer = model(), OPTIMIZERS["Adam"](0.1)
    wanted = steps(*prepared(given, optimizer), 5)
    made, stepio = prepared(given, optimizer)
    found = steps(made, stepio, 2)

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(session_parts.later, "Reports", fail)
        with pytest.raises(KeyboardInterrupt):
            made.getIr()
    found += steps(made, stepio, 1)
    assert made_in_full == ["session"] * 2
    made.getIr()
    assert found + steps(made, stepio, 2) == wanted


def test_steps_run_on_while_another_thread_makes_the_session(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, optimizer = model(), OPTIMIZERS["momentum"](0.1)
    wanted = steps(*prepared(given, optimizer), 8)
    made, stepio = prepared(given, optimizer)
    found = steps(made, stepio, 2)
    begun, may_end, files = threading.Event(), threading.Event(), session_parts.later.ModelFiles

    def slow(*args: Any) -> Any:
        begun.set()
        assert may_end.wait(60)
        return files(*args)

    monkeypatch.setattr(session_parts.later, "ModelFiles", slow)
    other = threading.Thread(target=made.getIr)
    other.start()
    assert begun.wait(60)
    found += steps(made, stepio, 3)
    may_end.set()
    other.join()
    assert made._parts.first is None
    assert found + steps(made, stepio, 3) == wanted


def test_no_step_is_lost_while_another_thread_makes_the_session(cache: Path) -> None:
    given, optimizer = model(), OPTIMIZERS["momentum"](0.1)
    wanted = steps(*prepared(given, optimizer), 300)
    made, stepio = prepared(given, optimizer)
    other = threading.Thread(target=made.getIr)
    found = steps(made, stepio, 2)
    other.start()
    found += steps(made, stepio, 298)
    other.join()
    assert found == wanted


def test_the_seed_is_handed_over(cache: Path, made_in_full: list[str]) -> None:
    given, optimizer = model(dropout=True), OPTIMIZERS["plain"](0.1)
    made, stepio = prepared(given, optimizer)
    started, other = prepared(given, optimizer)
    seed = started._parts.first.seed
    found = steps(started, other, 2)
    assert made_in_full == ["session"]
    now = started.getRandomSeed()
    found += steps(started, other, 2)
    made.setRandomSeed(seed)
    wanted = steps(made, stepio, 2)
    assert made.getRandomSeed() == now
    assert wanted + steps(made, stepio, 2) == found
    assert len(set(found)) == len(found)
