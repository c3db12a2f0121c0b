"""Regions of tensors, by the name that programs import them from."""

from ..values import Region

__all__ = ["Region"]
