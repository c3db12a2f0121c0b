"""The rewrites, by family. Importing this package registers all of them."""

from . import conv, fold_norm, gradients, identity, loops, loss, matmul, movement, onnx_forms, recurrent, sums

__all__ = ["conv", "fold_norm", "gradients", "identity", "loops", "loss", "matmul", "movement", "onnx_forms", "recurrent", "sums"]
