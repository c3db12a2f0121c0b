"""The step program of a session: batches, accumulation, replicas, anchors, compilation."""

from __future__ import annotations

from .compiled import Executable as Executable
from .compiled import trace as trace
from .program import Anchor as Anchor
from .program import Program as Program
from .program import Structure as Structure
from .program import Training as Training
from .program import Type as Type
from .program import Variable as Variable
