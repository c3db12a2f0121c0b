"""``compare``: a model here and in ONNX Runtime."""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console
from rich.table import Table

from . import feeds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    feeds.add_arguments(parser)
    parser.add_argument("--rtol", type=float, default=1e-3, help="relative tolerance (default 1e-3)")
    parser.add_argument("--atol", type=float, default=1e-4, help="absolute tolerance (default 1e-4)")


def run(options: argparse.Namespace) -> int:
    """Compare the outputs with those of ONNX Runtime; the exit status is 1 if they differ."""
    import onnxruntime

    from ..backend import prepare
    from ..model.load import load

    given = feeds.feeds(load(options.model).graph, options)
    ours = prepare(str(options.model)).run(given)
    session = onnxruntime.InferenceSession(str(options.model), providers=["CPUExecutionProvider"])
    theirs = session.run(None, given)
    table = Table("output", "shape", "largest difference", "")
    equal = True
    for info, a, b in zip(session.get_outputs(), ours, theirs, strict=True):
        close = np.shape(a) == np.shape(b) and np.allclose(a, b, options.rtol, options.atol, equal_nan=True)
        equal &= bool(close)
        table.add_row(info.name, str(list(np.shape(a))), _difference(np.asarray(a), np.asarray(b)), "ok" if close else "differs")
    Console().print(table)
    return 0 if equal else 1


def _difference(a: np.ndarray, b: np.ndarray) -> str:
    if a.shape != b.shape:
        return f"shapes {list(a.shape)} and {list(b.shape)}"
    if a.dtype.kind not in "biuf" or not a.size:
        return ""
    return f"{np.max(np.abs(a.astype(np.float64) - b.astype(np.float64))):.3g}"
