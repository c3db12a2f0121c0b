"""Layout and kernel choice, as rewrites of the session's own copy of the graph just before lowering."""

from __future__ import annotations

from .channels_last import channels_last as channels_last
from .compiler import compiler_options as compiler_options
from .dense import untranspose_weights as untranspose_weights
