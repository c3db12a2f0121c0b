"""Ranks of operands that ONNX fixes and that arithmetic alone would let pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from .operand_types import signature

_POOLS = ("AveragePool", "MaxPool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
_REDUCTIONS = tuple(
    f"Reduce{how}" for how in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
)
_GATED = "X 3 W 3 R 3 B 2 sequence_lens 1 initial_h 3 initial_c 3 P 2"
_BY_ELEMENT = "data 1+ indices =data updates =data"
_RANKS = {
    **dict.fromkeys(_POOLS, "X 3+"),
    **dict.fromkeys(_REDUCTIONS, "axes 0-1"),
    "AffineGrid": "theta 3 size 1",
    "BatchNormalization": "scale 1 B 1 mean 1 var 1 input_mean 1 input_var 1",
    "CausalConvWithState": "input 3 weight 3 bias 1 past_state 3",
    "CenterCropPad": "shape 0-1",
    "Compress": "condition 1",
    "ConstantOfShape": "input 1",
    "Conv": "X 3+ W =X B 1",
    "ConvInteger": "x 3+ w =x x_zero_point 0-1 w_zero_point 0-1",
    "ConvTranspose": "X 3+ W =X B 1",
    "DeformConv": "X 3+ W =X offset =X mask =X B 1",
    "DepthToSpace": "input 4",
    "Det": "X 2+",
    "Dropout": "ratio 0-1 training_mode 0-1",
    "Expand": "shape 1",
    "EyeLike": "input 2",
    "GRU": _GATED,
    "GatherElements": _BY_ELEMENT,
    "GatherND": "data 1+ indices 1+",
    "Gemm": "A 2 B 2 C 0-2",
    "GridSample": "X 3+ grid =X",
    "GroupNormalization": "X 2+ scale 1 bias 1",
    "InstanceNormalization": "input 3+ scale 1 B 1",
    "LSTM": _GATED,
    "MaxRoiPool": "X 4 rois 2",
    "MaxUnpool": "X 3+ I =X output_shape 1",
    "Multinomial": "input 2",
    "NegativeLogLikelihoodLoss": "input 2+ weight 1",
    "NonMaxSuppression": "boxes 3 scores 3",
    "OneHot": "values 1",
    "Pad": "pads 1 axes 1",
    "QLinearConv": "x 3+ w =x w_scale 0-1 w_zero_point 0-1 B 1",
    "RNN": _GATED,
    "Reshape": "shape 1",
    "Resize": "roi 1 scales 1 sizes 1",
    "ReverseSequence": "input 2+ sequence_lens 1",
    "RoiAlign": "X 4 rois 2 batch_indices 1",
    "STFT": "signal 2-3 window 1",
    "Scatter": _BY_ELEMENT,
    "ScatterElements": _BY_ELEMENT,
    "ScatterND": "data 1+ indices 1+",
    "Slice": "starts 1 ends 1 axes 1 steps 1",
    "SoftmaxCrossEntropyLoss": "scores 2+ weights 1",
    "SpaceToDepth": "input 4",
    "Split": "split 1",
    "Squeeze": "axes 0-1",
    "TfIdfVectorizer": "X 1-2",
    "Tile": "repeats 1",
    "TopK": "K 1",
    "Trilu": "input 2+",
    "Unsqueeze": "axes 0-1",
    "Upsample": "scales 1",
}


@cache
def _rules(op: str) -> dict[str, str]:
    words = _RANKS.get(op, "").split()
    return dict(zip(words[::2], words[1::2], strict=True))


def misranked(node: ir.Node, operands: Sequence[Any], version: int) -> str:
    """What is wrong with the rank of an operand of an ONNX operator, '' if nothing."""
    rules = _rules(node.op_type) if node.domain in ("", "ai.onnx") else {}
    if not rules:
        return ""
    formals = signature("", node.op_type, version)
    ranks = {
        f.name: np.ndim(x) for f, x in zip(formals, operands, strict=False) if f is not None and hasattr(x, "ndim")
    }
    for name, rank in ranks.items():
        rule = rules.get(name, "")
        least, most = _bounds(rule, ranks)
        if not least <= rank <= most:
            wanted = f"the rank of {rule[1:]}, {least}" if rule.startswith("=") else f"rank {rule}"
            return f"input {name} has rank {rank}; expected {wanted}"
    return ""


def _bounds(rule: str, ranks: dict[str, int]) -> tuple[int, int]:
    if not rule:
        return 0, 99
    if rule.startswith("="):
        same = ranks[rule[1:]]
        return same, same
    if rule.endswith("+"):
        return int(rule[:-1]), 99
    least, _, most = rule.partition("-")
    return int(least), int(most or least)
