"""``export``: the part of a model that leads to given tensors, as a file for other ONNX runtimes."""

from __future__ import annotations

import argparse
import sys
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
    from ..functions.served import served_model, unknown_elsewhere
    from ..model.files.load import to_bytes

    files.check_writable(options.to)
    with phase("load and cut"):
        model = served_model(options.model, options.output)
    with files.whole(options.to) as place:
        place.write_bytes(to_bytes(model))
    unknown = unknown_elsewhere(model)
    if unknown:
        hint = "ONNX has no words for them; --output says what to keep"
        sys.stderr.write(f"other runtimes do not know {', '.join(unknown)}: {hint}\n")
    return 0
