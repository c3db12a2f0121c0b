"""Functions that make graphs from graphs."""

from .autodiff import ExpectedConnection as ExpectedConnection
from .autodiff import ExpectedConnectionType as ExpectedConnectionType
from .autodiff import GradGraphInfo as GradGraphInfo
from .autodiff import autodiff as autodiff
from .decompose_sum import decompose_sum as decompose_sum
from .merge_exchange import io_tile_exchange as io_tile_exchange
from .merge_exchange import merge_exchange as merge_exchange

__all__ = [
    "ExpectedConnection",
    "ExpectedConnectionType",
    "GradGraphInfo",
    "autodiff",
    "decompose_sum",
    "io_tile_exchange",
    "merge_exchange",
]
