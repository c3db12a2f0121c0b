# The names of this package and the modules they come from; __init__.py reads this file.

from . import nodes as nodes
from .facts import BatchSerialisation as BatchSerialisation
from .facts import ClipGroup as ClipGroup
from .facts import IrFacts as IrFacts
from .facts import Location as Location
from .facts import OptimizerFacts as OptimizerFacts
from .facts import ViewOptions as ViewOptions
from .loss_scaling import TrackedGradient as TrackedGradient
from .needed_patterns import may_be_unlowered as may_be_unlowered
from .queries import batch_dimensions as batch_dimensions
from .queries import check_batch as check_batch
from .queries import computed_again as computed_again
from .queries import misplaced as misplaced
from .queries import serialize_forward as serialize_forward
from .queries import serialize_ir as serialize_ir
from .queries import serialize_stages as serialize_stages
from .queries import tensor_types as tensor_types
from .queries import tracked_gradients as tracked_gradients
from .queries import unlowered as unlowered
from .view import CHECKPOINTS as CHECKPOINTS
from .view import View as View
from .view import build as build
