"""XLA compiler options by graph and platform.

Source: measured on XLA:CPU of jaxlib 0.10. YNNPACK may compute single products and convolutions, but no fusions of
them with other operators: ResNet-18 then infers in 0.67 of the CPU time, LeNet in the same. Entirely without YNNPACK
they take 0.73 and 1.3. Training steps, recurrences and transformers keep the defaults.

512-bit vectors, where the processor has them, suit programs on 8-bit integers, which round and scale between their
products: encoders and MobileNetV2 take 0.74 to 0.82 of the time; with YNNPACK for single products 0.72 to 1.3.
"""

from __future__ import annotations

import onnx_ir as ir

from ...model.checks.structure import every_node

_KINDS = ("DOT", "CONVOLUTION")
_ONE_BY_ONE = {
    "xla_cpu_experimental_ynn_fusion_type": ",".join(f"LIBRARY_FUSION_TYPE_INDIVIDUAL_{kind}" for kind in _KINDS)
}

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
    kinds = {node.op_type for node in every_node(graph)}
    if platform != "cpu" or training:
        return {}
    if any(kind.startswith(("QLinear", "Dequantize", "DynamicQuantize")) or kind.endswith("Integer") for kind in kinds):
        return dict(_WIDE)
    return dict(_ONE_BY_ONE) if "Conv" in kinds else {}
