"""Work of a session's constructor: it makes a step program from model, options and optimizer."""

from ..._process import _with_jax as _with_jax
from .prepared import Prepared as Prepared
from .prepared import prepare as prepare
