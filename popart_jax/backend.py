"""The ONNX backend interface (`onnx.backend.base`): run a model or one node, exactly, without a session.

Nodes run one after the other, not under `jit`, so that results whose shape depends on data are exact. 64-bit types keep
64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ._process import _with_jax as _with_jax  # isort: skip

import jax
import numpy as np
import onnx
import onnx_ir as ir
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep, Device, DeviceType

from ._compat.jax import enable_x64
from .errors import popart_exception
from .execution.placement import to_host
from .functions.inputs import check_inputs
from .lowering.checks.known_attributes import check_attributes
from .lowering.full_precision import full_precision
from .lowering.interpreter import Settings, evaluate
from .lowering.resolve import check_supported
from .model.files.load import load


class PreparedModel(BackendRep):
    """A model with its functions inlined, ready to run; `key` is that of its random operators."""

    def __init__(self, model: ir.Model, key: jax.Array | None = None) -> None:
        graph = model.graph
        check_supported(graph, model.opset_imports)
        check_attributes(graph, model.opset_imports)
        self._graph = graph
        self._settings = Settings(dict(model.opset_imports), key=key)
        self.inputs = [v.name or "" for v in graph.inputs if v.name not in graph.initializers]
        self.outputs = [v.name or "" for v in graph.outputs]

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model; returns outputs in order as NumPy arrays (lists for sequences, None for empty optionals).

        `inputs` come by name, or in the order of the graph's inputs without initializers; a single array will do for
        one input. Raises popart_exception for a wrong number, names or types of inputs, or a node that failed.
        """
        fed = self._named(inputs)
        with enable_x64(), full_precision():
            results = evaluate(self._graph, check_inputs(self._graph, fed), self.outputs, self._settings)
            return tuple(_to_host(results[name]) for name in self.outputs)

    def _named(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            return dict(cast("Mapping[str, Any]", inputs))
        values = cast("Sequence[Any]", inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        names = self.inputs if len(values) <= len(self.inputs) else [v.name or "" for v in self._graph.inputs]
        if len(values) > len(names):
            raise popart_exception(f"{len(values)} inputs given, the model takes {len(names)}: {names}")
        return dict(zip(names, values, strict=False))


def _platforms() -> list[str]:
    return [d.platform for d in cast("list[Any]", jax.devices())]


def _to_host(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [_to_host(e) for e in cast("Sequence[Any]", x)]
    if x is None or isinstance(x, dict):
        return cast("Any", x)
    return to_host(x) if isinstance(x, jax.Array) else np.asarray(x)


class Backend(OnnxBackend):
    """popart_jax as an ONNX backend; see `onnx.backend.base.Backend` for the contract."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """Load a model (path, bytes, ModelProto or onnx_ir.Model) and check that every operator has a translation."""
        if not cls.supports_device(device):
            raise popart_exception(f"device {device!r} is not there; JAX has {_platforms()}")
        return PreparedModel(load(model), kwargs.get("key"))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Prepare a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node; `opset_version` is the opset of its domain (default: the newest of the installed onnx)."""
        version = kwargs.pop("opset_version", None) or onnx.defs.onnx_opset_version()
        opsets = [onnx.helper.make_opsetid(node.domain, version)]
        names = [n for n in node.input if n]
        values = cast("Mapping[str, Any]", inputs).values() if isinstance(inputs, Mapping) else inputs
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [onnx.helper.make_value_info(n, onnx.TypeProto()) for n in names],
            [onnx.helper.make_value_info(n, onnx.TypeProto()) for n in node.output if n],
        )
        model = onnx.helper.make_model(graph, opset_imports=opsets)
        return cls.run_model(model, dict(zip(names, values, strict=True)), device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a device is supported: CPU always, CUDA where JAX has a GPU."""
        if Device(device).type == DeviceType.CPU:
            return True
        return any(platform in ("gpu", "cuda") for platform in _platforms())


is_compatible = Backend.is_compatible
prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
