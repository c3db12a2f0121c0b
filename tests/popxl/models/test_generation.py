"""GPT-J and BLOOM answer word by word with a cache, in a tensor-parallel group, as Hugging Face's models do."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax.popxl_addons import NamedTensors

from . import hugging_face as hf
from .generation import decoding, generate
from .parts import Config
from .test_decoders import gptj, lively

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
CONFIG = Config(length=8, data=1, vocab=32)


def bloom(c):
    torch.manual_seed(2)
    config = transformers.BloomConfig(
        vocab_size=c.vocab,
        hidden_size=c.hidden,
        n_layer=c.layers,
        n_head=c.heads,
        hidden_dropout=0,
        attention_dropout=0,
    )
    return lively(transformers.BloomForCausalLM(config))


@pytest.mark.parametrize(("alibi", "make", "mapping"), [(False, gptj, hf.gptj), (True, bloom, hf.bloom)])
def test_greedy_answers(alibi, make, mapping):
    model = make(CONFIG).eval()
    prompt = np.random.default_rng(0).integers(0, CONFIG.vocab, (CONFIG.micro, 3))
    offsets = np.arange(CONFIG.replicas) * (CONFIG.vocab // CONFIG.tensor)
    session = decoding(CONFIG, alibi)
    state = session.state
    named = NamedTensors(embed=state.embed, head=NamedTensors(norm=state.norm, logits=state.logits))
    named.insert("layer", NamedTensors.from_dict({i: state.get(i) for i in range(CONFIG.layers)}))
    if alibi:
        named.insert("first", state.first)
    with session:
        session.write_variables_data(mapping(named, model, CONFIG.tensor))
        found = generate(session, CONFIG, prompt, offsets)
    expected = torch.tensor(prompt)
    with torch.no_grad():
        while expected.shape[1] < CONFIG.length:
            expected = torch.cat([expected, model(expected).logits[:, -1:].argmax(-1)], 1)
    np.testing.assert_array_equal(found, expected.numpy())
