"""The walk: turns a jaxpr into a linear program of steps, with loops, calls and branches as frames around them."""

from ipu_model.walk.program import Carry, Frame, Op, Program, Step, Tensor, Value, tensor
from ipu_model.walk.walker import walk

__all__ = ["Carry", "Frame", "Op", "Program", "Step", "Tensor", "Value", "tensor", "walk"]
