"""``bench``: how long a model takes here, beside another runtime."""

from __future__ import annotations

import argparse
import functools
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from rich.table import Column, Table

from ..errors import popart_exception
from ..timings import FIRST_RUN, Timings
from . import feeds, shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    feeds.add_arguments(parser)
    parser.add_argument("--against", choices=("onnxruntime",), help="time this runtime as well, turn by turn")
    parser.add_argument("--explain", action="store_true", help="show how long each phase of getting ready took")
    parser.add_argument("--repeats", type=int, default=30, help="timed runs of each (default 30)")


def run(options: argparse.Namespace) -> int:
    """Time a model, with its weights given once and compiled, by itself or beside another runtime."""
    from ..functions.loading import to_jax
    from ..model.files.load import load

    if options.repeats < 1:
        raise popart_exception(f"--repeats {options.repeats}: expected at least 1.")
    given = feeds.feeds(load(options.model).graph, options)
    timings = Timings()
    with timings.collect():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # nothing is trained here
            fn, params = to_jax(options.model)
        texts = any(x.dtype.kind in "OUS" for x in given.values())  # texts stay on the host
        infer = functools.partial(fn, params) if texts else fn.with_weights(params)
    calls: dict[str, Callable[[], Any]] = {"popart_jax": lambda: [np.asarray(y) for y in infer(given).values()]}
    if options.against:
        calls[options.against] = _onnxruntime(str(options.model), given)
    with timings.collect(FIRST_RUN):
        first = {"popart_jax": _seconds(calls["popart_jax"])}
    first |= {name: _seconds(call) for name, call in calls.items() if name not in first}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(options.repeats):  # interleaved, so that other load on the machine affects both alike
        for name, call in calls.items():
            taken[name].append(_seconds(call))
        shown.advance("timing", i + 1, options.repeats)
    shown.console().print(_table(first, taken))
    if options.explain:
        shown.console().print(_phases(timings.seconds))
    return 0


def _phases(seconds: Mapping[str, float]) -> Table:
    table = Table(Column("phase", no_wrap=True), "time [ms]", "share")
    whole = sum(seconds.values())
    for name, taken in (*seconds.items(), ("together", whole)):
        table.add_row(name, f"{1e3 * taken:.1f}", f"{100 * taken / whole:.0f} %")
    return table


def _table(first: Mapping[str, float], taken: Mapping[str, list[float]]) -> Table:
    table = Table(
        Column("runtime", no_wrap=True),
        "first run [ms]",
        "median [ms]",
        "fastest [ms]",
        "slowest [ms]",
        "against popart_jax",
    )
    ours = statistics.median(taken["popart_jax"])
    for name, samples in taken.items():
        middle = statistics.median(samples)
        figures = (first[name], middle, min(samples), max(samples))
        table.add_row(name, *(f"{1e3 * s:.3f}" for s in figures), f"{middle / ours:.2f}")
    return table


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _onnxruntime(path: str, given: Mapping[str, np.ndarray]) -> Callable[[], Any]:
    from ..compare import onnxruntime_call

    return onnxruntime_call(path, given)
