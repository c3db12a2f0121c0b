"""T5 trained in phases over tensor- and data-parallel groups beside the same network in PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from .phased_t5 import Config, Program  # noqa: E402
from .plain_t5 import encoded, joined, logits  # noqa: E402

RATE = 0.01


def arranged(c, x):
    """(micro-batches, replicas, words): each member of a group gets words with its vocabulary's offset taken off."""
    first = np.arange(c.tensor).reshape(1, 1, -1, 1) * (c.vocab // c.tensor)
    return (x.reshape(c.accumulation, c.data, 1, -1) - first).reshape(c.accumulation, -1, c.micro * x.shape[-1])


@pytest.mark.sweep
def test_t5_in_phases_learns_as_in_pytorch():
    c, rng = Config(), np.random.default_rng(0)
    session = Program(c).session()
    names = session.state.to_dict()
    given = {n: (rng.normal(size=t.shape_on_host) / 4).astype(np.float32) for n, t in names.items()}
    given = {n: a + ("norms" in n or "last" in n) for n, a in given.items()}
    w = {n: torch.tensor(joined(n, a), requires_grad=True) for n, a in given.items()}
    optimizer = torch.optim.Adam(w.values(), lr=RATE, eps=1e-6)
    rates = np.full((c.accumulation, c.tensor * c.data), RATE, np.float32)
    with session:
        session.write_variables_data({t: given[n] for n, t in names.items()})
        for _ in range(2):
            sizes = (c.source, c.target, c.target)
            batch = [rng.integers(0, c.vocab, (c.accumulation * c.data * c.micro, n)) for n in sizes]
            fed = {s: arranged(c, x).astype(np.int32) for s, x in zip(session.inputs, batch, strict=False)}
            out = session.run(fed | {session.inputs.rate: rates})
            source, target, labels = (torch.tensor(x) for x in batch)
            found = logits(c, w, encoded(c, w, source), target)
            loss = torch.nn.functional.cross_entropy(found.flatten(0, 1), labels.flatten())
            optimizer.zero_grad()
            loss.backward()
            size = torch.nn.utils.clip_grad_norm_(w.values(), c.largest_norm)
            optimizer.step()
            np.testing.assert_allclose(out[session.outputs.loss].mean(), float(loss.detach()), rtol=1e-4)
            norms = out[session.outputs.norm][0]  # one a run, for each replica
            np.testing.assert_allclose(norms, np.full(norms.shape, float(size)), rtol=1e-3)
    for name, t in names.items():
        trained = joined(name, session.get_tensor_data(t))
        np.testing.assert_allclose(trained, w[name].detach().numpy(), atol=2e-4, err_msg=name)
