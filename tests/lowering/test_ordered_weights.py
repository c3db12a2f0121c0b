"""Products with weights in the library's own order, against NumPy; also where the library reads them otherwise."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from popart_jax._compat.xla import device_of_one_thread
from popart_jax.lowering.kernels import onednn, ordered_weights

RNG = np.random.default_rng(0)
SHAPES = [(1, 3, 5), (5, 784, 500), (49, 130, 66), (3, 65, 65), (7, 64, 64), (2, 1000, 1)]
LIBRARY = "weights_prepacked"

pytestmark = pytest.mark.skipif(not onednn.usable(), reason="the library is not there")


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_weights, "_traced", {})
    monkeypatch.setattr(ordered_weights, "_read_so", {})


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shapes of each trial; a shape of one row is not read so."""
    seen: list[Any] = []

    def tried(shapes: list[Any], client: Any) -> list[bool]:
        seen.append(shapes)
        return [rows > 1 for rows, *_ in shapes]

    monkeypatch.setattr(ordered_weights, "_tried", tried)
    return seen


def numbers(shape: tuple[int, int, int], kind: str) -> tuple[Any, Any, Any]:
    """Rows, weights and their product; of bytes the ends of the range too."""
    rows, terms, columns = shape
    if kind == "float32":
        x, w = (RNG.normal(size=s).astype(kind) for s in ((rows, terms), (terms, columns)))
        return x, w, x.astype(np.float64) @ w
    x, w = RNG.integers(0, 256, (rows, terms)), RNG.integers(-128, 128, (terms, columns))
    x[0], w[:, 0] = 255, -128
    return x.astype(np.uint8), w.astype(np.int8), x @ w


@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_products_are_those_of_numpy(kind: str) -> None:
    """By the library, and from the ordered weights without it; JAX orders them as NumPy does."""
    cases = [numbers(shape, kind) for shape in SHAPES]

    def both(rows: Any, weights: Any) -> Any:
        ordered = [ordered_weights.in_order(w) for w in weights]
        own = [ordered_weights._own_product(x, flat, columns=w.shape[1])
               for x, w, flat in zip(rows, weights, ordered, strict=True)]  # fmt: skip
        called = [ordered_weights.product(x, w) for x, (_, w, _) in zip(rows, cases, strict=True)]
        return ordered, own, called

    ordered, *found = jax.jit(both)([x for x, *_ in cases], [w for _, w, _ in cases])
    for flat, (_, w, _) in zip(ordered, cases, strict=True):
        np.testing.assert_array_equal(flat, ordered_weights.in_order(w))
    for results in found:
        for y, (*_, exact) in zip(results, cases, strict=True):
            assert y.dtype == (np.float32 if kind == "float32" else np.int32)
            np.testing.assert_allclose(y, exact, rtol=0, atol=1e-3 if kind == "float32" else 0)


def test_leading_dimensions_and_vmap() -> None:
    x, w, exact = numbers((12, 100, 70), "uint8")
    found = jax.jit(lambda x: ordered_weights.product(x, w))(x.reshape(3, 4, 100))
    np.testing.assert_array_equal(found, exact.reshape(3, 4, 70))
    found = jax.jit(jax.vmap(lambda x: ordered_weights.product(x, w)))(x.reshape(3, 4, 100))
    np.testing.assert_array_equal(found, exact.reshape(3, 4, 70))


def test_programs_for_files_call_no_library() -> None:
    x, w, _ = numbers((3, 100, 70), "uint8")
    exported = jax.export.export(jax.jit(lambda x: ordered_weights.product(x, w)), platforms=["cpu"])(x)
    assert "onednn" not in exported.mlir_module()


def test_shapes_are_tried_together_and_once(trials: list[Any]) -> None:
    cases = [numbers(shape, "uint8") for shape in SHAPES[1:4]]
    program = jax.jit(lambda xs: [ordered_weights.product(x, w) for x, (_, w, _) in zip(xs, cases, strict=True)])
    text = program.lower([x for x, *_ in cases]).as_text()
    assert text.count(LIBRARY) == 3
    jax.jit(lambda x: ordered_weights.product(x, cases[0][1])).lower(cases[0][0])
    assert [[shape[:3] for shape in shapes] for shapes in trials] == [SHAPES[1:4]]


def test_a_product_whose_weights_are_read_otherwise_takes_plain_ones(trials: list[Any]) -> None:
    x, w, exact = numbers(SHAPES[0], "uint8")
    program = jax.jit(lambda x: ordered_weights.product(x, w))
    assert LIBRARY not in program.lower(x).as_text()
    np.testing.assert_array_equal(program(x), exact)
    assert len(trials) == 1


def test_a_trial_tells_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [kind for kind in ("uint8", "float32") if ordered_weights._orders(kind)]
    shapes = [ordered_weights.Shape(256, 256, 320, kind) for kind in kinds]
    assert all(ordered_weights._tried(shapes))
    right = onednn.product_in_order

    def turned(rows: Any, flat: Any, columns: int) -> Any:
        return right(rows, flat.reshape(-1, 2)[:, ::-1].reshape(-1), columns)

    monkeypatch.setattr(onednn, "product_in_order", turned)
    assert not any(ordered_weights._tried(shapes))
    monkeypatch.setattr(onednn, "product_in_order", lambda *_: 1 / 0)
    assert not any(ordered_weights._tried(shapes))


def test_each_client_has_its_trial() -> None:
    x, w, exact = numbers((3, 100, 70), "uint8")
    program = jax.jit(lambda x: ordered_weights.product(x, w))
    with jax.default_device(device_of_one_thread()):
        np.testing.assert_array_equal(program(x), exact)
    np.testing.assert_array_equal(program(x), exact)
    assert len(ordered_weights._read_so) == 2
