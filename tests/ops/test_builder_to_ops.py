"""Every public ai.graphcore builder method makes a node that its translation takes."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from popart_jax import builder as builder_package
from popart_jax.lowering import Settings, evaluate
from popart_jax.model.files.load import load

Builder = builder_package.Builder
rng = np.random.default_rng(2)


def f32(*shape):
    return rng.normal(size=shape).astype(np.float32)


def u32(*values):
    return np.array(values, np.uint32)


def i32(*values):
    return np.array(values, np.int32)


X, OFFSET = f32(4, 6), u32(1)
PROBS = np.full((4, 6), 1 / 6, np.float32)
LOG_PROBS = np.log(np.full((5, 2, 3), 1 / 3, np.float32))

CASES = {
    "abort": ([i32(0)], {}, None),
    "atan2": ([X, X], {}, (4, 6)),
    "batchnormalization": ([f32(2, 3, 4), f32(3), f32(3), f32(3), abs(f32(3))], {"num_outputs": 5}, (2, 3, 4)),
    "bitwiseand": ([i32(5, 3), i32(1, 2)], {}, (2,)),
    "bitwisenot": ([i32(5, 3)], {}, (2,)),
    "bitwiseor": ([i32(5, 3), i32(1, 2)], {}, (2,)),
    "bitwisexnor": ([i32(5, 3), i32(1, 2)], {}, (2,)),
    "bitwisexor": ([i32(5, 3), i32(1, 2)], {}, (2,)),
    "bucketize": ([X, np.array([0.0, 1.0], np.float32)], {}, (4, 6)),
    "copyvarupdate": ([X, X], {}, (4, 6)),
    "ctcbeamsearchdecoder": ([LOG_PROBS, u32(5, 4)], {"beam_width": 4, "top_paths": 2, "blank": 0}, (2, 2)),
    "ctcloss": ([LOG_PROBS, np.ones((2, 2), np.uint32), u32(5, 4), u32(2, 1)], {}, ()),
    "depthtospace": ([f32(1, 8, 2, 2)], {"blocksize": 2, "mode": "CRD"}, (1, 2, 4, 4)),
    "detach": ([X], {}, (4, 6)),
    "dynamicadd": ([X, OFFSET, f32(2, 6)], {"axes": [0], "sizes": [2]}, (4, 6)),
    "dynamicslice": ([X, OFFSET], {"axes": [0], "sizes": [2]}, (2, 6)),
    "dynamicupdate": ([X, OFFSET, f32(2, 6)], {"axes": [0], "sizes": [2]}, (4, 6)),
    "dynamiczero": ([X, OFFSET], {"axes": [0], "sizes": [2]}, (4, 6)),
    "expm1": ([X], {}, (4, 6)),
    "fmod": ([X, X], {}, (4, 6)),
    "gelu": ([X], {}, (4, 6)),
    "geluerf": ([X], {}, (4, 6)),
    "groupedgather": ([f32(2, 4, 3), np.zeros((2, 5), np.int32)], {"axis": 1, "group_size": 2}, (2, 5, 3)),
    "groupedscatterreduce": (
        [f32(2, 4, 3), np.zeros((2, 4, 3), np.int32)], {"axis_size": 5, "axis": 1, "group_size": 2}, (2, 5, 3),
    ),
    "groupnormalization": ([f32(2, 4, 3), f32(4), f32(4)], {"num_groups": 2}, (2, 4, 3)),
    "identityloss": ([X], {}, ()),
    "incrementmod": ([X], {"increment": 1.0, "modulus": 3.0}, (4, 6)),
    "init": ([], {"shape": [2, 3], "data_type": 11, "init_type": 1, "batch_axis": -1}, (2, 3)),
    "l1loss": ([X], {"lambda": 0.5}, ()),
    "log1p": ([abs(X)], {}, (4, 6)),
    "lstm": ([f32(5, 2, 3), f32(4, 7, 4), f32(4, 4)], {"outputFullSequence": 0}, (2, 4)),
    "multiconv": ([[f32(1, 2, 5), f32(3, 2, 2)], [f32(1, 2, 5, 5), f32(4, 1, 2, 2)]], {}, (1, 3, 4)),
    "nearbyint": ([X], {}, (4, 6)),
    "nllloss": ([PROBS, i32(0, 1, 2, 3)], {"ignoreIndex": 2}, ()),
    "nop": ([X], {}, (4, 6)),
    "normalize_image": ([f32(2, 2, 3), f32(3), f32(3)], {"scale": 2.0}, (2, 2, 4)),
    "printtensor": ([X], {}, (4, 6)),
    "reducemedian": ([X], {"axes": [1], "keepdims": 0}, (4,)),
    "remainder": ([X, X], {}, (4, 6)),
    "replicatedallreduce": ([X], {}, (4, 6)),
    "replicatedreducescatter": ([X], {}, (24,)),
    "reshape": ([X], {"shape": [-1, 3]}, (8, 3)),
    "reverse": ([X], {"dimensions": [1]}, (4, 6)),
    "round": ([X], {}, (4, 6)),
    "scale": ([X], {"scale": 2.0}, (4, 6)),
    "scaledadd": ([X, X], {"scale0": 0.5}, (4, 6)),
    "scatterreduce": ([X, np.zeros((4, 6), np.int32)], {"axis_size": 3, "axis": 0}, (3, 6)),
    "sequenceslice": ([X, X, u32(2), u32(0), u32(1)], {"zeroUnused": 1}, (4, 6)),
    "shapeddropout": ([X], {"shape": [4, 1], "ratio": 0.5}, (4, 6)),
    "slice": ([X], {"starts": [1], "ends": [3], "axes": [0]}, (2, 6)),
    "sort": ([X], {"axis": 1}, (4, 6)),
    "splinebasis": ([abs(np.sin(f32(4, 2))), i32(3, 3), np.array([1, 0], np.uint8)], {"degree": 1}, (4, 4)),
    "splineweighting": ([f32(4, 3), f32(9, 3, 2), f32(4, 2), np.zeros((4, 2), np.int32)], {}, (4, 2)),
    "subsample": ([X], {"strides": [2, 3]}, (2, 2)),
    "swish": ([X], {}, (4, 6)),
    "tensorremap": ([X], {"remap_type": 1}, (4, 6)),
}  # fmt: skip


def declared(builder, value):
    from popart_jax import TensorInfo

    kinds = {"float32": "FLOAT", "int32": "INT32", "uint32": "UINT32", "uint8": "UINT8"}
    return builder.addInputTensor(TensorInfo(kinds[str(value.dtype)], list(value.shape)))


@pytest.mark.parametrize("name", CASES)
def test_builder_method(name):
    operands, arguments, shape = CASES[name]
    builder = Builder()
    nested = bool(operands) and isinstance(operands[0], list)
    flat = [x for group in operands for x in group] if nested else operands
    names = [declared(builder, x) for x in flat]
    if name == "copyvarupdate":
        names[0] = builder.addInitializedInputTensor(flat[0])
    args = [names[:2], names[2:]] if nested else names[0] if name == "reshape" else names
    method = getattr(builder.aiGraphcore, name)
    made = method(**arguments) if name == "init" else method(args, **arguments)
    outputs = [made] if isinstance(made, str) else list(made or [])
    for output in outputs:
        builder.addOutputTensor(output)
    model = load(builder.getModelProto())
    settings = Settings(dict(model.opset_imports), popart=True, training=True, key=jax.random.key(0))
    fed = dict(zip(names, map(jax.numpy.asarray, flat), strict=True))
    found = evaluate(model.graph, fed, outputs, settings)
    assert shape is None or found[outputs[0]].shape == shape
    for output in outputs if name != "replicatedreducescatter" else ():  # its shape depends on the replicas
        assert list(found[output].shape) == list(builder.getTensorShape(output)), output


def test_every_public_method_is_covered():
    known = {m for m in dir(Builder().aiGraphcore) if not m.startswith("_")}
    missing = known - set(CASES) - {"call", "packedDataBlock", "domain", "version", "builder"}
    assert not {m for m in missing if callable(getattr(Builder().aiGraphcore, m))}
