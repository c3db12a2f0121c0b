"""Networks written twice: as an ONNX graph with the Builder, and by hand in jax.numpy. Random weights, made here."""

from __future__ import annotations

from collections.abc import Callable

from .convolutional import lenet as lenet
from .convolutional import mobilenetv2 as mobilenetv2
from .convolutional import resnet18 as resnet18
from .dense import mlp as mlp
from .network import Network as Network
from .recurrent import lstm_classifier as lstm_classifier
from .transformer import encoder_block as encoder_block

NETWORKS: dict[str, Callable[[int], Network]] = {
    "mlp": mlp,
    "lenet": lenet,
    "resnet18": resnet18,
    "mobilenetv2": mobilenetv2,
    "lstm": lstm_classifier,
    "encoder": encoder_block,
}
