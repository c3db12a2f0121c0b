"""Seeds made on the device."""

from __future__ import annotations

import numpy as np

from .. import dtypes
from .._building.create import Out, create, result
from ..tensor import Tensor, constant
from .utils import check_operands


def create_random_seed(seed: Tensor, modifier: Tensor) -> Tensor:
    """A seed mixed with a number.

    Raises
    ------
    ValueError
        `seed` is not uint32 of shape (2,).
    """
    check_operands(seed=seed, modifier=modifier)
    if seed.dtype != dtypes.uint32 or seed.shape != (2,):
        raise ValueError(f"seed Tensor must be shape=(2,) dtype=uint32. Provided {seed}")
    out = Out("modified_seed", (2,), dtypes.uint32)
    return result(create("ModifyRandomSeed", [seed, modifier], [out]))


def split_random_seed(seed: Tensor, n: int = 2) -> tuple[Tensor, ...]:
    """`n` seeds that differ from each other; the first usually becomes the new state."""
    return tuple(create_random_seed(seed, constant(np.uint32(i), dtypes.uint32)) for i in range(n))
