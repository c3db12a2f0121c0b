"""Convolutions, pools, normalisation, softmax and losses against PyTorch, values and gradients."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import popart_jax as popart

from .against_torch import case, compare, f

torch = pytest.importorskip("torch")
F = torch.nn.functional
LABELS = np.array([1, 0, 2], np.int32)
CONV = (None, F.conv1d, F.conv2d, F.conv3d)
CONV_TRANSPOSE = (None, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


def convolution(rank, opset, group, stride, dilation, pad):
    window = {"strides": [stride] * rank, "dilations": [dilation] * rank, "pads": [pad] * 2 * rank}
    inputs = (f(2, 4, *(6, 5, 4)[:rank]), f(4, 4 // group, *[3] * rank), f(4))
    return case(
        f"conv{rank}d opset {opset} group {group} stride {stride}",
        lambda b, n, g, i: n.conv(i, group=group, **window),
        lambda x, w, c: CONV[rank](x, w, c, stride=stride, padding=pad, dilation=dilation, groups=group),
        *inputs,
        opset=opset,
        tol=1e-4,
    )


def multi_convolution(rank, group, stride, dilation, pad):
    window = {"strides": [[stride] * rank], "dilations": [[dilation] * rank], "pads": [[pad] * 2 * rank]}
    inputs = (f(2, 4, *(6, 5, 4)[:rank]), f(4, 4 // group, *[3] * rank))
    return case(
        f"multiconv {rank}d group {group} stride {stride}",
        lambda b, n, g, i: g.multiconv([i], **window)[0],
        lambda x, w: CONV[rank](x, w, stride=stride, padding=pad, dilation=dilation, groups=group),
        *inputs,
        tol=1e-4,
    )


def transposed(rank, group, stride, pad, extra):
    window = {"strides": [stride] * rank, "pads": [pad] * 2 * rank, "output_padding": [extra] * rank}
    inputs = (f(2, 4, *(6, 5, 4)[:rank]), f(4, 2, *[3] * rank))
    return case(
        f"convtranspose {rank}d group {group} stride {stride} pad {pad}",
        lambda b, n, g, i: n.convtranspose(i, group=group, **window),
        lambda x, w: CONV_TRANSPOSE[rank](x, w, stride=stride, padding=pad, output_padding=extra, groups=group),
        *inputs,
        tol=1e-4,
    )


def cropped(name, wanted, auto_pad=None, **window):
    """A transposed convolution of stride 2 whose output shape is given."""
    program = lambda b, n, g, i: n.convtranspose(i, strides=[2, 2], auto_pad=auto_pad, **window)  # noqa: E731
    whole = lambda x, w: wanted(F.conv_transpose2d(x, w, stride=2))  # noqa: E731
    return case(f"convtranspose {name}", program, whole, f(2, 4, 6, 6), f(4, 3, 3, 3), tol=1e-4)


WINDOWS = [(1, 1, 1, 0), (2, 2, 1, 1), (1, 1, 2, 2), (4, 2, 2, 1)]
TRANSPOSED = [(1, 1, 0, 0), (2, 2, 1, 1), (1, 2, 1, 0), (2, 3, 2, 2)]
POOLS = {8: {}, 11: {"ceil_mode": 1}}
CASES = [
    *(convolution(r, o, *w) for r, o, w in itertools.product((1, 2, 3), (6, 11), WINDOWS) if r < 3 or o > 6),
    *(multi_convolution(r, *w) for r, w in itertools.product((1, 2), WINDOWS)),
    *(transposed(r, *w) for r, w in itertools.product((1, 2, 3), TRANSPOSED)),
    cropped("of a shape", lambda y: y[:, :, 0:12, 1:12], output_shape=[12, 11]),
    cropped("same upper", lambda y: y[:, :, 1:13, 1:12], "SAME_UPPER", output_shape=[12, 11]),
    cropped("same lower", lambda y: y[:, :, 0:12, 1:12], "SAME_LOWER", output_shape=[12, 11]),
    cropped("of a full shape", lambda y: y, output_shape=[2, 3, 13, 13]),
    case(
        "maxpool padded for a window larger than the image",
        lambda b, n, g, i: n.maxpool(i, 1, [9, 9], strides=[4, 4], auto_pad="SAME_LOWER")[0],
        lambda x: F.max_pool2d(F.pad(x, (3, 2, 3, 2), value=-np.inf), 9, 4),
        f(1, 2, 8, 8),
    ),
    *(
        case(
            f"maxpool opset {o}",
            lambda b, n, g, i, m=m: n.maxpool(i, 1, [3, 3], strides=[2, 2], **m)[0],
            lambda x, m=m: F.max_pool2d(x, 3, 2, ceil_mode=bool(m)),
            f(1, 2, 8, 8),
            opset=o,
        )
        for o, m in POOLS.items()
    ),
    *(
        case(
            f"averagepool opset {o}",
            lambda b, n, g, i, m=m: n.averagepool(i, [3, 3], strides=[2, 2], pads=[1, 1, 1, 1], **m),
            lambda x, m=m: F.avg_pool2d(x, 3, 2, 1, ceil_mode=bool(m), count_include_pad=False),
            f(1, 2, 8, 8),
            opset=o,
        )
        for o, m in POOLS.items()
    ),
    case(
        "convT bias",
        lambda b, n, g, i: n.convtranspose(i),
        lambda x, w, bb: F.conv_transpose2d(x, w, bb),
        f(2, 4, 5, 5),
        f(4, 3, 3, 3),
        f(3),
        tol=0.0001,
    ),
    case(
        "convT bigpad",
        lambda b, n, g, i: n.convtranspose(i, pads=[3, 3, 3, 3]),
        lambda x, w: F.conv_transpose2d(x, w, padding=3) if 0 else F.conv_transpose2d(x, w)[:, :, 3:-3, 3:-3],
        f(2, 4, 7, 7),
        f(4, 3, 3, 3),
        tol=0.0001,
    ),
    case(
        "convT asym",
        lambda b, n, g, i: n.convtranspose(i, pads=[0, 1, 2, 1]),
        lambda x, w: F.conv_transpose2d(x, w)[:, :, 0:-2, 1:-1],
        f(2, 4, 7, 7),
        f(4, 3, 3, 3),
        tol=0.0001,
    ),
    case("gmax", lambda b, n, g, i: n.globalmaxpool(i), lambda x: x.amax((2, 3), keepdim=True), f(1, 2, 4, 4)),
    case("gavg", lambda b, n, g, i: n.globalaveragepool(i), lambda x: x.mean((2, 3), keepdim=True), f(1, 2, 4, 4)),
    case(
        "inorm",
        lambda b, n, g, i: n.instancenormalization(i),
        lambda x, s, b: F.instance_norm(x, weight=s, bias=b),
        f(3, 4, 5, 5),
        f(4),
        f(4),
        tol=0.0001,
    ),
    case(
        "gnorm",
        lambda b, n, g, i: g.groupnormalization(i, 2)[0],
        lambda x, s, b: F.group_norm(x, 2, s, b),
        f(3, 4, 5, 5),
        f(4),
        f(4),
        tol=0.0001,
    ),
    case(
        "gnorm2d",
        lambda b, n, g, i: g.groupnormalization(i, 1)[0],
        lambda x, s, b: F.group_norm(x, 1, s, b),
        f(3, 4),
        f(4),
        f(4),
        tol=0.0001,
    ),
    case("lrn", lambda b, n, g, i: n.lrn(i, 3), lambda x: F.local_response_norm(x, 3), f(2, 6, 3, 3), tol=0.001),
    case("softmax1", lambda b, n, g, i: n.softmax(i), lambda a: a.flatten(1).softmax(1).reshape(a.shape), f(2, 3, 4)),
    case("softmax-1", lambda b, n, g, i: n.softmax(i, -1), lambda a: a.softmax(-1), f(2, 3, 4)),
    case(
        "softmax0",
        lambda b, n, g, i: n.softmax(i, 0),
        lambda a: a.flatten().softmax(0).reshape(a.shape),
        f(2, 3, 4),
        opset=11,
    ),
    case("l1", lambda b, n, g, i: g.l1loss(i, 0.1, popart.ReductionType.Mean), lambda a: 0.1 * a.abs().mean(), f(4, 3)),
    case("idl", lambda b, n, g, i: g.identityloss(i, popart.ReductionType.Mean), lambda a: a.mean(), f(4, 3)),
    case(
        "nll",
        lambda b, n, g, i: g.nllloss([n.softmax([i[0]]), i[1]], popart.ReductionType.Mean),
        lambda a, at: F.cross_entropy(a, at.long()),
        f(3, 4),
        LABELS,
    ),
    case(
        "nllign",
        lambda b, n, g, i: g.nllloss([n.softmax([i[0]]), i[1]], popart.ReductionType.Mean, ignoreIndex=0),
        lambda a, at: F.cross_entropy(a, at.long(), ignore_index=0),
        f(3, 4),
        LABELS,
    ),
    case(
        "nlllog",
        lambda b, n, g, i: g.nllloss(
            [n.logsoftmax([i[0]]), i[1]], popart.ReductionType.Sum, inputIsLogProbability=True
        ),
        lambda a, at: F.cross_entropy(a, at.long(), reduction="sum"),
        f(3, 4),
        LABELS,
    ),
    case(
        "nllno",
        lambda b, n, g, i: g.nllloss(
            [n.softmax([i[0]]), i[1]], popart.ReductionType.NoReduction, None, False, "lossname"
        ),
        lambda a, at: F.cross_entropy(a, at.long(), reduction="none"),
        f(3, 4),
        LABELS,
    ),
]


@pytest.mark.parametrize("one", CASES, ids=lambda c: c.name)
def test_agrees_with_torch(one):
    compare(one)
