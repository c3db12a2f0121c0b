"""Detectors, segmenters and other image networks that use several scales or positions."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from .network import Network, floats


class Inception(nn.Module):
    """Szegedy et al. (2015): branches of several kernels side by side."""

    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.one, self.three = nn.Conv2d(2, width, 1), nn.Conv2d(2, width, 3, padding=1)
        self.wide, self.tall = nn.Conv2d(2, width, (1, 5), padding=(0, 2)), nn.Conv2d(2, width, (5, 1), padding=(2, 0))
        self.head = nn.Linear(5 * width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores."""
        pooled = F.avg_pool2d(x, 3, 1, 1)
        local = F.local_response_norm(self.three(x), 3)
        found = torch.cat([self.one(x), local, self.wide(x), self.tall(x), self.one(pooled)], 1)
        return self.head(F.relu(found).amax((2, 3)))


class Dense(nn.Module):
    """Huang et al. (2017): each layer sees all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(2 + 2 * i) for i in range(3))
        self.layers = nn.ModuleList(nn.Conv2d(2 + 2 * i, 2, 3, padding=1) for i in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All channels, halved in size."""
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = torch.cat([x, layer(F.relu(norm(x)))], 1)
        return F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False)


class Shuffled(nn.Module):
    """Ma et al. (2018): half of the channels are computed, then all are shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1, groups=4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As many channels as before."""
        still, moved = x.chunk(2, 1)
        found = torch.cat([still, self.body(moved)], 1)
        b, c, h, w = found.shape
        return found.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)


