"""Graph rewrites on onnx_ir, named and levelled as in PopART.

Add one: write a function of (node, context) in a module of `families`, decorate it with `rewrites`, and give the name
a row with `catalogue.declare` if PopART does not have it. Packages outside use the entry point group
`popart_jax.patterns`.
"""

from . import catalogue as catalogue
from . import families as families
from . import passes as passes
from ._apply import apply as apply
from ._attributes import make_node as make_node
from ._context import Context as Context
from ._context import static_shape as static_shape
from ._core import ANY_OP as ANY_OP
from ._core import Fused as Fused
from ._core import Outcome as Outcome
from ._core import PatternError as PatternError
from ._core import Refused as Refused
from ._core import Renamed as Renamed
from ._core import Rule as Rule
from ._core import rewrites as rewrites
from ._plugins import load_plugins as load_plugins
from ._sweep import Entry as Entry
from ._sweep import SweepLimitError as SweepLimitError
from ._sweep import SweepLog as SweepLog
from ._sweep import sweep as sweep
from .catalogue import LEVELS as LEVELS
from .catalogue import Level as Level
from .catalogue import Row as Row
from .catalogue import declare as declare
from .inplace import make_inplace as make_inplace
from .operators import GRAPHCORE as GRAPHCORE
from .operators import Mode as Mode
from .operators import OperatorFacts as OperatorFacts
from .operators import Operators as Operators
from .passes import remove_unused as remove_unused
from .selection import PatternSelectionError as PatternSelectionError
from .selection import PatternSet as PatternSet
from .selection import added_rules as added_rules
from .selection import at_level as at_level
from .selection import check_mandatory as check_mandatory
from .selection import from_names as from_names
from .selection import knows_own_alone as knows_own_alone
from .selection import require_known as require_known
from .selection import rules_of as rules_of
from .selection import with_pattern as with_pattern
