"""First in, first out storage for tensors that a later pipeline stage needs.

Annotations stay objects here: `popxl.TensorByRef` is recognised by identity.
"""

from functools import partial

import numpy as np

from ... import popxl
from ...popxl import ops
from ..module import Module


def _counter(module: Module) -> popxl.Tensor:
    return module.add_variable_input("counter", partial(np.zeros, (1,), np.uint32), popxl.uint32, by_ref=True)


class Stash(Module):
    """Writes a tensor into the next of `stash_size` entries; variables ``stash`` and ``counter``."""

    @popxl.in_sequence()
    def build(self, t: popxl.Tensor, stash_size: int) -> None:
        """Store `t`, then advance the counter."""
        counter = _counter(self)
        entries = partial(np.zeros, (stash_size, *t.shape), t.dtype.as_numpy())
        stash = self.add_variable_input("stash", entries, t.dtype, by_ref=True)
        entry = ops.reshape(t, (1, *t.shape))
        ops.dynamic_update_(stash, counter, entry, axes=[0], sizes=[1], no_overlap=True)
        ops.increment_mod_(counter, 1, stash_size)


class Restore(Module):
    """Reads the entries of a stash one after the other; variable ``counter``."""

    @popxl.in_sequence()
    def build(self, stash: popxl.TensorByRef) -> popxl.Tensor:
        """Read an entry, then advance the counter."""
        counter = _counter(self)
        entry = ops.dynamic_slice(stash, counter, axes=[0], sizes=[1], no_overlap=True)
        ops.increment_mod_(counter, 1, stash.shape[0])
        return ops.reshape(entry, stash.shape[1:])
