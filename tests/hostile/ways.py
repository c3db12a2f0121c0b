"""The ways into the package, and the judges: each takes a case and gives its outputs, or raises."""

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
    """The model as a program would hand it over."""
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
    from popart_jax.model.load import read

    data = source.SerializeToString() if isinstance(source, onnx.ModelProto) else source
    data = str(data) if isinstance(data, Path) else data
    names = [v.name or "" for v in read(data).graph.outputs] if not isinstance(data, str) else ["y"]
    flow = popart.DataFlow(1, {n: popart.AnchorReturnType("All") for n in names})
    made = popart.InferenceSession(data, flow, popart.DeviceManager().createCpuDevice())
    made.prepareDevice()
    anchors = made.initAnchorArrays()
    made.run(popart.PyStepIO(feeds, anchors))
    return dict(anchors)


class Refused(Exception):
    """The command ended with a sentence."""


def command(source: Source, feeds: Mapping[str, Any]) -> Outputs:
    """`python -m popart_jax run`."""
    from popart_jax.__main__ import main

    with tempfile.TemporaryDirectory() as made:
        folder, path = Path(made), source
        if not isinstance(source, Path):
            path = folder / "m.onnx"
            path.write_bytes(source if isinstance(source, bytes) else source.SerializeToString())
        given = []
        for i, (name, x) in enumerate(feeds.items()):
            file = folder / f"{i}.npy"
            array = np.asarray(x)
            np.save(file, array.astype(str) if array.dtype == object else array, allow_pickle=False)
            given += ["--input", f"{name}={file}"]
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            try:
                code = main(["run", str(path), *given, "--output-dir", str(folder / "out")])
            except SystemExit as end:
                code = end.code
        if code:
            raise Refused(told.getvalue())
        return {f.stem: np.load(f) for f in (folder / "out").glob("*.npy")}


WAYS: dict[str, Callable[[Source, Mapping[str, Any]], Outputs]] = {
    "to_jax": function,
    "jit": jitted,
    "backend": backend,
    "session": session,
    "run": command,
}


class NoKernel(Exception):
    """A judge can't say: it has no kernel for this."""


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
    onnx.checker.check_model(proto)
    fed = {n: np.asarray(x) if not isinstance(x, list) else x for n, x in feeds.items()}
    found = ReferenceEvaluator(proto).run(None, fed)
    return dict(zip([o.name for o in proto.graph.output], found, strict=True))


def _given(source: Source) -> bytes | str:
    if isinstance(source, (bytes, Path)):
        return source if isinstance(source, bytes) else str(source)
    return source.SerializeToString()
