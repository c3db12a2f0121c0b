"""Texts of errors that programs match on."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops

SPEC = popxl.TensorSpec((2, 3), popxl.float32)


class Square(addons.Module):
    """w * x^2 with a gradient of its own; `gradients` says what build_grad does."""

    def __init__(self, gradients=None, **kwargs):
        super().__init__(**kwargs)
        self.gradients = gradients

    def build(self, x):
        w = self.add_variable_input("w", partial(np.ones, (3,)), x.dtype)
        self.aux["x"], self.aux["w"] = x, w
        return x * x * w

    def build_grad(self, dy):
        if self.gradients is not None:
            return self.gradients(self, dy)
        x, w = self.aux["x"], self.aux["w"]
        self.var_grad["w"] = ops.sum(dy * x * x, 0)
        return dy * 2.0 * x * w


class Variadic(Square):
    def build_grad(self, *dys):
        return dys


class Plain(addons.Module):
    def build(self, x):
        return x + 1.0


def _set(key, value):
    def gradients(self, dy):
        self.var_grad[key] = value(dy)
        return dy

    return gradients


def _returns(count):
    def gradients(self, dy):
        self.var_grad["w"] = ops.sum(dy, 0)
        return [dy] * count

    return gradients


def _mis_shaped(self, dy):
    self.var_grad["w"] = ops.sum(dy, 0)
    return ops.sum(dy)


@pytest.mark.parametrize(
    ("gradients", "error", "text"),
    [
        (_set("w", lambda dy: 1.0), TypeError, "Not a tensor"),
        (_set("v", lambda dy: dy), KeyError, "Not a variable"),
        (_set("w", lambda dy: dy), ValueError, "Shape or meta-shape of Tensor does not match variable."),
        (lambda self, dy: dy, Exception, "Not all variable gradients have been specified"),
        (_returns(2), Exception, "Too many outputs in the grad graph"),
        (_returns(0), Exception, "Not all forward graph inputs have been specified"),
        (_mis_shaped, ValueError, "Shape or meta-shape of output Tensor at position 0"),
    ],
)
def test_a_gradient_written_by_hand_is_checked(gradients, error, text):
    with popxl.Ir().main_graph:
        _, graph = Square(gradients).create_graph(SPEC)
        with pytest.raises(error) as caught:
            graph.autodiff()
    assert text in str(caught.value)


def test_variadic_gradients_are_refused():
    with popxl.Ir().main_graph, pytest.raises(TypeError, match=r"fixed number of positional parameters as inputs\."):
        Variadic().create_graph(SPEC)[1].autodiff()


def test_tensors_of_other_graphs_are_no_gradients():
    with popxl.Ir().main_graph:
        foreign = popxl.variable(np.ones((2, 3), np.float32))
        _, graph = Square().create_graph(SPEC)
        with pytest.raises(ValueError, match="`grads_provided` is not a output of `fwd_graph`"):
            graph.autodiff(grads_provided=[foreign])
        with pytest.raises(ValueError, match="`grads_required` is not a input of `fwd_graph`"):
            graph.autodiff(grads_required=[foreign], force=True)


def test_saved_values_and_gradients_belong_to_build_grad():
    module = Square()
    with pytest.raises(Exception, match="get items within the `build_graph`"):
        module.aux["x"]
    for act in (lambda: module.var_grad["w"], lambda: module.var_grad.__setitem__("w", 1)):
        with pytest.raises(Exception, match=" within the `build_graph` method"):
            act()


def test_differentiating_once_and_by_what():
    with popxl.Ir().main_graph:
        _, graph = Plain().create_graph(SPEC)
        graph.autodiff()
        with pytest.raises(Exception, match="Autodiff has already been applied"):
            graph.autodiff()
        graph.autodiff(force=True)
        with pytest.raises(Exception, match="`from_module` is specified"):
            graph.autodiff(method="build_grad", force=True)  # type: ignore[arg-type]


def test_what_a_module_with_its_own_gradient_cannot_be():
    with pytest.raises(ValueError, match="grad_inlining_error should be one of"):
        Plain(grad_inlining_error="perhaps")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="You cannot use graph caching if you have implemented `build_grad`"):
        Square(cache=True)
    with popxl.Ir().main_graph:
        x = popxl.variable(np.ones((2, 3), np.float32))
        with pytest.raises(Exception, match="`build_grad` has been implemented"):
            Square()(x)
        with pytest.warns(UserWarning, match="`build_grad` has been implemented"):
            Square(grad_inlining_error="warning")(x)


def test_modules_are_assigned_after_the_base_was_set_up():
    class Early(addons.Module):
        def __init__(self):
            self.inner = Plain()

    with popxl.Ir().main_graph, pytest.raises(AttributeError, match=r"Early: call super\(\).__init__\(\) before"):
        Early()
