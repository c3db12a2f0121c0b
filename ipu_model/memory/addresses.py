"""Highest address used on each tile: interleaved data start at the interleaved memory, however little lies below it."""

from __future__ import annotations

import numpy as np

from ipu_model.target import Machine

BESIDE = 24  # bytes of interleaved memory beside the largest partial results, in every published row
FRAGMENTED = 26_000  # bytes below it that variables leave unused; from the published rows whose variables spill


def unused(sizes: np.ndarray) -> float:
    """Bytes below interleaved memory that variables of these sizes leave unused: less than the next one needs.

    Of many small variables that is little, by the mean over all bytes of the size of the variable that they are in.
    """
    return min(FRAGMENTED, float((sizes**2).sum() / max(1.0, sizes.sum())))


def highest(
    total: np.ndarray, interleaved: np.ndarray, machine: Machine, unused: float = FRAGMENTED
) -> np.ndarray:  # fmt: skip
    """Bytes up to the highest address, gaps included, of those in use on each tile: ``total[ipu, tile]``.

    Of these `interleaved` must be so, 0 where nothing must; `unused` are those that variables leave unused below
    interleaved memory where they do not all fit there. Interleaved memory is made of pairs of elements. Variables that
    find no place below it take whole pairs from its start, and what must be interleaved comes after them.
    """
    start, pair = machine.interleaved_start, 2 * machine.memory_element
    if not start:
        return total
    below = total - interleaved
    spilt = pair * np.ceil(np.maximum(0.0, below + unused - start) / pair)
    return np.where(interleaved > 0, np.maximum(total, start + spilt + interleaved + BESIDE), total)
