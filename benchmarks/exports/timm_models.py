"""Networks of timm, a few channels wide where their classes take sizes, and timm's own small ones.

The list is empty where `timm` is not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from .network import Network, floats

_SMALL = {"img_size": 32, "embed_dim": 8}
_MODELS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("ViT", "vit_tiny_patch16_224", {**_SMALL, "depth": 1, "num_heads": 2}),
    ("DeiT, distilled", "deit_tiny_distilled_patch16_224", {**_SMALL, "depth": 1, "num_heads": 2}),
    ("Swin", "swin_tiny_patch4_window7_224", {**_SMALL, "depths": (1, 1), "num_heads": (2, 2), "window_size": 4}),
    ("ConvNeXt 2", "convnextv2_atto", {"depths": (1, 1, 1, 1), "dims": (4, 8, 8, 8)}),
    ("EfficientNet", "test_efficientnet", {}),
    ("ByobNet", "test_byobnet", {}),
)


def _made(model: str, settings: Mapping[str, Any]) -> nn.Module:
    """The network; vectors are perturbed, since exporters merge norms of equal values and drop scales of zero."""
    made = importlib.import_module("timm").create_model(model, pretrained=False, num_classes=5, **settings)
    with torch.no_grad():
        for weight in made.parameters():
            if weight.ndim < 2 or not weight.any():
                weight.add_(0.05 * torch.randn_like(weight))
    return made


NETWORKS = (
    tuple(Network(f"{name} (timm)", partial(_made, model, how), floats(3, 32, 32)) for name, model, how in _MODELS)
    if importlib.util.find_spec("timm")
    else ()
)
