"""A builder with ai.onnx operators as its own methods: ``builder.add(a, b)``."""

from __future__ import annotations

from typing import Any

from ..builder import Builder as NewBuilder


class Builder(NewBuilder):
    """Builds models. Operators take tensor names one by one, or as one list; attributes by keyword."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "ai")):
            return self._look_up(name)
        operators = self.aiOnnxOpset9 if "aiOnnx" not in self._chosen else self.aiOnnx
        try:
            method = getattr(operators, name)
        except AttributeError:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute or operator '{name}'") from None

        def operator(*tensors: Any, **attributes: Any) -> Any:
            if tensors and isinstance(tensors[0], (list, tuple)):
                return method(*tensors, **attributes)
            return method(list(tensors), **attributes)

        operator.__name__, operator.__doc__ = name, method.__doc__
        return operator
