"""Networks written twice: as an ONNX graph with the Builder, and by hand in jax.numpy. Random weights, made here."""

from __future__ import annotations

from collections.abc import Callable

from .convolutional import lenet as lenet
from .convolutional import mobilenetv2 as mobilenetv2
from .dense import mlp as mlp
from .dense import small_mlp as small_mlp
from .network import Network as Network
from .recurrent import lstm_classifier as lstm_classifier
from .resnet import resnet18 as resnet18
from .resnet import resnet50 as resnet50
from .transformer import bert_base, encoder_block, gpt2_small

NETWORKS: dict[str, Callable[[int], Network]] = {
    "mlp": mlp,
    "small mlp": small_mlp,
    "lenet": lenet,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "mobilenetv2": mobilenetv2,
    "lstm": lstm_classifier,
    "encoder": encoder_block,
    "bert-base": bert_base,
    "gpt2-small": gpt2_small,
}