class Windows(nn.Module):
    """Liu et al. (2021): attention inside windows of a shifted image, with a bias by relative place."""

    index: torch.Tensor
    mask: torch.Tensor

    def __init__(self, width: int = 4, window: int = 2, side: int = 4) -> None:
        super().__init__()
        self.window, self.qkv, self.out = window, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, 2))
        places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        gap = (places[:, :, None] - places[:, None, :]) + window - 1
        self.register_buffer("index", gap[0] * (2 * window - 1) + gap[1])
        region = torch.zeros(1, side, side, 1)
        for i, rows in enumerate((slice(0, -window), slice(-window, -1), slice(-1, None))):
            for j, columns in enumerate((slice(0, -window), slice(-window, -1), slice(-1, None))):
                region[:, rows, columns] = 3 * i + j
        parts = self._parted(region).squeeze(-1)
        self.register_buffer("mask", (parts[:, None] != parts[:, :, None]).float() * -100)

    def _parted(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        n = self.window
        return x.view(b, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, n * n, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The image, channels last, with what attention found added."""
        b, h, w, c = x.shape
        rows = self._parted(torch.roll(x, (-1, -1), (1, 2)))
        q, k, v = self.qkv(rows).view(rows.shape[0], rows.shape[1], 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.index.view(-1)].view(*self.index.shape, 2).permute(2, 0, 1)
        scores = q @ k.transpose(-2, -1) + bias
        blocks = self.mask.shape[0]
        scores = scores.view(-1, blocks, 2, *scores.shape[-2:]) + self.mask[None, :, None]
        seen = (scores.flatten(0, 1).softmax(-1) @ v).transpose(1, 2).reshape(rows.shape)
        n = self.window
        whole = self.out(seen).view(b, h // n, w // n, n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return x + torch.roll(whole, (1, 1), (1, 2))


class Queries(nn.Module):
    """Carion et al. (2020): learned queries look at an image and each answers with a box and a class."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.eye, self.queries = nn.Conv2d(2, width, 3, 2, 1), nn.Embedding(3, width)
        self.row, self.column = nn.Parameter(torch.rand(4, width // 2)), nn.Parameter(torch.rand(4, width // 2))
        self.decode = nn.TransformerDecoderLayer(width, 2, 12, 0.0, batch_first=True)
        self.box, self.kind = nn.Linear(width, 4), nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Boxes and classes of each query."""
        seen = self.eye(x)
        h, w = seen.shape[-2:]
        place = torch.cat(
            [self.column[:w].unsqueeze(0).repeat(h, 1, 1), self.row[:h].unsqueeze(1).repeat(1, w, 1)], -1
        ).flatten(0, 1)
        rows = self.decode(
            self.queries.weight.unsqueeze(0).expand(x.shape[0], -1, -1), seen.flatten(2).permute(0, 2, 1) + place
        )
        return torch.cat([self.box(rows).sigmoid(), self.kind(rows)], -1)


class Pyramid(nn.Module):
    """Lin et al. (2017) and Redmon et al. (2016): three scales joined top-down, boxes decoded on a grid."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(2, width, 3, 2, 1), nn.Conv2d(width, width, 3, 2, 1)
        self.side, self.join = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Conv2d(width, 6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows of centre, size, score and class, of both scales, the best first."""
        fine = F.leaky_relu(self.one(x), 0.1)
        coarse = F.leaky_relu(self.two(fine), 0.1)
        joined = self.join(self.side(fine) + F.interpolate(coarse, size=fine.shape[-2:], mode="nearest"))
        rows = torch.cat([self._decoded(self.head(joined), 2.0), self._decoded(self.head(coarse), 4.0)], 1)
        _, order = rows[..., 4].topk(5, 1)
        return rows.gather(1, order.unsqueeze(-1).expand(-1, -1, 6))

    def _decoded(self, found: torch.Tensor, stride: float) -> torch.Tensor:
        h, w = found.shape[-2:]
        y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack([x, y]).float()
        centre = (found[:, :2].sigmoid() + grid) * stride
        return torch.cat([centre, found[:, 2:4].exp() * stride, found[:, 4:].sigmoid()], 1).flatten(2).transpose(1, 2)


class Atrous(nn.Module):
    """Chen et al. (2017): dilated convolutions of several rates and the mean of the image, resized."""

    def __init__(self, mode: str, align: bool) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, 2, 1)
        self.rates = nn.ModuleList(nn.Conv2d(4, 2, 3, padding=r, dilation=r) for r in (1, 2))
        self.whole, self.head = nn.Conv2d(4, 2, 1), nn.Conv2d(6, 3, 1)
        self.how: dict[str, Any] = {"mode": mode, "align_corners": align}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A map of classes as large as the image."""
        seen = F.relu(self.down(x))
        mean = F.interpolate(self.whole(F.adaptive_avg_pool2d(seen, 1)), seen.shape[-2:], mode="bilinear")
        found = self.head(torch.cat([*(rate(seen) for rate in self.rates), mean], 1))
        return F.interpolate(found, size=x.shape[-2:], **self.how)


class Warped(nn.Module):
    """Jaderberg et al. (2015): the network turns the image before it looks."""

    def __init__(self) -> None:
        super().__init__()
        self.turn, self.head = nn.Linear(32, 6), nn.Linear(32, 3)
        nn.init.normal_(self.turn.weight, std=0.02)
        self.turn.bias.data = torch.tensor([1.0, 0.1, 0.05, -0.1, 0.9, 0.03])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores."""
        way = self.turn(x.flatten(1)).view(-1, 2, 3)
        line = torch.linspace(-0.75, 0.75, 4)
        y, z = torch.meshgrid(line, line, indexing="ij")
        points = torch.stack([z.flatten(), y.flatten(), torch.ones(16)])
        grid = (way @ points).transpose(1, 2).reshape(-1, 4, 4, 2)
        return self.head(F.grid_sample(x, grid, align_corners=False, padding_mode="border").flatten(1))


class Volume(nn.Module):
    """Cicek et al. (2016), one level: convolutions in three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.norm = nn.Conv3d(1, 2, 3, padding=1), nn.InstanceNorm3d(2, affine=True)
        self.up = nn.ConvTranspose3d(2, 1, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The volume again."""
        return self.up(F.max_pool3d(F.elu(self.norm(self.down(x))), 2))


class Padded(nn.Module):
    """A generator's convolutions: reflected and repeated borders, normalised by instance, resized."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 2, 3, padding=1, padding_mode="circular")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """An image of twice the size."""
        found = F.instance_norm(self.one(F.pad(x, (1, 1, 1, 1), "reflect")))
        wide = F.interpolate(F.pad(F.mish(found), (1, 0, 1, 0), "replicate"), scale_factor=2, mode="nearest")
        return torch.tanh(self.two(wide))


NETWORKS = (
    Network("Inception block", Inception, floats(2, 5, 5)),
    Network("DenseNet block", Dense, floats(2, 5, 5)),
    Network("ShuffleNet block", Shuffled, floats(8, 4, 4)),
    Network("windows of attention", Windows, floats(4, 4, 4)),
    Network("queries of boxes", Queries, floats(2, 7, 7)),
    Network("feature pyramid", Pyramid, floats(2, 8, 8)),
    Network("DeepLab head, bilinear", lambda: Atrous("bilinear", align=False), floats(2, 7, 7)),
    Network("DeepLab head, bicubic", lambda: Atrous("bicubic", align=False), floats(2, 7, 7)),
    Network("DeepLab head, corners", lambda: Atrous("bilinear", align=True), floats(2, 7, 7)),
    Network("spatial transformer", Warped, floats(2, 4, 4)),
    Network("volume", Volume, floats(1, 4, 4, 4)),
    Network("generator", Padded, floats(2, 4, 4)),
)
