"""Classifiers, segmenters and generators of images, a few channels wide."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from .network import Network, floats


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.Tanh(), nn.Flatten(),
        nn.Linear(16, 5),
    )  # fmt: skip


def _normed(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """He et al. (2016): two convolutions around which the input is carried."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_normed(inputs, outputs, 3, 2), nn.ReLU(), _normed(outputs, outputs))
        self.carry = _normed(inputs, outputs, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum, rectified."""
        return F.relu(self.body(x) + self.carry(x))


class Inverted(nn.Module):
    """Sandler et al. (2018): expand, depthwise, project."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _normed(width, 2 * width, 1), nn.ReLU6(), _normed(2 * width, 2 * width, groups=2 * width), nn.Hardswish(),
            _normed(2 * width, width, 1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The input and the body's result."""
        return x + self.body(x)


class Squeezed(nn.Module):
    """Tan and Le (2019): a depthwise convolution whose channels are weighted by what they hold."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Sequential(_normed(width, width, groups=width), nn.SiLU())
        self.weigh = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 2, 1), nn.SiLU(), nn.Conv2d(2, width, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Weighted channels added to the input."""
        found = self.depthwise(x)
        return x + found * torch.sigmoid(self.weigh(found))


class UNet(nn.Module):
    """Ronneberger et al. (2015), one level: down, up, join."""

    def __init__(self, up: nn.Module) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.up, self.out = up, nn.Conv2d(8, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A map of classes as large as the image."""
        here = F.relu(self.down(x))
        below = F.relu(self.deep(F.max_pool2d(here, 2)))
        return self.out(torch.cat([here, self.up(below)], 1))


class ConvNeXt(nn.Module):
    """Liu et al. (2022): a large depthwise kernel, then a dense layer for each pixel."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(2, width, 5, padding=2, groups=2)
        self.norm, self.grow = nn.LayerNorm(width), nn.Linear(width, 8)
        self.shrink, self.scale = nn.Linear(8, width), nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Channels last inside."""
        found = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return (self.scale * self.shrink(F.gelu(self.grow(found)))).permute(0, 3, 1, 2).mean((2, 3))


class ImageTransformer(nn.Module):
    """Dosovitskiy et al. (2021): patches, a class token, learned positions, one block."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(2, width, 4, 4)
        self.token, self.place = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 5, width))
        self.block = nn.TransformerEncoderLayer(width, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of classes, from the class token."""
        rows = self.patches(x).flatten(2).transpose(1, 2)
        rows = torch.cat([self.token.expand(x.shape[0], -1, -1), rows], 1) + self.place
        return self.head(self.block(rows)[:, 0])


class Denoiser(nn.Module):
    """Ho et al. (2020), one block: group normalisation, a time embedding, attention over pixels."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.into, self.norm = nn.Conv2d(2, width, 3, padding=1), nn.GroupNorm(2, width)
        self.time = nn.Sequential(nn.Linear(8, width), nn.SiLU(), nn.Linear(width, width))
        self.mixed, self.out = nn.MultiheadAttention(width, 2, batch_first=True), nn.Conv2d(width, 2, 3, padding=1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """The noise in an image at a time."""
        angles = t[:, None] * torch.exp(-torch.arange(4, dtype=torch.float32))
        seen = F.silu(self.norm(self.into(x))) + self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        rows = seen.flatten(2).transpose(1, 2)
        rows = rows + self.mixed(rows, rows, rows, need_weights=False)[0]
        return self.out(rows.transpose(1, 2).reshape(seen.shape))


class Autoencoder(nn.Module):
    """A convolution down, a transposed one up, in one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv1d(2, 3, 4, 2, 1), nn.ConvTranspose1d(3, 2, 4, 2, 1)
        self.norm, self.slope = nn.InstanceNorm1d(3, affine=True), nn.PReLU(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The signal again."""
        return self.up(self.slope(self.norm(self.down(x))))


def _noisy() -> tuple[torch.Tensor, ...]:
    return (*floats(2, 4, 4)(), torch.tensor([1.0, 2.0, 3.0]))


NETWORKS = (
    Network("CNN", _cnn, floats(2, 8, 8)),
    Network("ResNet block", lambda: nn.Sequential(Residual(2, 4), Residual(4, 4)), floats(2, 8, 8)),
    Network("MobileNet block", lambda: nn.Sequential(_normed(2, 4), Inverted(4)), floats(2, 6, 6)),
    Network("EfficientNet block", lambda: nn.Sequential(_normed(2, 4), Squeezed(4)), floats(2, 6, 6)),
    Network("U-Net, transposed", lambda: UNet(nn.ConvTranspose2d(4, 4, 2, 2)), floats(2, 8, 8)),
    Network("U-Net, bilinear", lambda: UNet(nn.Upsample(scale_factor=2, mode="bilinear")), floats(2, 8, 8)),
    Network("ConvNeXt block", ConvNeXt, floats(2, 6, 6)),
    Network("vision transformer", ImageTransformer, floats(2, 8, 8)),
    Network("diffusion block", Denoiser, _noisy),
    Network("autoencoder", Autoencoder, floats(2, 8)),
    Network("sub-pixel", lambda: nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.PixelShuffle(2)), floats(2, 4, 4)),
)
