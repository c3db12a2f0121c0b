"""Layer normalisation over features that are sharded over replicas."""

from __future__ import annotations

from functools import partial

import numpy as np

from ... import popxl
from ..module import Module
from ..ops.sharded import layer_norm_distributed


class LayerNormDistributed(Module):
    """Weight ones, bias zeros, of this member's features; `replica_grouping` is the group that shares a row."""

    def __init__(self, replica_grouping: popxl.ReplicaGrouping | None = None) -> None:
        super().__init__()
        self.replica_grouping = replica_grouping

    def build(self, x: popxl.Tensor, eps: float = 1e-5) -> popxl.Tensor:
        """x (rows, features / members); statistics run over all members of a group."""
        group = self.replica_grouping or popxl.gcg().ir.replica_grouping()
        own = group.transpose()
        w = self.add_variable_input("weight", partial(np.ones, x.shape[-1]), x.dtype, replica_grouping=own)
        b = self.add_variable_input("bias", partial(np.zeros, x.shape[-1]), x.dtype, replica_grouping=own)
        return layer_norm_distributed(x, w, b, eps, group)
