"""Operator translations: one table, one module per operator family."""

from .._process import _with_jax as _with_jax
from .custom import custom_op as custom_op
from .operator import ZERO_GRADIENT as ZERO_GRADIENT
from .operator import Gradient as Gradient
from .operator import Operator as Operator
from .operator import Trait as Trait
from .operator import gradient as gradient
from .operator import operator as operator
from .options import OperatorOptions as OperatorOptions
from .registry import Context as Context
from .registry import Key as Key
from .registry import Lowering as Lowering
from .registry import NodeRef as NodeRef
from .registry import Opset as Opset
from .registry import Options as Options
from .registry import OutputCount as OutputCount
from .registry import Static as Static
from .registry import Subgraph as Subgraph
from .registry import Training as Training
from .registry import direct as direct
from .registry import facts as facts
from .registry import lowers as lowers
from .registry import operators as operators
from .registry import resolve as resolve
from .registry import resolve_node as resolve_node
from .registry import table as table
