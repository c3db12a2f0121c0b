"""Comparing a trained one-operator program with PyTorch in float64: values, and gradients from the same gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from .tester import GRADIENT, run


@dataclass(frozen=True)
class Case:
    """A program ``(builder, ai.onnx, ai.graphcore, inputs) -> output`` and PyTorch's function of the same inputs."""

    name: str
    program: Callable[..., str]
    reference: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    opset: int = 10
    tol: float = 1e-4
    gradient: bool = True


def case(name: str, program: Callable[..., str], reference: Callable[..., Any], *inputs: Any, **more: Any) -> Case:
    """One row of a table of cases."""
    return Case(name, program, reference, inputs, **more)


def f(*shape: int) -> np.ndarray:
    """Normally distributed numbers, the same for the same shape."""
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def compare(one: Case) -> None:
    """Run the program and PyTorch, and compare the output and the gradients of all floating-point inputs."""
    torch = pytest.importorskip("torch")
    floating = [x.dtype.kind == "f" for x in one.inputs]

    def build(b: Any) -> list[str]:
        onnx = b.onnx(one.opset)
        names = [b.feed(x) for x in one.inputs]
        out = one.program(b, onnx, b.aiGraphcore, names)
        if not one.gradient:
            return [out]
        return [out, GRADIENT + out, *(GRADIENT + n for n, is_float in zip(names, floating, strict=True) if is_float)]

    out, *gradients = run(build, train=one.gradient)
    tensors = [torch.tensor(x.astype(np.float64) if fl else x) for x, fl in zip(one.inputs, floating, strict=True)]
    wanted_inputs = [t.requires_grad_() for t, fl in zip(tensors, floating, strict=True) if fl] if one.gradient else []
    wanted = one.reference(*tensors)
    np.testing.assert_allclose(out, wanted.detach().numpy(), rtol=one.tol, atol=one.tol)
    if not one.gradient:
        return
    wanted.backward(torch.tensor(gradients[0].astype(np.float64)).reshape(wanted.shape))
    for got, tensor in zip(gradients[1:], wanted_inputs, strict=True):
        expected = np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()
        np.testing.assert_allclose(got, expected, rtol=5 * one.tol, atol=5 * one.tol)
