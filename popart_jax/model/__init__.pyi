from .dtypes import element_type as element_type
from .files.load import load_proto as load_proto
from .tensor_info import info_of as info_of
