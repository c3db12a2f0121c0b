"""T5 in PyTorch, from arrays by the names of these programs' variables."""

from __future__ import annotations

import numpy as np
import torch

from .t5 import Config, buckets

ROWS = ("words.weight", "o.weight", "down.weight")
"""Of the weights that are divided, these have parts with other rows, the others parts with other columns."""
Weights = dict[str, torch.Tensor]


def joined(name: str, parts: np.ndarray) -> np.ndarray:
    """The whole of a weight that is divided over the members of a group."""
    return parts if parts.ndim < 3 else np.concatenate(list(parts), 0 if name.endswith(ROWS) else 1)


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def attended(c: Config, w: Weights, at: str, x: torch.Tensor, keys: torch.Tensor, bias: torch.Tensor | float):
    apart = lambda t: t.unflatten(-1, (c.heads, c.size)).transpose(1, 2)  # noqa: E731
    q, k, v = (apart(t @ w[f"{at}.{n}.weight"]) for n, t in (("q", x), ("k", keys), ("v", keys)))
    return ((q @ k.transpose(-1, -2) + bias).softmax(-1) @ v).transpose(1, 2).flatten(2) @ w[f"{at}.o.weight"]


def stack(c: Config, w: Weights, name: str, x: torch.Tensor, encoded: torch.Tensor | None = None) -> torch.Tensor:
    """The encoder, or the decoder where there is something `encoded`, of (samples, length, hidden)."""
    length = x.shape[1]
    bias = w[f"{name}.positions"][torch.tensor(buckets(c, length, length, encoded is None))].permute(2, 0, 1)
    if encoded is not None:
        bias = bias + torch.full((length, length), -1e9).triu(1)
    for i in range(c.layers):
        at = f"{name}.{i}"
        z = norm(x, w[f"{at}.norms.0.weight"])
        x = x + attended(c, w, f"{at}.attention", z, z, bias)
        if encoded is not None:
            x = x + attended(c, w, f"{at}.cross", norm(x, w[f"{at}.norms.1.weight"]), encoded, 0.0)
        z = norm(x, w[f"{at}.norms.{1 if encoded is None else 2}.weight"])
        x = x + torch.relu(z @ w[f"{at}.up.weight"]) @ w[f"{at}.down.weight"]
    return norm(x, w[f"{name}.last.weight"])


def logits(c: Config, w: Weights, encoded: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Of the word after each word of `target`."""
    return stack(c, w, "decoder", w["words.weight"][target], encoded) @ w["head.weight"]


def encoded(c: Config, w: Weights, source: torch.Tensor) -> torch.Tensor:
    """What the decoder reads of a source."""
    return stack(c, w, "encoder", w["words.weight"][source])
