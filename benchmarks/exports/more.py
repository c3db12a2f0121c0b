"""Attention of other kinds, speech, graphs by index, and control flow."""

from __future__ import annotations

from typing import cast

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from .network import Network, floats, tokens

WORDS = 11


class Relative(nn.Module):
    """Raffel et al. (2020): attention with a learned bias by distance, in buckets that grow."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.words, self.bias, self.qkv = nn.Embedding(WORDS, width), nn.Embedding(8, 2), nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of words."""
        length = x.shape[1]
        gap = torch.arange(length)[None] - torch.arange(length)[:, None]
        far = (gap.abs().clamp(min=1).float().log() / 0.7).long().clamp(max=3)
        bucket = torch.where(gap > 0, 4, 0) + far
        q, k, v = self.qkv(self.words(x)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.einsum("bhid,bhjd->bhij", q, k) + self.bias(bucket).permute(2, 0, 1)
        seen = torch.einsum("bhij,bhjd->bihd", scores.softmax(-1), v).flatten(2)
        return seen @ self.words.weight.T


class Masked(nn.Module):
    """Attention of several queries to one key and value, with a mask of the caller's, and a mean over what is there."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 8), nn.Linear(width, 3)

    def forward(self, x: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        """Scores."""
        q = self.q(x).unflatten(-1, (2, 4)).transpose(1, 2)
        k, v = self.kv(x).unsqueeze(1).expand(-1, 2, -1, -1).chunk(2, -1)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=there[:, None, None, :])
        rows = seen.transpose(1, 2).flatten(2).masked_fill(~there.unsqueeze(-1), 0.0)
        return self.out(rows.sum(1) / there.sum(1, keepdim=True).clamp(min=1))


class Conformer(nn.Module):
    """Gulati et al. (2020), one block: half a dense layer, attention, a gated convolution, half a dense layer."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 12), nn.SiLU(), nn.Linear(12, width))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 12), nn.SiLU(), nn.Linear(12, width))
        self.attend, self.norm = nn.MultiheadAttention(width, 2, batch_first=True), nn.LayerNorm(width)
        self.grow, self.deep = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 3, padding=1, groups=width)
        self.batch, self.shrink = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """New rows."""
        x = x + 0.5 * self.first(x)
        rows = self.norm(x)
        x = x + self.attend(rows, rows, rows)[0]
        found = F.glu(self.grow(x.transpose(1, 2)), 1)
        x = x + self.shrink(F.silu(self.batch(self.deep(found)))).transpose(1, 2)
        return x + 0.5 * self.last(x)


class Waves(nn.Module):
    """Baevski et al. (2020), small: samples to frames, a convolution for places, with its weight normalised."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.frames = nn.Sequential(nn.Conv1d(1, width, 4, 2, bias=False), nn.GroupNorm(width, width), nn.GELU())
        self.place = nn.utils.parametrizations.weight_norm(nn.Conv1d(width, width, 4, padding=2, groups=2), dim=2)
        self.block = nn.TransformerEncoderLayer(width, 2, 12, 0.0, "gelu", batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A row for each frame."""
        x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)
        seen = self.frames(x.unsqueeze(1))
        seen = seen + F.gelu(self.place(seen)[..., :-1])
        return self.block(seen.transpose(1, 2))


class Linear(nn.Module):
    """Katharopoulos et al. (2020): sums over the past in place of a softmax."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.qkv, self.decay = nn.Linear(width, 3 * width), nn.Parameter(torch.randn(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """New rows."""
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), 1)
        above = torch.einsum("btk,btkv->btv", q, state)
        return above / (q * k.cumsum(1)).sum(-1, keepdim=True) * self.decay.sigmoid()


class Scanned(nn.Module):
    """Gu and Dao (2023), small: a state carried along the sequence, step by step."""

    def __init__(self, width: int = 4, states: int = 3) -> None:
        super().__init__()
        self.into, self.step = nn.Linear(width, 2 * states), nn.Linear(width, width)
        self.decay, self.skip = nn.Parameter(torch.randn(width, states)), nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """New rows."""
        b, c = self.into(x).chunk(2, -1)
        step = F.softplus(self.step(x))
        keep = torch.exp(-step.unsqueeze(-1) * self.decay.exp())
        add = (step * x).unsqueeze(-1) * b.unsqueeze(2)
        state, rows = torch.zeros_like(add[:, 0]), list[torch.Tensor]()
        for t in range(x.shape[1]):
            state = keep[:, t] * state + add[:, t]
            rows.append((state * c[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(rows, 1) + x * self.skip


class Packed(nn.Module):
    """Two directions over sequences of several lengths, packed."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.layer, self.head = kind(3, 4, batch_first=True, bidirectional=True), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Scores at each step, zeros behind the end."""
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        rows, _ = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)
        return self.head(rows)


