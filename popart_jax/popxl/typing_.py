"""Type annotations that `create_graph` gives a meaning."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


class _Alias:
    """A unique annotation object; `create_graph` recognises it by identity."""

    def __init__(self, name: str, tp: Any) -> None:
        self.__name__, self.__supertype__ = name, tp

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{self.__name__} should only be used as an annotation.")

    def __repr__(self) -> str:
        return f"popxl.{self.__name__}"

    def __hash__(self) -> int:
        return id(self)


def NewAliasAnnotation(name: str, tp: T) -> T:
    """A new annotation that stands for the type `tp` and is equal only to itself."""
    return _Alias(name, tp)  # pyright: ignore[reportReturnType]
