"""AlexNet, ResNet-18 and MobileNetV2 in torch, with random weights, and their export to ONNX.

Architectures after Krizhevsky (2014, one tower), He et al. (2016) and Sandler et al. (2018).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]


def alexnet(classes: int = 1000) -> nn.Module:
    """Five convolutions, three pools, three dense layers."""
    plan = [(3, 64, 11, 4, 2, True), (64, 192, 5, 1, 2, True), (192, 384, 3, 1, 1, False), (384, 256, 3, 1, 1, False),
            (256, 256, 3, 1, 1, True)]  # fmt: skip
    features: list[nn.Module] = []
    for inputs, outputs, kernel, stride, pad, pooled in plan:
        features += [nn.Conv2d(inputs, outputs, kernel, stride, pad), nn.ReLU()]
        features += [nn.MaxPool2d(3, 2)] if pooled else []
    head = [nn.Dropout(), nn.Linear(256 * 36, 1024), nn.ReLU(), nn.Dropout(), nn.Linear(1024, classes)]
    return nn.Sequential(*features, nn.AdaptiveAvgPool2d(6), nn.Flatten(), *head)


def _normed(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class Residual(nn.Module):
    """Two 3x3 convolutions around which the input is carried, projected where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*_normed(inputs, outputs, 3, stride), nn.ReLU(), *_normed(outputs, outputs, 3))
        same = inputs == outputs and stride == 1
        self.carry = nn.Identity() if same else nn.Sequential(*_normed(inputs, outputs, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of both branches, rectified."""
        return torch.relu(self.body(x) + self.carry(x))


def resnet18(classes: int = 1000) -> nn.Module:
    """Stem, four stages of two residual blocks, mean, dense layer."""
    stem = [*_normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
    blocks = [b for i, o, s in widths for b in (Residual(i, o, s), Residual(o, o, 1))]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class Inverted(nn.Module):
    """Expand, depthwise, project; the input is added where shapes agree."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = inputs * expand
        grow = [*_normed(inputs, wide, 1), nn.ReLU6()] if expand > 1 else []
        self.body = nn.Sequential(*grow, *_normed(wide, wide, 3, stride, wide), nn.ReLU6(), *_normed(wide, outputs, 1))
        self.added = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The body's result, added to its input where the shapes allow."""
        return x + self.body(x) if self.added else self.body(x)


def mobilenetv2(classes: int = 1000) -> nn.Module:
    """Seventeen inverted residual blocks."""
    settings = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    layers, width = [*_normed(3, 32, 3, 2), nn.ReLU6()], 32
    for expand, outputs, count, stride in settings:
        for i in range(count):
            layers.append(Inverted(width, outputs, stride if i == 0 else 1, expand))
            width = outputs
    layers += [*_normed(width, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(1280, classes))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "torch alexnet": alexnet,
    "torch resnet18": resnet18,
    "torch mobilenetv2": mobilenetv2,
}


def export(name: str, path: Path) -> None:
    """Write one network, with running statistics that are not the neutral ones, as one ONNX file."""
    torch.manual_seed(0)
    network = NETWORKS[name]()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None and module.running_var is not None:
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    torch.onnx.export(network.eval(), (torch.zeros(1, 3, 224, 224),), str(path), dynamo=True, external_data=False)
