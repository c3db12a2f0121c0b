"""Sizes beyond any machine, wherever a model can name one, and graphs that grow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from onnx import helper

from .build import BOOL, ERROR, F32, FLOAT, I64, INT64, VALUE, Case, X, case_of, const, info, model, node

BIG = 1 << 62
HUGE = {"2^62": [BIG], "2^31 x 2^31": [1 << 31, 1 << 31], "2^63-1": [(1 << 63) - 1], "2^40 x 3": [1 << 40, 3]}


def sizes() -> Iterator[Case]:
    """Sizes that a model names."""
    refused = {"expect": ERROR}
    box = np.array([[0, 0, 1, 1]], F32)
    one_image = np.ones((1, 1, 4, 4), F32)
    for size in (2**31, 2**62):
        region = {"output_height": size, "output_width": size, "case": refused}
        yield case_of(f"RoiAlign to {size}", "RoiAlign", one_image, box, np.array([0], I64), **region)
        yield case_of(f"Multinomial of {size}", "Multinomial", np.ones((1, 3), F32), sample_size=size, case=refused)
    for name, shape in HUGE.items():
        yield Case(f"input of {name}", model(node("Relu", ["x"], ["y"]), inputs=[info("x", shape)]), {"x": X}, ERROR)
        yield Case(
            f"output of {name}",
            model(node("Relu", ["x"], ["y"]), inputs={"x": X}, outputs=[info("y", shape)]),
            {"x": X},
            "either",
        )
        given = np.array(shape, I64)
        yield case_of(f"ConstantOfShape {name}", "ConstantOfShape", given, fixed=[0], case=refused)
        yield case_of(f"ConstantOfShape {name}, fed", "ConstantOfShape", given, case=refused)
        yield case_of(f"Expand {name}", "Expand", F32(1), given, fixed=[1], case=refused)
        yield case_of(f"Reshape {name}", "Reshape", X, given, fixed=[1], case=refused)
        for op in ("RandomNormal", "RandomUniform"):
            yield case_of(f"{op} {name}", op, shape=shape, case=refused)
        yield Case(
            f"weight of {name}",
            model(
                node("Relu", ["w"], ["y"]),
                weights=[helper.make_tensor("w", FLOAT, [1], [1.0])],
                outputs=[info("y", shape)],
            ),
            expect="either",
        )
        made = model(node("Relu", ["w"], ["y"]))
        made.graph.initializer.add(name="w", data_type=FLOAT, dims=shape, raw_data=bytes(8))
        yield Case(f"initializer of {name}, 8 bytes", made, expect=ERROR)
        made = model(node("Relu", ["w"], ["y"]))
        made.graph.initializer.add(name="w", data_type=FLOAT, dims=[*shape, 0])
        yield Case(f"initializer of {name} x 0", made, expect="either")
        made = model(node("Constant", [], ["y"], value=const("c", [1.0], F32)))
        made.graph.node[0].attribute[0].t.dims[:] = shape
        yield Case(f"Constant of {name}", made, expect=ERROR)
        made = model(node("Relu", ["w"], ["y"]))
        sparse = made.graph.sparse_initializer.add(dims=shape)
        sparse.values.CopyFrom(const("w", [1.0], F32))
        sparse.indices.CopyFrom(const("i", [0] if len(shape) == 1 else [[0] * len(shape)], I64))
        yield Case(f"sparse initializer of {name}", made, expect=ERROR)
    yield from _of_operators()


def _of_operators() -> Iterator[Case]:
    refused = {"expect": ERROR}
    big = np.array(BIG)
    for start, limit, step in ((0, BIG, 1), (0, 1 << 50, 1), (-BIG, BIG, 1), (BIG, -BIG, -1), (0, 10, 0)):
        yield case_of(
            f"Range {start} {limit} {step}", "Range", *np.array([start, limit, step]), fixed=[0, 1, 2], case=refused
        )
        yield case_of(f"Range {start} {limit} {step}, fed", "Range", *np.array([start, limit, step]), case=refused)
    for start, limit, step in (
        (0, 1e30, 1),
        (0, np.inf, 1),
        (0, np.nan, 1),
        (0, 1, np.nan),
        (0, 1, 1e-38),
        (-np.inf, 0, 1),
    ):
        numbers = np.array([start, limit, step], F32)
        yield case_of(f"Range of floats {start} {limit} {step}", "Range", *numbers, fixed=[0, 1, 2], case=refused)
    for times in ([BIG, 1], [1 << 32, 1 << 32], [-1, 1], [1 << 40, 0]):
        kind = "either" if 0 in times else ERROR
        yield case_of(f"Tile {times}", "Tile", X, np.array(times), fixed=[1], case={"expect": kind})
    for mode in ("constant", "edge", "reflect"):
        for pads in ([BIG, 0, 0, 0], [0, 0, 1 << 40, 0], [-BIG, 0, 0, 0], [-5, 0, 0, 0], [0, 0, 0, -(1 << 63)]):
            yield case_of(f"Pad {mode} {pads}", "Pad", X, np.array(pads), fixed=[1], mode=mode, case=refused)
    picture = np.ones((1, 1, 2, 2), F32)
    for scale in (1e10, 1e30, np.inf, np.nan, -1.0, 0.0):
        scales = np.array([1, 1, scale, 1], F32)
        yield case_of(f"Resize by {scale}", "Resize", picture, None, scales, fixed=[2], case=refused)
        yield case_of(f"Upsample by {scale}", "Upsample", picture, scales, fixed=[1], opset=9, case=refused)
    for size in (BIG, -1, 0, 1 << 40):
        given = np.array([1, 1, size, 2])
        yield case_of(f"Resize to {size}", "Resize", picture, None, None, given, fixed=[3], case=refused)
    for depth in (10**12, BIG, (1 << 63) - 1, 0, -3):
        values, refused = np.array([0, 1], F32), {"expect": ERROR if depth else "either"}
        yield case_of(
            f"OneHot depth {depth}", "OneHot", np.array([1, 2]), np.array(depth), values, fixed=[1, 2], case=refused
        )
        yield case_of(f"OneHot depth {depth}, fed", "OneHot", np.array([1, 2]), np.array(depth), values, case=refused)
    refused = {"expect": ERROR}
    yield case_of("EyeLike k 2^62", "EyeLike", X, k=BIG, case={"expect": VALUE, "want": {"y": np.zeros((2, 3), F32)}})
    yield case_of(
        "EyeLike k -2^63", "EyeLike", X, k=-(1 << 63), case={"expect": VALUE, "want": {"y": np.zeros((2, 3), F32)}}
    )
    yield case_of(
        "Trilu k 2^62", "Trilu", X, big, fixed=[1], case={"expect": VALUE, "want": {"y": np.zeros((2, 3), F32)}}
    )
    yield case_of("Trilu k -2^62", "Trilu", X, -big, fixed=[1], case={"expect": VALUE, "want": {"y": X}})
    yield case_of("Trilu k -2^62, fed", "Trilu", X, np.array(-BIG), case={"expect": VALUE, "want": {"y": X}})
    yield case_of("TopK of 2^62", "TopK", X, np.array([BIG]), fixed=[1], n=2, case=refused)
    yield case_of("TopK of -1", "TopK", X, np.array([-1]), fixed=[1], n=2, case=refused)
    yield case_of("SplitToSequence in parts of 2^62", "SplitToSequence", X, big, fixed=[1], case={"expect": "either"})
    yield case_of("SplitToSequence in parts of 0", "SplitToSequence", X, np.array(0), fixed=[1], case=refused)
    yield case_of("Split of negative parts", "Split", X, np.array([-1, 4]), axis=1, fixed=[1], n=2, case=refused)
    yield case_of("Split into 2^62", "Split", X, opset=18, num_outputs=BIG, n=2, case=refused)
    yield case_of("Multinomial of 2^40 samples", "Multinomial", np.ones((1, 3), F32), sample_size=1 << 40, case=refused)
    yield case_of("Multinomial of -1 samples", "Multinomial", np.ones((1, 3), F32), sample_size=-1, case=refused)
    yield case_of("BlackmanWindow 2^60", "BlackmanWindow", np.array(1 << 60), fixed=[0], case=refused)
    yield case_of("HannWindow -3", "HannWindow", np.array(-3), fixed=[0], case=refused)
    yield case_of(
        "MelWeightMatrix 2^60",
        "MelWeightMatrix",
        *np.array([1 << 60, 8, 8000]),
        F32(0),
        F32(4000),
        fixed=[0, 1, 2, 3, 4],
        case=refused,
    )
    yield case_of("DFT of length 2^60", "DFT", np.ones((1, 4, 1), F32), np.array(1 << 60), fixed=[1], case=refused)
    yield case_of("Slice to 2^63-1", "Slice", X, np.array([0]), np.array([(1 << 63) - 1]), fixed=[1, 2])
    yield case_of("Slice from -2^63", "Slice", X, np.array([-(1 << 63)]), np.array([(1 << 63) - 1]), fixed=[1, 2])
    yield case_of(
        "Slice by 2^62", "Slice", X, np.array([0]), np.array([9]), np.array([0]), np.array([BIG]), fixed=[1, 2, 3, 4]
    )
    yield case_of(
        "Slice back by -2^63",
        "Slice",
        X,
        np.array([1]),
        np.array([-9]),
        np.array([0]),
        np.array([-(1 << 63)]),
        fixed=[1, 2, 3, 4],
        case={"expect": "either"},
    )
    yield case_of(
        "Slice by 0",
        "Slice",
        X,
        np.array([0]),
        np.array([9]),
        np.array([0]),
        np.array([0]),
        fixed=[1, 2, 3, 4],
        case=refused,
    )
    yield case_of("Conv with pads 2^40", "Conv", picture, picture, pads=[1 << 40] * 4, case=refused)
    yield case_of("Conv with stride 0", "Conv", picture, picture, strides=[0, 0], case=refused)
    yield case_of("Conv with dilation 2^40", "Conv", picture, picture, dilations=[1 << 40] * 2, case=refused)
    yield case_of("Conv with group 0", "Conv", picture, picture, group=0, case=refused)
    yield case_of("Conv with group 2^62", "Conv", picture, picture, group=BIG, case=refused)
    yield case_of(
        "ConvTranspose with output_shape 2^40",
        "ConvTranspose",
        picture,
        picture,
        output_shape=[1 << 40, 2],
        case=refused,
    )
    yield case_of(
        "ConvTranspose with stride 2^40", "ConvTranspose", picture, picture, strides=[1 << 40] * 2, case=refused
    )
    yield case_of("MaxPool of 2^40", "MaxPool", picture, kernel_shape=[1 << 40] * 2, case=refused)
    yield case_of("MaxPool of 0", "MaxPool", picture, kernel_shape=[0, 0], case=refused)
    yield case_of("MaxPool with pads 2^40", "MaxPool", picture, kernel_shape=[2, 2], pads=[1 << 40] * 4, case=refused)
    yield case_of("AveragePool of -2", "AveragePool", picture, kernel_shape=[-2, 2], case=refused)
    yield case_of(
        "MaxUnpool to 2^60",
        "MaxUnpool",
        picture,
        np.arange(4).reshape(1, 1, 2, 2),
        np.array([1, 1, 1 << 30, 1 << 30]),
        fixed=[2],
        kernel_shape=[2, 2],
        case=refused,
    )
    yield case_of("DepthToSpace by 0", "DepthToSpace", picture, blocksize=0, case=refused)
    yield case_of("DepthToSpace by 2^40", "DepthToSpace", picture, blocksize=1 << 40, case=refused)
    yield case_of("SpaceToDepth by 0", "SpaceToDepth", picture, blocksize=0, case=refused)
    most = (1 << 63) - 1
    yield case_of("LRN of size 2^63-1", "LRN", picture, size=most, case={"expect": "either"})
    yield case_of("HannWindow 2^63-1", "HannWindow", np.array(most), fixed=[0], case=refused)
    yield case_of("Resize to 2^63-1, fed", "Resize", picture, None, None, np.array([1, 1, most, 2]), case=refused)
    yield case_of("Slice by -2^63", "Slice", X, *(np.array([n]) for n in (5, -7, 1, -most - 1)), fixed=[1, 2, 3, 4])
    wave, cache = np.ones((1, 16, 1), F32), np.ones((1, 1, 4, 2), F32)
    for step in (-1, 0, -most):
        yield case_of(f"STFT by {step}", "STFT", wave, np.array(step), None, np.array(8), fixed=[1, 3], case=refused)
    for at in (-1, 4, 1 << 40):
        given = (cache, cache[:, :, :1], np.array([at]))
        yield case_of(
            f"TensorScatter at {at}",
            "TensorScatter",
            *given,
            opset=24,
            case={**refused, "compiled": False, "session": False},
        )
    yield case_of(
        "RoiAlign of -1 samples",
        "RoiAlign",
        picture,
        np.array([[0, 0, 1, 1]], F32),
        np.array([0], I64),
        sampling_ratio=-1,
        case=refused,
    )
    yield case_of("SplitToSequence in parts of -1", "SplitToSequence", X, np.array(-1), fixed=[1], case=refused)
    for op in ("AveragePool", "MaxPool"):
        negative = {"kernel_shape": [2, 2], "pads": [-1, 0, 0, 0]}
        yield case_of(f"{op} with a negative pad", op, picture, **negative, case=refused)
    yield case_of("Conv with a negative pad", "Conv", picture, picture[:, :, :1, :1], pads=[-1, 0, 0, 0], case=refused)
    for name, value in (("output_padding", [-1, 0]), ("output_shape", [-1, 4]), ("pads", [-1, 0, 0, 0])):
        more = {name: value, "strides": [2, 2]}
        yield case_of(f"ConvTranspose with negative {name}", "ConvTranspose", picture, picture, **more, case=refused)
    yield case_of("LRN of size 2^40", "LRN", picture, size=1 << 40, case={"expect": "either"})
    yield case_of(
        "LSTM of 2^40 hidden",
        "LSTM",
        np.ones((2, 1, 3), F32),
        np.ones((1, 8, 3), F32),
        np.ones((1, 8, 2), F32),
        n=3,
        hidden_size=1 << 40,
        case=refused,
    )
    yield case_of("Unsqueeze at 2^40", "Unsqueeze", X, np.array([1 << 40]), fixed=[1], case=refused)
    yield case_of("Flatten at 2^62", "Flatten", X, axis=BIG, case=refused)
    yield case_of("Concat at -2^63", "Concat", X, X, axis=-(1 << 63), case=refused)
    yield case_of("Softmax at 2^62", "Softmax", X, axis=BIG, case=refused)
    yield case_of("Transpose by 2^62", "Transpose", X, perm=[BIG, 0], case=refused)
    yield case_of("Gather at 2^62", "Gather", X, np.array([BIG]), case={**refused, "compiled": False})
    yield case_of(
        "CenterCropPad to 2^60", "CenterCropPad", X, np.array([1 << 60, 3]), fixed=[1], opset=18, case=refused
    )
    yield case_of(
        "Col2Im of 2^60",
        "Col2Im",
        np.ones((1, 4, 4), F32),
        np.array([1 << 30, 1 << 30]),
        np.array([2, 2]),
        fixed=[1, 2],
        opset=18,
        case=refused,
    )
    yield case_of(
        "AffineGrid of 2^60",
        "AffineGrid",
        np.ones((1, 2, 3), F32),
        np.array([1, 1, 1 << 30, 1 << 30]),
        fixed=[1],
        opset=20,
        case=refused,
    )
    yield case_of("RandomNormal of -1", "RandomNormal", shape=[-1, 2], case=refused)
    yield case_of("ConstantOfShape of -1", "ConstantOfShape", np.array([-1, 2]), fixed=[0], case=refused)
    yield case_of("Reshape to -5", "Reshape", X, np.array([-5]), fixed=[1], case=refused)
    yield case_of("Reshape to two -1", "Reshape", X, np.array([-1, -1]), fixed=[1], case=refused)
    yield case_of(
        "Einsum of rank 60",
        "Einsum",
        np.ones((1,) * 26, F32),
        np.ones((1,) * 26, F32),
        opset=12,
        equation="abcdefghijklmnopqrstuvwxyz,ABCDEFGHIJKLMNOPQRSTUVWXYZ->abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
        case={"expect": "either"},
    )
    yield case_of(
        "Einsum of 2^60", "Einsum", *(np.ones(1 << 15, F32),) * 4, opset=12, equation="a,b,c,d->abcd", case=refused
    )
    yield case_of(
        "outer product of 2^44", "MatMul", np.ones((1 << 22, 1), F32), np.ones((1, 1 << 22), F32), case=refused
    )
    yield case_of(
        "Add of 2^44 by broadcast", "Add", np.ones((1 << 22, 1), F32), np.ones((1, 1 << 22), F32), case=refused
    )


def growth() -> Iterator[Case]:
    """Graphs that grow as they are computed."""
    names = ["x", *(f"c{i}" for i in range(60))]
    for op, more in (("Concat", {"axis": 0}), ("Einsum", {"equation": "...,...->..."})):
        if op == "Concat":
            grown = [node(op, [a, a], [b], **more) for a, b in pairwise(names)]
            yield Case(
                "Concat doubles 60 times",
                model(*grown, node("ReduceSum", [names[-1]], ["y"]), inputs={"x": X}),
                {"x": X},
                ERROR,
            )
    tiled = [node("Tile", [a, "r"], [b]) for a, b in pairwise(names)]
    yield Case(
        "Tile doubles 60 times",
        model(*tiled, node("ReduceSum", [names[-1]], ["y"]), inputs={"x": X}, weights={"r": np.array([2, 1])}),
        {"x": X},
        ERROR,
    )
    yield Case(
        "Tile doubles a constant 60 times",
        model(*tiled, node("ReduceSum", [names[-1]], ["y"]), weights={"r": np.array([2, 1]), "x": X}),
        {},
        ERROR,
    )
    added = [node("Add", [a, a], [b]) for a, b in pairwise(names)]
    yield Case(
        "Add doubles a value 60 times", model(*added, node("Identity", [names[-1]], ["y"]), inputs={"x": X}), {"x": X}
    )
    prefix = [node("Mul", [a, a], [b]) for a, b in pairwise(names)]
    yield Case(
        "an integer overflows 60 times",
        model(*prefix, node("Identity", [names[-1]], ["y"]), inputs={"x": X.astype(I64)}),
        {"x": X.astype(I64)},
        session=False,
    )
    yield Case(
        "a loop state that grows",
        model(node("Loop", ["n", "", "x"], ["y"], body=_doubling()), inputs={"x": X}, weights={"n": np.array(40)}),
        {"x": X},
        ERROR,
    )
    yield Case(
        "a loop state that grows, count fed",
        model(node("Loop", ["n", "", "x"], ["y"], body=_doubling()), inputs={"x": X, "n": np.array(40)}),
        {"x": X, "n": np.array(40)},
        ERROR,
    )
    yield Case(
        "a loop of 2^62 rounds that grows",
        model(node("Loop", ["n", "", "x"], ["y"], body=_doubling()), inputs={"x": X}, weights={"n": np.array(BIG)}),
        {"x": X},
        ERROR,
    )
    yield Case(
        "a scan output of 2^62 rounds",
        model(
            node("Loop", ["n", "", "x"], ["v", "y"], body=_collecting()), inputs={"x": X}, weights={"n": np.array(BIG)}
        ),
        {"x": X},
        ERROR,
    )
    yield Case(
        "a loop of -5 rounds",
        model(node("Loop", ["n", "", "x"], ["y"], body=_plain()), inputs={"x": X}, weights={"n": np.array(-5)}),
        {"x": X},
    )
    yield Case(
        "a sequence that grows",
        model(
            node("SequenceEmpty", [], ["s"]),
            node("Loop", ["n", "", "s"], ["t"], body=_sequence()),
            node("SequenceLength", ["t"], ["y"]),
            inputs={"x": X},
            weights={"n": np.array(20)},
        ),
        {"x": X},
        session=False,
    )


def _doubling():
    calls = [node("Identity", ["c"], ["d"]), node("Concat", ["v", "v"], ["w"], axis=0)]
    return helper.make_graph(
        calls,
        "body",
        [info("i", (), INT64), info("c", (), BOOL), info("v", None)],
        [info("d", (), BOOL), info("w", None)],
    )


def _collecting():
    calls = [node("Identity", ["c"], ["d"]), node("Neg", ["v"], ["w"]), node("Neg", ["v"], ["u"])]
    return helper.make_graph(
        calls,
        "body",
        [info("i", (), INT64), info("c", (), BOOL), info("v")],
        [info("d", (), BOOL), info("w"), info("u")],
    )


def _plain():
    calls = [node("Identity", ["c"], ["d"]), node("Neg", ["v"], ["w"])]
    return helper.make_graph(
        calls, "body", [info("i", (), INT64), info("c", (), BOOL), info("v")], [info("d", (), BOOL), info("w")]
    )


def _sequence():
    calls = [node("Identity", ["c"], ["d"]), node("SequenceInsert", ["v", "x"], ["w"])]
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    return helper.make_graph(
        calls,
        "body",
        [info("i", (), INT64), info("c", (), BOOL), helper.make_value_info("v", kind)],
        [info("d", (), BOOL), helper.make_value_info("w", kind)],
    )
