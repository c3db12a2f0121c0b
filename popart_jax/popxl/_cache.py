"""Compiling a session's programs, or finding them in the executable cache."""

from __future__ import annotations

from ..logs import getLogger
from ._device_state import DeviceState


def compile_cached(state: DeviceState) -> None:
    """Make every program of the session ready to run."""
    getLogger("session").info("Starting compilation")
    state.compile()
