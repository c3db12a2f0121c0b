"""Hugging Face's encoders, decoders with caches, speech and vision transformers, tiny and untrained.

The list is empty where `transformers` is not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from .network import Network, floats, tokens

WORDS = 13
_TEXT = {"vocab_size": WORDS, "pad_token_id": 0}
_BLOCK = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
_PIXELS = {"image_size": 8, "patch_size": 4, "num_channels": 2}
_LAYERS = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12}
_HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
_WAVES = {
    "conv_dim": (8, 8),
    "conv_stride": (2, 2),
    "conv_kernel": (3, 3),
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": WORDS,
    "num_feat_extract_layers": 2,
}


class First(nn.Module):
    """A model wrapped to return only its first output."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        """The first output."""
        given = dict(zip(self.names, (x, y), strict=False))
        return self.model(**given, return_dict=False)[0]


def _row(
    name: str,
    module: str,
    kind: str,
    config: Mapping[str, Any],
    inputs: Callable[[], tuple[Any, ...]],
    names: tuple[str, ...] = ("input_ids",),
    **more: Any,
) -> Network:
    def make() -> nn.Module:
        configuration = importlib.import_module(f"transformers.models.{module}.configuration_{module}")
        modeling = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
        (settings,) = [v for n, v in vars(configuration).items() if n.lower() == f"{kind.lower()}config"]
        made = next(v for n, v in vars(modeling).items() if n.lower() == f"{kind.lower()}{more.get('head', 'model')}")
        return First(_as_trained(made(settings(**config))), names)

    return Network(f"{name} (Hugging Face)", make, inputs, **{n: v for n, v in more.items() if n != "head"})


def _as_trained(model: nn.Module) -> nn.Module:
    """Perturb weights that begin at zero: a zero row before a norm has a gradient that finite differences miss."""
    with torch.no_grad():
        for weight in model.parameters():
            if not weight.any():
                weight.normal_(0, 0.02)
    return model


def _two(length: int, other: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (*tokens(length, WORDS)(), *tokens(other, WORDS)())


def _rows() -> tuple[Network, ...]:
    words, seq = tokens(5, WORDS), ("input_ids", "decoder_input_ids")
    image, sound = floats(2, 8, 8), floats(24)
    bert = {**_TEXT, **_BLOCK, "max_position_embeddings": 16}
    return (
        _row("BERT", "bert", "Bert", bert, words),
        _row("RoBERTa", "roberta", "Roberta", bert, words),
        _row("ALBERT", "albert", "Albert", {**bert, "embedding_size": 4}, words),
        _row("ELECTRA", "electra", "Electra", {**bert, "embedding_size": 4}, words),
        _row(
            "DistilBERT",
            "distilbert",
            "DistilBert",
            {**_TEXT, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 12, "max_position_embeddings": 16},
            words,
        ),
        _row(
            "DeBERTa 2",
            "deberta_v2",
            "DebertaV2",
            {**bert, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 4},
            words,
        ),
        _row("MPNet", "mpnet", "MPNet", {**bert, "layer_norm_eps": 0.1}, words),
        _row(
            "SqueezeBERT",
            "squeezebert",
            "SqueezeBert",
            {
                **bert,
                "q_groups": 2,
                "k_groups": 2,
                "v_groups": 2,
                "post_attention_groups": 1,
                "intermediate_groups": 2,
                "output_groups": 2,
                "embedding_size": 8,
            },
            words,
        ),
        _row("FNet", "fnet", "FNet", {**bert, "use_tpu_fourier_optimizations": False}, words),
        _row(
            "GPT-2",
            "gpt2",
            "GPT2",
            {"vocab_size": WORDS, "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2},
            words,
        ),
        _row(
            "GPT-Neo",
            "gpt_neo",
            "GPTNeo",
            {
                "vocab_size": WORDS,
                "hidden_size": 8,
                "num_layers": 2,
                "num_heads": 2,
                "attention_types": [[["global", "local"], 1]],
                "max_position_embeddings": 16,
                "window_size": 2,
            },
            words,
        ),
        _row(
            "GPT-NeoX",
            "gpt_neox",
            "GPTNeoX",
            {**_BLOCK, "vocab_size": WORDS, "max_position_embeddings": 16, "rotary_pct": 0.5},
            words,
        ),
        _row(
            "GPT-J",
            "gptj",
            "GPTJ",
            {"vocab_size": WORDS, "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2, "rotary_dim": 2},
            words,
        ),
        _row(
            "OPT",
            "opt",
            "OPT",
            {
                **_TEXT,
                "hidden_size": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "ffn_dim": 12,
                "max_position_embeddings": 16,
                "word_embed_proj_dim": 8,
            },
            words,
        ),
        _row("BLOOM", "bloom", "Bloom", {"vocab_size": WORDS, "hidden_size": 8, "n_layer": 1, "n_head": 2}, words),
        _row(
            "CodeGen",
            "codegen",
            "CodeGen",
            {"vocab_size": WORDS, "n_positions": 16, "n_embd": 32, "n_layer": 1, "n_head": 4, "rotary_dim": 4},
            words,
        ),
        _row(
            "T5",
            "t5",
            "T5",
            {"vocab_size": WORDS, "d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_heads": 2},
            _two(5, 4),
            seq,
        ),
        _row(
            "BART",
            "bart",
            "Bart",
            {"vocab_size": WORDS, "d_model": 8, "max_position_embeddings": 16, **_LAYERS, **_HEADS, "pad_token_id": 1},
            _two(5, 4),
            seq,
        ),
        _row(
            "Switch",
            "switch_transformers",
            "SwitchTransformers",
            {
                "vocab_size": WORDS,
                "d_model": 8,
                "d_kv": 4,
                "d_ff": 12,
                "num_layers": 2,
                "num_heads": 2,
                "num_experts": 2,
                "num_sparse_encoder_layers": 1,
                "num_sparse_decoder_layers": 1,
                "router_jitter_noise": 0.0,  # otherwise the exported file contains the noise of training
            },
            _two(5, 4),
            seq,
        ),
        _row("ViT", "vit", "ViT", {**_BLOCK, **_PIXELS}, image, ("pixel_values",)),
        _row("DeiT", "deit", "DeiT", {**_BLOCK, **_PIXELS}, image, ("pixel_values",)),
        _row(
            "BEiT", "beit", "Beit", {**_BLOCK, **_PIXELS, "use_relative_position_bias": True}, image, ("pixel_values",)
        ),
        _row(
            "Swin",
            "swin",
            "Swin",
            {
                "image_size": 8,
                "patch_size": 2,
                "num_channels": 2,
                "embed_dim": 8,
                "depths": [2, 1],
                "num_heads": [2, 2],
                "window_size": 2,
            },
            image,
            ("pixel_values",),
        ),
        _row(
            "ConvNeXT",
            "convnext",
            "ConvNext",
            {"num_channels": 2, "patch_size": 2, "hidden_sizes": [4, 6, 8, 8], "depths": [1, 1, 1, 1]},
            floats(2, 16, 16),
            ("pixel_values",),
        ),
        _row(
            "RegNet",
            "regnet",
            "RegNet",
            {
                "num_channels": 2,
                "embedding_size": 4,
                "hidden_sizes": [4, 8, 8, 8],
                "depths": [1, 1, 1, 1],
                "groups_width": 4,
            },
            floats(2, 16, 16),
            ("pixel_values",),
        ),
        _row(
            "SegFormer",
            "segformer",
            "Segformer",
            {
                "num_channels": 2,
                "num_encoder_blocks": 2,
                "depths": [1, 1],
                "sr_ratios": [2, 1],
                "hidden_sizes": [4, 8],
                "patch_sizes": [3, 3],
                "strides": [2, 2],
                "num_attention_heads": [1, 2],
                "mlp_ratios": [2, 2],
                "decoder_hidden_size": 8,
                "num_labels": 3,
            },
            image,
            ("pixel_values",),
            head="forsemanticsegmentation",
        ),
        _row(
            "PoolFormer",
            "poolformer",
            "PoolFormer",
            {
                "num_channels": 2,
                "hidden_sizes": [4, 8],
                "depths": [1, 1],
                "patch_sizes": [3, 3],
                "strides": [2, 2],
                "padding": [1, 1],
                "num_encoder_blocks": 2,
            },
            image,
            ("pixel_values",),
        ),
        _row(
            "YOLOS",
            "yolos",
            "Yolos",
            {**_BLOCK, "image_size": [8, 8], "patch_size": 4, "num_channels": 2, "num_detection_tokens": 3},
            image,
            ("pixel_values",),
        ),
        _row("wav2vec 2", "wav2vec2", "Wav2Vec2", {**_BLOCK, **_WAVES}, sound, ("input_values",)),
        _row("HuBERT", "hubert", "Hubert", {**_BLOCK, **_WAVES}, sound, ("input_values",)),
        _row(
            "Whisper",
            "whisper",
            "Whisper",
            {
                "vocab_size": WORDS,
                "d_model": 8,
                "num_mel_bins": 3,
                **_LAYERS,
                **_HEADS,
                "max_source_positions": 4,
                "max_target_positions": 8,
                "pad_token_id": 0,
                "bos_token_id": 1,
                "eos_token_id": 2,
                "decoder_start_token_id": 1,
                "suppress_tokens": None,
                "begin_suppress_tokens": None,
            },
            lambda: (*floats(3, 8)(), *tokens(3, WORDS)()),
            ("input_features", "decoder_input_ids"),
        ),
    )


NETWORKS = _rows() if importlib.util.find_spec("transformers") else ()
