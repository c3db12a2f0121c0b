"""The machines we know, as data files beside this module; each function is an entry point of ``popart_jax.targets``."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from ipu_model.target import Target, from_constants

FOLDER = Path(__file__).parent


def _read(name: str) -> dict[str, Any]:
    data = json.loads((FOLDER / f"{name}.json").read_text())
    if "base" in data:
        data["constants"] = {**_read(data["base"])["constants"], **data["constants"]}
    return data


@functools.cache
def _target(name: str) -> Target:
    data = _read(name)
    return from_constants(data["name"], data["architecture"], data["constants"])


def mk1() -> Target:
    """First generation (GC2), 1216 tiles at 1.6 GHz."""
    return _target("mk1")


def mk2() -> Target:
    """Second generation (GC200, M2000 and POD systems), 1472 tiles at 1.33 GHz."""
    return _target("mk2")


def bow() -> Target:
    """Second generation, wafer on wafer (Bow), 1472 tiles at 1.85 GHz."""
    return _target("bow")


def c600() -> Target:
    """PCIe card with the ipu21 core (fp8), 1472 tiles."""
    return _target("c600")


def roofline() -> Any:
    """The machine that runs JAX here, as a whole cost model of its own (see `ipu_model.roofline`)."""
    from ipu_model.roofline import this_machine

    return this_machine()


def a100() -> Any:
    """A GPU (NVIDIA A100, 40 GB) as a roofline with its cache, from published figures."""
    from ipu_model.roofline import from_figures

    return from_figures(_read("a100"))
