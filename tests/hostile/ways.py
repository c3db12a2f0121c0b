"""The entry points ("ways") of the package, and the reference engines ("judges"): each runs a case, or raises."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from .build import Case

Source = Any
Outputs = dict[str, Any]


def source_of(case: Case, folder: Path) -> Source:
    """The model of a case in the form that a program would pass."""
    return case.model(folder) if callable(case.model) else case.model


def feeds_of(case: Case) -> Mapping[str, Any]:
    """The feeds; arrays of other libraries are made here."""
    made = dict(case.feeds)
    for name, x in made.items():
        if isinstance(x, str) and x in ("jax", "torch"):
            numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
            if x == "jax":
                import jax.numpy as jnp

                made[name] = jnp.asarray(numbers)
            else:
                import torch

                made[name] = torch.from_numpy(numbers)
    return made


def function(source: Source, feeds: Mapping[str, Any]) -> Outputs:
    """`to_jax`, called."""
    from popart_jax import to_jax

    fn, params = to_jax(source)
    return dict(fn(params, feeds))


def jitted(source: Source, feeds: Mapping[str, Any]) -> Outputs:
    """`to_jax`, compiled."""
    from popart_jax import to_jax

    fn, params = to_jax(source)
    return dict(fn.jit(params, feeds))


def backend(source: Source, feeds: Mapping[str, Any]) -> Outputs:
    """The ONNX backend."""
    from popart_jax import backend as ours

    made = ours.prepare(source)
    return dict(zip(made.outputs, made.run(feeds), strict=True))


def session(source: Source, feeds: Mapping[str, Any]) -> Outputs:
    """An inference session, as a program of PopART's makes one."""
    import popart_jax as popart
    from popart_jax.model.files.load import read

    data = source.SerializeToString() if isinstance(source, onnx.ModelProto) else source
    data = str(data) if isinstance(data, Path) else data
    names = [v.name or "" for v in read(data).graph.outputs] if not isinstance(data, str) else ["y"]
    flow = popart.DataFlow(1, {n: popart.AnchorReturnType("All") for n in names})
    made = popart.InferenceSession(data, flow, popart.DeviceManager().createCpuDevice())
    made.prepareDevice()
    anchors = made.initAnchorArrays()
    made.run(_step_io(feeds, anchors))
    return dict(anchors)


def _step_io(feeds: Mapping[str, Any], anchors: Any) -> Any:
    """Step IO of the feeds; as in PopART, a non-array is a TypeError, and names that are no text are ignored."""
    import popart_jax as popart

    try:
        return popart.PyStepIO(feeds, anchors)
    except TypeError as err:
        raise Refused(str(err)) from err


def training(source: Source, feeds: Mapping[str, Any]) -> Outputs:
    """A training session, a loss of the first output added."""
    import popart_jax as popart
    from popart_jax.model.files.load import load_proto

    proto = onnx.ModelProto()
    proto.CopyFrom(load_proto(source))
    ends = [o.name for o in proto.graph.output]
    if not ends or not isinstance(ends[0], str):
        raise Refused(f"no loss of what has no name: {ends[:1]}")
    loss = onnx.helper.make_node(
        "L1", ends[:1], ["the_loss"], domain="ai.graphcore", reduction="Mean", **{"lambda": 0.1}
    )
    proto.graph.node.append(loss)
    proto.graph.output.add(name="the_loss")
    if "ai.graphcore" not in [e.domain for e in proto.opset_import]:
        proto.opset_import.add(domain="ai.graphcore", version=1)
    flow = popart.DataFlow(1, {"the_loss": popart.AnchorReturnType("All")})
    made = popart.TrainingSession(
        proto.SerializeToString(), flow, "the_loss", popart.ConstSGD(0.01), popart.DeviceManager().createCpuDevice()
    )
    made.prepareDevice()
    made.run(_step_io(feeds, made.initAnchorArrays()))
    return {}


class Refused(Exception):
    """The command refused the model with a message."""


