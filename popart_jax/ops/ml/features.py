"""Preprocessing of features, labels and dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from ..._compat.jax import Tracer
from ...errors import popart_exception
from ..arrays import Array, is_float, is_text, wrap_indices
from ..later import LATER
from ..registry import Static, lowers
from .scores import ML, floating


@lowers("ArrayFeatureExtractor", 1, domain=ML)
def array_feature_extractor(x: Any, indices: Array, /) -> Any:
    """Elements of the last axis; a vector gives one row."""
    where = wrap_indices(indices.reshape(-1), x.shape[-1])
    if is_text(x) and isinstance(where, Tracer):
        return LATER
    picked = x[..., np.asarray(where)] if is_text(x) else jnp.asarray(x)[..., where]
    return picked[None] if x.ndim == 1 else picked


@lowers("Binarizer", 1, domain=ML)
def binarizer(x: Array, /, *, threshold: float = 0.0) -> Array:
    return (x > np.asarray(threshold, x.dtype)).astype(x.dtype)


@lowers("Scaler", 1, domain=ML)
def scaler(x: Array, /, *, offset: Sequence[float] = (), scale: Sequence[float] = ()) -> Array:
    data = floating(jnp.asarray(x))
    data = data - np.asarray(offset, data.dtype) if len(offset) else data
    return (data * np.asarray(scale, data.dtype) if len(scale) else data).astype(jnp.float32)


@lowers("Normalizer", 1, domain=ML)
def normalizer(x: Array, /, *, norm: str = "MAX") -> Array:
    data = floating(jnp.asarray(x))
    size = {"MAX": lambda: jnp.max(data, -1, keepdims=True), "L1": lambda: jnp.sum(jnp.abs(data), -1, keepdims=True),
            "L2": lambda: jnp.sqrt(jnp.sum(data * data, -1, keepdims=True))}  # fmt: skip
    if norm not in size:
        raise popart_exception(f"Normalizer: norm {norm!r} is none of {sorted(size)}")
    length = size[norm]()
    return (data / jnp.where(length == 0, jnp.ones_like(length), length)).astype(jnp.float32)


@lowers("Imputer", 1, domain=ML)
def imputer(
    x: Array, /, *, imputed_value_floats: Sequence[float] = (), imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0, replaced_value_int64: int = 0,
) -> Array:  # fmt: skip
    whole = not jnp.issubdtype(x.dtype, jnp.floating)
    values, old = (
        (imputed_value_int64s, replaced_value_int64) if whole else (imputed_value_floats, replaced_value_float)
    )
    if len(values) not in (1, x.shape[-1]):
        raise popart_exception(f"Imputer: {len(values)} values for {x.shape[-1]} features")
    missing = jnp.isnan(x) if not whole and np.isnan(old) else x == np.asarray(old, x.dtype)
    return jnp.where(missing, np.asarray(values, x.dtype), x)


@lowers("FeatureVectorizer", 1, domain=ML)
def feature_vectorizer(*xs: Array, inputdimensions: Sequence[int] = ()) -> Array:
    """Inputs side by side, each cut or filled with zeros to its number of features."""
    rows = [jnp.asarray(x).reshape(x.shape[0] if x.ndim > 1 else 1, -1).astype(jnp.float32) for x in xs]
    widths = inputdimensions or [r.shape[1] for r in rows]
    fitted = [jnp.pad(r[:, :w], ((0, 0), (0, max(w - r.shape[1], 0)))) for r, w in zip(rows, widths, strict=True)]
    return jnp.concatenate(fitted, 1)


@lowers("OneHotEncoder", 1, domain=ML)
def one_hot_encoder(
    x: Any, /, *, cats_int64s: Sequence[int] = (), cats_strings: Sequence[str] = (), zeros: int = 1
) -> Array:
    """Numbers are truncated to integers; they match no text category. Of equal categories the last counts.

    A compiled program can't refuse an element that is none of the categories: it has zeros there.
    """
    if is_text(x):
        hot = x[..., None] == np.asarray(cats_strings, object)
    elif len(cats_int64s):
        whole = jnp.trunc(x) if is_float(x) else jnp.asarray(x)
        hot = whole[..., None] == np.asarray(cats_int64s).astype(x.dtype)
    else:
        hot = np.zeros((*x.shape, len(cats_strings)), bool)
    known: Sequence[Any] = cats_strings if is_text(x) or not len(cats_int64s) else cats_int64s
    hot = hot & np.array([name not in known[i + 1 :] for i, name in enumerate(known)], bool)
    if not zeros and not isinstance(hot, Tracer) and not np.all(np.any(np.asarray(hot), -1)):
        raise popart_exception("OneHotEncoder: zeros is 0, but an element is none of the categories")
    return hot.astype(np.float32)


def _mapped(x: Any, keys: Sequence[Any], values: np.ndarray, default: Any) -> Any:
    """Elements looked up among keys, the last of equal keys counting; NaN finds NaN."""
    if isinstance(x, Tracer):
        return LATER if values.dtype.kind in "OUS" else _traced_map(x, keys, values, default)
    table = {_plain(k): v for k, v in zip(keys, values, strict=True)}
    flat = [table.get(_plain(e), default) for e in np.asarray(x).reshape(-1).tolist()]
    return np.asarray(flat, values.dtype).reshape(np.shape(x)) if flat else np.zeros(np.shape(x), values.dtype)


def _traced_map(x: Any, keys: Sequence[Any], values: np.ndarray, default: Any) -> Array:
    wanted = np.asarray(keys, x.dtype)
    same = x[..., None] == wanted
    if jnp.issubdtype(x.dtype, jnp.floating):
        same |= jnp.isnan(x)[..., None] & np.isnan(wanted)
    last = len(keys) - 1 - jax.lax.argmax(same[..., ::-1], same.ndim - 1, np.int32)
    return jnp.where(same.any(-1), jnp.asarray(values)[last], jnp.asarray(default, values.dtype))


def _plain(key: Any) -> Any:
    plain = cast("np.generic[Any]", key).item() if isinstance(key, np.generic) else key
    return "nan" if isinstance(plain, float) and np.isnan(plain) else plain


def _one(*candidates: Any) -> np.ndarray | None:
    return next(
        (np.asarray(c) if not _holds_text(c) else np.asarray(c, object) for c in candidates if c is not None), None
    )


def _holds_text(c: Any) -> bool:
    return not isinstance(c, np.ndarray) and len(c) > 0 and isinstance(c[0], str)


@lowers("LabelEncoder", 4, domain=ML)
def label_encoder(
    x: Any, /, *, default_float: float = -0.0, default_int64: int = -1, default_string: str = "_Unused",
    default_tensor: Any = None, keys_floats: Sequence[float] | None = None, keys_int64s: Sequence[int] | None = None,
    keys_strings: Sequence[str] | None = None, keys_tensor: Any = None, values_floats: Sequence[float] | None = None,
    values_int64s: Sequence[int] | None = None, values_strings: Sequence[str] | None = None, values_tensor: Any = None,
) -> Any:  # fmt: skip
    floats = None if values_floats is None else np.asarray(values_floats, np.float32)
    keys = _one(
        keys_tensor, keys_strings, keys_int64s, None if keys_floats is None else np.asarray(keys_floats, np.float32)
    )
    values = _one(values_tensor, values_strings, values_int64s, floats)
    if keys is None or values is None:
        raise popart_exception("LabelEncoder: keys and values must both be given")
    kind = "O" if values.dtype.kind in "OUS" else values.dtype.kind
    default = {"O": default_string, "i": default_int64}.get(kind, default_float)
    return _mapped(x, keys.tolist(), values, default if default_tensor is None else np.asarray(default_tensor).item())


@lowers("LabelEncoder", 2, domain=ML)
def label_encoder_2(
    x: Any, /, *, default_float: float = -0.0, default_int64: int = -1, default_string: str = "_Unused",
    keys_floats: Sequence[float] | None = None, keys_int64s: Sequence[int] | None = None,
    keys_strings: Sequence[str] | None = None, values_floats: Sequence[float] | None = None,
    values_int64s: Sequence[int] | None = None, values_strings: Sequence[str] | None = None,
) -> Any:  # fmt: skip
    return label_encoder(
        x, default_float=default_float, default_int64=default_int64, default_string=default_string,
        keys_floats=keys_floats, keys_int64s=keys_int64s, keys_strings=keys_strings, values_floats=values_floats,
        values_int64s=values_int64s, values_strings=values_strings,
    )  # fmt: skip


@lowers("LabelEncoder", 1, domain=ML)
def label_encoder_1(
    x: Static, /, *, classes_strings: Sequence[str] = (), default_int64: int = -1, default_string: str = "_Unused"
) -> Any:
    """Texts to their positions, or positions to texts."""
    numbers, names = np.arange(len(classes_strings)), np.asarray(classes_strings, object)
    if is_text(np.asarray(x)):
        return _mapped(x, classes_strings, numbers, default_int64)
    return _mapped(x, numbers.tolist(), names, default_string)


@lowers("CategoryMapper", 1, domain=ML)
def category_mapper(
    x: Static, /, *, cats_int64s: Sequence[int] = (), cats_strings: Sequence[str] = (), default_int64: int = -1,
    default_string: str = "_Unused",
) -> Any:  # fmt: skip
    if is_text(np.asarray(x)):
        return _mapped(x, cats_strings, np.asarray(cats_int64s, np.int64), default_int64)
    return _mapped(x, cats_int64s, np.asarray(cats_strings, object), default_string)


@lowers("DictVectorizer", 1, domain=ML)
def dict_vectorizer(
    x: Any, /, *, int64_vocabulary: Sequence[int] = (), string_vocabulary: Sequence[str] = ()
) -> np.ndarray:
    """A dictionary (or a list of them) as rows of values in the order of the vocabulary."""
    words = int64_vocabulary or string_vocabulary
    maps = cast("Sequence[Mapping[Any, Any]]", [x] if isinstance(x, Mapping) else x)
    rows = [[m.get(w, 0) for w in words] for m in maps]
    return np.asarray(rows, np.float32 if all(isinstance(v, float) for r in rows for v in r if v) else None)


def _to_int(v: Any) -> int:
    return int(float(v))


@lowers("CastMap", 1, domain=ML)
def cast_map(x: Any, /, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1) -> np.ndarray:
    """Values in the order of their keys, or (SPARSE) each at the position of its key."""
    kinds = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}
    if cast_to not in kinds or map_form not in ("DENSE", "SPARSE"):
        raise popart_exception(f"CastMap: cast_to {cast_to!r}, map_form {map_form!r}")
    convert = {"TO_FLOAT": float, "TO_INT64": _to_int, "TO_STRING": str}[cast_to]
    missing = "0" if cast_to == "TO_STRING" else 0
    keys = sorted(x) if map_form == "DENSE" else range(max_map)
    return np.asarray([[convert(x[k]) if k in x else missing for k in keys]], kinds[cast_to])


@lowers("ZipMap", 1, domain=ML)
def zip_map(
    x: Array, /, *, classlabels_int64s: Sequence[int] = (), classlabels_strings: Sequence[str] = ()
) -> list[dict[Any, Any]]:
    """Rows as dictionaries, of numbers or, under jit, of scalar arrays."""
    labels = classlabels_int64s or classlabels_strings
    if np.shape(x)[-1] != len(labels):
        raise popart_exception(f"ZipMap: {len(labels)} labels for {np.shape(x)[-1]} columns")
    rows = x if isinstance(x, Tracer) else np.asarray(x)
    return [dict(zip(labels, row, strict=True)) for row in rows.reshape(-1, len(labels))]
