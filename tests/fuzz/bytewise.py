"""Damaged models through every entry point: the result is a value or one of our errors, never a crash."""

from __future__ import annotations

import gc
import random
import resource
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..isolated import Handler, Phase
from .corpus import Seed, corpus
from .mutate import mutated

_MEMORY = 1 << 28
_GROWTH = 1_200_000  # kB at which compiled programs are dropped


def draw(seed: int) -> tuple[Seed, bytes]:
    """The damaged model with this number, and the seed model that it was made from."""
    dice = random.Random(seed)
    base = dice.choice(corpus())
    return base, mutated(base.data, [s.data for s in dice.choices(corpus(), k=3)], dice)


def route_of(seed: int) -> str:
    """The entry point for a case: most are only traced, since compiling takes twenty times as long."""
    return {0: "backend", 1: "jit", 2: "session", 3: "backend"}.get(seed % 80, "trace")


def start() -> Handler:
    """Handler for a worker process: maps the number of a case to its outcome as text."""
    import logging

    import jax

    import popart_jax as popart

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    popart.limits.memory = _MEMORY
    popart.limits.nodes = 20_000

    def handle(seed: int, phase: Phase) -> str:
        base, data = draw(seed)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > _GROWTH and seed % 200 == 0:
            jax.clear_caches()
            gc.collect()
        phase("ours")
        return outcome(data, base.feeds, route_of(seed))

    return handle


def outcome(data: bytes, feeds: dict[str, Any], route: str) -> str:
    """Outcome of a model: "value", "error" for one of our errors, or the text of a foreign error."""
    return outcome_of(lambda: run(data, feeds, route))


def outcome_of(call: Callable[[], Any]) -> str:
    """Outcome of a call, as `outcome` gives it."""
    import popart_jax as popart
    from popart_jax.errors import poplibs_exception

    try:
        call()
    except (popart.popart_exception, poplibs_exception) as err:
        return "error" if str(err).strip() else "an error without words"
    except RecursionError as err:
        return f"RecursionError: {str(err)[:200]}"
    except Exception as err:
        return f"{type(err).__name__}: {str(err)[:300]}"
    return "value"


def run(data: bytes, feeds: dict[str, Any], route: str) -> Any:
    """Run a model through one of the entry points, on the feeds that it has inputs for."""
    import jax

    import popart_jax as popart
    from popart_jax import backend

    if route == "backend":
        made = backend.prepare(data)
        return made.run({n: feeds.get(n) for n in made.inputs if n in feeds})
    if route in ("jit", "trace"):
        fn, params = popart.to_jax(data)
        fed = {n: feeds[n] for n in fn.inputs if n in feeds}
        moving = {n: x for n, x in fed.items() if isinstance(x, np.ndarray) and x.dtype.kind in "biufc"}
        call = lambda params, moving: _numbers(fn(params, {**fed, **moving}))  # noqa: E731
        with fn.precision():
            return (jax.jit(call) if route == "jit" else partial(jax.eval_shape, call))(params, moving)
    from popart_jax.model.files.load import read

    outputs = {v.name or "": popart.AnchorReturnType("All") for v in read(data).graph.outputs}
    made = popart.InferenceSession(data, popart.DataFlow(1, outputs), popart.DeviceManager().createCpuDevice())
    made.prepareDevice()
    anchors = made.initAnchorArrays()
    made.run(popart.PyStepIO({n: np.asarray(x) for n, x in feeds.items()}, anchors))
    return anchors


def _numbers(found: Any) -> Any:
    """The outputs that a compiled program can return: all but texts."""
    return {n: x for n, x in found.items() if not (isinstance(x, np.ndarray) and x.dtype.kind in "OUS")}
