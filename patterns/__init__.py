"""Graph rewrites on onnx_ir, named and levelled as in PopART.

Add one: write a function of (node, context) in a module of `families`, decorate it with `rewrites`, and give the name
a row with `catalogue.declare` if PopART does not have it. Packages outside use the entry point group
`popart_jax.patterns`.
"""

from . import catalogue, families, passes
from ._apply import apply
from ._attributes import make_node
from ._context import Context, static_shape
from ._core import ANY_OP, Fused, Outcome, PatternError, Refused, Renamed, Rule, rewrites
from ._plugins import load_plugins
from ._sweep import Entry, SweepLimitError, SweepLog, sweep
from .catalogue import LEVELS, Level, Row, declare
from .inplace import make_inplace
from .operators import GRAPHCORE, Mode, OperatorFacts, Operators
from .passes import remove_unused
from .selection import (
    PatternSelectionError,
    PatternSet,
    added_rules,
    at_level,
    check_mandatory,
    from_names,
    knows_own_alone,
    require_known,
    rules_of,
    with_pattern,
)

__all__ = [
    "ANY_OP",
    "GRAPHCORE",
    "LEVELS",
    "Context",
    "Entry",
    "Fused",
    "Level",
    "Mode",
    "OperatorFacts",
    "Operators",
    "Outcome",
    "PatternError",
    "PatternSelectionError",
    "PatternSet",
    "Refused",
    "Renamed",
    "Row",
    "Rule",
    "SweepLimitError",
    "SweepLog",
    "added_rules",
    "apply",
    "at_level",
    "catalogue",
    "check_mandatory",
    "declare",
    "families",
    "from_names",
    "knows_own_alone",
    "load_plugins",
    "make_inplace",
    "make_node",
    "passes",
    "remove_unused",
    "require_known",
    "rewrites",
    "rules_of",
    "static_shape",
    "sweep",
    "with_pattern",
]
