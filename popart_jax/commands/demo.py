"""``python -m popart_jax demo``: the main job on real input."""

from __future__ import annotations

import argparse

TAKES_MODEL = False


OWN_BAR = True
"""The command shows its own progress, so the caller shows none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where files go."""
    parser.add_argument("--out", default="out", help="folder for digits.onnx and report.html (default: out)")


def run(options: argparse.Namespace) -> int:
    """Train, evaluate, save, cross-check and price a network on handwritten digits."""
    from ..demo import main

    return main(options.out)
