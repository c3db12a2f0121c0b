"""Plans for many chips: data, tensor and pipeline parallel, priced over links and gateways."""

from ipu_model.scaling.interconnect import Interconnect as Interconnect
from ipu_model.scaling.interconnect import Level as Level
from ipu_model.scaling.interconnect import interconnect_of as interconnect_of
from ipu_model.scaling.plan import Batches as Batches
from ipu_model.scaling.plan import Parts as Parts
from ipu_model.scaling.plan import Plan as Plan
from ipu_model.scaling.plan import Spread as Spread
from ipu_model.scaling.search import best_plans as best_plans
from ipu_model.scaling.search import single as single
from ipu_model.scaling.work import Block as Block
from ipu_model.scaling.work import Work as Work
