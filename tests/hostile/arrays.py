"""Feeds of every element type and memory layout, array-like objects, bit patterns that must survive, and shapes."""

from __future__ import annotations

import array
import collections
import ctypes
import decimal
import fractions
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from popart_jax.buffers import aligned_empty

from .build import (
    EITHER,
    ERROR,
    F32,
    FLOAT,
    JUDGE,
    RAGGED,
    VALUE,
    Case,
    X,
    case_of,
    const,
    info,
    like,
    model,
    node,
    numbered,
)

_KINDS = (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float64", "bool", "complex64",
)  # fmt: skip
_SMALL = (
    "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "int4", "uint4", "float4_e2m1fn",
)  # fmt: skip


def held() -> Iterator[Case]:
    """Identity of extremes, in every type and every layout."""
    for name in (*_KINDS, *_SMALL):
        kind = np.dtype(getattr(ml_dtypes, name)) if name in _SMALL else np.dtype(name)
        x = _extremes(kind)
        made = model(node("Identity", ["x"], ["y"], name="the_node"), inputs=[like("x", x)], opset=25, ir=13)
        layouts: dict[str, Any] = {
            "plain": x, "backwards": x[::-1, ::-1][::-1, ::-1],
            "every other": np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
            "Fortran-ordered": np.asfortranarray(x), "read-only": np.frombuffer(x.tobytes(), kind).reshape(x.shape),
        }  # fmt: skip
        if kind.itemsize > 1 and name not in _SMALL:
            layouts["of the other byte order"] = x.astype(kind.newbyteorder())
        for shown, fed in layouts.items():
            wide = kind.itemsize > 4 or name == "complex64"
            yield Case(
                f"{name}, {shown}", made, {"x": fed}, VALUE, want={"y": x}, session=not wide and name not in _SMALL
            )


def _extremes(kind: np.dtype) -> np.ndarray:
    if kind.kind in "iu":
        ends = np.iinfo(kind)
        return np.array([[ends.min, 0, ends.max], [1, ends.max - 1, ends.min + 1]], kind)
    if kind.name in ("int4", "uint4"):
        ends = ml_dtypes.iinfo(kind)
        return np.array([[ends.min, 0, ends.max], [1, ends.max - 1, ends.min + 1]]).astype(kind)
    if kind.kind == "b":
        return np.array([[True, False, True], [False, False, True]])
    if kind.kind == "c":
        return np.array([[0, 1j, np.inf], [-1, complex(np.nan, 1), complex(-0.0, -0.0)]], kind)
    ends = ml_dtypes.finfo(kind) if kind.name in _SMALL else np.finfo(kind)
    return np.array([[float(ends.max), 0, float(ends.min)], [float(ends.tiny), -1, 1.5]]).astype(kind)


