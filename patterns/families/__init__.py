"""The rewrites, by family. Importing this package registers all of them."""

from . import (
    conv,
    fold_norm,
    gradients,
    identity,
    loops,
    loss,
    matmul,
    movement,
    onnx_forms,
    recurrent,
    sums,
    tied_gather,
)

__all__ = [
    "conv",
    "fold_norm",
    "gradients",
    "identity",
    "loops",
    "loss",
    "matmul",
    "movement",
    "onnx_forms",
    "recurrent",
    "sums",
    "tied_gather",
]
