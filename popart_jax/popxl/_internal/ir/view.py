"""Regions of tensors, by the name that programs import them from."""

from ..region import Region

__all__ = ["Region"]
