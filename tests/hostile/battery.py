"""All cases by class."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from . import bodies, element_types, feeds, files, sizes, structure, tensors, values, windows
from .build import Case

CLASSES = {
    "sizes": sizes.sizes,
    "growth": sizes.growth,
    "versions and domains": structure.versions,
    "graphs": structure.graphs,
    "attributes and operands": structure.attributes,
    "functions": bodies.functions,
    "bodies": bodies.bodies,
    "stored tensors": tensors.stored,
    "sparse tensors": tensors.sparse,
    "external data": tensors.external,
    "files and bytes": files.files,
    "declared inputs": files.declared,
    "texts": files.texts,
    "nothing and scalars": files.empties,
    "extreme numbers": values.numbers,
    "half precision": values.halves,
    "windows and indices": windows.windows,
    "feeds": feeds.layouts,
    "types": element_types.types,
}
"""What makes the cases of each class."""


_NOT_COMPILED = ("texts",)
"""Classes of values that no compiled program takes."""


@cache
def cases(of: str) -> tuple[Case, ...]:
    """The cases of a class."""
    return tuple(replace(c, compiled=False) if of in _NOT_COMPILED else c for c in CLASSES[of]())
