"""Products with weights that lie in the order in which oneDNN reads them.

The library orders plain weights at each call; told that they come ordered, it reads them as they are. It says nowhere
which order it expects: blocks of 64 columns, in them rows of 4 bytes' worth of terms. So each shape of product is tried
once a process, on the client that runs it, with all shapes that were traced until then in one program; where the
library reads otherwise, weights are brought back and multiplied as usual. With vectors of 512 bits it read so in 292
of 300 random shapes (1, 2 and 8 threads); with shorter ones it leaves floats in their order (jaxlib 0.10).

In us, by ordered and by plain weights (Intel Xeon, two cores): a row of 3,136 bytes to 512 120 and 204, 8 rows 143 and
211, 64 x 784 to 512 85 and 115; as convolutions of single places, 7 x 7 x 960 bytes to 160 51 and 143, to 320 51 and
170, 14 x 14 x 384 to 64 35 and 87, 56 x 56 x 24 to 144 156 and 189; 7 x 7 x 512 bytes to 512 by 3 x 3 265 and 736,
14 x 14 x 256 to 256 255 and 335.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._compat.jax import is_symbolic_dim, setting
from ...buffers import aligned_copy
from ...ops.kernels import note_call
from . import onednn
from .either import either

_COLUMNS, _WORDS = 64, 16
"""Columns, and words of terms, to whose multiples the library fills up."""
_MOST_ROWS = 1 << 14
_ONES = 256
"""Weights that are not zero in a trial."""
_WEIGHTS = {"uint8": np.dtype(np.int8), "float32": np.dtype(np.float32)}
"""By type of the rows."""


class Shape(NamedTuple):
    """Of a product."""

    rows: int
    terms: int
    columns: int
    kind: str  # type of the rows


_traced: dict[Shape, None] = {}
_read_so: dict[tuple[Any, Shape], bool] = {}


def suits(kind: str, rows: Sequence[Any], w: Any) -> bool:
    """Whether data of this type, with these dimensions before the last, are multiplied so with weights (..., M)."""
    return _may_be(rows, w) and _orders(kind)


def is_read_so(kind: str, rows: Sequence[Any], w: Any) -> bool:
    """Whether the library reads them so; for weights that a program has as arguments, which it could not bring back."""
    if not _may_be(rows, w) or (_found(kind) and not _orders(kind)):
        return False
    *terms, columns = w.shape
    return _is_read_so(Shape(math.prod(rows), math.prod(terms), columns, kind))


def _may_be(rows: Sequence[Any], w: Any) -> bool:
    known = not any(map(is_symbolic_dim, (*rows, *w.shape))) and w.size > 0
    return known and 0 < math.prod(rows) <= _MOST_ROWS and onednn.usable()


def is_filled(w: Any) -> bool:
    """Whether weights (..., M) have as many terms and columns as the library wants, so that ordering turns them."""
    return w.shape[-1] % _COLUMNS == 0 and math.prod(w.shape[:-1]) % (_WORDS * _word(w.dtype)) == 0


def product(x: Any, w: Any) -> jax.Array:
    """Product of rows (..., K) with weights (..., M) of K terms: uint8 with int8 in INT32, FLOAT with FLOAT."""
    note_call(PRODUCT.name)
    rows = x.reshape(-1, x.shape[-1])
    _traced[_shape(rows, w.shape[-1])] = None
    return PRODUCT.bind(rows, in_order(w), columns=w.shape[-1]).reshape(*x.shape[:-1], w.shape[-1])


def in_order(w: Any) -> Any:
    """Weights (..., M) as the library reads them, in one dimension."""
    if is_filled(w) and _word(w.dtype) == 1:  # without merging dimensions of turned weights, which copies them
        blocks = w.reshape(*w.shape[:-1], -1, _COLUMNS)
        return blocks.transpose(-2, *range(w.ndim - 1), -1).reshape(-1)
    flat, word = w.reshape(-1, w.shape[-1]), _word(w.dtype)
    more = [(0, -n % block) for n, block in zip(flat.shape, (_WORDS * word, _COLUMNS), strict=True)]
    terms, columns = (n + after for n, (_, after) in zip(flat.shape, more, strict=True))
    blocks = _arrays_like(w).pad(flat, more).reshape(terms // word, word, columns // _COLUMNS, _COLUMNS)
    return blocks.transpose(2, 0, 3, 1).reshape(-1)


def _arrays_like(w: Any) -> Any:
    return np if isinstance(w, np.ndarray) else jnp


def _word(kind: Any) -> int:
    """Terms that lie side by side."""
    return 4 // np.dtype(kind).itemsize


def _blocks(flat: Any, columns: int) -> Any:
    """Ordered weights by block of columns, word of terms, column, and term in its word."""
    return flat.reshape(-(-columns // _COLUMNS), -1, _COLUMNS, _word(flat.dtype))


def _plain(flat: Any, terms: int, columns: int) -> Any:
    """The weights (K, M) that `in_order` ordered."""
    blocks = _blocks(flat, columns)
    return blocks.transpose(1, 3, 0, 2).reshape(-1, blocks.shape[0] * _COLUMNS)[:terms, :columns]


def _shape(rows: Any, columns: int) -> Shape:
    count, terms = rows.shape
    return Shape(count, terms, columns, str(rows.dtype))


def _type_of_product(rows: Any, _: Any, *, columns: int) -> Any:
    kind = np.float32 if rows.dtype == np.float32 else np.int32
    return rows.update(shape=(rows.shape[0], columns), dtype=np.dtype(kind))


def _by_library(rows: jax.Array, flat: jax.Array, *, columns: int) -> jax.Array:
    if _is_read_so(_shape(rows, columns)):
        return onednn.product_in_order(rows, flat, columns)
    w = _plain(flat, rows.shape[1], columns)
    return rows @ w if rows.dtype == np.float32 else onednn.product(rows, w)


def _own_product(rows: jax.Array, flat: jax.Array, *, columns: int) -> jax.Array:
    w = _plain(flat, rows.shape[1], columns)
    if rows.dtype == np.float32:
        return rows @ w
    total = jnp.matmul((rows.astype(np.int16) - 128).astype(np.int8), w, preferred_element_type=jnp.int32)
    return total + 128 * jnp.sum(w, 0, dtype=np.int32)


PRODUCT = either("product_in_order", _by_library, _own_product, _type_of_product)


def _is_read_so(shape: Shape) -> bool:
    """Whether the library reads the weights of this product in order, in the client that a program is lowered for."""
    client = setting("jax_default_device")
    if (client, shape) not in _read_so:
        shapes = [s for s in {**_traced, shape: None} if (client, s) not in _read_so]
        with ThreadPoolExecutor(1) as other:  # whose programs are not written into the one that is being lowered
            found = other.submit(_tried, shapes, client).result()
        _read_so.update(zip(((client, s) for s in shapes), found, strict=True))
    return _read_so[client, shape]


def has_long_vectors() -> bool:
    """Whether the library has vectors of 512 bits: with shorter ones it leaves weights of floats in their order."""
    return _orders("float32")


def _orders(kind: str) -> bool:
    """Whether it has an order of its own for rows of this type; with many threads it has another for some shapes."""
    return any(_found(kind)) or _orders_some(kind)


def _found(kind: str) -> list[bool]:
    """Of the shapes that were tried until now."""
    return [read for (_, shape), read in [*_read_so.items()] if shape.kind == kind]


@cache
def _orders_some(kind: str) -> bool:
    return any(_tried([Shape(rows, 256, 320, kind) for rows in (1, 16, 256)]))


def _tried(shapes: Sequence[Shape], client: Any = None) -> list[bool]:
    """Whether each product is right; one program computes all."""
    trials = [_trial(shape) for shape in shapes]

    def products(operands: Sequence[Any]) -> list[jax.Array]:
        return [onednn.product_in_order(*x, columns=s.columns) for x, s in zip(operands, shapes, strict=True)]

    with jax.default_device(client):
        found: Any = onednn.tried(products, [operands for operands, _ in trials])
    if found is None:
        return [False] * len(shapes)
    return [bool(np.all(np.asarray(y) == expected)) for y, (_, expected) in zip(found, trials, strict=True)]


def _trial(shape: Shape) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Equal rows that number their terms, ordered weights that are zero but for a few ones; each row of the product."""
    weights, row, drawn = _WEIGHTS[shape.kind], np.arange(shape.terms) % 251, np.random.default_rng(0)
    k, n = np.divmod(np.unique(drawn.integers(shape.terms * shape.columns, size=_ONES)), shape.columns)
    word, many = _word(weights), -(-shape.columns // _COLUMNS)
    size = many * _COLUMNS * (shape.terms + -shape.terms % (_WORDS * word))
    flat = aligned_copy(np.broadcast_to(np.zeros((), weights), size))
    _blocks(flat, shape.columns)[n // _COLUMNS, k // word, n % _COLUMNS, k % word] = 1
    rows = np.broadcast_to(row, (shape.rows, shape.terms)).astype(shape.kind)
    return (rows, flat), np.bincount(n, row[k], shape.columns)
