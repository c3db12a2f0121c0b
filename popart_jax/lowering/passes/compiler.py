"""XLA compiler options by graph and platform.

Source: measured on XLA:CPU of jaxlib 0.10. YNNPACK may compute single products and convolutions, but no fusions of
them with other operators: ResNet-18 then infers in 0.67 of the CPU time, LeNet in the same. Entirely without YNNPACK
they take 0.73 and 1.3. Networks with convolutions in groups have short sums in their products, for which XLA's own code
is faster: of their time with single products by YNNPACK (AMD EPYC, two cores, batch 1) ShuffleNetV2 takes 0.74, RegNetY
0.82, MobileNetV3 0.89, PaddleOCR's detector and recogniser 0.87 to 0.91, MobileNetV2 0.95, EfficientNet-B0 1.0,
ConvNeXt 1.05. Training steps, recurrences and transformers keep the defaults.

512-bit vectors, where the processor has them, suit programs on 8-bit integers, which round and scale between their
products: encoders and MobileNetV2 take 0.74 to 0.82 of the time; with YNNPACK for single products 0.72 to 1.3.
"""

from __future__ import annotations

import onnx_ir as ir

from ...model.checks.structure import every_node

_BY_YNNPACK = "xla_cpu_experimental_ynn_fusion_type"
_KINDS = ("DOT", "CONVOLUTION")
_ONE_BY_ONE = {_BY_YNNPACK: ",".join(f"LIBRARY_FUSION_TYPE_INDIVIDUAL_{kind}" for kind in _KINDS)}
_NONE = {_BY_YNNPACK: ""}

_WIDE = {"xla_cpu_prefer_vector_width": "512"}


def compiler_options(graph: ir.Graph, *, training: bool, platform: str) -> dict[str, str]:
    """Options for `jax.jit(..., compiler_options=...)`; empty where the defaults are best.

    Parameters
    ----------
    graph : onnx_ir.Graph
        The graph that will run.
    training : bool
        Whether it is a training step.
    platform : str
        JAX platform name such as ``cpu`` or ``gpu``.
    """
    if platform != "cpu" or training:
        return {}
    nodes = list(every_node(graph))
    kinds = {node.op_type for node in nodes}
    if any(kind.startswith(("QLinear", "Dequantize", "DynamicQuantize")) or kind.endswith("Integer") for kind in kinds):
        return dict(_WIDE)
    if "Conv" not in kinds:
        return {}
    grouped = any(node.op_type == "Conv" and node.attributes.get_int("group", 1) > 1 for node in nodes)
    return dict(_NONE if grouped else _ONE_BY_ONE)
