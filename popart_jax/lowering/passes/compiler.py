"""XLA compiler options by graph and platform.

Source: measured on XLA:CPU of jaxlib 0.10. Networks of dense convolutions infer about twice as fast on Eigen's kernels
as on YNNPACK's; training steps, recurrences and transformers are better left alone, and products of 8-bit numbers
have fast kernels in YNNPACK alone.
"""

from __future__ import annotations

import onnx_ir as ir

_EIGEN_CONVOLUTIONS = {"xla_cpu_experimental_ynn_fusion_type": ""}


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
    kinds = {node.op_type for node in graph}
    of_bytes = any(kind.startswith("QLinear") or kind.endswith("Integer") for kind in kinds)
    if platform != "cpu" or training or "Conv" not in kinds or of_bytes:
        return {}
    return dict(_EIGEN_CONVOLUTIONS)
