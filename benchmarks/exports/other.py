"""Dense networks, graph networks, mixtures of experts and other kinds."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from .network import Network, floats


class GraphLayer(nn.Module):
    """Kipf and Welling (2017): each node takes the sum of what its neighbours send."""

    def __init__(self) -> None:
        super().__init__()
        self.send, self.keep = nn.Linear(3, 4), nn.Linear(3, 4)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """New features of the nodes; `edges` are pairs of sender and receiver."""
        sent = self.send(x)[edges[0]]
        received = torch.zeros(x.shape[0], 4).index_add(0, edges[1], sent)
        return F.relu(self.keep(x) + received)


class GraphAttention(nn.Module):
    """Velickovic et al. (2018), dense: neighbours weighted by attention, others masked."""

    def __init__(self) -> None:
        super().__init__()
        self.send, self.score = nn.Linear(3, 4), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        """New features, for a batch of graphs with their matrices of neighbours."""
        h = self.send(x)
        pairs = torch.cat([h.unsqueeze(2).expand(-1, -1, 5, -1), h.unsqueeze(1).expand(-1, 5, -1, -1)], -1)
        scores = F.leaky_relu(self.score(pairs).squeeze(-1), 0.2).masked_fill(near < 0.5, -1e9)
        return F.elu(scores.softmax(-1) @ h)


class DenseExperts(nn.Module):
    """All experts run; the best two count."""

    def __init__(self, width: int = 4, experts: int = 3) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.grow, self.shrink = (
            nn.Parameter(torch.randn(experts, width, 6)),
            nn.Parameter(torch.randn(experts, 6, width)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Weighted sum of the two."""
        weight, which = self.router(x).softmax(-1).topk(2, -1)
        every = torch.einsum("bef,efo->beo", torch.einsum("bi,eif->bef", x, self.grow).relu(), self.shrink)
        chosen = every.gather(1, which.unsqueeze(-1).expand(-1, -1, every.shape[-1]))
        return (weight.unsqueeze(-1) * chosen).sum(1)


class RoutedExperts(nn.Module):
    """Shazeer et al. (2017): each expert runs on the rows that chose it (NonZero)."""

    def __init__(self, width: int = 4, experts: int = 3) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, width)) for _ in range(experts)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Each row's expert, weighted by its probability."""
        weight, which = self.router(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = torch.nonzero(which == i).squeeze(-1)
            out = out.index_add(0, rows, expert(x[rows]) * weight[rows].unsqueeze(-1))
        return out


class Recommender(nn.Module):
    """Naumov et al. (2019), small: embeddings of two kinds, their products, a dense network."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items, self.head = nn.Embedding(7, 4), nn.Embedding(9, 4), nn.Linear(9, 1)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        """Scores."""
        u, i = self.users(users), self.items(items)
        return self.head(torch.cat([u, i, (u * i).sum(-1, keepdim=True)], -1))


class Coordinates(nn.Module):
    """Mildenhall et al. (2020), small: positions as sines, then dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Colour and density."""
        waves = torch.cat([f(x * 2**k) for k in range(2) for f in (torch.sin, torch.cos)], -1)
        out = self.second(F.softplus(self.first(waves)))
        return torch.cat([torch.sigmoid(out[..., :3]), F.relu(out[..., 3:])], -1)


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3))


def _graph() -> tuple[torch.Tensor, ...]:
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([[0, 1, 2, 3], [1, 2, 1, 4]])


def _neighbours() -> tuple[torch.Tensor, ...]:
    return (*floats(5, 3)(), (floats(5, 5)()[0] > 0).float() + torch.eye(5))


def _pairs() -> tuple[torch.Tensor, ...]:
    return torch.tensor([0, 3, 6]), torch.tensor([8, 1, 1])


NETWORKS = (
    Network("MLP", _mlp, floats(4)),
    Network("coordinates", Coordinates, floats(3)),
    Network("recommender", Recommender, _pairs),
    Network("graph, scattered", GraphLayer, _graph, batched=(True, False)),
    Network("graph attention", GraphAttention, _neighbours),
    Network("experts, dense", DenseExperts, floats(4)),
    Network("experts, routed", RoutedExperts, floats(4)),
)
