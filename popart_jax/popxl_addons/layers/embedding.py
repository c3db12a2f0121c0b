"""Embedding, whole or with its vocabulary sharded over replicas."""

from __future__ import annotations

from functools import partial

import numpy as np

from ... import popxl
from ...popxl import ops
from ..module import Module
from .initial import truncated_normal

MULTISLICE_MAGIC_NUMBER = 16
"""Rows of a part of the vocabulary are rounded up to a multiple of it."""


class Embedding(Module):
    """Rows of a table by index; weight (vocabulary shard, hidden).

    With several groups of replicas each holds a part of the vocabulary: indices must have the shard's offset taken off
    (`get_offsets`), and those outside the shard give zeros.
    """

    def __init__(
        self,
        dtype: popxl.dtype,
        vocab_size: int,
        hidden_size: int,
        axis: int = 0,
        replica_grouping: popxl.ReplicaGrouping | None = None,
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.axis = axis
        self.replica_grouping = replica_grouping
        n_shards = 1 if replica_grouping is None else replica_grouping.num_groups
        self.vocab_shard_size = self.get_vocab_shard_size(vocab_size, n_shards)
        self.offsets = self.get_offsets(vocab_size, n_shards)

    @staticmethod
    def get_vocab_shard_size(vocab_size: int, n_shards: int) -> int:
        """Rows of one shard: an equal part, rounded up to a multiple of 16."""
        part = -(-vocab_size // n_shards)
        return -(-part // MULTISLICE_MAGIC_NUMBER) * MULTISLICE_MAGIC_NUMBER

    @staticmethod
    def get_offsets(vocab_size: int, n_shards: int) -> np.ndarray:
        """First row of each shard."""
        return np.arange(n_shards) * Embedding.get_vocab_shard_size(vocab_size, n_shards)

    def build(self, indices: popxl.Tensor) -> popxl.Tensor:
        """indices (...) -> (..., hidden)."""
        shape = (self.vocab_shard_size, self.hidden_size)
        group = self.replica_grouping
        w = self.add_variable_input("weight", partial(truncated_normal, shape), self.dtype, replica_grouping=group)
        sharded = group is not None and group.num_groups > 1
        return ops.gather(w, indices, axis=self.axis, zero_OOR=sharded)
