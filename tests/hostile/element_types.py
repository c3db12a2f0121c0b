"""Sequences, optionals, small floats, small ints, quantised numbers."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

from .build import ERROR, F32, FLOAT, VALUE, Case, X, case_of, model, node

EXTREME = np.array([0.0, -0.0, 1.5, -1.5, 1e38, -1e38, 1e-37, np.inf, -np.inf, np.nan], F32)
INTS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def types() -> Iterator[Case]:
    """Sequences, optionals, small floats, small ints, quantised numbers."""
    alone = {"session": False}
    E = TensorProto
    for kind in (E.FLOAT8E4M3FN, E.FLOAT8E5M2, E.FLOAT8E4M3FNUZ, E.FLOAT8E5M2FNUZ, E.BFLOAT16):
        back = model(
            node("Cast", ["x"], ["t"], to=kind), node("Cast", ["t"], ["y"], to=FLOAT), inputs={"x": EXTREME}, opset=19
        )
        yield Case(f"extremes to {E.DataType.Name(kind)} and back", back, {"x": EXTREME}, "judge", session=False)
        cut = model(
            node("Cast", ["x"], ["t"], to=kind, saturate=0),
            node("Cast", ["t"], ["y"], to=FLOAT),
            inputs={"x": EXTREME},
            opset=19,
        )
        name = f"extremes to {E.DataType.Name(kind)} and back, not saturated"
        if kind == E.BFLOAT16:  # ONNX: `saturate` only applies to float8; ONNX Runtime refuses it
            right = {"y": EXTREME.astype(ml_dtypes.bfloat16).astype(F32)}
            yield Case(name, cut, {"x": EXTREME}, VALUE, want=right, session=False)
        else:
            yield Case(name, cut, {"x": EXTREME}, session=False)
    for kind in (E.INT4, E.UINT4):
        x = np.array([-9, -8, -1, 0, 1, 7, 8, 15, 16, 300], F32)
        back = model(
            node("Cast", ["x"], ["t"], to=kind), node("Cast", ["t"], ["y"], to=FLOAT), inputs={"x": x}, opset=21, ir=10
        )
        yield Case(f"numbers to {E.DataType.Name(kind)} and back", back, {"x": x}, "either", session=False)
    odd = onnx.TensorProto(name="w", data_type=E.INT4, dims=[3], raw_data=bytes([0x87, 0x0F]))
    unpack = model(node("Cast", ["w"], ["y"], to=FLOAT), weights=[odd], opset=21, ir=10)
    yield Case("three numbers of 4 bits", unpack, {}, VALUE, want={"y": np.array([7, -8, -1], F32)}, session=False)
    yield case_of(
        "Relu of int4", "Relu", np.array([1, 2], ml_dtypes.int4), opset=21, case={"expect": ERROR, "session": False}
    )
    scale = np.array([0.0, -1.0, np.nan, np.inf], F32)
    for i, shown in enumerate(("0", "-1", "NaN", "infinity")):
        yield case_of(
            f"QuantizeLinear with scale {shown}",
            "QuantizeLinear",
            EXTREME,
            scale[i],
            np.uint8(3),
            case={**alone, "expect": "either"},
        )
        yield case_of(
            f"DequantizeLinear with scale {shown}",
            "DequantizeLinear",
            np.array([0, 255], np.uint8),
            scale[i],
            np.uint8(3),
            case=alone,
        )
    yield case_of("QuantizeLinear of extremes", "QuantizeLinear", EXTREME[:9], F32(0.1), np.int8(3), case=alone)
    yield case_of(
        "QuantizeLinear of other axes",
        "QuantizeLinear",
        X,
        np.ones(3, F32),
        np.zeros(2, np.uint8),
        axis=1,
        case={"expect": ERROR, "session": False},
    )
    yield case_of(
        "QuantizeLinear at axis 9",
        "QuantizeLinear",
        X,
        np.ones(3, F32),
        np.zeros(3, np.uint8),
        axis=9,
        case={"expect": ERROR, "session": False},
    )
    yield case_of(
        "DequantizeLinear of int32 with zero point",
        "DequantizeLinear",
        np.array([5], np.int32),
        F32(2),
        np.int32(3),
        case={**alone, "expect": "either"},
    )
    yield case_of(
        "MatMulInteger of wide zero point",
        "MatMulInteger",
        np.ones((2, 3), np.uint8),
        np.ones((3, 2), np.uint8),
        np.ones(2, np.uint8),
        case={**alone, "expect": VALUE, "want": {"y": np.zeros((2, 2), np.int32)}},  # ONNX: one for each row of A
    )
    yield (
        case_of("SequenceAt beyond", "SequenceAt", [X, X], np.array(7), case={"expect": ERROR, **alone})
        if False
        else Case(
            "SequenceAt beyond",
            model(
                node("SequenceConstruct", ["x", "x"], ["s"]),
                node("SequenceAt", ["s", "i"], ["y"], name="the_node"),
                inputs={"x": X},
                weights={"i": np.array(7)},
            ),
            {"x": X},
            ERROR,
        )
    )
    yield Case(
        "SequenceAt -1",
        model(
            node("SequenceConstruct", ["x", "x"], ["s"]),
            node("SequenceAt", ["s", "i"], ["y"]),
            inputs={"x": X},
            weights={"i": np.array(-1)},
        ),
        {"x": X},
        VALUE,
        want={"y": X},
        session=False,
    )
    yield Case(
        "SequenceAt of nothing",
        model(
            node("SequenceEmpty", [], ["s"]),
            node("SequenceAt", ["s", "i"], ["y"], name="the_node"),
            weights={"i": np.array(0)},
        ),
        {},
        ERROR,
    )
    yield Case(
        "SequenceErase beyond",
        model(
            node("SequenceConstruct", ["x"], ["s"]),
            node("SequenceErase", ["s", "i"], ["t"], name="the_node"),
            node("SequenceLength", ["t"], ["y"]),
            inputs={"x": X},
            weights={"i": np.array(3)},
        ),
        {"x": X},
        ERROR,
    )
    yield Case(
        "a sequence of two types",
        model(
            node("SequenceConstruct", ["x", "w"], ["s"], name="the_node"),
            node("SequenceLength", ["s"], ["y"]),
            inputs={"x": X},
            weights={"w": np.ones(2)},
        ),
        {"x": X},
        ERROR,
    )
    yield Case(
        "ConcatFromSequence of nothing",
        model(node("SequenceEmpty", [], ["s"]), node("ConcatFromSequence", ["s"], ["y"], axis=0, name="the_node")),
        {},
        ERROR,
    )
    yield Case(
        "Relu of a sequence",
        model(node("SequenceConstruct", ["x"], ["s"]), node("Relu", ["s"], ["y"], name="the_node"), inputs={"x": X}),
        {"x": X},
        ERROR,
    )
    yield Case(
        "OptionalGetElement of nothing",
        model(
            node("Optional", [], ["o"], type=helper.make_tensor_type_proto(1, [2, 3])),
            node("OptionalGetElement", ["o"], ["y"], name="the_node"),
            opset=18,
        ),
        {},
        ERROR,
    )
    yield Case(
        "OptionalHasElement of nothing",
        model(
            node("Optional", [], ["o"], type=helper.make_tensor_type_proto(1, [2, 3])),
            node("OptionalHasElement", ["o"], ["y"]),
            opset=18,
        ),
        {},
        VALUE,
        want={"y": np.array(False)},
        session=False,
    )
    yield case_of("complex Relu", "Relu", X.astype(np.complex64), case={"expect": ERROR, "session": False})
    yield case_of("float64 stays exact", "Add", np.array([1.0, 2.0**53]), np.array([2.0**-40, 1.0]), case=alone)
    yield case_of("int64 stays exact", "Mul", np.array([3_000_000_019]), np.array([3_000_000_019]), case=alone)
    yield case_of("Gather by float", "Gather", X, F32([0]), case={"expect": ERROR})
    yield case_of("Bernoulli of 2", "Bernoulli", np.full((2, 2), 2, F32), case={"expect": "either"})
    yield case_of("Dropout of 2", "Dropout", X, F32(2), np.array(True), fixed=[1, 2], case={"expect": ERROR})
    yield case_of("Dropout of -1", "Dropout", X, F32(-1), np.array(True), fixed=[1, 2], case={"expect": ERROR})
    yield case_of("Dropout of NaN", "Dropout", X, F32(np.nan), np.array(True), fixed=[1, 2], case={"expect": ERROR})
    yield case_of(
        "NonMaxSuppression of NaN",
        "NonMaxSuppression",
        np.full((1, 3, 4), np.nan, F32),
        np.ones((1, 1, 3), F32),
        np.array(5),
        case={**alone, "expect": "either"},
    )
    yield case_of("Clip of crossed ends", "Clip", X, F32(5), F32(1), case=alone)
    yield case_of("Clip of NaN ends", "Clip", X, F32(np.nan), F32(np.nan), case={**alone, "expect": "either"})
    yield case_of("Det of a singular matrix", "Det", np.zeros((3, 3), F32), case=alone)
    yield case_of("Inverse of rank 1", "Det", np.zeros(3, F32), case={"expect": ERROR})
    yield case_of(
        "NegativeLogLikelihoodLoss at class 9",
        "NegativeLogLikelihoodLoss",
        X,
        np.array([0, 9]),
        case={"expect": ERROR, "session": False, "by": {"jit": {"y": F32(np.nan)}}},  # docs/operators.md: "nan"
    )
