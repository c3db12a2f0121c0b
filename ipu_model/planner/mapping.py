"""Linear distribution of elements and work over tiles and workers."""

from __future__ import annotations

from ipu_model.planner.conv_params import cdiv
from ipu_model.target import Machine

LINEAR_MINIMUM = 128  # bytes


def split_regions(elements: int, grain: int, parts: int, minimum: int = 0, maximum: int = 0) -> tuple[int, int]:
    """Parts used and elements of the largest part when `elements` are dealt in grains that stay together.

    There are at most `parts`, of `minimum` to `maximum` elements; 0 for no bound.
    """
    if elements == 0:
        return 0, 0
    grains = cdiv(elements, grain)
    each = cdiv(grains, parts)
    if maximum:
        each = min(each, max(1, maximum // grain))
    if minimum:
        each = max(each, cdiv(grains, max(1, grains // cdiv(minimum, grain))))
    used = cdiv(grains, each)
    return used, cdiv(grains, used) * grain


def linear_share(elements: int, size: int, machine: Machine) -> int:
    """Elements on the fullest tile of a linearly mapped tensor (`size` bytes each)."""
    grain = max(1, machine.vector_bytes // size)
    return split_regions(elements, grain, machine.tiles, LINEAR_MINIMUM // size)[1]
