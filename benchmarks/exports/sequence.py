"""Networks on sequences: recurrent, transformers, speech."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from .network import BATCH, Network, floats, tokens

WORDS = 11


class Recurrent(nn.Module):
    """A recurrent layer and a dense one on its last step."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores."""
        return self.head(self.layer(x)[0][:, -1])


def _directions(kind: type[nn.Module], both: bool) -> nn.Module:
    return Recurrent(kind(3, 4, batch_first=True, bidirectional=both), 8 if both else 4)


class Tagger(nn.Module):
    """Words to a bidirectional LSTM, and a score of each tag for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, 4), nn.Linear(6, 3)
        self.layer = nn.LSTM(4, 3, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logarithms of probabilities."""
        return F.log_softmax(self.out(self.layer(self.words(x))[0]), -1)


class Encoder(nn.Module):
    """Devlin et al. (2019), one block: words, positions, attention, the mean."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.words, self.place = nn.Embedding(WORDS, width), nn.Embedding(16, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 16, 0.0, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores."""
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.block(self.words(x) + self.place(places)).mean(1))


def rms(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Zhang and Sennrich (2019)."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * scale


def rotated(x: torch.Tensor, first: int) -> torch.Tensor:
    """Su et al. (2021): halves turned by an angle that grows with the position."""
    half = x.shape[-1] // 2
    places = torch.arange(first, first + x.shape[-2], dtype=torch.float32)
    angles = places[:, None] * torch.exp(-torch.arange(half, dtype=torch.float32))
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


class Decoder(nn.Module):
    """Touvron et al. (2023), one block, with keys and values of earlier words handed in."""

    def __init__(self, width: int = 8, heads: int = 2, cached: int = 0) -> None:
        super().__init__()
        self.words, self.heads, self.cached = nn.Embedding(WORDS, width), heads, cached
        self.scales = nn.Parameter(torch.ones(3, width))
        self.qkv, self.o = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.grow = nn.Linear(width, 12, bias=False), nn.Linear(width, 12, bias=False)
        self.shrink = nn.Linear(12, width, bias=False)

    def forward(self, x: torch.Tensor, *cache: torch.Tensor) -> torch.Tensor:
        """Scores of the next word, by the words' own embedding."""
        rows = self.words(x)
        rows = rows + self.o(self._attended(rms(rows, self.scales[0]), cache))
        found = rms(rows, self.scales[1])
        rows = rows + self.shrink(F.silu(self.gate(found)) * self.grow(found))
        return rms(rows, self.scales[2]) @ self.words.weight.T

    def _attended(self, x: torch.Tensor, cache: tuple[torch.Tensor, ...]) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )  # batch, head, word, width
        q, k = rotated(q, self.cached), rotated(k, self.cached)
        if cache:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=not cache)
        return seen.transpose(1, 2).flatten(2)


class Speech(nn.Module):
    """Radford et al. (2022), small: convolutions over time, then one transformer block."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(3, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1)
        self.place = nn.Parameter(torch.randn(4, width))
        self.block = nn.TransformerEncoderLayer(width, 2, 16, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of each letter at each time."""
        rows = F.gelu(self.second(F.gelu(self.first(x)))).transpose(1, 2)
        return F.log_softmax(self.head(self.block(rows + self.place)), -1)


class Translator(nn.Module):
    """Vaswani et al. (2017): a decoder block that attends to what it translates."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.encode = nn.TransformerEncoderLayer(width, 2, 16, 0.0, batch_first=True)
        self.decode = nn.TransformerDecoderLayer(width, 2, 16, 0.0, batch_first=True)
        self.register_buffer("mask", torch.triu(torch.full((4, 4), float("-inf")), 1))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Scores of the next word."""
        return self.head(self.decode(self.words(y), self.encode(self.words(x)), tgt_mask=self.mask))


class Dilated(nn.Module):
    """Van den Oord et al. (2016), one block: a dilated causal convolution with a gate."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.wave, self.gate = nn.Conv1d(width, width, 2, dilation=2), nn.Conv1d(width, width, 2, dilation=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The signal with what was found added."""
        past = F.pad(x, (2, 0))
        return x + torch.tanh(self.wave(past)) * torch.sigmoid(self.gate(past))


def _with_cache() -> tuple[torch.Tensor, ...]:
    past = torch.randn(2, BATCH, 2, 3, 4, generator=torch.Generator().manual_seed(2))
    return (*tokens(1, WORDS)(), past[0], past[1])


NETWORKS = (
    Network("RNN", lambda: _directions(nn.RNN, both=False), floats(5, 3)),
    Network("LSTM", lambda: _directions(nn.LSTM, both=False), floats(5, 3)),
    Network("LSTM, two directions", lambda: _directions(nn.LSTM, both=True), floats(5, 3)),
    Network("GRU", lambda: _directions(nn.GRU, both=False), floats(5, 3)),
    Network("GRU, two directions", lambda: _directions(nn.GRU, both=True), floats(5, 3)),
    Network("GRU, two layers", lambda: Recurrent(nn.GRU(3, 4, 2, batch_first=True), 4), floats(5, 3)),
    Network("LSTM tagger", Tagger, tokens(5, WORDS)),
    Network("encoder", Encoder, tokens(6, WORDS)),
    Network("decoder", Decoder, tokens(6, WORDS)),
    Network("decoder with cache", lambda: Decoder(cached=3), _with_cache),
    Network("translator", Translator, lambda: (*tokens(5, WORDS)(), *tokens(4, WORDS)())),
    Network("speech", Speech, floats(3, 8)),
    Network("dilated convolutions", Dilated, floats(3, 7)),
)  # fmt: skip
