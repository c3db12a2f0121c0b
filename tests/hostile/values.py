"""Numbers at the ends of their types, infinities and NaN, layouts of feeds in memory, element types that few use."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import helper

from .build import ERROR, F32, VALUE, Case, case_of

EXTREME = np.array([0.0, -0.0, 1.5, -1.5, 1e38, -1e38, 1e-37, np.inf, -np.inf, np.nan], F32)
INTS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def numbers() -> Iterator[Case]:
    """Values that are rare in operators' inputs."""
    alone = {"session": False}
    for op in (
        "Abs",
        "Neg",
        "Exp",
        "Log",
        "Sqrt",
        "Reciprocal",
        "Sigmoid",
        "Tanh",
        "Relu",
        "Elu",
        "Selu",
        "Softplus",
        "Softsign",
        "Sign",
        "Floor",
        "Ceil",
        "Round",
        "Erf",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "ThresholdedRelu",
        "Sin",
        "Cos",
        "Tan",
        "Asin",
        "Acos",
        "Atan",
        "Sinh",
        "Cosh",
        "Asinh",
        "Acosh",
        "Atanh",
        "IsNaN",
        "IsInf",
        "Celu",
        "Gelu",
        "Mish",
        "Identity",
        "Shrink",
    ):
        opset = 20 if op in ("Gelu", "Mish") else 17
        # far from zero the judge's own sines are approximations, and its Gelu and Mish of infinities are NaN
        x = EXTREME[[0, 1, 2, 3, 6, 7, 8, 9]] if op in ("Sin", "Cos", "Tan") else EXTREME
        loose = {
            "tolerance": 1e-4,
            **alone,
            **({"expect": "either"} if op in ("Gelu", "Mish", "HardSwish", "Softsign", "Celu") else {}),
        }
        yield case_of(f"{op} of extremes", op, x, opset=opset, case=loose)
    pairs = np.array([(a, b) for a in EXTREME for b in EXTREME], F32)
    for op in (
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Max",
        "Min",
        "Equal",
        "Less",
        "Greater",
        "LessOrEqual",
        "PRelu",
        "Mean",
        "Sum",
    ):
        loose = {"expect": "either"} if op in ("Max", "Min", "PRelu") else {}
        yield case_of(f"{op} of extremes", op, pairs[:, 0], pairs[:, 1], case={**alone, **loose})
    yield case_of("Mod of extremes", "Mod", pairs[:, 0], pairs[:, 1], fmod=1, case=alone)
    for op in (
        "ReduceSum",
        "ReduceMax",
        "ReduceMin",
        "ReduceMean",
        "ReduceProd",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSumExp",
        "ReduceLogSum",
        "Softmax",
        "LogSoftmax",
        "Hardmax",
        "ArgMax",
        "ArgMin",
    ):
        for name, row in {
            "infinity": [1, np.inf, 2],
            "two infinities": [np.inf, np.inf, 1],
            "both infinities": [np.inf, -np.inf, 1],
            "NaN": [1, np.nan, 2],
            "all -inf": [-np.inf] * 3,
            "huge": [3e38, 3e38, -3e38],
        }.items():
            x = np.array([row], F32)
            axis = {"axis": 1} if ("max" in op.lower() and not op.startswith("Reduce")) or op == "ArgMin" else {}
            hard = (
                "either"
                if name in ("NaN", "both infinities", "huge", "all -inf", "two infinities")
                and op not in ("ReduceSum", "ReduceMean")
                else "judge"
            )
            yield case_of(f"{op} with {name}", op, x, **axis, case={**alone, "expect": hard})
    for kind in INTS:
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        x = np.array([low, high, 0, 1, 7], kind)
        for op in ("Add", "Sub", "Mul"):
            yield case_of(
                f"{op} of {kind} overflows",
                op,
                x,
                x[::-1].copy(),
                case={
                    **alone,
                    "expect": VALUE,
                    "want": {"y": {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op](x, x[::-1].copy())},
                },
            )
        for op, found in (("Div", ~np.zeros(5, kind)), ("Mod", np.zeros(5, kind))):  # compiled, XLA's rule
            case = {**alone, "expect": ERROR, "by": {"jit": {"y": found}}}
            yield case_of(f"{op} of {kind} by zero", op, x, np.zeros(5, kind), case=case)
        if low:
            powers = {**alone, "expect": VALUE, "want": {"y": np.array([0, 0, 1, -1, 1], kind)}}
            bases, minus = np.array([2, -2, 1, -1, -1], kind), np.array([-1, -2, -3, -3, -4], kind)
            if kind in ("int32", "int64"):
                yield case_of(f"Pow of {kind} to negative ones", "Pow", bases, minus, case=powers)
            yield case_of(
                f"Div of the least {kind} by -1", "Div", x, np.full(5, -1, kind), case={**alone, "expect": "either"}
            )
            yield case_of(
                f"Abs and Neg of the least {kind}", "Abs", x, case={**alone, "expect": VALUE, "want": {"y": np.abs(x)}}
            )
        for target in ("float16", "float32", "bool", *INTS):
            to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
            with np.errstate(all="ignore"):
                want = x.astype(target)
            yield case_of(
                f"Cast of {kind} to {target}", "Cast", x, to=to, case={**alone, "expect": VALUE, "want": {"y": want}}
            )
        yield case_of(
            f"Cast of extremes to {kind}",
            "Cast",
            EXTREME,
            to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)),
            case={**alone, "expect": "either"},
        )
        yield case_of(
            f"Cast of fractions to {kind}",
            "Cast",
            np.array([0.9, 1.5, 99.99], F32),
            to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)),
            case={**alone, "expect": VALUE, "want": {"y": np.array([0, 1, 99], kind)}},
        )
        if kind[0] == "u":
            for way in ("LEFT", "RIGHT"):
                bits = np.iinfo(kind).bits
                yield case_of(
                    f"BitShift of {kind} by its width, {way}",
                    "BitShift",
                    x,
                    np.full(5, bits, kind),
                    direction=way,
                    case={**alone, "expect": "either"},
                )
                yield case_of(
                    f"BitShift of {kind} by width - 1, {way}",
                    "BitShift",
                    x,
                    np.full(5, bits - 1, kind),
                    direction=way,
                    case={
                        **alone,
                        "expect": VALUE,
                        "want": {
                            "y": (np.left_shift if way == "LEFT" else np.right_shift)(x, np.array(bits - 1, kind))
                        },
                    },
                )
    yield case_of("Pow of ints", "Pow", np.array([2, -2, 0, 10]), np.array([62, 3, 0, 18]), case=alone)
    yield case_of(
        "Pow of int by a negative one",
        "Pow",
        np.array([2, 1, -1]),
        np.array([-1, -1, -1]),
        case={**alone, "expect": "either"},
    )
    yield case_of("CumSum of int64", "CumSum", np.array([1 << 62, 1 << 61, 5]), np.array(0), fixed=[1], case=alone)
    yield case_of(
        "ReduceSum of int64",
        "ReduceSum",
        np.array([1 << 62, 1 << 53, 5]),
        case={**alone, "expect": VALUE, "want": {"y": np.array([(1 << 62) + (1 << 53) + 5])}},
    )
    yield case_of(
        "ReduceSum of int32 overflows",
        "ReduceSum",
        np.array([2**31 - 1, 1], np.int32),
        case={**alone, "expect": "either"},
    )


