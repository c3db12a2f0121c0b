"""Gradient operators of `onnx_ir` graphs: planning them, the tensors that they read, and adding them to a graph."""

from .grow import NAME as NAME
from .grow import Gradients as Gradients
from .grow import Step as Step
from .grow import grow as grow
from .grow import is_float as is_float
from .grow import plan as plan
from .grow import steps_of as steps_of
from .reads import forward_places as forward_places
from .reads import forward_reads as forward_reads
from .reads import tokens as tokens
