"""Parts of a pipeline: graphs of loads, computations, stores and copies, whose inputs and outputs have names."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from ... import popxl
from ...popxl import ops
from ...popxl._internal.operands import op_of
from ..graph import BoundGraph
from .moving import local_name


class PipelineBoundGraph(BoundGraph):
    """A part of a pipeline; inputs and outputs are known by the ids that their tensors had before they were moved."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.variables: dict[str, tuple[popxl.Tensor, popxl.Tensor]] = {}
        self.crossing: dict[tuple[str, int], popxl.Tensor] = {}
        self.outputs: dict[str, popxl.Tensor] = {}
        self.ipu: int | None = None

    def placed(self) -> Any:
        """The context of the part's IPU."""
        return nullcontext() if self.ipu is None else popxl.ipu(self.ipu)

    @property
    def original_output_ids(self) -> tuple[str, ...]:
        """Original ids of the outputs, in order."""
        return tuple(self.outputs)

    def __contains__(self, value: Any) -> bool:
        """Whether an input stands for a tensor, given by itself or by its original id."""
        name = value.id if isinstance(value, popxl.Tensor) else value
        return name in self.variables or any(name == known for known, _ in self.crossing)

    def add_variable_input(self, tensor: popxl.Tensor, by_ref: bool = True) -> popxl.Tensor:
        """The input for a tensor from outside the pipeline; writes go back to it when it is by reference."""
        if tensor.id not in self.variables:
            inner = self._input(tensor, by_ref)
            self.variables[tensor.id] = (tensor, inner)
        return self.variables[tensor.id][1]

    def add_crossing_input(self, tensor: popxl.Tensor, original_id: str, stage: int) -> popxl.Tensor:
        """The input for a tensor that another part makes, for the micro-batch of `stage`."""
        key = (original_id, stage)
        if key not in self.crossing:
            self.crossing[key] = self._input(tensor, False)
        return self.crossing[key]

    def _input(self, tensor: popxl.Tensor, by_ref: bool) -> popxl.Tensor:
        return self.graph._add_input_like(tensor, by_ref, local_name(tensor))

    def add_output_tensor(self, tensor: popxl.Tensor, original_id: str) -> None:
        """Make a tensor an output of the part; other parts refer to it by `original_id`."""
        if original_id not in self.outputs:
            self.outputs[original_id] = tensor
            with self.graph:
                popxl.graph_output(tensor)

    def reconnect_input(self, original_id: str, new: popxl.Tensor) -> None:
        """Feed the inputs for the tensor `original_id` from `new`."""
        if original_id in self.variables:
            self.args[self.variables[original_id][1]] = new
        for (name, _), inner in self.crossing.items():
            if name == original_id:
                self.args[inner] = new

    def call(  # pyright: ignore[reportIncompatibleMethodOverride] - upstream's signature
        self, *args: popxl.Tensor, inputs_dict: Mapping[popxl.Tensor, popxl.Tensor] | None = None
    ) -> tuple[popxl.Tensor, ...]:
        """Call the part with the tensors that its inputs are connected to; `inputs_dict` overrides them."""
        return ops.call(self.graph, *args, inputs_dict={**self.args, **(inputs_dict or {})})


def required_for_host_load(op: Any) -> bool:
    """Whether an operator is a load from the host, or only prepares the tensor of one."""
    if op.opType() == "HostLoad":
        return True
    users = [op_of(n) for t in op._outputs().values() for n, _ in t._value.uses()]
    return op.opType() == "Init" and bool(users) and all(u.opType() == "HostLoad" for u in users)


def kind_of(op: Any, same_stage: set[int]) -> str:
    """Which part of its stage an operator belongs to: "loads", "stores", "copies" or "stage"."""
    if required_for_host_load(op):
        return "loads"
    if op.opType() == "HostStore":
        return "stores"
    if op.opType() == "IpuCopy":
        users = {op_of(n).id for t in op._outputs().values() for n, _ in t._value.uses()}
        return "stage" if users & same_stage else "copies"  # one that its own stage reads can't wait for its end
    return "stage"
