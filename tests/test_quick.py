"""Programs that tests share: what has the same text is compiled once, what calls Python is not shared."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from . import quick

X = jnp.arange(3, dtype=jnp.float32)


def test_what_has_the_same_text_is_compiled_once() -> None:
    quick.forget()
    first, second, other = (jax.jit(lambda x, i=i: x * i) for i in (3, 3, 4))
    np.testing.assert_array_equal(first(X), [0, 3, 6])
    np.testing.assert_array_equal(second(X), [0, 3, 6])
    assert len(quick._PROGRAMS) == 1
    np.testing.assert_array_equal(other(X), [0, 4, 8])
    assert len(quick._PROGRAMS) == 2


def test_calls_of_python_are_not_shared() -> None:
    quick.forget()
    for add in (1, 2):
        called = jax.jit(lambda x, add=add: jax.pure_callback(lambda v: v + np.float32(add), x, x))
        np.testing.assert_array_equal(called(X), np.arange(3) + add)
