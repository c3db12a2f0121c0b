"""`popart._internal.ir.transforms`."""

from ..enums import AutodiffStitchStrategy as AutodiffStitchStrategy
from ..transforms import Autodiff as Autodiff
from ..transforms import DecomposeSum as DecomposeSum
from ..transforms import MergeExchange as MergeExchange
from ..transforms import Prune as Prune
from ..transforms import Transform as Transform
