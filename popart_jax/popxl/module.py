"""Base class of objects that build graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ._building.tensor import Tensor


class Module:
    """A callable with state of its own; `Ir.create_graph` uses the signature of `build`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor | Iterable[Tensor] | None:
        """Call `build`."""
        return self.build(*args, **kwargs)

    def build(self, *args: Any, **kwargs: Any) -> Tensor | Iterable[Tensor] | None:
        """Build the graph; subclasses implement it.

        Raises
        ------
        NotImplementedError
            The subclass did not.
        """
        raise NotImplementedError("Your popxl.Module must override `build` method")
