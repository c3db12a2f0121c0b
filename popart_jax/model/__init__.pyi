from .files.load import load_proto as load_proto
from .tensor_info import info_of as info_of
