"""Compute sets in the summary: products that outlining makes one share a path. Source: the specification, 5.4."""

from __future__ import annotations

import re

import pytest

import popart_jax as popart

from .nets import device, flow, make_options


def matmuls(builder, left, right):
    given = [builder.addInputTensor(popart.TensorInfo("FLOAT", shape)) for shape in (left, right, left, right)]
    return given, builder.aiOnnx.add([builder.aiOnnx.matmul(given[:2]), builder.aiOnnx.matmul(given[2:])])


def convolutions(builder, *_):
    given = [builder.addInputTensor(popart.TensorInfo("FLOAT", s)) for s in ([1, 2, 5, 4], [2, 2, 3, 3])]
    place = {"dilations": [1, 1], "pads": [1, 1, 1, 1], "strides": [1, 1]}
    return given, builder.aiOnnx.conv([builder.aiOnnx.conv(given, **place), given[1]], **place)


def computed(network, *shapes, training=True, anchored=True, **options):
    """Paths of the compute sets of products; the result is read by the host, or by the loss alone."""
    builder = popart.Builder()
    given, out = network(builder, *shapes)
    settings = make_options(reportOptions={"showExecutionSteps": "true"}, **options)
    if training:
        loss = builder.aiGraphcore.identityloss([out])
        anchors = dict.fromkeys([f"Gradient___{name}" for name in given] + [out] * anchored, "All")
        session = popart.TrainingSession(
            builder.getModelProto(), flow(1, anchors), loss, popart.ConstSGD(0.1), device(), userOptions=settings
        )
    else:
        builder.addOutputTensor(out)
        session = popart.InferenceSession(
            builder.getModelProto(), flow(1, {out: "All"}), device(), userOptions=settings
        )
    session.prepareDevice()
    return set(re.findall(r"OnTileExecute: (.*(?:Conv_1|Conv_\dx\d)/Convolve)", session.getSummaryReport()))


@pytest.mark.parametrize(
    ("shapes", "options", "count"),
    [
        (([2, 3], [3, 4]), {"training": False}, 1),
        (([2, 3], [3, 4]), {"training": False, "enableOutlining": False}, 2),
        (([2, 3], [3, 4]), {}, 3),  # forward, and one gradient for either side
        (([2, 3], [3, 4]), {"anchored": False}, 2),  # the gradients do not read the result: PopART prunes the products
        (([2, 2], [2, 2]), {}, 3),  # by the pass of a dense layer
        (([2, 2], [2, 2]), {"enableFullyConnectedPass": False}, 1),
        (([2, 2], [2, 2]), {"enableFullyConnectedPass": False, "enableOutlining": False}, 6),
    ],
)
def test_products(shapes, options, count):
    paths = computed(matmuls, *shapes, **options)
    assert len(paths) == count
    assert all(path.endswith("/matmulGrouped/Conv_1/Convolve") for path in paths)


@pytest.mark.parametrize(("outlining", "convolved", "updates"), [(True, 1, 1), (False, 4, 2)])
def test_convolutions(outlining, convolved, updates):
    """A data gradient is a convolution like the forward one; a weight gradient has the gradient's size as window."""
    paths = computed(convolutions, enableOutlining=outlining)
    assert sum(path.endswith("/convolution/Conv_3x3/Convolve") for path in paths) == convolved
    assert sum(path.endswith("/weightDeltas/Conv_5x4/Convolve") for path in paths) == updates
