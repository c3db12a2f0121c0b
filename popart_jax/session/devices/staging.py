"""The engine option that gives each virtual graph or pipeline stage a JAX device of its own."""

from __future__ import annotations

from ...enums import VirtualGraphMode
from ...errors import popart_exception
from ...execution import Program
from ...execution.stages.step import StagedExecutable
from ..options.engine_options import STAGES
from ..options.session_options import SessionOptions
from ..requests import Request

_WORDS = ("devices", "in order")


def wants_devices(options: SessionOptions) -> bool:
    """Whether the engine option asks for a JAX device per stage.

    Another value of it, or a session none of whose nodes is placed on a virtual graph, raises popart_exception.
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
    """The program as an executable that runs stage by stage, one JAX device each; raises as `StagedExecutable`."""
    return StagedExecutable(program, hyper_size, pipelined=request.options.enablePipelining)
