"""Infinities, NaN and indices in windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .build import EITHER, ERROR, F32, Case, X, case_of

INTS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def windows() -> Iterator[Case]:
    """Infinities and NaN in one group, channel or window stay there."""
    alone = {"session": False}
    for groups, channels in ((2, 4), (4, 4), (16, 32), (32, 32), (8, 64)):
        x = np.random.default_rng(0).normal(size=(1, channels, 5, 5)).astype(F32)
        w = np.random.default_rng(1).normal(size=(channels, channels // groups, 3, 3)).astype(F32)
        for value in (np.inf, -np.inf, np.nan):
            y = x.copy()
            y[0, 1, 2, 2] = value
            yield case_of(
                f"Conv of {channels} channels in {groups} groups with {value}",
                "Conv",
                y,
                w,
                group=groups,
                pads=[1] * 4,
                case={**alone, "tolerance": 1e-4},
            )
            yield case_of(
                f"Conv of {channels} channels in {groups} groups, weights with {value}",
                "Conv",
                x,
                np.where(np.arange(channels)[:, None, None, None] == 1, F32(value), w),
                group=groups,
                fixed=[1],
                case={**alone, "tolerance": 1e-4},
            )
    x = np.arange(16, dtype=F32).reshape(1, 1, 4, 4)
    for value in (np.inf, -np.inf, np.nan):
        y = x.copy()
        y[0, 0, 1, 1] = value
        yield case_of(f"AveragePool with {value}", "AveragePool", y, kernel_shape=[2, 2], case=alone)
        yield case_of(
            f"AveragePool with {value}, padded", "AveragePool", y, kernel_shape=[3, 3], pads=[1] * 4, case=alone
        )
        yield case_of(f"LpPool with {value}", "LpPool", y, kernel_shape=[2, 2], case=alone)
        yield case_of(f"ConvTranspose with {value}", "ConvTranspose", y, np.ones((1, 1, 2, 2), F32), case=alone)
        yield case_of(f"GlobalMaxPool with {value}", "GlobalMaxPool", y, case={**alone, "expect": "either"})
        yield case_of(f"BatchNormalization with {value}", "BatchNormalization", y, *(np.ones(1, F32),) * 4, case=alone)
        yield case_of(f"Resize with {value}", "Resize", y, None, np.array([1, 1, 2, 2], F32), fixed=[2], case=alone)
        yield case_of(
            f"Pad with {value}", "Pad", y, np.array([0, 0, 1, 1, 0, 0, 1, 1]), fixed=[1], mode="reflect", case=alone
        )
        yield case_of(f"MatMul with {value}", "MatMul", y[0, 0], np.eye(4, dtype=F32), case=alone)
        yield case_of(
            f"Gemm with {value}, beta 0",
            "Gemm",
            y[0, 0],
            np.eye(4, dtype=F32),
            np.full(4, value, F32),
            beta=0.0,
            case={**alone, "expect": "either"},
        )
        yield case_of(f"Where with {value}", "Where", y > 3, y, x, case=alone)
        yield case_of(f"CumSum with {value}", "CumSum", y[0, 0], np.array(1), fixed=[1], case=alone)
    nans = np.full((1, 1, 2, 2), np.nan, F32)
    yield case_of(
        "MaxPool of NaN, with its index", "MaxPool", nans, kernel_shape=[2, 2], n=2, case={**alone, "expect": "either"}
    )
    minus = np.full((1, 1, 2, 2), -np.inf, F32)
    yield case_of(
        "MaxPool of -inf, with its index",
        "MaxPool",
        minus,
        kernel_shape=[2, 2],
        n=2,
        case={**alone, "expect": "either"},
    )
    yield case_of(
        "MaxRoiPool at halves",
        "MaxRoiPool",
        np.arange(64, dtype=F32).reshape(1, 1, 8, 8),
        np.array([[0, 0.5, 1.5, 4.5, 5.5], [0, 2.5, 2.5, 3.5, 3.5]], F32),
        pooled_shape=[2, 2],
        case=alone,
    )
    # what a compiled program can't refuse is said in the column "off the end" of docs/operators.md
    for op, index, read in (
        ("Gather", [9], X[1:]),
        ("Gather", [-9], X[:1]),
        ("GatherElements", [[9]], X[1:, :1]),
        ("GatherND", [[9, 0]], X[1, :1]),
        ("GatherND", [[0, 0, 0]], None),
    ):
        off = {
            "expect": ERROR,
            "by": {} if read is None else {"jit": {"y": read}, "session": EITHER if index == [-9] else {"y": read}},
        }
        yield case_of(f"{op} at {index}", op, X, np.array(index), case=off)
        yield case_of(f"{op} at {index}, held", op, X, np.array(index), fixed=[1], case={"expect": ERROR})
    dropped = {"expect": ERROR, "by": {"jit": {"y": X}, "session": {"y": X}}}
    yield case_of("ScatterElements at 9", "ScatterElements", X, np.array([[9]]), X[:1, :1] + 7, case=dropped)
    yield case_of("ScatterND at 9", "ScatterND", X, np.array([[9]]), X[:1] + 7, opset=16, case=dropped)