class _Made:
    """An object with `__array__`."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class _Interface:
    """An object with only `__array_interface__`."""

    def __init__(self, x: np.ndarray, **changed: Any) -> None:
        self._x = x
        self.__array_interface__ = {**x.__array_interface__, **changed}


class _Long:
    """A sequence whose `len` is larger than its number of elements."""

    def __len__(self) -> int:
        return 1 << 62

    def __getitem__(self, i: int) -> float:
        if i > 3:
            raise IndexError(i)
        return 1.0


def objects() -> Iterator[Case]:
    """Array-like objects."""
    x = X.ravel()
    made = model(node("Neg", ["x"], ["y"], name="the_node"), inputs={"x": x})
    memory = (ctypes.c_float * 6)(*x)
    for shown, fed in {
        "array.array": array.array("f", x.tolist()), "ctypes": memory, "a range": range(6),
        "a tuple": tuple(x.tolist()),
        "a list of NumPy's numbers": list(x), "a list of 0-d arrays": [np.array(v) for v in x], "__array__": _Made(x),
        "__array_interface__": _Interface(x), "Decimals": [decimal.Decimal(int(v)) for v in x],
        "Fractions": [fractions.Fraction(int(v)) for v in x], "long doubles": x.astype(np.longdouble),
        "objects of whole numbers": np.array([int(v) for v in x], object), "a memory map": np.asarray(memoryview(x)),
        "a masked array without a mask": np.ma.array(x), "a record array": np.rec.array(x),
        "texts": [str(v) for v in x],
        "StringDType": np.array([str(v) for v in x], np.dtypes.StringDType()),
        "a deque": collections.deque(x.tolist()),
        "keys of a dictionary": dict.fromkeys(x.tolist()).keys(),
        "bytes of it": x.tobytes(), "a bytearray of it": bytearray(x.tobytes()),
        "float128 beyond": np.full(6, 1e300, np.longdouble),
    }.items():  # fmt: skip
        beyond = shown == "float128 beyond"
        yield Case(shown, made, {"x": fed}, EITHER, says="x", want={} if beyond else {"y": -x})
    for shown, fed in {
        "an __array__ that raises": _Made(ZeroDivisionError("no")), "an __array__ of a text": _Made("no"),
        "an __array__ of None": _Made(None), "an array of arrays": np.array([x, None, x, x, x, x], object),
        "a sequence that lies": _Long(),
        "an interface of the null pointer": _Interface(x, data=(0, False), shape=(-6,)),
        "an interface of no type": _Interface(x, typestr="?!"), "whole numbers beyond": [10**400] * 6,
        "complex numbers": [1j] * 6,
        "a list in itself": _circle(), "a list 70 deep": _deep(70), "types": [int] * 6,
        "NotImplemented": NotImplemented,
        "an exception": ValueError("x"), "a module": np, "a data type": np.float32, "a path": Path("x"),
    }.items():  # fmt: skip
        yield Case(f"refused: {shown}", made, {"x": fed}, ERROR, says="x")
    big = model(node("Identity", ["x"], ["y"], name="the_node"), inputs=[info("x", (2,), TensorProto.UINT64)])
    ends = np.array([0, 2**64 - 1], np.uint64)
    yield Case(
        "2^64-1 in a list, which NumPy makes float64",
        big,
        {"x": [0, 2**64 - 1]},
        EITHER,
        says="x",
        want={"y": ends},
        session=False,
    )
    yield Case(
        "2^64-1 as an object",
        big,
        {"x": np.array([0, 2**64 - 1], object)},
        EITHER,
        says="x",
        want={"y": ends},
        session=False,
    )
    for shown, fed in {"2^64": [0, 2**64], "-1 in a list": [0, -1], "2^64 as float": [0.0, 2.0**64]}.items():
        yield Case(f"refused: uint64 of {shown}", big, {"x": fed}, ERROR, says="x", session=False)
    flag = model(node("Not", ["x"], ["y"], name="the_node"), inputs=[info("x", (2,), TensorProto.BOOL)])
    for shown, fed in {"2": [0, 2], "-1": [0, -1], "NaN": [0.0, np.nan], "0.5": [0.0, 0.5]}.items():
        yield Case(f"refused: bool of {shown}", flag, {"x": np.array(fed)}, ERROR, says="x")
    odd = np.frombuffer(bytes([0, 2]), np.bool_)
    yield Case("a bool whose byte is 2", flag, {"x": odd}, VALUE, want={"y": np.array([True, False])})
    for shown, key in {"a number": 0, "bytes": b"x", "None": None, "a tuple": ("x",)}.items():
        yield Case(f"refused: a name that is {shown}", made, {key: x}, ERROR, says=".")  # type: ignore[dict-item]


def _circle() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def _deep(depth: int) -> Any:
    made: Any = 1.0
    for _ in range(depth):
        made = [made]
    return made


def bits() -> Iterator[Case]:
    """Operators that only move data keep NaN payloads, minus zero and subnormal numbers."""
    patterns = np.array(
        [0x7FC00000, 0x7FC12345, 0xFFC00001, 0x80000000, 1, 0x807FFFFF, 0x7F800000, 0x00400000], np.uint32
    )
    x = patterns.view(F32)
    four = x.reshape(2, 4)
    moves: list[tuple[str, list[Any], np.ndarray, dict[str, Any]]] = [
        ("Identity", [x], x, {}), ("Transpose", [four], four.T, {}),
        ("Reshape", [x, np.array([4, 2])], x.reshape(4, 2), {}),
        ("Concat", [x, x], np.concatenate([x, x]), {"axis": 0}),
        ("Slice", [x, np.array([7]), np.array([-9]), np.array([0]), np.array([-1])], x[::-1], {}),
        ("Gather", [x, np.array([7, 0, 4, 1])], x[[7, 0, 4, 1]], {}), ("Where", [patterns % 2 == 0, x, x], x, {}),
        ("Pad", [x, np.array([1, 1]), x[1]], np.concatenate([x[1:2], x, x[1:2]]), {}),
        ("Tile", [x, np.array([2])], np.tile(x, 2), {}),
        ("Expand", [four[:, :1], np.array([2, 3])], np.repeat(four[:, :1], 3, 1), {}),
        ("Squeeze", [four[None]], four, {}),
        ("ScatterElements", [x, np.array([0, 1]), x[6:]], np.concatenate([x[6:], x[2:]]), {"axis": 0}),
        ("ReverseSequence", [x.reshape(8, 1), np.array([8])], x[::-1].reshape(8, 1), {}),
        ("DepthToSpace", [x.reshape(1, 4, 1, 2)],
         x.reshape(1, 2, 2, 1, 1, 2).transpose(0, 3, 4, 1, 5, 2).reshape(1, 1, 2, 4), {"blocksize": 2}),
    ]  # fmt: skip
    for op, inputs, want, more in moves:
        for constant in (False, True):
            names = [f"x{i}" for i in range(len(inputs))]
            fed = {
                n: v for n, v in zip(names, inputs, strict=True) if not constant and (v.dtype == F32 or v.dtype == bool)
            }
            rest = {n: v for n, v in zip(names, inputs, strict=True) if n not in fed}
            nodes = (
                node(op, names, ["t"], name="the_node", **more),
                node("BitCast", ["t"], ["y"], to=TensorProto.UINT32),
            )
            made = model(*nodes, inputs=fed, weights=rest, opset=26, ir=13)
            right = np.ascontiguousarray(want).view(np.uint32)
            yield Case(f"{op}{' of constants' * constant}", made, fed, VALUE, want={"y": right}, session=False)
    for name in _SMALL:
        kind = np.dtype(getattr(ml_dtypes, name))
        width = 4 if "4" in name.split("_")[0][-1:] and "float8" not in name else 8
        if name == "bfloat16":
            every = np.arange(1 << 16, dtype=np.uint16)[::37].view(kind)
        else:
            every = np.arange(1 << width, dtype=np.uint8).view(kind)
        made = model(node("Cast", ["x"], ["y"], to=FLOAT, name="the_node"), inputs=[like("x", every)], opset=25, ir=13)
        yield Case(f"every {name}", made, {"x": every}, VALUE, want={"y": every.astype(F32)}, session=False)
        weight = const("x", every)
        made = model(node("Cast", ["x"], ["y"], to=FLOAT, name="the_node"), weights=[weight], opset=25, ir=13)
        yield Case(f"every {name}, stored", made, {}, VALUE, want={"y": every.astype(F32)}, session=False)
    for name in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
        kind = np.dtype(getattr(ml_dtypes, name, name))
        exact = np.unique(
            np.arange(0, 1 << 8 * kind.itemsize, 1 if kind.itemsize == 1 else 97)
            .astype(f"u{kind.itemsize}")
            .view(kind)
            .astype(np.float64)
        )
        exact = exact[np.isfinite(exact)]
        middles = ((exact[1:] + exact[:-1]) / 2).astype(F32)
        to = helper.np_dtype_to_tensor_dtype(kind)
        made = model(
            node("Cast", ["x"], ["t"], to=to, name="the_node"),
            node("Cast", ["t"], ["y"], to=FLOAT),
            inputs={"x": middles},
            opset=25,
            ir=13,
        )
        right = middles.astype(kind).astype(F32)
        yield Case(f"halfway between two {name}", made, {"x": middles}, VALUE, want={"y": right}, session=False)
    bytes_ = aligned_empty((128,), np.uint8)
    bytes_[:] = np.resize(np.array([255, 0, 2, 1, 128], np.uint8), 128)
    mask = bytes_.view(np.bool_)  # as programs get masks from images; in memory that XLA shares
    stored = TensorProto(name="c", data_type=TensorProto.BOOL, dims=[128], raw_data=bytes_.tobytes())
    ends = {"a": np.full(128, 7, F32), "b": np.full(128, 5, F32)}
    where = node("Where", ["c", "a", "b"], ["y"], name="the_node")
    right = np.where(bytes_ != 0, F32(7), F32(5))
    yield Case(
        "a mask of other bytes", model(where, inputs={"c": mask}, weights=ends), {"c": mask}, VALUE, want={"y": right}
    )
    held = model(where, weights=[stored, *(const(n, x) for n, x in ends.items())])
    yield Case("a stored mask of other bytes", held, {}, VALUE, want={"y": right})
    fed = model(where, inputs=ends, weights=[stored])
    yield Case("a stored mask of other bytes, data fed", fed, ends, VALUE, want={"y": right})
    small = np.array([1e-45, -1e-45, 1e-40, 1.17e-38, 2e-38], F32)
    zero = np.where(abs(small) < np.finfo(F32).tiny, F32(0), small)  # XLA flushes subnormals to zero on CPUs
    for op, inputs, want in (
        ("Neg", [small], -small), ("Abs", [small], abs(small)), ("Identity", [small], small),
        ("Add", [small, small], zero + zero), ("Sign", [small], np.sign(zero)),
        ("Max", [small, 0 * small], np.maximum(zero, 0)),
        ("Equal", [small, 0 * small], zero == 0), ("Less", [0 * small, small], zero > 0),
    ):  # fmt: skip
        names = [f"x{i}" for i in range(len(inputs))]
        fed = dict(zip(names, inputs, strict=True))
        made = model(node(op, names, ["y"], name="the_node"), inputs=fed)
        yield Case(f"{op} below the normal numbers", made, fed, VALUE, want={"y": want}, session=False, tolerance=0)


def shapes() -> Iterator[Case]:
    """Symbolic sizes that agree or do not, and shapes as feeds have them."""
    add = node("Add", ["x", "z"], ["y"], name="the_node")
    both = model(add, inputs=[info("x", ("N", 3)), info("z", ("N", 3))])
    yield Case("N twice, the same", both, {"x": X, "z": X}, VALUE, want={"y": 2 * X})
    yield Case("N twice, contradictory", both, {"x": X, "z": X[:1]}, EITHER, says="x|z", want={"y": X + X[:1]})
    yield Case(
        "N and M",
        model(add, inputs=[info("x", ("N", 3)), info("z", ("M", 3))]),
        {"x": X, "z": X[:1]},
        VALUE,
        want={"y": X + X[:1]},
    )
    yield Case("N of both kinds of zero", both, {"x": X[:0], "z": X[:0]}, VALUE, want={"y": X[:0]})
    neg = node("Neg", ["x"], ["y"], name="the_node")
    for dim in (
        "2",
        "-1",
        "N+1",
        "N*",
        "",
        " ",
        "ü",
        "None",
        "?",
        "2**N",
        "os.system('x')",
        "__import__('os')",
        "N" * 9999,
        "\0",
    ):
        yield Case(
            f"a size named {dim[:20]!r}",
            model(neg, inputs=[info("x", (dim, 3))]),
            {"x": X},
            VALUE,
            want={"y": -X},
            session=False,
        )
    shaped = model(
        node("Shape", ["x"], ["s"]),
        node("ConstantOfShape", ["s"], ["y"], name="the_node"),
        inputs=[info("x", ("N", "M"))],
    )
    yield Case("a shape from a feed", shaped, {"x": X}, VALUE, want={"y": 0 * X})
    yield Case("a shape of zero from a feed", shaped, {"x": X[:0]}, VALUE, want={"y": X[:0]})
    for declared, out in (
        (("N", 3), ("N", 3)),
        (("N", 3), ("M", "K")),
        (("N", 3), (7, 7)),
        (("N", 3), ()),
        (("N", 3), None),
        ((2, 3), (-1, 3)),
    ):
        made = model(neg, inputs=[info("x", declared)], outputs=[info("y", out)])
        yield Case(f"an output declared as {out}", made, {"x": X}, EITHER, want={"y": -X})
    none, empty = np.zeros((0, 3), F32), np.zeros((3, 0), F32)
    r3, r0 = np.zeros((2, 0, 3), F32), F32(2)
    given: list[tuple[str, list[Any], dict[str, Any]]] = []
    for op in ("Add", "Mul", "Pow", "Max", "Equal", "Less", "Mod", "PRelu", "Min", "Sum", "Mean", "Div", "Sub"):
        more = {"fmod": 1} if op == "Mod" else {}
        given += [
            (op, [none, F32([1, 2, 3])], more),
            (op, [none, F32([[1]])], more),
            (op, [r3, r0], more),
            (op, [r0, F32(3)], more),
        ]
    given += [
        ("Add", [none, np.zeros((2, 3), F32)], {}), ("Add", [r3, np.zeros((0, 1), F32)], {}),
        ("MatMul", [empty, none], {}), ("MatMul", [none, empty], {}),
        ("MatMul", [r3, np.ones((3, 2), F32)], {}),
        ("MatMul", [np.zeros((0, 2, 3), F32), np.zeros((0, 3, 1), F32)], {}), ("MatMul", [np.zeros(0, F32)] * 2, {}),
        ("Gemm", [none, np.ones((3, 2), F32), np.ones(2, F32)], {}), ("Gemm", [empty, none, F32(5)], {"beta": 0.5}),
        ("Concat", [none, none], {"axis": 0}),
        ("Concat", [r3, r3], {"axis": -2}), ("Concat", [empty, np.ones((3, 2), F32)], {"axis": 1}),
        ("Transpose", [r3], {"perm": [2, 1, 0]}),
        ("Flatten", [r3], {"axis": 1}), ("Flatten", [r3], {"axis": 3}), ("Flatten", [r0], {"axis": 0}),
        ("Softmax", [empty], {"axis": 0}), ("Softmax", [none], {"axis": 1}),
        ("LogSoftmax", [empty], {"axis": 0}), ("LayerNormalization", [none, np.ones(3, F32)], {}),
        ("InstanceNormalization", [np.zeros((0, 2, 3), F32), np.ones(2, F32), np.ones(2, F32)], {}),
        ("BatchNormalization", [np.zeros((0, 2, 3), F32), *(np.ones(2, F32),) * 4], {}),
        ("Gather", [none, np.zeros((0,), np.int64)], {}), ("Gather", [none, np.array([2, -1])], {"axis": 1}),
        ("GatherElements", [none, np.zeros((0, 2), np.int64)], {"axis": 1}),
        ("GatherND", [X, np.zeros((0, 1), np.int64)], {}),
        ("GatherND", [X, np.zeros((4, 0), np.int64)], {"case": {"expect": ERROR}}),
        ("ScatterND", [X, np.zeros((0, 2), np.int64), np.zeros(0, F32)], {}),
        ("ScatterElements", [X, np.zeros((0, 3), np.int64), none], {}), ("Where", [np.array(True), none, F32(1)], {}),
        ("OneHot", [np.zeros((0, 2), np.int64), np.array(4), F32([0, 1])], {}),
        ("Range", [np.array(3), np.array(3), np.array(1)], {"static": range(3)}),
        ("Einsum", [none, empty], {"equation": "ij,jk->ik"}),
        ("Einsum", [empty, none], {"equation": "ij,jk->ik"}), ("Einsum", [r0, r0], {"equation": ",->"}),
        ("ArgMax", [empty], {"axis": 0}), ("ArgMin", [none], {"axis": 1}),
        ("ReduceMax", [empty], {"axes": [0]}), ("ReduceSum", [r3, np.array([1])], {}),
        ("ReduceProd", [r3], {"axes": [1]}), ("ReduceL2", [r0], {}), ("ReduceSumSquare", [r3], {"axes": [1]}),
        ("ReduceLogSum", [r3], {"axes": [0]}), ("CumSum", [none, np.array(0)], {}),
        ("Pad", [none, np.array([1, 0, 1, 0])], {}), ("Pad", [none, np.array([0, 1, 0, 1])], {"mode": "edge"}),
        ("Pad", [none, np.array([1, 0, 0, 0])], {"mode": "edge"}), ("Slice", [X, np.array([5]), np.array([9])], {}),
        ("Slice", [none, np.array([0]), np.array([9]), np.array([1])], {}),
        ("Tile", [none, np.array([3, 2])], {}), ("Tile", [X, np.array([0, 0])], {}),
        ("Expand", [none, np.array([2, 1, 3])], {}), ("Expand", [none, np.array([5, 3])], {}),
        ("Split", [none, np.array([1, 2])], {"axis": 1, "outputs": ["y", "z"]}),
        ("TopK", [none, np.array([0])], {"outputs": ["y", "z"], "axis": 0}),
        ("TopK", [X, np.array([0])], {"outputs": ["y", "z"]}),
        ("Conv", [np.zeros((1, 0, 4, 4), F32), np.ones((2, 0, 2, 2), F32)], {}),
        ("Conv", [np.zeros((0, 2, 4, 4), F32), np.ones((2, 2, 2, 2), F32)], {"pads": [1] * 4}),
        ("ConvTranspose", [np.zeros((0, 2, 4, 4), F32), np.ones((2, 2, 2, 2), F32)], {}),
        ("MaxPool", [np.zeros((0, 2, 4, 4), F32)], {"kernel_shape": [2, 2]}),
        ("AveragePool", [np.zeros((2, 0, 4, 4), F32)],
         {"kernel_shape": [2, 2], "case": {"expect": VALUE, "want": {"y": np.zeros((2, 0, 3, 3), F32)}}}),
         ("GlobalAveragePool", [np.zeros((0, 2, 3, 3), F32)], {}),
         ("LRN", [np.zeros((0, 2, 3, 3), F32)], {"size": 3}),
         ("DepthToSpace", [np.zeros((0, 4, 2, 2), F32)], {"blocksize": 2}),
        ("Resize", [np.zeros((0, 1, 2, 2), F32), None, F32([1, 1, 2, 2])], {"static": [2]}),
        ("LSTM", [np.zeros((2, 0, 4), F32), np.ones((1, 12, 4), F32), np.ones((1, 12, 3), F32)], {"hidden_size": 3}),
        ("NonZero", [none], {"case": RAGGED}), ("Compress", [none, np.zeros(0, bool)], {"axis": 0, "case": RAGGED}),
        ("Compress", [X, np.zeros(2, bool)], {"axis": 0, "case": RAGGED}),
        ("Unique", [np.zeros(0, F32)], {"case": RAGGED}), ("Trilu", [np.zeros((0, 0), F32)], {}),
        ("EyeLike", [empty], {}), ("Det", [np.zeros((0, 2, 2), F32)], {}), ("Det", [np.zeros((1, 0, 0), F32)], {}),
        ("Dropout", [none], {}), ("QuantizeLinear", [none, F32(1), np.uint8(0)], {}),
        ("DequantizeLinear", [np.zeros(0, np.uint8), F32(1)], {}), ("DynamicQuantizeLinear", [np.zeros(0, F32)], {}),
        ("MatMulInteger", [np.zeros((2, 0), np.uint8), np.zeros((0, 3), np.uint8)], {}),
        ("NonMaxSuppression", [np.zeros((1, 0, 4), F32), np.zeros((1, 1, 0), F32), np.array([3])], {"case": RAGGED}),
        ("RoiAlign", [np.ones((1, 1, 4, 4), F32), np.zeros((0, 4), F32), np.zeros(0, np.int64)],
         {"sampling_ratio": 2}), ("Shape", [r0], {}), ("Size", [r0], {}), ("Unsqueeze", [r0, np.array([0, 1])], {}),
        ("Squeeze", [none, np.array([0])], {}), ("Reshape", [r0, np.zeros(0, np.int64)], {}),
        ("Reshape", [none, np.array([0, 0, -1])], {}), ("Reshape", [none, np.array([3, -1])], {}),
        ("Identity", [r3], {}), ("Cast", [r3], {"to": TensorProto.INT64}), ("Clip", [none, F32(0), F32(1)], {}),
        ("ReverseSequence", [np.zeros((0, 2), F32), np.zeros(2, np.int64)], {}),
        ("GridSample", [np.ones((1, 1, 3, 3), F32), np.zeros((1, 0, 2, 2), F32)], {}),
        ("NegativeLogLikelihoodLoss", [np.zeros((0, 3), F32), np.zeros(0, np.int64)], {"reduction": "sum"}),
        ("Hardmax", [none], {"axis": 1}),
    ]  # fmt: skip
    for number, (op, inputs, more) in enumerate(given):
        yield numbered(number, op, inputs, **more)


_ENDS = (-(1 << 63), -(1 << 31) - 1, -99, 99, 1 << 31, (1 << 63) - 1)
_AXIS: dict[str, tuple[list[Any], str, dict[str, Any]]] = {
    **{op: ([X], "axis", {}) for op in ("Softmax", "LogSoftmax", "Hardmax", "Flatten", "ArgMax", "ArgMin",
        "LpNormalization")},
    "Concat": ([X, X], "axis", {}), "Gather": ([X, np.array([0])], "axis", {}),
    "GatherElements": ([X, np.array([[0]])], "axis", {}),
    "ScatterElements": ([X, np.array([[0]]), X[:1, :1]], "axis", {}), "Split": ([X], "axis", {"n": 2}),
    "TopK": ([X, np.array([1])], "axis", {"n": 2, "fixed": [1]}),
    "Unique": ([X], "axis", {}), "Compress": ([X, np.array([True])], "axis", {}),
    "OneHot": ([np.array([0]), np.array(2), F32([0, 1])], "axis", {"fixed": [1]}),
    "LayerNormalization": ([X, np.ones(3, F32)], "axis", {}), "QuantizeLinear": ([X, np.ones(3, F32)], "axis", {}),
    "DequantizeLinear": ([X.astype(np.uint8), np.ones(3, F32)], "axis", {}),
    "GatherND": ([X, np.array([[0]])], "batch_dims", {}), "Shape": ([X], "start", {}), "EyeLike": ([X], "k", {}),
}  # fmt: skip
_SIZES: dict[str, tuple[list[Any], dict[str, Any], tuple[str, ...]]] = {
    "Conv": ([np.ones((1, 2, 4, 4), F32), np.ones((2, 2, 2, 2), F32)], {},
        ("group", "strides", "dilations", "pads", "kernel_shape")),
    "ConvTranspose": ([np.ones((1, 2, 4, 4), F32), np.ones((2, 2, 2, 2), F32)], {},
        ("group", "strides", "dilations", "pads", "output_padding", "output_shape")),
    "MaxPool": ([np.ones((1, 2, 4, 4), F32)], {"kernel_shape": [2, 2]},
        ("strides", "dilations", "pads", "kernel_shape", "storage_order", "ceil_mode")),
    "AveragePool": ([np.ones((1, 2, 4, 4), F32)], {"kernel_shape": [2, 2]},
        ("strides", "pads", "kernel_shape", "count_include_pad")),
    "LpPool": ([np.ones((1, 2, 4, 4), F32)], {"kernel_shape": [2, 2]}, ("strides", "p", "kernel_shape")),
    "LRN": ([np.ones((1, 2, 4, 4), F32)], {"size": 1}, ("size",)),
    "DepthToSpace": ([np.ones((1, 4, 2, 2), F32)], {"blocksize": 2}, ("blocksize",)),
    "SpaceToDepth": ([np.ones((1, 1, 4, 4), F32)], {"blocksize": 2}, ("blocksize",)),
    "LSTM": ([np.ones((2, 1, 4), F32), np.ones((1, 12, 4), F32), np.ones((1, 12, 3), F32)], {"hidden_size": 3},
        ("hidden_size", "layout", "input_forget")),
    "RoiAlign": ([np.ones((1, 1, 4, 4), F32), F32([[0, 0, 2, 2]]), np.array([0])], {},
        ("output_height", "output_width", "sampling_ratio")), "Cast": ([X], {"to": 1}, ("to",)),
        "Trilu": ([X], {}, ("upper",)),
}  # fmt: skip


_ONES = {"expect": VALUE, "want": {"y": np.ones((1, 2, 4, 4), F32)}, "tolerance": 1e-3}
_OWN: dict[tuple[Any, ...], dict[str, Any]] = {
    ("LpPool", "p", 0): {"expect": ERROR},  # there is no such norm
    ("LRN", "size", 1 << 31): _ONES,  # ONNX has even sizes too
    ("LRN", "size", 1 << 62): _ONES,
    ("RoiAlign", "output_height", 0): {"expect": ERROR},
    ("RoiAlign", "output_width", 0): {"expect": ERROR},
    ("RoiAlign", "sampling_ratio", 0): {"by": {"jit": ERROR}},  # as many samples as the regions are large
    ("RoiAlign", "output_height"): {"expect": ERROR},
    ("RoiAlign", "output_width"): {"expect": ERROR},
}
"""Expectations of cases for which ONNX Runtime is no reference."""


def ends() -> Iterator[Case]:
    """Attributes at the ends of 64 bits, and sizes of zero and less."""
    for op, (inputs, name, more) in _AXIS.items():
        for value in _ENDS:
            expect = JUDGE if op in ("Shape", "EyeLike") else ERROR  # which cut and allow what lies beyond
            case = {"session": False, "expect": expect}
            yield case_of(f"{op} with {name} {value}", op, *inputs, case=case, **more, **{name: value})
    for op, (inputs, more, names) in _SIZES.items():
        for name in names:
            for value in (0, -1, 1 << 31, 1 << 62, -(1 << 63)):
                case = _OWN.get((op, name, value), _OWN.get((op, name), {}))
                many = name in ("strides", "dilations", "kernel_shape", "output_padding", "output_shape")
                given = [value] * 2 if many else [value] * 4 if name == "pads" else value
                yield case_of(
                    f"{op} with {name} {value}", op, *inputs, case={"session": False, **case}, **{**more, name: given}
                )
    for op, name in (
        ("LeakyRelu", "alpha"),
        ("Elu", "alpha"),
        ("Selu", "gamma"),
        ("HardSigmoid", "beta"),
        ("ThresholdedRelu", "alpha"),
        ("Shrink", "lambd"),
    ):
        for value in (float("nan"), float("inf"), float("-inf"), -0.0, 1e38):
            yield case_of(f"{op} with {name} {value}", op, X - F32(2.5), case={"session": False}, **{name: value})
