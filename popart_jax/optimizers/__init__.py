"""PopART's optimizers: descriptions (public classes) and pure update rules (`rules/`)."""

from .adam import Adam as Adam
from .adaptive import Adaptive as Adaptive
from .as_optax import as_optax as as_optax
from .base import Optimizer as Optimizer
from .clip_norm import ClipNormSettings as ClipNormSettings
from .sgd import SGD as SGD
from .sgd import ConstSGD as ConstSGD
from .values import OptimizerValue as OptimizerValue
from .values import OptimizerValueMap as OptimizerValueMap
