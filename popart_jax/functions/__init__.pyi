from .function import OnnxFunction as OnnxFunction
from .function import to_jax as to_jax
from .saving import save as save
