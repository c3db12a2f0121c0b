"""The commands of ``python -m popart_jax``: one module each with `add_arguments` and `run`."""

from __future__ import annotations

from types import ModuleType

from . import compare, demo, export, inspect, profile, run

COMMANDS: dict[str, ModuleType] = {
    "demo": demo,
    "run": run,
    "inspect": inspect,
    "compare": compare,
    "export": export,
    "profile": profile,
}
