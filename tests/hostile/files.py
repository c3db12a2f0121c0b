"""Files that hold no model, declared inputs that are odd, text, and nothing at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .build import ERROR, F32, FLOAT, I64, VALUE, Case, X, case_of, info, model, node

SUM = node("Add", ["x", "w"], ["y"], name="the_node")
FED = {"x": X}


def _file(data: bytes, name: str = "m.onnx") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return write


def _folder(folder: Path) -> Path:
    (folder / "m.onnx").mkdir(exist_ok=True)
    return folder / "m.onnx"


def files() -> Iterator[Case]:
    """Files and bytes that hold no model, or half of one."""
    good = model(SUM, inputs=FED, weights={"w": X}).SerializeToString()
    yield Case("a file", _file(good), FED, VALUE, want={"y": 2 * X})
    yield Case("bytes", good, FED, VALUE, want={"y": 2 * X})
    for name, data in {
        "nothing": b"",
        "zeros": bytes(1000),
        "text": b"hello\nworld",
        "JSON": b'{"graph": {}}',
        "a zip": b"PK\x03\x04" + bytes(99),
        "half": good[: len(good) // 2],
        "all but one byte": good[:-1],
        "a byte more": good + b"\0",
        "twice": good + good,
        "ones": b"\xff" * 1000,
        "LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "a script": b"#!/bin/sh\nexit 1\n",
        "a pickle": b"\x80\x04K\x01.",
        "only an opset": b"B\x04\n\x00\x10\x11",
        "a graph of 2^60 bytes": b"\x3a" + b"\xff" * 8 + b"\x0f",
        "groups without end": b"\x0b" * 5000,
        "messages nested 5,000 deep": _nest(5000),
    }.items():
        expect = "either" if name in ("twice", "a byte more") else ERROR
        yield Case(f"bytes of {name}", data, FED, expect, says=".")
        yield Case(f"a file of {name}", _file(data), FED, expect, says=".")
    yield Case("a folder", _folder, FED, ERROR, says="directory|folder")
    yield Case("no such file", lambda folder: folder / "none.onnx", FED, ERROR, says="none.onnx")
    yield Case(
        "a file of text form",
        _file(
            b'<ir_version: 9, opset_import: ["" : 17]> g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }', "m.onnxtxt"
        ),
        FED,
        VALUE,
        want={"y": -X},
    )
    yield Case(
        "a file of broken text form",
        _file(b'<ir_version: 9, opset_import: ["" : 17]> g (float[2,3] x => { y = ', "m.onnxtxt"),
        FED,
        ERROR,
        says=".",
    )
    for what in (b"the_node", b"Add"):
        broken = good.replace(what, b"\xff\xfe" + what[2:])
        yield Case(f"broken text instead of {what.decode()}", broken, FED, ERROR, says=".")
    named = model(node("Neg", ["first"], ["second"]), inputs={"first": X}, outputs=["second"]).SerializeToString()
    for what in (b"first", b"second", b"battery"):
        yield Case(
            f"broken text instead of {what.decode()}",
            named.replace(what, b"\xc3\x28" + what[2:]),
            {"first": X},
            "either",
            says=".",
        )


def _nest(depth: int) -> bytes:
    data = b""
    for _ in range(depth):
        size, out = len(data), bytearray()
        while size > 0x7F:
            out.append(size & 0x7F | 0x80)
            size >>= 7
        data = b"\x32" + bytes([*out, size]) + data
        if len(data) > 1 << 20:
            break
    return b"\x3a" + b"\x00" + data


def declared() -> Iterator[Case]:
    """Declared types and shapes of inputs that are odd."""
    relu = node("Relu", ["x"], ["y"], name="the_node")
    for name, kind in (("undefined", 0), ("99", 99), ("-1", -1)):
        yield Case(f"element type {name}", model(relu, inputs=[info("x", (2, 3), kind)]), FED, ERROR, says="x")
    nothing = onnx.ValueInfoProto(name="x")
    yield Case("no type", model(relu, inputs=[nothing]), FED, "either")
    nothing = onnx.ValueInfoProto(name="x")
    nothing.type.SetInParent()
    yield Case("an empty type", model(relu, inputs=[nothing]), FED, "either")
    for shape, _feed, expect in (
        ((-1, 3), X, "either"),
        ((-7, 3), X, "either"),
        ((0, 3), X, "either"),
        (("N", 3), X, VALUE),
        (("N", "N"), X, "either"),
        (("", 3), X, "either"),
        ((None, None), X, VALUE),
        ((), X, ERROR),
        ((6,), X, ERROR),
        ((2, 3, 1), X, ERROR),
        ((1 << 62, 3), X, ERROR),
        (None, X, "either"),
    ):
        yield Case(
            f"shape {shape}",
            model(relu, inputs=[info("x", shape)]),
            FED,
            expect,
            want={"y": X} if expect == VALUE else {},
            by={"session": {"y": X}} if shape in ((6,), (2, 3, 1)) else {},  # PopART counts elements
            session=shape is not None and None not in shape,
        )
    deep = helper.make_tensor_type_proto(FLOAT, None)
    for _ in range(40):
        deep = helper.make_sequence_type_proto(deep)
    yield Case(
        "a sequence of sequences, 40 deep",
        model(relu, inputs=[helper.make_value_info("x", deep)]),
        {"x": []},
        ERROR,
        says=".",
    )
    maps = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(FLOAT, None))
    yield Case("a map", model(relu, inputs=[helper.make_value_info("x", maps)]), {"x": {1: 2.0}}, ERROR)
    sparse = helper.make_sparse_tensor_value_info("x", FLOAT, [2, 3])
    yield Case("a sparse tensor", model(relu, inputs=[sparse]), FED, "either")


def texts() -> Iterator[Case]:
    """Tensors of text, and of nothing."""
    words = np.array(["a", "", "ü", "x" * 100_000], object)
    for op in ("Identity", "StringNormalizer", "Shape", "Size"):
        yield case_of(f"{op} of texts", op, words, case={"session": False})
    yield case_of("Equal of texts", "Equal", words, words, opset=19, case={"session": False})
    yield case_of("Relu of texts", "Relu", words, case={"expect": ERROR})
    yield case_of("Add of texts", "Add", words, words, case={"expect": ERROR})
    yield case_of(
        "texts cast to float", "Cast", np.array(["1.5", "-3e2", "inf", "nan"], object), to=1, case={"session": False}
    )
    yield case_of("words cast to float", "Cast", np.array(["one"], object), to=1, case={"expect": ERROR})
    yield case_of("an empty text cast to float", "Cast", np.array([""], object), to=1, case={"expect": ERROR})
    yield case_of("texts cast to int", "Cast", np.array(["7", "-3"], object), to=7, case={"session": False})
    yield case_of(
        "a large text cast to int", "Cast", np.array(["99999999999999999999"], object), to=7, case={"expect": ERROR}
    )
    yield case_of("numbers cast to text", "Cast", np.array([7, -3]), to=8, case={"session": False})
    yield case_of("Concat of texts", "Concat", words, words, axis=0, case={"session": False})
    yield case_of("Gather of texts", "Gather", words, np.array([3, 0]), case={"session": False})
    yield case_of("Reshape of texts", "Reshape", words, np.array([2, 2]), fixed=[1], case={"session": False})
    yield case_of(
        "StringSplit", "StringSplit", np.array(["a b", "", " "], object), opset=20, n=2, case={"session": False}
    )
    yield case_of(
        "RegexFullMatch of a bad pattern", "RegexFullMatch", words, opset=20, pattern="(", case={"expect": ERROR}
    )
    yield case_of(
        "RegexFullMatch that runs for ever",
        "RegexFullMatch",
        np.array(["a" * 40 + "!"], object),
        opset=20,
        pattern="(a+)+$",
        case={"expect": "either", "session": False},
    )
    broken = onnx.TensorProto(name="w", data_type=8, dims=[1], string_data=[b"\xff\xfe"])
    yield Case(
        "text that is no UTF-8", model(node("Identity", ["w"], ["y"]), weights=[broken]), {}, "either", session=False
    )


def empties() -> Iterator[Case]:
    """Zero rows, scalars, ranks."""
    none, scalar = np.zeros((0, 3), F32), F32(2)
    for op in (
        "Relu",
        "Exp",
        "Softmax",
        "LogSoftmax",
        "Hardmax",
        "Transpose",
        "Flatten",
        "Identity",
        "Shape",
        "Size",
        "Cast",
        "IsNaN",
        "Sum",
        "ReduceSum",
        "ReduceProd",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSumExp",
        "ReduceSumSquare",
        "ArgMax",
        "ArgMin",
        "NonZero",
        "Sign",
        "LpNormalization",
        "Unique",
        "CumSum",
        "TopK",
        "Sigmoid",
        "Not",
        "Squeeze",
        "Trilu",
    ):
        for x, shown in (
            (none, "(0, 3)"),
            (np.zeros((2, 0), F32), "(2, 0)"),
            (scalar, "a scalar"),
            (np.zeros((), F32), "a scalar of 0"),
        ):
            more: list[Any] = [np.array([1])] if op == "TopK" else [np.array(0)] if op == "CumSum" else []
            given = {"to": 7} if op == "Cast" else {"kernel_shape": [1]} if op == "Pool" else {}
            x = x.astype(bool) if op == "Not" else x
            # ONNX Runtime makes an infinity where the reference refuses, or the other way round: either is right
            loose = (
                op in ("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "ReduceMean", "ReduceLogSumExp", "LpNormalization")
                and 0 in x.shape
            )
            hard = (
                "either"
                if loose
                or op in ("NonZero", "Unique")
                or (op in ("Softmax", "LogSoftmax", "Hardmax", "TopK") and shown != "(0, 3)")
                else "judge"
            )
            first = op in ("ArgMax", "ArgMin") and not x.shape  # as NumPy, PyTorch and ONNX's evaluator have it
            yield case_of(
                f"{op} of {shown}",
                op,
                x,
                *more,
                fixed=range(1, 1 + len(more)),
                n=2 if op == "TopK" else 1,
                **given,
                case={
                    "expect": VALUE if first else hard,
                    "want": {"y": np.array(0)} if first else {},
                    "session": False,
                },
            )
    yield case_of(
        "MatMul over nothing",
        "MatMul",
        np.zeros((2, 0), F32),
        np.zeros((0, 3), F32),
        case={"expect": VALUE, "want": {"y": np.zeros((2, 3), F32)}, "session": False},
    )
    yield case_of("Gemm over nothing", "Gemm", np.zeros((2, 0), F32), np.zeros((0, 3), F32), case={"session": False})
    yield case_of("MatMul of no rows", "MatMul", none, np.ones((3, 2), F32), case={"session": False})
    yield case_of("Concat with nothing", "Concat", none, X, axis=0, case={"session": False})
    yield case_of("Gather from nothing", "Gather", none, np.array([0]), case={"expect": ERROR})
    yield case_of("Gather of nothing", "Gather", X, np.array([], I64), case={"session": False})
    yield case_of(
        "Conv of no pictures", "Conv", np.zeros((0, 1, 4, 4), F32), np.ones((1, 1, 2, 2), F32), case={"session": False}
    )
    yield case_of(
        "MaxPool of no pictures", "MaxPool", np.zeros((0, 1, 4, 4), F32), kernel_shape=[2, 2], case={"session": False}
    )
    yield case_of(
        "Conv larger than the picture",
        "Conv",
        np.ones((1, 1, 2, 2), F32),
        np.ones((1, 1, 3, 3), F32),
        case={"expect": "either"},
    )
    yield case_of(
        "Reshape of nothing", "Reshape", none, np.array([-1, 3]), fixed=[1], case={"expect": "either", "session": False}
    )
    yield case_of(
        "Reshape of nothing to 0",
        "Reshape",
        none,
        np.array([3, 0]),
        fixed=[1],
        opset=14,
        allowzero=1,
        case={"session": False},
    )
    yield case_of("Split of nothing", "Split", none, np.array([0, 0]), fixed=[1], n=2, case={"session": False})
    yield case_of("Where of nothing", "Where", np.zeros((0, 3), bool), none, none, case={"session": False})
    yield case_of("Tile by 0", "Tile", X, np.array([0, 1]), fixed=[1], case={"session": False})
    yield case_of("Expand to 0", "Expand", np.ones((1, 3), F32), np.array([0, 3]), fixed=[1], case={"session": False})
    yield case_of(
        "OneHot of nothing",
        "OneHot",
        np.array([], I64),
        np.array(3),
        np.array([0, 1], F32),
        fixed=[1, 2],
        case={"session": False},
    )
    yield case_of("Range of nothing", "Range", *np.array([5, 0, 1]), fixed=[0, 1, 2], case={"session": False})
    yield case_of("rank 64", "Relu", np.ones((1,) * 64, F32), case={"session": False})
    made = model(node("Relu", ["x"], ["y"]), inputs=[info("x", ("N", 3))])
    yield Case("no rows where the feed decides", made, {"x": none}, VALUE, want={"y": none})
