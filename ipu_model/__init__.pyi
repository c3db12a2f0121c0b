# The names of this package and the modules they come from; __init__.py reads this file.

from . import target as target
from .options import ModelOptions as ModelOptions
from .placement import Argument as Argument
from .placement import Location as Location
from .placement import NodePlacement as NodePlacement
from .placement import Placement as Placement
from .profiling import cycles as cycles
from .profiling import profile as profile
from .profiling import profile_jaxpr as profile_jaxpr
from .profiling import trace as trace
from .report.report import Report as Report
from .searching import Found as Found
from .searching import search as search
from .target import Target as Target
from .target import get_target as get_target
