"""Functions that make graphs from graphs with named arguments."""

from __future__ import annotations

from .autodiff import autodiff as autodiff
from .autodiff import autodiff_with_accumulation as autodiff_with_accumulation
from .pipelining import pipelined_execution as pipelined_execution
from .recomputation import recompute_graph as recompute_graph
from .repeat_graph import repeat_graph as repeat_graph
