"""All cases by class."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from . import arrays, bodies, element_types, feeds, files, names, protos, sizes, structure, tensors, values, windows
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
    "packed data": protos.packed,
    "fields without effect": protos.unused,
    "wire form": protos.wire,
    "PopART's names": protos.reserved,
    "scopes": names.scopes,
    "left out": names.left_out,
    "functions in use": names.local,
    "layouts of each type": arrays.held,
    "almost arrays": arrays.objects,
    "bits": arrays.bits,
    "shapes": arrays.shapes,
    "ends of attributes": arrays.ends,
}
"""Generators of the cases of each class."""


_NOT_COMPILED = ("texts",)
"""Classes whose values compiled programs can't take."""


@cache
def cases(of: str) -> tuple[Case, ...]:
    """The cases of a class."""
    return tuple(replace(c, compiled=False) if of in _NOT_COMPILED else c for c in CLASSES[of]())
