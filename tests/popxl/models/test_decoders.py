"""GPT-J and GPT-3 trained in phases, sharded over tensor- and data-parallel groups, from Hugging Face weights.

The references are Hugging Face's models in PyTorch, trained with AdamW on the same batches.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from . import hugging_face as hf
from .parts import Config, ParallelBlock, SequentialBlock
from .phased import fed, training

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
CONFIG, RATE, RUNS = Config(), 0.01, 2


def gptj(config):
    sizes = {"n_embd": config.hidden, "n_layer": config.layers, "n_head": config.heads, "n_positions": config.length}
    torch.manual_seed(0)
    model = transformers.GPTJForCausalLM(
        transformers.GPTJConfig(
            vocab_size=config.vocab, rotary_dim=config.rotary, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **sizes
        )
    )
    return lively(model)


def gpt3(config):
    sizes = {"n_embd": config.hidden, "n_layer": config.layers, "n_head": config.heads, "n_positions": config.length}
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=config.vocab, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, tie_word_embeddings=config.tied, **sizes
        )
    )
    return lively(model)


def lively(model):
    """Weights large enough that every part matters."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model


def batches(config):
    rng = np.random.default_rng(0)
    shape = (RUNS, config.accumulation * config.data * config.micro, config.length)
    return rng.integers(0, config.vocab, shape).astype(np.int32), rng.integers(0, config.vocab, shape).astype(np.int32)


def reference(model, config, words, labels):
    """Losses and norms of the training in PyTorch; the model is trained."""
    plain = [p for n, p in model.named_parameters() if "ln_" not in n and "bias" not in n]
    others = [p for n, p in model.named_parameters() if "ln_" in n or "bias" in n]
    groups = [{"params": plain, "weight_decay": config.decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-6)
    losses, norms = [], []
    for x, y in zip(words, labels, strict=True):
        logits = model(torch.tensor(x).long()).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, config.vocab), torch.tensor(y).long().reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.largest_norm)))
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, norms


def trained(config, block, model, mapping, head_bias, tmp_path):
    """Losses, norms and weights of the program; the second run is made by a session that loads a checkpoint."""
    words, labels = batches(config)
    first = training(config, block, not head_bias, head_bias)
    losses, norms = [], []
    with first:
        first.write_variables_data(mapping(first.state, model, config.tensor))
        collect(first, config, words[0], labels[0], losses, norms)
        first.save_checkpoint(str(tmp_path / "one"))
        collect(first, config, words[1], labels[1], losses, norms)
    return first, losses, norms


def collect(session, config, words, labels, losses, norms):
    out = session.run(fed(config, session, words, labels, RATE))
    losses.append(float(out[session.outputs.loss].mean()))
    norms.append(float(out[session.outputs.norm].reshape(-1)[0]))


CASES = [
    pytest.param(ParallelBlock, gptj, hf.gptj, True, CONFIG, id="gptj-2x2", marks=pytest.mark.sweep),
    pytest.param(SequentialBlock, gpt3, hf.gpt2, False, CONFIG, id="gpt3-2x2", marks=pytest.mark.sweep),
    pytest.param(SequentialBlock, gpt3, hf.gpt2, False, replace(CONFIG, tied=True), id="gpt3-2x2-tied"),
    pytest.param(
        SequentialBlock,
        gpt3,
        hf.gpt2,
        False,
        replace(CONFIG, tensor=4, data=1, layers=3),
        id="gpt3-4x1",
        marks=pytest.mark.sweep,
    ),
]


@pytest.mark.parametrize(("block", "make", "mapping", "head_bias", "config"), CASES)
def test_training_in_phases_is_that_of_pytorch(block, make, mapping, head_bias, config, tmp_path):
    model = make(config)
    session, losses, norms = trained(config, block, model, mapping, head_bias, tmp_path)
    expected_losses, expected_norms = reference(model, config, *batches(config))
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-4)
    np.testing.assert_allclose(norms, expected_norms, rtol=1e-3)
    expected = mapping(session.state, model, config.tensor)
    found = session.get_tensors_data(expected)
    for variable, weight in expected.items():
        np.testing.assert_allclose(found[variable], weight, atol=2e-4, err_msg=variable.name)
