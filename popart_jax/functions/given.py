"""Checks of parameters and state that a caller passes, before anything is computed or written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from .._compat.jax import Tracer
from ..errors import popart_exception
from ..ops.stopping import DONATED


def check_tree(params: Any, wanted: Collection[str] = (), known: Collection[str] | None = None) -> None:
    """Raise popart_exception, with the leaf's name, for parameters that are not a dictionary of arrays of these names.

    Those in `wanted` have to be there, others may be if they are `known`.
    """
    if not isinstance(params, Mapping):
        raise popart_exception(
            f"Parameters are a dictionary of arrays by name, as to_jax returns them; got {type(params).__name__}."
        )
    held = cast("Mapping[Any, Any]", params)
    for name, x in held.items():
        if not hasattr(x, "dtype") and not isinstance(x, (int, float, list, tuple)):
            raise popart_exception(f"Parameter '{name}' is an array of numbers; got {type(x).__name__}.")
        check_held(f"Parameter '{name}'", x)
    missing = [name for name in wanted if name not in held]
    unknown = [] if known is None else [name for name in held if name not in known]
    if missing or unknown:
        raise popart_exception(
            f"Parameters do not match the model: missing {missing[:10]}, unknown {unknown[:10]}.\n"
            "  fix: pass all the parameters that to_jax returned, trained or not; popart_jax.save takes some of them."
        )


def in_own_order(arrays: Any) -> Any:
    """The arrays of a dictionary, those of NumPy in the other byte order, which JAX does not take, turned."""
    if not isinstance(arrays, Mapping):
        return arrays
    held = cast("Mapping[str, Any]", arrays)
    foreign = [n for n, x in held.items() if isinstance(x, np.ndarray) and not cast("Any", x).dtype.isnative]
    return {**held, **{n: held[n].astype(held[n].dtype.newbyteorder("=")) for n in foreign}} if foreign else held


def check_held(what: str, x: Any) -> None:
    """Raise popart_exception for an array whose memory was given away."""
    if isinstance(x, jax.Array) and not isinstance(x, Tracer) and x.is_deleted():
        raise popart_exception(f"{what} has no numbers any more: {DONATED}")


def check_key(key: Any) -> None:
    """Raise popart_exception for what is no random key of JAX; it is where a second input would stand."""
    kind = getattr(key, "dtype", None)
    if key is not None and (kind is None or not (jnp.issubdtype(kind, jax.dtypes.prng_key) or kind == jnp.uint32)):
        shown = type(key).__name__ if kind is None else f"{kind}{list(key.shape)}"
        raise popart_exception(
            f"The third argument is a random key such as jax.random.key(0); got {shown}.\n"
            "  fix: several inputs are one dictionary by name: fn(params, {'NAME': array, ...})."
        )


def check_state(state: Any, wanted: Collection[str]) -> None:
    """Raise popart_exception unless a state is a dictionary of arrays with exactly the `wanted` names."""
    names = sorted(cast("Mapping[Any, Any]", state)) if isinstance(state, Mapping) else type(state).__name__
    if names != sorted(wanted):
        raise popart_exception(
            f"The state of this model has the names {sorted(wanted)}; got {names}.\n"
            "  fix: begin with fn.initial_state, then pass what the last call returned."
        )


def check_written(params: Mapping[str, Any]) -> None:
    """Raise popart_exception, with its name, for a traced value, which can't be written to a file."""
    for name, x in params.items():
        if isinstance(x, Tracer):
            raise popart_exception(
                f"Parameter '{name}' is being traced, so it has no numbers yet.\n"
                "  fix: return the parameters from the jitted function, and save them outside."
            )


def typed(name: str, x: Any, declared: ir.Value) -> Any:
    """A parameter in the type that the model computes with; popart_exception for integers in place of floats."""
    want, found = None if declared.dtype is None else declared.dtype.numpy(), getattr(x, "dtype", None)
    if want is None or found == want:
        return x
    if found is not None and jnp.issubdtype(want, jnp.floating) and not jnp.issubdtype(found, jnp.inexact):
        raise popart_exception(
            f"Parameter '{name}' has type {found}; the model has {want}, and whole numbers have no gradient.\n"
            f"  fix: give it as floating point numbers, params['{name}'].astype('{want}')."
        )
    return jnp.asarray(x, want)
