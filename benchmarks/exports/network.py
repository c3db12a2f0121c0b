"""The networks of the table: each with its example inputs and its export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

BATCH = 3  # of the example inputs, so that an exporter can't take the batch for a 1 that broadcasts


@dataclass(frozen=True)
class Network:
    """One network.

    Attributes
    ----------
    name : str
        Row of the table.
    make : callable
        The network with random weights.
    inputs : callable
        Example inputs, batch first.
    batched : tuple of bool
        Which inputs have the batch as their first axis; all of them by default.
    grows : bool
        The batch is exported as a symbolic dimension.
    exporters : tuple of str
        Those that can write it: PyTorch's "dynamo" and its "older" one.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    batched: tuple[bool, ...] = ()
    grows: bool = True
    exporters: tuple[str, ...] = ("dynamo", "older")

    def is_batched(self) -> tuple[bool, ...]:
        """For each input, whether its first axis is the batch."""
        return self.batched or (True,) * len(self.inputs())

    def export(self, path: Path, *, dynamo: bool, opset: int | None = None) -> None:
        """Export the network with an exporter's defaults, with a symbolic batch if `grows`."""
        torch.manual_seed(0)
        network, given = self.make().eval(), self.inputs()
        names = [f"x{i}" for i in range(len(given))]
        open_batch = [{0: "batch"} if b and self.grows else {} for b in self.is_batched()]
        how: dict[str, Any] = {"input_names": names, "output_names": ["y"], "verbose": False, "opset_version": opset}
        if dynamo:
            dims = tuple({0: torch.export.Dim("batch")} if d else None for d in open_batch)
            torch.onnx.export(network, given, str(path), dynamo=True, dynamic_shapes=dims, **how)
            return
        axes = {n: d for n, d in zip(names, open_batch, strict=True) if d}
        torch.onnx.export(network, given, str(path), dynamo=False, dynamic_axes={**axes, "y": {0: "batch"}}, **how)


def floats(*shape: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    """One input of a shape, with the batch before it."""
    return lambda: (torch.randn(BATCH, *shape, generator=torch.Generator().manual_seed(1)),)


def tokens(length: int, kinds: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    """One input of token numbers."""
    return lambda: (torch.randint(kinds, (BATCH, length), generator=torch.Generator().manual_seed(1)),)
