"""The engine option that gives each virtual graph or pipeline stage a JAX device of its own."""

from __future__ import annotations

from ..enums import VirtualGraphMode
from ..errors import popart_exception
from ..execution import Program
from ..execution.staged import StagedExecutable
from .options import SessionOptions
from .requests import Request

STAGES = "popart_jax.stages"
_WORDS = ("devices", "in order")


def wants_devices(options: SessionOptions) -> bool:
    """Whether stages have devices of their own.

    Raises
    ------
    popart_exception
        The option says something else, or the session has no virtual graphs that nodes are placed on.
    """
    asked = options.engineOptions.get(STAGES, "in order")
    if asked not in _WORDS:
        raise popart_exception(f"Engine option {STAGES} is one of {', '.join(_WORDS)}; got '{asked}'.")
    if asked == "devices" and options.virtualGraphMode is not VirtualGraphMode.Manual:
        raise popart_exception(
            f"Engine option {STAGES} needs nodes placed on virtual graphs: set virtualGraphMode to Manual; it is "
            f"{options.virtualGraphMode.name}."
        )
    return asked == "devices"


def staged(program: Program, request: Request, hyper_size: int) -> StagedExecutable:
    """A program whose graph is its own, ready to run in stages.

    Raises
    ------
    popart_exception
        As `StagedExecutable`.
    """
    return StagedExecutable(program, hyper_size, pipelined=request.options.enablePipelining)