def halves() -> Iterator[Case]:
    """Sums of half precision are accumulated in a wider type."""
    alone = {"session": False}
    h = np.array([[300, 300, -300, 6e4, -6e4, 3]], np.float16)
    total, product = h.astype(np.float64).sum(), np.float16
    yield case_of(
        "ReduceSum", "ReduceSum", h, case={**alone, "expect": VALUE, "want": {"y": np.array([[total]], np.float16)}}
    )
    yield case_of(
        "ReduceMean",
        "ReduceMean",
        np.full((1, 4), 6e4, np.float16),
        case={**alone, "expect": VALUE, "want": {"y": np.array([[6e4]], np.float16)}},
    )
    yield case_of(
        "ReduceProd",
        "ReduceProd",
        np.array([[300, 300, 1e-4]], np.float16),
        case={
            **alone,
            "expect": VALUE,
            "tolerance": 2e-3,
            "want": {"y": np.array([[np.prod(np.array([300, 300, 1e-4], product).astype(np.float64))]], np.float16)},
        },
    )
    yield case_of(
        "ReduceL2",
        "ReduceL2",
        np.array([[300, 400]], np.float16),
        case={**alone, "expect": VALUE, "want": {"y": np.array([[500]], np.float16)}},
    )
    yield case_of(
        "ReduceSumSquare",
        "ReduceSumSquare",
        np.array([[100, 200]], np.float16),
        case={**alone, "expect": VALUE, "want": {"y": np.array([[50000]], np.float16)}},
    )
    yield case_of(
        "ReduceL1",
        "ReduceL1",
        np.array([[6e4, -6e4, 3]], np.float16),
        case={**alone, "expect": VALUE, "want": {"y": np.array([[np.inf]], np.float16)}},
    )
    yield case_of(
        "ReduceLogSumExp",
        "ReduceLogSumExp",
        np.array([[100, 100]], np.float16),
        case={**alone, "expect": VALUE, "tolerance": 2e-3, "want": {"y": np.array([[100.7]], np.float16)}},
    )
    yield case_of(
        "Softmax",
        "Softmax",
        np.full((1, 3000), 5, np.float16),
        case={**alone, "expect": VALUE, "tolerance": 2e-3, "want": {"y": np.full((1, 3000), 1 / 3000, np.float16)}},
    )
    yield case_of(
        "Mean of four",
        "Mean",
        *(np.full(2, 6e4, np.float16),) * 4,
        case={**alone, "expect": VALUE, "want": {"y": np.full(2, 6e4, np.float16)}},
    )
    yield case_of(
        "Sum of four",
        "Sum",
        *(np.array([v], np.float16) for v in (6e4, 6e4, -6e4, -6e4)),
        case={**alone, "expect": "either"},
    )
    picture = np.full((1, 1, 2, 2), 6e4, np.float16)
    yield case_of(
        "AveragePool",
        "AveragePool",
        picture,
        kernel_shape=[2, 2],
        case={**alone, "expect": VALUE, "want": {"y": picture[:, :, :1, :1]}},
    )
    yield case_of(
        "GlobalAveragePool",
        "GlobalAveragePool",
        picture,
        case={**alone, "expect": VALUE, "want": {"y": picture[:, :, :1, :1]}},
    )
    yield case_of(
        "LpPool",
        "LpPool",
        np.array([[[[300, 400], [0, 0]]]], np.float16),
        kernel_shape=[2, 2],
        case={**alone, "expect": VALUE, "want": {"y": np.array([[[[500]]]], np.float16)}},
    )
    yield case_of("CumSum", "CumSum", h[0], np.array(0), fixed=[1], case={**alone, "expect": "either"})
    x = np.full((1, 4096), 1, np.float16)
    yield case_of(
        "MatMul over 4096",
        "MatMul",
        x,
        x.T.copy(),
        case={**alone, "expect": VALUE, "want": {"y": np.array([[4096]], np.float16)}},
    )
    big = np.array([[6e4, 6e4, -6e4]], np.float16)
    yield case_of(
        "MatMul past the end and back",
        "MatMul",
        big,
        np.ones((3, 1), np.float16),
        case={**alone, "expect": VALUE, "want": {"y": np.array([[6e4]], np.float16)}},
    )
    yield case_of(
        "LayerNormalization",
        "LayerNormalization",
        np.array([[300, -300, 6e4, 0]], np.float16),
        np.ones(4, np.float16),
        case={
            **alone,
            "tolerance": 5e-3,
            "expect": VALUE,
            "want": {"y": _normalized(np.array([[300, -300, 6e4, 0]], np.float64)).astype(np.float16)},
        },
    )
    yield case_of(
        "InstanceNormalization",
        "InstanceNormalization",
        np.array([[[300, -300, 6e4, 0]]], np.float16),
        np.ones(1, np.float16),
        np.zeros(1, np.float16),
        case={
            **alone,
            "tolerance": 5e-3,
            "expect": VALUE,
            "want": {"y": _normalized(np.array([[[300, -300, 6e4, 0]]], np.float64)).astype(np.float16)},
        },
    )


def _normalized(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
