"""Inputs of a model from the command line: files, sizes of open dimensions, random values for the rest."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx_ir as ir

from ..errors import popart_exception
from .files import nameless

_SEED = 1234


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that say what a model is fed."""
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy", help="value of an input")
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=N",
        help="size of an open dimension (default 1); INPUT:AXIS names one that has no name",
    )
    parser.add_argument("--seed", type=int, default=_SEED, help="seed of the random values of inputs not given")


def feeds(graph: ir.Graph, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Values of all inputs: those given, random ones for the others; initializers that are inputs may be given.

    Raises popart_exception for an unknown name of an input or dimension, an input without shape or type that was not
    given, or no such file.
    """
    files = dict(_pair(text) for text in options.input)
    sizes = {name: _size(name, n) for name, n in map(_pair, options.dim)}
    declared = {v.name: v for v in graph.inputs if v.name and v.name not in graph.initializers}
    replaced = {v.name for v in graph.inputs if v.name in graph.initializers}
    unknown = sorted(set(files) - set(declared) - replaced)
    if unknown:
        raise popart_exception(f"--input: the model has no input(s) {unknown}; it has {sorted(declared)}.")
    open_sizes = {n for v in declared.values() for n in _names(v) if isinstance(n, str)}
    unknown = sorted(set(sizes) - open_sizes)
    if unknown:
        raise popart_exception(f"--dim: the model has no open dimension(s) {unknown}; it has {sorted(open_sizes)}.")
    generator = np.random.default_rng(options.seed)
    given = {name: _read(Path(file), declared.get(name)) for name, file in files.items()}
    return given | {n: _random(value, sizes, generator) for n, value in declared.items() if n not in files}


def _names(value: ir.Value) -> list[int | str]:
    """The dimensions of an input: sizes, and names of those that are open."""
    shape = value.shape or ()
    return [d if isinstance(d, int) else d.value or f"{value.name}:{axis}" for axis, d in enumerate(shape)]


def _size(name: str, text: str) -> int:
    if not text.isdigit():
        raise popart_exception(f"--dim {name}={text}: expected a whole number, not negative.")
    return int(text)


def _read(path: Path, value: ir.Value | None) -> np.ndarray:
    """An array from a file; types that ``.npy`` files can't name are restored from the declared type."""
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as err:
        raise popart_exception(f"--input: '{path}' can't be read: {err.strerror or err}.") from err
    except ValueError as err:
        raise popart_exception(f"--input: '{path}' is no array as numpy.save writes it.") from err
    kind = None if value is None or value.dtype in (None, ir.DataType.STRING) else value.dtype.numpy()
    raw = None if kind is None else nameless(kind)
    return array if raw is None or array.dtype != raw else array.view(kind)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not equals:
        raise popart_exception(f"'{text}' should be NAME=VALUE.")
    return name, value


def _random(value: ir.Value, sizes: dict[str, int], generator: np.random.Generator) -> np.ndarray:
    if value.shape is None or value.dtype is None:
        raise popart_exception(
            f"Input '{value.name}' has no declared shape or type; give it with --input {value.name}=FILE.npy"
        )
    shape = [n if isinstance(n, int) and n >= 0 else sizes.get(str(n), 1) for n in _names(value)]
    dtype = np.dtype(object) if value.dtype is ir.DataType.STRING else value.dtype.numpy()
    if np.issubdtype(dtype, np.floating) or dtype.kind == "V":
        return generator.normal(size=shape).astype(dtype)
    if dtype == np.bool_:
        return generator.random(shape) < 0.5
    return np.zeros(shape, dtype) if dtype.kind not in "OUS" else np.full(shape, "text", object)
