"""The commands of ``python -m popart_jax``: one module each with `add_arguments` and `run`."""

from __future__ import annotations

from types import ModuleType

from . import bench, compare, demo, export, inspect, launch, profile, run, scale, train

COMMANDS: dict[str, ModuleType] = {
    "demo": demo,
    "run": run,
    "inspect": inspect,
    "compare": compare,
    "export": export,
    "profile": profile,
    "train": train,
    "bench": bench,
    "scale": scale,
    "launch": launch,
}
