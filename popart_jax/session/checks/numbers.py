"""`enableFloatingPointChecks`: on IPU-like devices, a step whose results hold NaN or infinity is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...enums import DeviceType
from ...errors import poplar_application_runtime_error


def is_enabled(options: Any, device: DeviceType) -> bool:
    """Whether the results of steps are checked."""
    return bool(options.enableFloatingPointChecks) and device in (DeviceType.Ipu, DeviceType.OfflineIpu)


def require_finite(tensors: Mapping[str, np.ndarray]) -> None:
    """Raise poplar_application_runtime_error, with the names, where an anchor or a variable holds NaN or infinity."""
    bad = [n for n, x in tensors.items() if jnp.issubdtype(x.dtype, jnp.floating) and not _finite(x)]
    if bad:
        raise poplar_application_runtime_error(
            f"Floating point exception: tensor(s) {bad} hold NaN or infinity after this step.\n"
            "  fix: lower the loss scale or the learning rate, or switch enableFloatingPointChecks off to go on."
        )


def _finite(x: np.ndarray) -> bool:
    return bool(np.isfinite(x.astype(np.float32)).all())