class Stepped(nn.Module):
    """A cell called step by step, with the last state through a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.other = nn.GRUCell(3, 4), nn.LSTMCell(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The last state."""
        h = c = g = torch.zeros(x.shape[0], 4)
        for t in range(x.shape[1]):
            g = self.cell(x[:, t], g)
            h, c = self.other(g, (h, c))
        return h


class EdgeAttention(nn.Module):
    """Velickovic et al. (2018), sparse: a softmax over the edges into each node, by scatter."""

    def __init__(self) -> None:
        super().__init__()
        self.send, self.score = nn.Linear(3, 4), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """New features."""
        h, (a, b) = self.send(x), (edges[0], edges[1])
        scores = F.leaky_relu(self.score(torch.cat([h[a], h[b]], -1)).squeeze(-1), 0.2)
        top = torch.full((x.shape[0],), -1e30).scatter_reduce(0, b, scores, "amax")
        weight = torch.exp(scores - top[b])
        total = torch.zeros(x.shape[0]).scatter_add(0, b, weight)
        share = (weight / (total[b] + 1e-9)).unsqueeze(-1)
        return torch.zeros_like(h).index_add(0, b, share * h[a])


class Pooled(nn.Module):
    """Mean, largest and sum of the nodes of each graph, by the graph's number."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.head = nn.Linear(3, 4), nn.Linear(12, 2)

    def forward(self, x: torch.Tensor, graph: torch.Tensor) -> torch.Tensor:
        """Scores of two graphs."""
        h, where = F.relu(self.into(x)), graph.unsqueeze(-1).expand(-1, 4)
        total = torch.zeros(2, 4).scatter_add(0, where, h)
        count = torch.zeros(2).scatter_add(0, graph, torch.ones(x.shape[0])).unsqueeze(-1)
        top = torch.zeros(2, 4).scatter_reduce(0, where, h, "amax", include_self=False)
        return self.head(torch.cat([total, total / count, top], -1))


class Sparse(nn.Module):
    """Shazeer et al. (2017): the two best experts by index, rows gathered and added back."""

    def __init__(self, width: int = 4, experts: int = 3) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(width, experts), experts
        self.grow, self.shrink = (
            nn.Parameter(torch.randn(experts, width, 6) / 2),
            nn.Parameter(torch.randn(experts, 6, width) / 2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Weighted results."""
        weight, which = torch.topk(self.router(x), 2)
        weight = weight.softmax(-1)
        chosen = F.one_hot(which, self.experts).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for expert in range(self.experts):
            slot, row = torch.where(chosen[expert] > 0)
            rows = F.silu(x[row] @ self.grow[expert]) @ self.shrink[expert]
            out.index_add_(0, row, rows * weight[row, slot].unsqueeze(-1))
        return out


class Bags(nn.Module):
    """Joulin et al. (2017): the mean of a bag of words."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(WORDS, 4, mode="mean"), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores."""
        return self.head(self.bag(x))


class Branched(nn.Module):
    """One of two layers, by what is in the input."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The branch's result."""

        def positive(x: torch.Tensor) -> torch.Tensor:
            return self.one(x).tanh()

        def other(x: torch.Tensor) -> torch.Tensor:
            return self.two(x).sigmoid()

        return torch.cond(x.sum() > 0, positive, other, (x,))


class Looped(nn.Module):
    """A scripted loop, as many times as the sequence is long."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The last state."""
        state = torch.zeros(x.shape[0], 3)
        for t in range(x.size(1)):
            state = torch.tanh(self.layer(state) + x[:, t])
        return state


class Norms(nn.Module):
    """Normalisations, activations and reductions that are no operators of their own."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.rms, self.group = nn.RMSNorm(width), nn.GroupNorm(2, width)
        self.one, self.two = nn.Linear(width, width), nn.Bilinear(width, width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores."""
        a, b = F.hardsigmoid(self.one(self.rms(x))), F.gelu(self.group(x), approximate="tanh")
        a = F.normalize(a, dim=-1) * cast("torch.Tensor", torch.linalg.vector_norm(b, dim=-1, keepdim=True))
        b = torch.where(b > 0, b.logsumexp(-1, keepdim=True), F.softsign(b)) + x.var(-1, keepdim=True)
        return F.selu(self.two(a, b)) - F.cosine_similarity(a, b).unsqueeze(-1)


