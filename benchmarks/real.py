"""Rows of published models: an `InferenceSession` of ours beside the peers; `to_jax` where the session refuses."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import popart_jax as popart

from .engines import Call, onnxruntime_inference, onnxruntime_session, openvino_inference, session_call

CACHE = Path(tempfile.gettempdir()) / "popart_jax_models"


def real_rows() -> Iterator[tuple[str, Callable[[], Mapping[str, Call]]]]:
    """Rows by the name of the model, none where ONNX Runtime is missing."""
    try:
        from . import real_models
    except ImportError:
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    for model in real_models.PUBLISHED:
        yield f"real: {model.name}", partial(_published, model)
    for name, path, shapes in real_models.exported(CACHE):
        yield f"real: {name}", partial(_row, path, shapes)


def _published(model: Any) -> Mapping[str, Call]:
    from . import real_models

    return _row(real_models.find(model, CACHE), model.shapes)


def _row(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Call]:

    from .real_models import random_inputs

    session = onnxruntime_session(str(path))
    feed, output = random_inputs(session, shapes), session.get_outputs()[0].name
    calls = {"ours": _ours(path, output, feed), "onnxruntime": onnxruntime_inference(path, feed)}
    try:
        return calls | {"openvino": openvino_inference(path, feed)}
    except (ImportError, RuntimeError):  # not installed, or it refuses the model
        return calls


def _ours(path: Path, output: str, feed: Mapping[str, np.ndarray]) -> Call:
    try:
        return _session(path, output, feed)
    except (popart.popart_exception, RuntimeError):
        fn, params = popart.to_jax(path)
        infer = fn.with_weights(params)
        return lambda: np.asarray(infer(feed)[output])


def _session(path: Path, output: str, feed: Mapping[str, np.ndarray]) -> Call:
    shapes = popart.InputShapeInfo()
    for name, value in feed.items():
        shapes.add(name, popart.TensorInfo(value))
    call = session_call(path, output, feed, shapes)
    call()
    return call
