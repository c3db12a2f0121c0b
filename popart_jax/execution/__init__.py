"""What runs: steps as data, their compilation, arrays on devices; and the steps of PopART's sessions."""

from __future__ import annotations

from .batches import HYPER as HYPER
from .batches import step_of as step_of
from .compiled import Executable as Executable
from .compiled import Memory as Memory
from .compiled import compile_traced as compile_traced
from .compiled import trace as trace
from .program import Anchor as Anchor
from .program import Program as Program
from .program import Structure as Structure
from .program import Training as Training
from .program import Type as Type
from .program import Variable as Variable
from .step import Fed as Fed
from .step import Step as Step
