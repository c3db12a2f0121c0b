"""T5 answers from its cache as the same network in PyTorch does that reads every word again for each word it makes."""

from __future__ import annotations

import numpy as np
import pytest

from .cached_t5 import answering
from .t5 import Config, buckets

torch = pytest.importorskip("torch")
F = torch.nn.functional
CONFIG, ROWS = Config(target=8, vocab=32), ("words.weight", "o.weight", "down.weight")
"""Of the weights that are divided, those in `ROWS` have parts with other rows, the others parts with other columns."""


def joined(name: str, parts: np.ndarray) -> torch.Tensor:
    if parts.ndim < 3:
        return torch.tensor(parts)
    return torch.tensor(np.concatenate(list(parts), 0 if name.endswith(ROWS) else 1))


def norm(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def attended(w, at, x, keys, bias):
    apart = lambda t: t.unflatten(-1, (CONFIG.heads, CONFIG.size)).transpose(1, 2)  # noqa: E731
    q, k, v = (apart(t @ w[f"{at}.{n}.weight"]) for n, t in (("q", x), ("k", keys), ("v", keys)))
    return ((q @ k.transpose(-1, -2) + bias).softmax(-1) @ v).transpose(1, 2).flatten(2) @ w[f"{at}.o.weight"]


def stack(w, name, x, encoded=None):
    decoder = encoded is not None
    length = x.shape[1]
    bias = w[f"{name}.positions"][torch.tensor(buckets(CONFIG, length, length, not decoder))].permute(2, 0, 1)
    if decoder:
        bias = bias + torch.full((length, length), -1e9).triu(1)
    for i in range(CONFIG.layers):
        at = f"{name}.{i}"
        z = norm(x, w[f"{at}.norms.0.weight"])
        x = x + attended(w, f"{at}.attention", z, z, bias)
        if decoder:
            x = x + attended(w, f"{at}.cross", norm(x, w[f"{at}.norms.1.weight"]), encoded, 0.0)
        z = norm(x, w[f"{at}.norms.{1 + decoder}.weight"])
        x = x + F.relu(z @ w[f"{at}.up.weight"]) @ w[f"{at}.down.weight"]
    return norm(x, w[f"{name}.last.weight"])


def answers(w, source, stop):
    encoded = stack(w, "encoder", w["words.weight"][torch.tensor(source)])
    found, going = torch.zeros(CONFIG.micro, 1, dtype=torch.long), torch.ones(CONFIG.micro, dtype=torch.long)
    for _ in range(CONFIG.target):
        logits = stack(w, "decoder", w["words.weight"][found], encoded)[:, -1] @ w["head.weight"]
        word = logits.argmax(-1) * going
        going = going * (word != stop)
        found = torch.cat([found, word[:, None]], 1)
    return found[:, 1:].numpy()


def test_answers_from_a_cache_are_those_of_pytorch():
    c, rng = CONFIG, np.random.default_rng(23)
    session = answering(c, stop := 21)
    names = session.state.to_dict()
    given = {n: rng.normal(size=t.shape_on_host).astype(np.float32) / 2 for n, t in names.items()}
    source, first = rng.integers(1, c.vocab, (c.micro, c.source)), np.arange(c.tensor) * (c.vocab // c.tensor)
    with session:
        session.write_variables_data({t: given[n] for n, t in names.items()})
        fed = {session.inputs.source: source.reshape(1, -1) - first[:, None], session.inputs.part: first}
        found = session.run({s: x.astype(np.int32) for s, x in fed.items()})[session.outputs.found]
    expected = answers({n: joined(n, a) for n, a in given.items()}, source, stop)
    assert (expected == 0).sum(1).tolist() == [0, 5]  # one sample stops after its third word
    np.testing.assert_array_equal(found, np.stack([expected] * c.tensor))
