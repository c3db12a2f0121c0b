"""`jax.numpy` for modules that are also read without tracing anything; it is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .random_state import random_state_kept


class _Later:
    @random_state_kept()
    def __getattr__(self, name: str) -> Any:
        import jax.numpy

        found = self.__dict__[name] = getattr(jax.numpy, name)
        return found


if TYPE_CHECKING:
    import jax.numpy as jnp
else:
    jnp = _Later()
