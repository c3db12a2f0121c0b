"""XLA compiler options by graph and platform.

Source: measured on XLA:CPU of jaxlib 0.10. In networks of convolutions YNNPACK computes the products alone;
convolutions are faster by XLA's own code, and fusions with other operators too. Of the time with single products and
convolutions by YNNPACK (AMD EPYC, two cores, batch 1) wakeword's embedding takes 0.75, SqueezeNet, ddddocr, DenseNet
and basic-pitch 0.91 to 0.93, GoogLeNet 0.96, ResNet-18 1.00. Which pointwise convolutions are such products says
`kernels/pointwise.py`. Transformers keep the defaults.

512-bit vectors, where the processor has them, suit programs on 8-bit integers, which round and scale between their
products (encoders and MobileNetV2 take 0.74 to 0.82 of the time), and recurrences (an LSTM of 128 takes 0.97 for one
sequence, 0.9 for 32). With scales that are known, reductions are faster by XLA's own code too (Intel Xeon: encoders at
batch 1 0.82 to 0.87, BERT-base 0.91, MobileNetV2 and ResNet-18 0.97 to 1.04); ranges of whole tensors, from which
scales are computed at each run, are faster by YNNPACK (an encoder by XLA's 1.6).

XLA:CPU copies donated weights, and what the optimizer keeps of each, before it writes their new values, unless it
analyses who reads them last. With that analysis training BERT-base at batch 1 takes 0.85 to 0.95 of the time, an MLP
0.95, ResNet-18 0.99, and no room for the copies; compilation takes as long (1,000 layers).

Training steps are prepared in 0.85 to 0.95 of the CPU time by level 2 of LLVM in place of 3, and take 0.9 (an LSTM) to
1.01 (ResNet-18) of the time. Networks with kernels by channel keep level 3, since these take up to 1.6. So do programs
that round at random: at level 2 one in pipeline stages has other last bits than the whole, and these decide.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ...model.checks.structure import every_node

_PRODUCTS_BY_YNNPACK = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}
_WIDE = {"xla_cpu_prefer_vector_width": "512"}
IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": "True"}
_LESS_OPTIMISED = {"xla_backend_optimization_level": "2"}
_RECURRENT = ("LSTM", "GRU", "RNN")


def compiler_options(
    graph: ir.Graph, *, training: bool, platform: str, rounds_at_random: bool = False
) -> dict[str, str]:
    """Options for `jax.jit` (``compiler_options=...``) on a platform such as ``cpu``; empty where defaults are best."""
    if platform != "cpu":
        return {}
    if not training:
        return {**IN_PLACE, **_of_inference(graph)}
    return dict(IN_PLACE) if rounds_at_random or _has_kernels_by_channel(graph) else {**IN_PLACE, **_LESS_OPTIMISED}


def _has_kernels_by_channel(graph: ir.Graph) -> bool:
    convolutions = (node for node in every_node(graph) if node.op_type.startswith("Conv"))
    return any(node.attributes.get_int("group", 1) > 1 for node in convolutions)


def _of_inference(graph: ir.Graph) -> Mapping[str, str]:
    """Which vectors and which library the operators of a graph suit."""
    kinds = {node.op_type for node in every_node(graph)}
    if any(kind.startswith("DynamicQuantize") or kind.endswith("Integer") for kind in kinds):
        return _WIDE
    if any(kind.startswith(("QLinear", "Dequantize")) for kind in kinds):
        return {**_WIDE, **_PRODUCTS_BY_YNNPACK}
    if "Conv" in kinds:
        return _PRODUCTS_BY_YNNPACK
    return {} if kinds.isdisjoint(_RECURRENT) else _WIDE
