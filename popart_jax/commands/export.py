"""``export``: the part of a model that leads to given tensors, as a file for other ONNX runtimes."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..timings import phase
from . import files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("to", type=Path, help="the file to write")
    parser.add_argument(
        "--output", action="append", default=[], metavar="NAME", help="tensor to keep (default: the model's outputs)"
    )


def run(options: argparse.Namespace) -> int:
    """Write the part of a model that leads to some tensors, for other ONNX runtimes."""
    from ..model.extract import inference_model

    files.check_writable(options.to)
    with phase("load and cut"):
        data = inference_model(options.model, options.output)
    with files.whole(options.to) as place:
        place.write_bytes(data)
    return 0
