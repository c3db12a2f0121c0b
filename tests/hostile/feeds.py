"""Feeds as programs hold them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto

from .build import EITHER, ERROR, F32, I64, VALUE, Case, X, info, model, node

INTS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def layouts() -> Iterator[Case]:
    """Feeds as programs hold them."""
    made = model(node("Mul", ["x", "k"], ["y"], name="the_node"), inputs={"x": X}, weights={"k": np.array(3, F32)})
    big = np.arange(60, dtype=F32).reshape(4, 15)
    given: dict[str, Any] = {
        "Fortran-ordered": np.asfortranarray(X),
        "strided": big[::2, ::5],
        "reversed": X[::-1, ::-1],
        "a broadcast view": np.broadcast_to(X[:1], (2, 3)),
        "transposed": np.ascontiguousarray(X.T).T,
        "read-only": _frozen(X),
        "big-endian": X.astype(">f4"),
        "unaligned": _unaligned(X),
        "a masked array": np.ma.masked_array(X, mask=X > 99),
        "a matrix": np.matrix(X),
        "a list of lists": X.tolist(),
        "float64": X.astype(np.float64),
        "int64": X.astype(I64),
        "a field of a record": _record(X),
        "float16": X.astype(np.float16),
        "a zero-stride view": np.lib.stride_tricks.as_strided(X, (2, 3), (0, 4)),
        "bool": X > 2,
        "a buffer": memoryview(X),
        "a generator's list": [tuple(r) for r in X],
        "a subclass": X.view(_Sub),
    }
    for name, x in given.items():
        with np.errstate(all="ignore"):
            want = np.asarray(x, F32) * 3
        yield Case(
            name,
            made,
            {"x": x},
            VALUE if name not in ("bool", "a buffer", "a list of lists", "a generator's list") else "either",
            want={"y": want},
        )
    yield Case("a jax array", made, {"x": "jax"}, VALUE, want={"y": X * 3})
    yield Case("a torch tensor", made, {"x": "torch"}, VALUE, want={"y": X * 3})
    wrong: dict[str, Any] = {
        "masked elements": np.ma.masked_array(X, mask=X > 2),
        "objects": X.astype(object),
        "texts": X.astype(str),
        "complex": X.astype(complex),
        "dates": np.zeros((2, 3), "M8[s]"),
        "records": np.zeros((2, 3), [("a", "f4")]),
        "bytes": np.full((2, 3), b"1"),
        "a ragged list": [[1, 2], [3]],
        "None": None,
        "a dictionary": {"a": 1},
        "a text": "x",
        "a set": {1.0},
        "a function": len,
        "nothing": [],
        "rank 3": X[None],
        "rank 1": X[0],
        "a scalar": F32(1),
        "too many columns": np.ones((2, 4), F32),
        "too many rows": np.ones((3, 3), F32),
        "no rows": X[:0],
        "rank 33": np.ones((1,) * 33, F32),
        "timedelta": np.zeros((2, 3), "m8[s]"),
        "void": np.zeros((2, 3), "V4"),
    }
    for name, x in wrong.items():
        counted = {"session": {"y": X * 3}} if name == "rank 3" else {}  # PopART counts elements
        loose = name in ("objects", "masked elements")
        yield Case(f"refused: {name}", made, {"x": x}, EITHER if loose else ERROR, says="x", by=counted)
    whole = model(node("Identity", ["x"], ["y"], name="the_node"), inputs=[info("x", (2,), TensorProto.INT8)])
    for name, x in {
        "300": np.array([300, 1]),
        "-129": np.array([-129, 1]),
        "0.5": np.array([0.5, 1]),
        "NaN": np.array([np.nan, 1]),
    }.items():
        yield Case(f"refused: int8 of {name}", whole, {"x": x}, ERROR, says="x")
    yield Case(
        "int8 given as int64", whole, {"x": np.array([-128, 127])}, VALUE, want={"y": np.array([-128, 127], np.int8)}
    )
    unsigned = model(node("Identity", ["x"], ["y"], name="the_node"), inputs=[info("x", (1,), TensorProto.UINT64)])
    yield Case("refused: uint64 of -1", unsigned, {"x": np.array([-1])}, ERROR, says="x", session=False)
    yield Case(
        "uint64 of 2^64-1",
        unsigned,
        {"x": np.array([2**64 - 1], np.uint64)},
        VALUE,
        want={"y": np.array([2**64 - 1], np.uint64)},
        by={"session": ERROR},  # whose devices hold 32 bits
    )
    yield Case("refused: no feed", made, {}, ERROR, says="x", by={"run": EITHER})  # which draws it
    yield Case("refused: another name", made, {"z": X}, ERROR, says="x")
    yield Case("refused: one too many", made, {"x": X, "z": X}, ERROR, says="z", session=False)
    yield Case(
        "float16 beyond its end",
        model(node("Identity", ["x"], ["y"]), inputs=[info("x", (1,), TensorProto.FLOAT16)]),
        {"x": np.array([1e6])},
        "either",
    )


class _Sub(np.ndarray):
    pass


def _frozen(x: np.ndarray) -> np.ndarray:
    y = x.copy()
    y.flags.writeable = False
    return y


def _unaligned(x: np.ndarray) -> np.ndarray:
    return np.frombuffer(b"\0" + x.tobytes(), F32, offset=1).reshape(x.shape)


def _record(x: np.ndarray) -> np.ndarray:
    y = np.zeros(x.shape, [("a", "i1"), ("b", "f4")])
    y["b"] = x
    return y["b"]
