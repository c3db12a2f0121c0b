"""Handlers for the processes of the battery."""

from __future__ import annotations

import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..isolated import Handler, Phase
from .battery import cases
from .build import Case
from .verdict import Came
from .ways import WAYS, Refused, feeds_of, runtime, source_of


def _came(call: Any, case: Case, expected: tuple[type[BaseException], ...]) -> Came:
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = call(source_of(case, Path(folder)), feeds_of(case))
        except Exception as err:
            return Came(kind=type(err).__name__, text=_said(err)[:3000], ours=isinstance(err, expected))
        return Came({n: _plain(x) for n, x in found.items()})


def _said(err: Exception) -> str:
    """The error text that a user reads: message and notes."""
    return "\n".join([str(err), *getattr(err, "__notes__", [])])


def _plain(x: Any) -> Any:
    return (
        [_plain(e) for e in x]
        if isinstance(x, (list, tuple))
        else x
        if x is None or isinstance(x, dict)
        else np.asarray(x)
    )


def came_by(way: str, case: Case) -> Came:
    """Result of a case by one of our entry points."""
    from popart_jax.errors import popart_exception, poplibs_exception

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _came(WAYS[way], case, (popart_exception, poplibs_exception, Refused))


def ours() -> Handler:
    """The process of this package."""
    import popart_jax.session  # noqa: F401 - so that no case pays for it

    logging.disable(logging.CRITICAL)

    def handle(request: tuple[str, int, str], _phase: Phase) -> Came:
        of, number, way = request
        return came_by(way, cases(of)[number])

    return handle


def judge() -> Handler:
    """The process of ONNX Runtime."""

    def handle(request: tuple[str, int, str], _phase: Phase) -> Came:
        of, number, _ = request
        return _came(runtime, cases(of)[number], ())

    return handle
