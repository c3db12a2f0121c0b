from .checkpoints import load_checkpoint as load_checkpoint
from .checkpoints import save_checkpoint as save_checkpoint
from .function import OnnxFunction as OnnxFunction
from .loading import to_jax as to_jax
from .saving import save as save
