"""T5 answers from its cache as the same network in PyTorch does that reads every word again for each word it makes."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from .cached_t5 import answering  # noqa: E402
from .plain_t5 import encoded, joined, logits  # noqa: E402
from .t5 import Config  # noqa: E402

CONFIG = Config(target=8, vocab=32)


def answers(w, source, stop):
    read = encoded(CONFIG, w, torch.tensor(source))
    found, going = torch.zeros(CONFIG.micro, 1, dtype=torch.long), torch.ones(CONFIG.micro, dtype=torch.long)
    for _ in range(CONFIG.target):
        word = logits(CONFIG, w, read, found)[:, -1].argmax(-1) * going
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
    expected = answers({n: torch.tensor(joined(n, a)) for n, a in given.items()}, source, stop)
    assert (expected == 0).sum(1).tolist() == [0, 5]  # one sample stops after its third word
    np.testing.assert_array_equal(found, np.stack([expected] * c.tensor))
