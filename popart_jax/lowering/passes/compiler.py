"""XLA compiler options by graph and platform.

Source: measured on XLA:CPU of jaxlib 0.10. YNNPACK may have products and convolutions one by one, but no larger part of
a network of convolutions: ResNet-18 infers in 0.67 of the CPU time then, LeNet in the same. Without YNNPACK at all they
take 0.73 and 1.3. Training steps, recurrences, transformers and products of 8-bit numbers are better left alone.
"""

from __future__ import annotations

import onnx_ir as ir

from ...model.structure import every_node

_KINDS = ("DOT", "CONVOLUTION")
_ONE_BY_ONE = {
    "xla_cpu_experimental_ynn_fusion_type": ",".join(f"LIBRARY_FUSION_TYPE_INDIVIDUAL_{kind}" for kind in _KINDS)
}


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
    of_bytes = any(kind.startswith("QLinear") or kind.endswith("Integer") for kind in kinds)
    if platform != "cpu" or training or "Conv" not in kinds or of_bytes:
        return {}
    return dict(_ONE_BY_ONE)
