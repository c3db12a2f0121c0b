# The names of this package and the modules they come from; __init__.py reads this file.

from .builder import Builder as Builder
from .contexts import AttributeContextManager as AttributeContextManager
from .contexts import KeyValueContextManager as KeyValueContextManager
from .contexts import NameContextManager as NameContextManager
from .core import _BuilderCore as _BuilderCore
from .operators import AiGraphcoreOpset1 as AiGraphcoreOpset1
from .operators import AiOnnxOpset6 as AiOnnxOpset6
from .operators import AiOnnxOpset7 as AiOnnxOpset7
from .operators import AiOnnxOpset8 as AiOnnxOpset8
from .operators import AiOnnxOpset9 as AiOnnxOpset9
from .operators import AiOnnxOpset10 as AiOnnxOpset10
from .operators import AiOnnxOpset11 as AiOnnxOpset11
from .opsets import AiGraphcore as AiGraphcore
from .opsets import AiOnnx as AiOnnx
from .opsets import AiOnnx6 as AiOnnx6
from .opsets import AiOnnx7 as AiOnnx7
from .opsets import AiOnnx8 as AiOnnx8
from .opsets import AiOnnx9 as AiOnnx9
from .opsets import AiOnnx10 as AiOnnx10
from .opsets import AiOnnx11 as AiOnnx11
from .opsets import AiOnnxMl as AiOnnxMl
from .versions import defaultAiGraphcoreOpset as defaultAiGraphcoreOpset
from .versions import defaultAiOnnxMlOpset as defaultAiOnnxMlOpset
from .versions import defaultAiOnnxOpset as defaultAiOnnxOpset
