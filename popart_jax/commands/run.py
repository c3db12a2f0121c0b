"""``run``: a model once, with its outputs shown and optionally saved."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.table import Column, Table

from . import feeds, files, shown

_LONGEST = 200  # bytes of a file's name, with room for an ending


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    feeds.add_arguments(parser)
    parser.add_argument(
        "--output",
        action="append",
        metavar="NAME",
        help="tensor to show, may be an inner one (default: the model's outputs or, without any, what no node reads)",
    )
    parser.add_argument("--output-dir", type=Path, metavar="FOLDER", help="write each output to a .npy file here")


def run(options: argparse.Namespace) -> int:
    """Run a model once and show its outputs."""
    from ..backend import PreparedModel
    from ..model.extract import ensure_outputs, select_outputs
    from ..model.files.load import load

    model = load(options.model)
    if options.output:
        select_outputs(model, options.output)
    ensure_outputs(model)
    names = [value.name or f"output{i}" for i, value in enumerate(model.graph.outputs)]
    given = feeds.feeds(model.graph, options)
    if options.output_dir is not None:
        files.make_folder(options.output_dir)
    results = PreparedModel(model).run(given)
    table = Table(
        Column("output", overflow="fold"), "type", "shape", *(Column(n, no_wrap=True) for n in ("min", "mean", "max"))
    )
    taken: set[str] = set()
    for name, result in zip(names, results, strict=True):
        for part, array in _arrays(name, result):
            table.add_row(part, str(array.dtype), str(list(array.shape)), *_statistics(array))
            if options.output_dir is not None:
                _save(options.output_dir / f"{_free(part, taken)}.npy", array)
    shown.console().print(table)
    return 0


def _arrays(name: str, result: Any) -> Iterator[tuple[str, np.ndarray]]:
    """A result as named arrays: sequences element by element, dictionaries key by key."""
    parts = cast("Sequence[Any]", result) if isinstance(result, (list, tuple)) else None
    if parts and isinstance(parts[0], dict):
        for key in cast("dict[Any, Any]", parts[0]):
            yield f"{name}[{key}]", np.asarray([row[key] for row in parts])
    elif parts is not None:
        for i, part in enumerate(parts):
            yield from _arrays(f"{name}[{i}]", part)
    elif result is not None:
        yield name, np.asarray(cast("Any", result))


def _free(name: str, taken: set[str]) -> str:
    """A unique file name for a tensor, short enough for file systems."""
    plain = name.replace("/", "_").replace("\0", "_").lstrip(".").encode("utf-8", "replace")
    plain = plain[:_LONGEST].decode("utf-8", "ignore") or "output"
    found = next(n for n in (plain, *(f"{plain}_{i}" for i in range(2, len(taken) + 3))) if n not in taken)
    taken.add(found)
    return found


def _save(path: Path, array: np.ndarray) -> None:
    if array.dtype.kind == "O":
        array = array.astype(str)
    elif (raw := files.nameless(array.dtype)) is not None:
        array = np.ascontiguousarray(array).view(raw).reshape(array.shape)
    with files.whole(path) as place, place.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def _statistics(array: np.ndarray) -> tuple[str, str, str]:
    if not array.size or array.dtype.kind not in "biufV":
        return "", "", ""
    numbers = array.astype(np.float64)
    return f"{numbers.min():.6g}", f"{numbers.mean():.6g}", f"{numbers.max():.6g}"
