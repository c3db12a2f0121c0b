"""A model's function on several devices, with its weights split among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import onnx_ir as ir
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..errors import popart_exception
from . import partition


@dataclass(frozen=True, eq=False, repr=False)
class ShardedFunction:
    """``fn(params, inputs, key=None) -> outputs`` on a mesh of devices; GSPMD adds the communication between them."""

    fn: Callable[..., Any]  # the function on one device
    mesh: Mesh  # the devices
    specs: Mapping[str, PartitionSpec]  # partition spec of each parameter
    batch: str | None  # mesh axis along which the first dimension of inputs is split

    def __call__(self, params: Mapping[str, Any], inputs: Any, key: jax.Array | None = None, **keywords: Any) -> Any:
        """Outputs by name; gradients of `params` have the same split as these.

        Raises
        ------
        popart_exception
            As for the function itself.
        """
        held = {n: jax.lax.with_sharding_constraint(x, self.sharding(n)) for n, x in params.items()}

        def place(x: Any) -> Any:
            return jax.lax.with_sharding_constraint(x, self._of_input(x))

        split = jax.tree.map(place, inputs)
        return self.fn(held, split, key, **keywords)

    def place(self, params: Mapping[str, Any]) -> dict[str, jax.Array]:
        """Parameters on their devices, where each device holds only its part."""
        return {name: jax.device_put(x, self.sharding(name)) for name, x in params.items()}

    def sharding(self, name: str) -> NamedSharding:
        """The sharding of a parameter."""
        return NamedSharding(self.mesh, self.specs.get(name, PartitionSpec()))

    def _of_input(self, x: Any) -> NamedSharding:
        fits = self.batch is not None and jax.numpy.ndim(x) and x.shape[0] % self.mesh.shape[self.batch] == 0
        return NamedSharding(self.mesh, PartitionSpec(self.batch) if fits else PartitionSpec())

    def __repr__(self) -> str:
        split = sum(any(s) for s in self.specs.values())
        return f"<{self.fn!r} on a mesh {dict(self.mesh.shape)}: {split} of {len(self.specs)} weights are split>"


def shard(
    fn: Callable[..., Any],
    graph: ir.Graph,
    shapes: partition.Shapes,
    mesh: Mesh,
    rules: partition.Rules | str,
    batch: str | None,
) -> ShardedFunction:
    """See `OnnxFunction.shard`."""
    if batch is not None and batch not in mesh.shape:
        raise popart_exception(f"batch is {batch!r}, no axis of the mesh {dict(mesh.shape)}.")
    axis = next((a for a in mesh.axis_names if a != batch), batch)
    assert axis is not None
    if rules == "tensor_parallel":
        specs = partition.tensor_parallel(graph, shapes, mesh, axis)
    elif rules == "fsdp":
        specs = partition.fsdp(shapes, mesh, axis)
    elif isinstance(rules, str):
        raise popart_exception(f"Unknown rules {rules!r}: 'tensor_parallel', 'fsdp', or pairs of expression and spec.")
    else:
        specs = partition.by_name(shapes, rules)
    partition.check(specs, shapes, mesh)
    automatic = Mesh(mesh.devices, mesh.axis_names)  # GSPMD infers inner shardings; jax.make_mesh fixes them by type
    return ShardedFunction(fn, automatic, specs, batch)