def command(source: Source, feeds: Mapping[str, Any]) -> Outputs:
    """`python -m popart_jax run`."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        given = []
        for i, (name, x) in enumerate(feeds.items()):
            file = folder / f"{i}.npy"
            np.save(file, _storable(name, x), allow_pickle=False)
            given.append(f"--input={name}={file}")
        _command("run", source, folder, *given, "--output-dir", str(folder / "out"))
        return {f.stem: np.load(f) for f in (folder / "out").glob("*.npy")}


def _storable(name: str, x: Any) -> np.ndarray:
    """An array in a form that NumPy's files can hold: texts for objects, raw bytes for types unknown to NumPy."""
    try:
        array = np.asarray(x)
        array = array.astype(str) if array.dtype.kind in "OT" else array
    except Exception as err:
        raise Refused(f"no file holds {name}: {err}") from err
    if array.dtype.type.__module__ == "ml_dtypes":
        return np.ascontiguousarray(array).view(f"V{array.dtype.itemsize}").reshape(array.shape)
    return array


def inspect(source: Source, _feeds: Mapping[str, Any]) -> Outputs:
    """`python -m popart_jax inspect`."""
    with tempfile.TemporaryDirectory() as made:
        _command("inspect", source, Path(made), "--tree")
    return {}


def _command(name: str, source: Source, folder: Path, *given: str) -> None:
    from popart_jax.__main__ import main

    path = source
    if not isinstance(source, Path):
        path = folder / "m.onnx"
        path.write_bytes(source if isinstance(source, bytes) else source.SerializeToString())
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            code = main([name, str(path), *given])
        except SystemExit as end:
            code = end.code
    if code and (name, code) != ("inspect", 1):  # an operator that is not known
        raise Refused(told.getvalue())


WAYS: dict[str, Callable[[Source, Mapping[str, Any]], Outputs]] = {
    "to_jax": function,
    "jit": jitted,
    "backend": backend,
    "session": session,
    "run": command,
    "inspect": inspect,
    "training": training,
}
BESIDE = ("inspect", "training")
"""Entry points that return no outputs of the model, and may refuse models that others accept."""


class NoKernel(Exception):
    """The reference engine has no kernel for this case."""


_NO_KERNEL = ("NOT_IMPLEMENTED", "Type Error", "is not in the", "no kernel", "INVALID_GRAPH")


def runtime(source: Source, feeds: Mapping[str, Any]) -> Outputs:
    """ONNX Runtime; ONNX's own evaluator for what it has no kernel for."""
    try:
        return runtime_alone(source, feeds)
    except NoKernel:
        return evaluator(source, feeds)


def runtime_alone(source: Source, feeds: Mapping[str, Any]) -> Outputs:
    """ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    fed = {n: np.asarray(x) if not isinstance(x, list) else x for n, x in feeds.items()}
    try:
        made = onnxruntime.InferenceSession(_given(source), options, providers=["CPUExecutionProvider"])
        return dict(zip([o.name for o in made.get_outputs()], made.run(None, fed), strict=True))
    except Exception as err:
        if any(word in str(err) for word in _NO_KERNEL):
            raise NoKernel(str(err)) from err
        raise


def evaluator(source: Source, feeds: Mapping[str, Any]) -> Outputs:
    """ONNX's own evaluator, of what its checker passes."""
    from onnx.reference import ReferenceEvaluator

    given = _given(source)
    proto = onnx.load_model_from_string(given) if isinstance(given, bytes) else onnx.load(given)
    checked = onnx.ModelProto()
    checked.CopyFrom(proto)
    for output in checked.graph.output:  # the checker requires output types, the evaluator does not
        if not output.HasField("type"):
            output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
            output.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(checked)
    fed = {n: np.asarray(x) if not isinstance(x, list) else x for n, x in feeds.items()}
    found = ReferenceEvaluator(proto).run(None, fed)
    return dict(zip([o.name for o in proto.graph.output], found, strict=True))


def _given(source: Source) -> bytes | str:
    if isinstance(source, (bytes, Path)):
        return source if isinstance(source, bytes) else str(source)
    return source.SerializeToString()
