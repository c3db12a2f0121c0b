"""Checkpoints of training with `to_jax`: parameters, optimizer state, random keys and counters, as one tree.

A path that ends in ``.safetensors`` is a file of that format; any other is a folder written by Orbax. Both are complete
or absent, and restore every number exactly, so that training continues as if it had never stopped.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from ipu_model.whole_files import replace_folder

from .._compat.jax import flat_tree
from ..errors import popart_exception
from ..model.files.orbax_files import checkpointer, orbax, read_part
from ..model.files.safetensors import read_safetensors, write_safetensors
from .precision import precision

_FILE = ".safetensors"


def save_checkpoint(path: str | Path, tree: Any) -> None:
    """Save a tree of arrays and numbers: parameters, the optimizer's state, a random key, the step.

    Parameters
    ----------
    path : path
        ``NAME.safetensors`` for a file; anything else is a folder written by Orbax (the extra ``checkpoints``).
    tree : pytree
        Of arrays, random keys and Python's numbers.

    Raises
    ------
    popart_exception
        A leaf that is neither an array nor a number.
    OSError
        It can't be written; an earlier checkpoint at the path is kept.
    ImportError
        Orbax is not installed.

    Examples
    --------
    >>> save_checkpoint("run.safetensors", {"params": params, "optimizer": state, "step": 7})  # doctest: +SKIP
    >>> run = load_checkpoint("run.safetensors", like={"params": params, ...})  # doctest: +SKIP
    """
    target, leaves = Path(path).absolute(), _leaves(tree)
    arrays = {name: _stored(name, leaf) for name, leaf in leaves.items()}
    if target.suffix == _FILE:
        write_safetensors(target, {n: np.asarray(x) for n, x in arrays.items()})
        return
    args = orbax().args
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    kinds = [[name, *_kind(x)] for name, x in arrays.items()]
    try:
        parts = args.Composite(
            kinds=args.JsonSave({"kinds": kinds}),
            arrays=args.StandardSave({str(i): x for i, x in enumerate(arrays.values()) if x.size} or {"": 0}),
        )  # Orbax refuses empty arrays
        with checkpointer() as writer:
            writer.save(part, args=parts)
        replace_folder(part, target)
    except (ValueError, RuntimeError) as err:
        raise OSError(f"The checkpoint '{path}' can't be written: {err}") from err
    finally:
        shutil.rmtree(part, ignore_errors=True)


def load_checkpoint(path: str | Path, like: Any) -> Any:
    """Load a tree that `save_checkpoint` saved, bit for bit.

    Parameters
    ----------
    path : path
        The file or folder.
    like : pytree
        A tree of the same structure, as training starts with; it gives the kind of each leaf and the devices that it
        is on. Its numbers are not used.

    Raises
    ------
    popart_exception
        The checkpoint can't be read, or lacks leaves, has others, or has them in another shape or type.
    OSError
        There is no checkpoint at the path.
    """
    source, wanted = Path(path).absolute(), _leaves(like)
    if source.suffix == _FILE:
        found: Mapping[str, Any] = read_safetensors(source)
    else:
        found = _from_orbax(source, wanted)
    _require_same(path, wanted, found)
    with precision(wide=True):
        leaves = [_restored(found[name], leaf) for name, leaf in wanted.items()]
    return jax.tree.unflatten(flat_tree(like)[1], leaves)


def _leaves(tree: Any) -> dict[str, Any]:
    leaves = cast("list[tuple[Any, Any]]", jax.tree_util.tree_leaves_with_path(tree))
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _stored(name: str, leaf: Any) -> Any:
    """A leaf as an array; a random key as its key data."""
    if _is_key(leaf):
        return jax.random.key_data(leaf)
    if isinstance(leaf, (jax.Array, np.ndarray)):
        return cast("Any", leaf)
    if isinstance(leaf, (bool, int, float, np.generic)):
        return np.asarray(leaf)
    raise popart_exception(f"Leaf {name} is a {type(leaf).__name__}; a checkpoint holds arrays and numbers.")


def _restored(x: Any, leaf: Any) -> Any:
    """A stored array as a leaf of the same kind as `leaf`."""
    if _is_key(leaf):
        return cast("jax.Array", jax.random.wrap_key_data(jnp.asarray(x), impl=jax.random.key_impl(leaf)))
    if isinstance(leaf, jax.Array):
        return x if isinstance(x, jax.Array) else jax.device_put(np.array(x), leaf.sharding)
    return np.array(x) if isinstance(leaf, np.ndarray) else type(leaf)(np.asarray(x).item())


def _from_orbax(path: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    if not path.is_dir():
        raise FileNotFoundError(f"There is no checkpoint '{path}'.")
    args = orbax().args
    kinds = _kinds_of(path, read_part(path, "kinds", args.JsonRestore()))
    places = {n: x.sharding for n, x in wanted.items() if isinstance(x, jax.Array) and not _is_key(x)}
    with precision(wide=True):
        shapes = {
            str(i): jax.ShapeDtypeStruct(shape, kind, sharding=places.get(name))
            for i, (name, kind, shape) in enumerate(kinds)
            if 0 not in shape
        }
        found = read_part(path, "arrays", args.StandardRestore(shapes or {"": 0}))
    return {name: np.zeros(shape, kind) if 0 in shape else found[str(i)] for i, (name, kind, shape) in enumerate(kinds)}


def _kinds_of(path: Path, stored: Any) -> list[tuple[str, np.dtype, tuple[int, ...]]]:
    """Name, type and shape of each leaf, as stored in the checkpoint; popart_exception for anything else."""
    try:
        return [(name, np.dtype(kind), tuple(shape)) for name, kind, shape in stored["kinds"]]
    except (KeyError, TypeError, ValueError) as err:
        raise popart_exception(f"The checkpoint '{path}' can't be read: {err}") from err


def _require_same(path: str | Path, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    wrong = [f"it lacks {n}" for n in wanted if n not in found] + [
        f"{n} is in it alone" for n in found if n not in wanted
    ]
    for name, leaf in wanted.items():
        if name not in found:
            continue
        here, there = _kind(_stored(name, leaf)), _kind(found[name])
        if here != there and not (here[1] == there[1] == () and not hasattr(leaf, "dtype")):
            wrong.append(f"{name} is {there[0]}{list(there[1])} in it and {here[0]}{list(here[1])} here")
    if wrong:
        raise popart_exception(f"The checkpoint '{path}' is of another tree: {'; '.join(wrong[:10])}.")


def _kind(x: Any) -> tuple[str, tuple[int, ...]]:
    return str(x.dtype), tuple(x.shape)