class Indexed(nn.Module):
    """Advanced indexing, writes into slices, triangles, flips and rolls."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.table = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(6, 4))

    def forward(self, x: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        """Rows."""
        y = x @ torch.tril(self.weight).flip(0) + self.table[which]
        y = torch.cat([y[:, ::2], y[:, 1::2]], 1).clone()
        y[:, 1:3] = y[:, 1:3] * 2
        picked = y[torch.arange(y.shape[0]), which % 4]
        return y.roll(1, 1) + torch.outer(picked, self.table.argmax(0).float() / 50) + self.table.sort(0)[0][0]


class Contrast(nn.Module):
    """Radford et al. (2021): two encoders, similarity by cosine, a learned temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = nn.Linear(6, 4), nn.Embedding(WORDS, 4)
        self.heat = nn.Parameter(torch.tensor(1.3))

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Similarity of each image with each text."""
        image, text = self.image(x), self.text(words).mean(1)
        image, text = image / image.norm(dim=-1, keepdim=True), text / text.norm(dim=-1, keepdim=True)
        return self.heat.exp() * image @ text.t()


class Forecast(nn.Module):
    """Oreshkin et al. (2020) and Bai et al. (2018): moving means taken off, patches by unfold, dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.trend, self.rest, self.mix = nn.Linear(12, 3), nn.Linear(6, 4), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The next three values."""
        slow = F.avg_pool1d(F.pad(x.unsqueeze(1), (1, 1), "replicate"), 3, 1).squeeze(1)
        patches = (x - slow).unfold(-1, 6, 3)
        return self.trend(slow) + self.mix(F.dropout(F.relu(self.rest(patches)), 0.1, self.training).flatten(1))


def _there() -> tuple[torch.Tensor, ...]:
    return (*floats(5, 8)(), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]).bool())


def _lengths() -> tuple[torch.Tensor, ...]:
    return (*floats(5, 3)(), torch.tensor([5, 4, 2]))


def _graph() -> tuple[torch.Tensor, ...]:
    nodes = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    return nodes, torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 1, 4, 0, 3]])


def _graphs() -> tuple[torch.Tensor, ...]:
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 0, 1, 1, 1])


NETWORKS = (
    Network("relative attention", Relative, tokens(6, WORDS)),
    Network("masked attention", Masked, _there),
    Network("conformer block", Conformer, floats(6, 8)),
    Network("waves to frames", Waves, floats(16)),
    Network("linear attention", Linear, floats(5, 4)),
    Network("state space", Scanned, floats(4, 4)),
    Network("LSTM, packed", lambda: Packed(nn.LSTM), _lengths, grows=False, exporters=("older",)),
    Network("GRU, packed", lambda: Packed(nn.GRU), _lengths, grows=False, exporters=("older",)),
    Network("cells", Stepped, floats(3, 3)),
    Network("graph attention, sparse", EdgeAttention, _graph, batched=(True, False)),
    Network("graph pooling", Pooled, _graphs, grows=False, exporters=("dynamo",)),
    Network("experts, sparse", Sparse, floats(4)),
    Network("bags of words", Bags, tokens(5, WORDS), grows=False),  # written as a loop over the batch
    Network("branch", Branched, floats(3), exporters=("dynamo",)),
    Network("loop", lambda: torch.jit.script(Looped()), floats(4, 3), exporters=("older",)),
    Network("norms", Norms, floats(6), exporters=("dynamo",)),
    Network("indexing", Indexed, lambda: (*floats(4)(), torch.tensor([0, 5, 3]))),
    Network("contrast", Contrast, lambda: (*floats(6)(), *tokens(4, WORDS)())),
    Network("forecast", Forecast, floats(12), exporters=("dynamo",)),
    Network("double precision", lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double(),
            lambda: (floats(4)()[0].double(),)),
    Network("embedding and cosine", lambda: nn.Sequential(nn.Embedding(WORDS, 4, max_norm=None), nn.Flatten(),
            nn.Linear(20, 4), nn.Softmin(-1)), tokens(5, WORDS)),
)  # fmt: skip
