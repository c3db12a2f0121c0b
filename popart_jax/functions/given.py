"""What a caller gave as parameters, looked at before anything is computed or written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax.numpy as jnp
import onnx_ir as ir

from ..errors import popart_exception


def check_tree(params: Any, wanted: Collection[str] = (), known: Collection[str] | None = None) -> None:
    """Refuse what is no dictionary of arrays, lacks one of the `wanted` names, or has one that is not `known`.

    Raises
    ------
    popart_exception
        It names the leaf.
    """
    if not isinstance(params, Mapping):
        raise popart_exception(
            f"Parameters are a dictionary of arrays by name, as to_jax returns them; got {type(params).__name__}."
        )
    for name, x in params.items():
        if not hasattr(x, "dtype") and not isinstance(x, (int, float, list, tuple)):
            raise popart_exception(f"Parameter '{name}' is an array of numbers; got {type(x).__name__}.")
    missing = [name for name in wanted if name not in params]
    unknown = [] if known is None else [name for name in params if name not in known]
    if missing or unknown:
        raise popart_exception(
            f"Parameters do not match the model: missing {missing[:10]}, unknown {unknown[:10]}.\n"
            "  fix: pass all the parameters that to_jax returned, trained or not; popart_jax.save takes some of them."
        )


def typed(name: str, x: Any, declared: ir.Value) -> Any:
    """A parameter in the type that the model computes with.

    Raises
    ------
    popart_exception
        Whole numbers where the model has real ones.
    """
    want, found = None if declared.dtype is None else declared.dtype.numpy(), getattr(x, "dtype", None)
    if want is None or found == want:
        return x
    if found is not None and jnp.issubdtype(want, jnp.floating) and not jnp.issubdtype(found, jnp.inexact):
        raise popart_exception(
            f"Parameter '{name}' has type {found}; the model has {want}, and whole numbers have no gradient.\n"
            f"  fix: give it as floating point numbers, params['{name}'].astype('{want}')."
        )
    return jnp.asarray(x, want)
