"""`popart._internal.ir.patterns`."""

from ..patterns import Pattern as Pattern
from ..patterns import Patterns as Patterns
from ..patterns import PatternsLevel as PatternsLevel
