"""The rewrites, by family. Importing this package registers all of them."""

from . import conv as conv
from . import fold_norm as fold_norm
from . import gradients as gradients
from . import identity as identity
from . import loops as loops
from . import loss as loss
from . import matmul as matmul
from . import movement as movement
from . import onnx_forms as onnx_forms
from . import recurrent as recurrent
from . import sums as sums
from . import tied_gather as tied_gather
